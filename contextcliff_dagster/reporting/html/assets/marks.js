// The look of a model, arm or run: colour, mark and dashes, as in `picture.py`.
const LOOKS = 6;
const DASHES = ["", "7 3", "9 3 2 3", "2 3", "12 4", "5 2 2 2 2 2"];
const MARKS = [
  "M-5 0a5 5 0 1 0 10 0a5 5 0 1 0 -10 0z", "M-4.5 -4.5h9v9h-9z", "M0 -5.6L5.4 4.2H-5.4z",
  "M0 -6L6 0L0 6L-6 0z", "M0 5.6L5.4 -4.2H-5.4z", "M-2 -5.5h4v3.5h3.5v4h-3.5v3.5h-4v-3.5h-3.5v-4h3.5z",
];
const look = (row) => {
  const lap = Math.floor(row / LOOKS), place = row % LOOKS;
  return { style: `m${place}`, mark: MARKS[(place + lap) % LOOKS], dash: DASHES[(place + 2 * lap) % LOOKS] };
};

// The mark of a line, for text.
function chip(row) {
  const own = look(row);
  return svg("svg", { class: `chip ${own.style}`, viewBox: "-8 -8 16 16", "aria-hidden": "true" },
    svg("path", { d: own.mark }));
}
