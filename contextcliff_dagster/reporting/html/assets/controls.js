// What is shown, and how it is changed: switches, pointer, keyboard.
{
  const data = JSON.parse(document.getElementById("data").textContent);
  const figure = document.getElementById("chart"), root = figure.querySelector("svg");
  const hint = document.getElementById("hint"), panel = document.getElementById("bin");
  const note = document.getElementById("note"), switches = document.getElementById("switches");
  const narrow = matchMedia("(max-width: 36rem)");
  const first = data.models[0];
  const state = {
    models: new Set(data.models.keys()), score: first.primary, tolerance: first.tolerance,
    points: false, axis: "log", bin: null,
  };
  let marks = [], at = 0, width = 0;

  const named = (text) => text[0].toUpperCase() + text.slice(1);

  function noteText() {
    const others = [...new Set(data.models.map((model) => model.primary))].filter((name) => name !== state.score);
    const shown = data.models.filter((_, row) => state.models.has(row) && data.models[row].primary === state.score);
    const parts = [`${named(data.scores[state.score])} over document length; bars are ${percent(first.confidence)} intervals.`];
    if (others.length) {
      const names = others.map((name) => data.scores[name]).join(" and ");
      parts.push(`Curve, cap and tolerance belong to the primary score (${names}), so they are not drawn here.`);
    }
    if (shown.length) {
      const caps = shown.map((model) => {
        const cap = capAt(model, state.tolerance);
        const words = cap === undefined ? "not computed" : cap === null ? "none supported" : `${whole(cap)} tokens`;
        return data.models.length === 1 ? words : `\u2068${model.name}\u2069: ${words}`;
      });
      const own = state.tolerance === first.tolerance ? "the study's own tolerance" : `the study's own is ${percent(first.tolerance)}`;
      parts.push(`Safe cap at a tolerated drop of ${percent(state.tolerance)} (${own}): ${caps.join("; ")}.`);
    }
    return parts.join(" ");
  }

  function draw() {
    width = Math.max(280, Math.round(figure.clientWidth));
    marks = drawChart(root, data, state, width);
    marks.sort((a, b) => a.bin.row - b.bin.row || a.bin.place - b.bin.place);
    marks.forEach((mark, i) => mark.element.addEventListener("focus", () => point(i)));
    at = Math.min(at, Math.max(marks.length - 1, 0));
    if (marks[at]) marks[at].element.setAttribute("tabindex", "0");
    note.textContent = noteText();
  }

  // The one mark that Tab reaches, and what it says.
  function point(i) {
    marks[at]?.element.setAttribute("tabindex", "-1");
    marks[at]?.element.classList.remove("near");
    at = i;
    const { element, left, top, bin } = marks[i];
    element.setAttribute("tabindex", "0");
    element.classList.add("near");
    const model = data.models[bin.row];
    hint.replaceChildren(
      tag("strong", {}, chip(bin.row), ` ${model.name}`),
      tag("span", {}, `bin ${bin.key}: ${whole(bin.from)} to ${whole(bin.to)} tokens`),
      tag("span", {}, `${data.scores[state.score]} ${bin.words}, n = ${whole(bin.n)}`),
    );
    hint.hidden = false;
    const scale = root.clientWidth / width, room = figure.clientWidth - hint.offsetWidth;
    hint.style.left = `${Math.max(0, Math.min(room, left * scale - hint.offsetWidth / 2))}px`;
    const above = top * scale - hint.offsetHeight - 18;
    hint.style.top = `${above >= 0 ? above : top * scale + 18}px`;
  }

  function unpoint() {
    hint.hidden = true;
    marks[at]?.element.classList.remove("near");
  }

  function open(i) {
    const { row, place } = marks[i].bin;
    const same = state.bin && state.bin.row === row && state.bin.place === place;
    state.bin = same ? null : { row, place };
    refresh(i);
    if (state.bin) panel.scrollIntoView({ block: "nearest" });
  }

  function close() {
    state.bin = null;
    refresh(at);
  }

  function refresh(focused) {
    draw();
    if (state.bin && !state.models.has(state.bin.row)) state.bin = null;
    if (state.bin) showBin(panel, data, state, close);
    else panel.hidden = true;
    unpoint();
    if (focused !== undefined) marks[focused]?.element.focus({ preventScroll: true });
  }

  function nearest(event) {
    const box = root.getBoundingClientRect(), scale = width / box.width;
    const x = (event.clientX - box.left) * scale, y = (event.clientY - box.top) * scale;
    let best = -1, least = 60 ** 2;
    marks.forEach(({ left, top }, i) => {
      const apart = (2 * (left - x)) ** 2 + (0.6 * (top - y)) ** 2;
      if (apart < least) [best, least] = [i, apart];
    });
    return best;
  }

  root.addEventListener("pointermove", (event) => {
    const i = nearest(event);
    root.classList.toggle("aimed", i >= 0);
    if (i >= 0) point(i);
    else unpoint();
  });
  root.addEventListener("pointerleave", unpoint);
  root.addEventListener("focusout", unpoint);
  root.addEventListener("click", (event) => {
    const i = nearest(event);
    if (i >= 0) open(i);
  });
  root.addEventListener("keydown", (event) => {
    const { row, place } = marks[at]?.bin ?? {};
    const to = (found) => found >= 0 && marks[found].element.focus();
    const beside = (step) => marks.findIndex(({ bin }) => bin.row === row + step && bin.place === place);
    const moves = {
      ArrowRight: () => to(Math.min(at + 1, marks.length - 1)), ArrowLeft: () => to(Math.max(at - 1, 0)),
      ArrowDown: () => to(beside(1)), ArrowUp: () => to(beside(-1)),
      Home: () => to(0), End: () => to(marks.length - 1),
      Enter: () => open(at), " ": () => open(at), Escape: unpoint,
    };
    if (!moves[event.key] || !marks.length) return;
    event.preventDefault();
    moves[event.key]();
  });
  panel.addEventListener("keydown", (event) => event.key === "Escape" && close());

  function choices(name, words, kind, options) {
    const labels = options.map(([value, text, checked, change, mark]) => {
      const input = tag("input", { type: kind, name, value, checked });
      input.addEventListener("change", () => {
        change(input.checked);
        refresh();
      });
      return tag("label", { class: "choice" }, input, tag("span", {}, mark ?? null, text));
    });
    return tag("fieldset", {}, tag("legend", {}, words), ...labels);
  }

  const one = (name, options) => options.map(([value, text]) =>
    [value, text, state[name] === value, () => { state[name] = value; }]);
  const tolerances = [...new Set(data.models.flatMap((model) => model.caps.map(([share]) => share)))].sort((a, b) => a - b);
  const groups = [];
  if (data.models.length > 1)
    groups.push(choices("models", "Models", "checkbox", data.models.map((model, row) => [
      String(row), ` ${model.name}`, true,
      (on) => (on ? state.models.add(row) : state.models.delete(row)), chip(row)])));
  if (tolerances.length > 1)
    groups.push(choices("tolerance", "Tolerated drop", "radio", one("tolerance", tolerances.map((share) => [share, percent(share)]))));
  const scores = Object.entries(data.scores);
  if (scores.length > 1)
    groups.push(choices("score", "Score", "radio", one("score", scores.map(([name, words]) =>
      [name, data.models.some((model) => model.primary === name) ? `${words} (primary)` : words]))));
  groups.push(choices("axis", "Length axis", "radio", one("axis", [["log", "log"], ["linear", "linear"]])));
  if (data.models.some((_, row) => pointsOf(data, row)))
    groups.push(choices("points", "Show", "checkbox", [["points", "single answers", state.points, (on) => { state.points = on; }]]));
  const fold = () => { switches.open = !narrow.matches; };
  narrow.addEventListener("change", fold);
  fold();
  switches.append(tag("div", { class: "switches" }, ...groups));
  switches.hidden = false;

  let waiting = 0;
  new ResizeObserver(() => {
    cancelAnimationFrame(waiting);
    waiting = requestAnimationFrame(() => Math.round(figure.clientWidth) !== width && draw());
  }).observe(figure);
  draw();
}
