// Figures of attention are drawn in the page: hints for pointer and keys.
for (const figure of document.querySelectorAll("figure.attention")) {
  const root = figure.querySelector("svg");
  const marks = [...root.querySelectorAll(".bin")].map((element) => {
    const { left, top, row, place } = element.dataset;
    return { element, left: Number(left), top: Number(top), row: Number(row), place: Number(place) };
  });
  const words = ({ element }) => element.getAttribute("aria-label").split("; ").map((part) => tag("span", {}, part));
  pointing(figure, words).set(marks, root.viewBox.baseVal.width);
}
