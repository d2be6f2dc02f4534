// Filters of the gallery: what is not chosen is hidden, with rows and columns that are then empty.
{
  const box = document.getElementById("filters");
  const table = document.querySelector("#caps table");
  const picks = [...box.querySelectorAll("select")];
  const count = document.getElementById("count");
  const apply = () => {
    const entries = [...table.querySelectorAll(".entry")];
    let shown = 0;
    for (const one of entries) {
      one.hidden = picks.some((pick) => pick.value && one.dataset[pick.name] !== pick.value);
      shown += !one.hidden;
    }
    const full = (cell) => [...cell.querySelectorAll(".entry")].some((one) => !one.hidden);
    for (const row of table.tBodies[0].rows) row.hidden = ![...row.cells].some(full);
    [...table.tHead.rows[0].cells].forEach((head, i) => {
      const column = [...table.tBodies[0].rows].map((row) => row.cells[i]);
      const empty = i > 0 && !column.some(full);
      for (const cell of [head, ...column]) cell.hidden = empty;
    });
    count.textContent = `${shown} of ${entries.length} results`;
  };
  for (const pick of picks) pick.addEventListener("change", apply);
  box.hidden = false;
  apply();
}
