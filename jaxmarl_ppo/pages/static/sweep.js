// What a search came to: history, values, importance, trials.

const sweep = { data: null, chosen: null };

const nameOf = (dimension) => dimension.path.split(".").at(-1);
const written = (value) => (typeof value === "number" ? number(value) : typeof value === "string" ? value : JSON.stringify(value));
const isBetter = (a, b) => (sweep.data.goal === "minimise" ? a < b : a > b);
const complete = () => sweep.data.trials.filter(({ state, value }) => state === "complete" && value !== null);

// From the best to the worst.
function ranked(trials) {
  return [...trials].sort((a, b) => (isBetter(a.value, b.value) ? -1 : isBetter(b.value, a.value) ? 1 : a.number - b.number));
}

function showHistory() {
  const known = sweep.data.trials.filter(({ value }) => value !== null);
  const best = [];
  for (const { number: at, value, state } of known)
    if (state === "complete") best.push([at, best.length && !isBetter(value, best.at(-1)[1]) ? best.at(-1)[1] : value]);
  const edges = known.map(({ number: at, value }) => [at, value]);
  const to = Math.max(...sweep.data.trials.map(({ number: at }) => at), 1);
  const label = `${sweep.data.measure} of every trial, and the best so far`;
  // The second line only spans the axis, which pruned trials may reach beyond.
  const lines = [{ points: best, hue: 0 }, { points: [], hue: 0, band: [edges, edges] }];
  drawInto(byId("history"), (width) => {
    const { chart, x, y } = lineChart(lines, { label, width, from: 0, to, nameX: "trials" });
    for (const trial of known) {
      const style = `fill:${trial.state === "complete" ? hueOf(1) : "none"};stroke:${hueOf(1)}`;
      const dot = draw("circle", { cx: x(trial.number), cy: y(trial.value), r: 3.4, style, class: "trial" });
      dot.append(draw("title", {}, `trial ${trial.number}, ${trial.state}: ${number(trial.value)}`));
      chart.append(dot);
    }
    byId("history").replaceChildren(chart);
  });
}

// Where a dimension has a value: 0 at its low end, 1 at its high one.
function placeOf(dimension, value) {
  if (dimension.choices) {
    const index = dimension.choices.findIndex((each) => JSON.stringify(each) === JSON.stringify(value));
    return dimension.choices.length > 1 ? index / (dimension.choices.length - 1) : 0.5;
  }
  const scale = dimension.log ? Math.log : (x) => x;
  return (scale(value) - scale(dimension.low)) / (scale(dimension.high) - scale(dimension.low) || 1);
}

function axesOf(trials) {
  const values = trials.map(({ value }) => value);
  const objective = { path: sweep.data.measure, low: Math.min(...values), high: Math.max(...values), log: false, choices: null };
  return [...sweep.data.dimensions, objective];
}

function showParallel() {
  if (complete().length) drawInto(byId("parallel"), drawParallel);
}

function drawParallel(room) {
  const trials = ranked(complete()).reverse(); // the best is drawn last
  const axes = axesOf(trials);
  // Wider than its place, which scrolls, rather than with words over each other.
  const width = Math.max(room, 110 * axes.length);
  const [height, margin, top, bottom] = [280, 62, 26, 18];
  const x = (k) => margin + ((width - 2 * margin) * k) / (axes.length - 1);
  const y = (share) => height - bottom - (height - top - bottom) * share;
  const chart = draw("svg", { viewBox: `0 0 ${width} ${height}`, width, height, class: "state chart", style: "max-width:none", role: "img", "aria-label": "Values of all complete trials, a line for each" });
  trials.forEach((trial, rank) => {
    const alone = sweep.chosen === trial.number;
    if (sweep.chosen !== null && !alone) return;
    const share = trials.length > 1 ? rank / (trials.length - 1) : 1;
    const places = axes.map((axis, k) => `${x(k).toFixed(1)} ${y(placeOf(axis, k < axes.length - 1 ? trial.values[k] : trial.value)).toFixed(1)}`);
    const line = draw("path", { d: `M${places.join("L")}`, class: "line", style: `fill:none;stroke:${hueOf(0)};stroke-width:${1 + share};opacity:${alone ? 1 : 0.08 + 0.92 * share ** 3}` });
    line.append(draw("title", {}, `trial ${trial.number}: ${number(trial.value)}`));
    chart.append(line);
  });
  axes.forEach((axis, k) => {
    chart.append(
      draw("line", { x1: x(k), x2: x(k), y1: y(0), y2: y(1), style: "stroke:var(--edge);stroke-width:1" }),
      draw("text", { x: x(k), y: 12, "text-anchor": "middle" }, k < axes.length - 1 ? nameOf(axis) : "objective"),
    );
    const marks = axis.choices || (axis.low === axis.high ? [axis.low] : [axis.low, axis.high]);
    for (const mark of marks)
      chart.append(draw("text", { x: x(k) + 5, y: y(placeOf(axis, mark)) + 4 }, written(mark)));
  });
  byId("parallel").replaceChildren(chart);
}

function showImportance() {
  const shares = Object.entries(sweep.data.importance);
  byId("importance-section").hidden = !shares.length;
  drawInto(byId("importance"), (width) => drawImportance(shares, width));
}

function drawImportance(shares, width) {
  const [left, row] = [Math.min(190, width / 2), 24];
  const height = row * shares.length + 6;
  const most = Math.max(...shares.map(([, share]) => share), 1e-9);
  const label = `Importance: ${shares.map(([path, share]) => `${path} ${Math.round(100 * share)} %`).join(", ")}`;
  const chart = draw("svg", { viewBox: `0 0 ${width} ${height}`, width, height, class: "state chart", role: "img", "aria-label": label });
  shares.forEach(([path, share], k) => {
    const length = ((width - left - 60) * share) / most;
    chart.append(
      draw("text", { x: left - 8, y: row * k + 17, "text-anchor": "end" }, nameOf({ path })),
      draw("rect", { x: left, y: row * k + 4, width: Math.max(length, 1), height: row - 8, rx: 3, style: `fill:${hueOf(2)}` }),
      draw("text", { x: left + length + 6, y: row * k + 17 }, `${Math.round(100 * share)} %`),
    );
  });
  byId("importance").replaceChildren(chart);
}

function showTrials() {
  const { dimensions, trials } = sweep.data;
  const over = ranked(complete());
  const rows = [...over, ...trials.filter((trial) => !over.includes(trial))];
  const failed = rows.some(({ reason }) => reason);
  const head = ["trial", "state", "value", "seconds", ...dimensions.map(nameOf), ...(failed ? ["why it failed"] : [])];
  const cells = ({ values }) => values.map((value) => (typeof value === "number" ? value : written(value ?? "")));
  fillTable(byId("trials"), head, rows.map((trial) => [trial.number, trial.state, trial.value, trial.seconds, ...cells(trial), ...(failed ? [trial.reason] : [])]));
  byId("trials").querySelectorAll("tbody tr").forEach((line, k) => {
    const { number: own, state } = rows[k];
    if (state !== "complete") return;
    const button = make("button", { type: "button", "aria-pressed": "false" }, String(own));
    button.addEventListener("click", () => {
      sweep.chosen = sweep.chosen === own ? null : own;
      byId("trials").querySelectorAll("button").forEach((each) => each.setAttribute("aria-pressed", String(each === button && sweep.chosen === own)));
      showParallel();
    });
    line.querySelector("th").replaceChildren(button);
  });
}

function showBest() {
  const [best] = ranked(complete());
  byId("best-section").hidden = !best;
  if (!best) return;
  const rows = sweep.data.dimensions.map(({ path }, k) => [path, typeof best.values[k] === "number" ? best.values[k] : written(best.values[k])]);
  fillTable(byId("best"), [`trial ${best.number}`, ""], [[sweep.data.measure, best.value], ...rows]);
}

async function start() {
  sweep.data = await readData();
  setUpTheme(byId("theme"));
  showFacts(sweep.data);
  for (const show of [showBest, showHistory, showParallel, showImportance, showTrials]) show();
}

start();
