// Marks of a drawing that pointer and arrow keys reach, one Tab stop for all; what one says in a hint.
// `words` gives the hint of a mark {element, left, top, row, place}; `open` what a click does.
function pointing(figure, words, open = null) {
  const root = figure.querySelector("svg"), hint = figure.querySelector(".hint");
  let marks = [], at = 0, width = 1;

  function unpoint() {
    hint.hidden = true;
    marks[at]?.element.classList.remove("near");
  }

  function point(i) {
    marks[at]?.element.setAttribute("tabindex", "-1");
    marks[at]?.element.classList.remove("near");
    at = i;
    const { element, left, top } = marks[i];
    element.setAttribute("tabindex", "0");
    element.classList.add("near");
    hint.replaceChildren(...words(marks[i]));
    hint.hidden = false;
    const scale = root.clientWidth / width, room = figure.clientWidth - hint.offsetWidth;
    hint.style.left = `${Math.max(0, Math.min(room, left * scale - hint.offsetWidth / 2))}px`;
    const above = top * scale - hint.offsetHeight - 18;
    hint.style.top = `${above >= 0 ? above : top * scale + 18}px`;
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
    root.classList.toggle("aimed", open !== null && i >= 0);
    if (i >= 0) point(i);
    else unpoint();
  });
  root.addEventListener("pointerleave", unpoint);
  root.addEventListener("focusout", unpoint);
  if (open)
    root.addEventListener("click", (event) => {
      const i = nearest(event);
      if (i >= 0) open(i);
    });
  root.addEventListener("keydown", (event) => {
    const { row, place } = marks[at] ?? {};
    const to = (found) => found >= 0 && marks[found].element.focus();
    const rows = [...new Set(marks.map((mark) => mark.row))];
    const beside = (step) => marks.findIndex((mark) => mark.row === rows[rows.indexOf(row) + step] && mark.place === place);
    const moves = {
      ArrowRight: () => to(Math.min(at + 1, marks.length - 1)), ArrowLeft: () => to(Math.max(at - 1, 0)),
      ArrowDown: () => to(beside(1)), ArrowUp: () => to(beside(-1)),
      Home: () => to(0), End: () => to(marks.length - 1), Escape: unpoint,
      ...(open && { Enter: () => open(at), " ": () => open(at) }),
    };
    if (!moves[event.key] || !marks.length) return;
    event.preventDefault();
    moves[event.key]();
  });
  return {
    unpoint,
    get at() { return at; },
    get marks() { return marks; },
    // Of a new drawing, which is `wide` units across.
    set(found, wide) {
      width = wide;
      marks = found.sort((a, b) => a.row - b.row || a.place - b.place);
      marks.forEach((mark, i) => mark.element.addEventListener("focus", () => point(i)));
      at = Math.min(at, Math.max(marks.length - 1, 0));
      marks[at]?.element.setAttribute("tabindex", "0");
    },
  };
}

// Buttons of one kind: `options` are [value, text, checked, change, mark].
function choices(name, words, kind, options, refresh) {
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

// The groups of switches, folded on a phone.
function showSwitches(groups) {
  const switches = document.getElementById("switches"), narrow = matchMedia("(max-width: 36rem)");
  const fold = () => { switches.open = !narrow.matches; };
  narrow.addEventListener("change", fold);
  fold();
  switches.append(tag("div", { class: "switches" }, ...groups));
  switches.hidden = false;
}

// Calls `draw` when `box` has another width than the last drawing had.
function followWidth(box, drawn, draw) {
  let waiting = 0;
  new ResizeObserver(() => {
    cancelAnimationFrame(waiting);
    waiting = requestAnimationFrame(() => Math.round(box.clientWidth) !== drawn() && draw());
  }).observe(box);
}
