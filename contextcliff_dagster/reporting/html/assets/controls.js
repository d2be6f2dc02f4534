// What is shown, and how it is changed: switches, pointer, keyboard.
{
  const data = JSON.parse(document.getElementById("data").textContent);
  const figure = document.getElementById("chart"), root = figure.querySelector("svg");
  const panel = document.getElementById("bin"), note = document.getElementById("note");
  const first = data.models[0];
  const state = {
    models: new Set(data.models.keys()), score: first.primary, tolerance: first.tolerance,
    points: false, axis: "log", bin: null,
  };
  let width = 0;

  const named = (text) => text[0].toUpperCase() + text.slice(1);

  function noteText() {
    const parts = [`${named(data.scores[state.score])} over length; bars are ${percent(first.confidence)} intervals, and the band is the fitted curve's; it widens where examples end.`];
    const models = data.models.filter((_, row) => state.models.has(row));
    const shown = models.filter((model) => fitOf(model, state));
    if (data.given) parts.push("Click a dot to read its answers.");
    if (shown.length < models.length)
      parts.push("A model without a fit of this score has no curve or cap here.");
    if (shown.length) {
      const caps = shown.map((model) => {
        const cap = capAt(model, state);
        const words = cap === undefined ? "not computed" : cap === null ? "none supported" : `${whole(cap)} tokens`;
        return data.models.length === 1 ? words : `\u2068${model.name}\u2069: ${words}`;
      });
      const own = state.tolerance === first.tolerance ? "the study's own tolerance" : `the study's own is ${percent(first.tolerance)}`;
      parts.push(`Safe cap at a tolerated drop of ${percent(state.tolerance)} (${own}): ${caps.join("; ")}.`);
      const primary = [...new Set(shown.map((model) => model.primary))].filter((name) => name !== state.score);
      if (primary.length)
        parts.push(`The study's own cap rests on ${primary.map((name) => data.scores[name]).join(" and ")}.`);
    }
    return parts.join(" ");
  }

  function draw() {
    width = Math.max(280, Math.round(figure.clientWidth));
    pointer.set(drawChart(root, data, state, width), width);
    note.textContent = noteText();
  }

  const pointer = pointing(figure, ({ bin }) => [
    tag("strong", {}, chip(bin.row), ` ${data.models[bin.row].name}`),
    tag("span", {}, `bin ${bin.key}: ${whole(bin.from)} to ${whole(bin.to)} tokens`),
    tag("span", {}, `${data.scores[state.score]} ${bin.words}, n = ${whole(bin.n)}`),
  ], open);

  function open(i) {
    const { row, place } = pointer.marks[i];
    const same = state.bin && state.bin.row === row && state.bin.place === place;
    state.bin = same ? null : { row, place };
    refresh(i);
    if (state.bin) panel.scrollIntoView({ block: "nearest" });
  }

  function close() {
    state.bin = null;
    refresh(pointer.at);
  }

  function refresh(focused) {
    draw();
    if (state.bin && !state.models.has(state.bin.row)) state.bin = null;
    if (state.bin) showBin(panel, data, state, close);
    else panel.hidden = true;
    pointer.unpoint();
    if (focused !== undefined) pointer.marks[focused]?.element.focus({ preventScroll: true });
  }

  panel.addEventListener("keydown", (event) => event.key === "Escape" && close());

  const one = (name, options) => options.map(([value, text]) =>
    [value, text, state[name] === value, () => { state[name] = value; }]);
  const tolerances = [...new Set(data.models.flatMap((model) => model.fits[model.primary].caps.map(([share]) => share)))].sort((a, b) => a - b);
  const groups = [];
  if (data.models.length > 1)
    groups.push(choices("models", "Models", "checkbox", data.models.map((model, row) => [
      String(row), ` ${model.name}`, true,
      (on) => (on ? state.models.add(row) : state.models.delete(row)), chip(row)]), refresh));
  if (tolerances.length > 1)
    groups.push(choices("tolerance", "Tolerated drop", "radio", one("tolerance", tolerances.map((share) => [share, percent(share)])), refresh));
  const scores = Object.entries(data.scores);
  if (scores.length > 1)
    groups.push(choices("score", "Score", "radio", one("score", scores.map(([name, words]) =>
      [name, data.models.some((model) => model.primary === name) ? `${words} (primary)` : words])), refresh));
  groups.push(choices("axis", "Length axis", "radio", one("axis", [["log", "log"], ["linear", "linear"]]), refresh));
  if (data.models.some((_, row) => pointsOf(data, row)))
    groups.push(choices("points", "Show", "checkbox", [["points", "single answers", state.points, (on) => { state.points = on; }]], refresh));
  showWrong(data);
  showSwitches(groups);
  followWidth(figure, () => width, draw);
  draw();
}
