// Tables: a click on a column's name sorts by it, a second one the other way round.
for (const table of document.querySelectorAll("table[data-table]")) {
  const heads = [...table.querySelectorAll("thead th")];
  heads.forEach((head, column) => {
    head.querySelector("button").addEventListener("click", () => {
      const ascending = head.getAttribute("aria-sort") !== "ascending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", ascending ? "ascending" : "descending");
      const key = (row) => {
        const cell = row.cells[column];
        return "value" in cell.dataset ? Number(cell.dataset.value) : cell.textContent;
      };
      const compare = (a, b) => {
        const [x, y] = [key(a), key(b)];
        // What has no value stays at the end.
        if (typeof x !== typeof y) return typeof x === "number" ? -1 : 1;
        const order = typeof x === "number" ? x - y : x.localeCompare(y);
        return ascending ? order : -order;
      };
      const body = table.tBodies[0];
      body.append(...[...body.rows].sort(compare));
    });
  });
}
