// Tables of words and numbers; the first cell of a row says what it is of.

function fillTable(table, head, rows) {
  const isNumber = (x) => typeof x === "number";
  const cell = (tag, x) => make(tag, isNumber(x) ? { className: "number" } : {}, isNumber(x) ? number(x) : String(x ?? ""));
  // Paths such as agents/x/return_mean may break behind a slash.
  const parts = (path) => path.split("/").flatMap((part, k) => (k ? ["/", make("wbr", {}), part] : [part]));
  const line = (row) => make("tr", {}, make("th", { scope: "row", title: String(row[0]) }, ...parts(String(row[0]))), ...row.slice(1).map((x) => cell("td", x)));
  const heads = head.map((name, k) => make("th", { scope: "col", className: rows.some((row) => isNumber(row[k])) ? "number" : "" }, String(name)));
  table.replaceChildren(make("thead", {}, make("tr", {}, ...heads)), make("tbody", {}, ...rows.map(line)));
}
