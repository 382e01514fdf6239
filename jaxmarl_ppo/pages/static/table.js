// Tables of words and numbers; the first cell of a row says what it is of.

function fillTable(table, head, rows) {
  const isNumber = (x) => typeof x === "number";
  // Words stand at the right, too, in a column of numbers.
  const sides = head.map((_, k) => (rows.some((row) => isNumber(row[k])) ? "number" : ""));
  const cell = (x, k) => make("td", { className: sides[k + 1] }, isNumber(x) ? number(x) : String(x ?? ""));
  // Paths such as agents/x/return_mean and default_ppo.gamma may break behind these signs.
  const parts = (path) => path.split(/(?<=[/._])/).flatMap((part) => [part, make("wbr")]);
  const line = (row) => make("tr", {}, make("th", { scope: "row", title: String(row[0]) }, ...parts(String(row[0]))), ...row.slice(1).map(cell));
  const heads = head.map((name, k) => make("th", { scope: "col", className: sides[k] }, String(name)));
  table.replaceChildren(make("thead", {}, make("tr", {}, ...heads)), make("tbody", {}, ...rows.map(line)));
}
