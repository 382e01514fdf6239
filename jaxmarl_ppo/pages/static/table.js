// Tables of words and numbers; the first cell of a row says what it is of.

function fillTable(table, head, rows) {
  const cell = (tag, x) => make(tag, typeof x === "number" ? { className: "number" } : {}, typeof x === "number" ? number(x) : String(x ?? ""));
  const line = (row) => make("tr", {}, make("th", { scope: "row" }, String(row[0])), ...row.slice(1).map((x) => cell("td", x)));
  const heads = head.map((name) => make("th", { scope: "col" }, String(name)));
  table.replaceChildren(make("thead", {}, make("tr", {}, ...heads)), make("tbody", {}, ...rows.map(line)));
}
