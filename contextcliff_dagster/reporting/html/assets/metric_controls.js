// Which metrics are shown and how: panels, switches, hints.
{
  const data = JSON.parse(document.getElementById("data").textContent);
  const box = document.getElementById("panels"), shown = document.getElementById("shown");
  const metrics = new Map(data.metrics.map((metric) => [metric.key, metric]));
  const state = {
    layout: "one", keys: [...data.first], lines: new Set(data.lines.keys()), axis: "log", rounds: null,
    inverted: new Set(data.metrics.filter((metric) => metric.inverted).map((metric) => metric.key)),
    bars: true, author: true, smooth: false, trend: false,
  };
  let panels = [], width = 0;

  const isMeasured = (key) => data.lines.some((_, row) => figuresOf(data, row, key));

  function hintWords(key, { row, place }) {
    const line = data.lines[row], own = figuresOf(data, row, key), trend = state.trend && trendOf(data, row, key);
    const author = data.authors.find(({ line: of, figures }) => figures[key] && (of === null || of === row));
    const said = [
      `${whole(line.sizes[place])} tokens of context`,
      `${metrics.get(key).name} ${own.words[place]}`,
      own.count[place],
      author && !metrics.get(key).labels.length ? `the author: ${tickWords(Number(author.figures[key][0].toPrecision(3)))}` : "",
      trend ? `trend: ${signed(trend.slope)} a doubling` : "",
      ...line.about,
    ];
    return [tag("strong", {}, chip(row), ` ${line.name}`), ...said.filter(Boolean).map((words) => tag("span", {}, words))];
  }

  function makePanel(place) {
    const figure = document.getElementById("figure").content.firstElementChild.cloneNode(true);
    const invert = tag("button", { type: "button", class: "invert" }, "Invert");
    const panel = { key: "", figure, invert, slopes: tag("p", { class: "slopes" }), width: 0 };
    let head = tag("h3", {});
    if (state.layout !== "all") {
      const named = state.layout === "one" ? "Metric" : `Metric of panel ${place + 1}`;
      head = tag("select", { name: "metric", "aria-label": named }, ...data.metrics.map(({ key, name }) =>
        tag("option", { value: key }, isMeasured(key) ? name : `${name} (not measured)`)));
      head.addEventListener("change", () => {
        state.keys[place] = panel.key = head.value;
        drawOne(panel);
        announce();
      });
    }
    panel.head = head;
    panel.key = state.layout === "all" ? data.metrics[place].key : state.keys[place] ?? data.metrics[0].key;
    if (state.layout === "all") head.textContent = metrics.get(panel.key).name;
    else head.value = panel.key;
    invert.addEventListener("click", () => {
      if (!state.inverted.delete(panel.key)) state.inverted.add(panel.key);
      drawOne(panel);
      announce();
    });
    panel.pointer = pointing(figure, (mark) => hintWords(panel.key, mark));
    panel.element = tag("section", { class: "panel" }, tag("div", { class: "row" }, head, invert), panel.slopes, figure);
    return panel;
  }

  function drawOne(panel) {
    const metric = metrics.get(panel.key), root = panel.figure.querySelector("svg");
    const wide = Math.max(200, Math.round(panel.figure.clientWidth)), inverted = state.inverted.has(panel.key);
    panel.pointer.unpoint();
    panel.pointer.set(drawPanel(root, data, metric, state, wide), wide);
    panel.invert.setAttribute("aria-pressed", String(inverted));
    panel.invert.textContent = inverted ? `Value axis inverted${metric.inverted ? ": up is worse" : ""}` : "Invert";
    panel.invert.setAttribute("aria-label", `Invert the axis of ${metric.name}`);
    const slopes = [];
    if (state.trend && state.layout !== "all")
      for (const row of [...state.lines].sort((a, b) => a - b)) {
        const trend = trendOf(data, row, panel.key);
        if (trend) slopes.push(tag("span", {}, chip(row), ` ${signed(trend.slope)}`));
      }
    panel.slopes.replaceChildren(...(slopes.length ? [tag("span", {}, "Trend per doubling:"), ...slopes] : []));
    panel.slopes.hidden = !slopes.length;
  }

  // What a change has led to, for a screen reader.
  function announce() {
    const names = panels.map(({ key }) => `${metrics.get(key).name}${state.inverted.has(key) ? ", inverted" : ""}${isMeasured(key) ? "" : ", not measured"}`);
    shown.textContent = state.layout === "all" ? `${panels.length} metrics over context size` : `${names.join("; ")} over context size`;
  }

  function draw() {
    width = Math.round(box.clientWidth);
    panels.forEach(drawOne);
    announce();
  }

  function build() {
    const count = { one: 1, four: Math.min(4, data.metrics.length), all: data.metrics.length }[state.layout];
    box.className = state.layout;
    panels = [...Array(count).keys()].map(makePanel);
    box.replaceChildren(...panels.map(({ element }) => element));
    draw();
  }

  const set = (name, value) => () => { state[name] = value; };
  const flip = (name) => (on) => { state[name] = on; };
  const pick = (name, words, options, redraw = draw) =>
    choices(name, words, "radio", options.map(([value, text, mark]) => [String(value ?? "none"), text, state[name] === value, set(name, value), mark]), redraw);
  const kinds = `${data.kind[0].toUpperCase()}${data.kind.slice(1)}s`;
  const groups = [];
  if (data.lines.length > 1)
    groups.push(choices("lines", kinds, "checkbox", data.lines.map((line, row) => [
      String(row), ` ${line.name}`, true,
      (on) => (on ? state.lines.add(row) : state.lines.delete(row)), chip(row)]), draw));
  if (data.metrics.length > 1)
    groups.push(pick("layout", "Panels", [["one", "one"], ["four", "2 \u00d7 2"], ["all", "all metrics"]], build));
  groups.push(pick("axis", "Context axis", [["log", "log"], ["linear", "linear"]]));
  const shows = [["bars", "intervals"], ["author", "author"], ["smooth", "smoothing"], ["trend", "trend"]]
    .filter(([name]) => name !== "author" || data.authors.length);
  groups.push(choices("show", "Show", "checkbox", shows.map(([name, words]) => [name, words, state[name], flip(name)]), draw));
  const withRounds = data.lines.map((line, row) => [row, line]).filter(([, line]) =>
    Object.values(line.metrics).some(({ rounds }) => rounds.some((one) => one.length > 1)));
  if (withRounds.length)
    groups.push(pick("rounds", "Rounds", [[null, "none"], ...withRounds.map(([row, line]) =>
      [row, data.lines.length > 1 ? ` ${line.name}` : "each", data.lines.length > 1 ? chip(row) : null])]));
  showSwitches(groups);
  document.getElementById("picture").hidden = false;
  build();
  followWidth(box, () => width, draw);
}
