// What runs came to: curves, evaluations, leagues, times, configurations.

const report = { data: null };

// A measure is called by its path, in which `*` stands for an agent, a policy or a player.
function measureOf(path) {
  const parts = path.split("/");
  const prefix = parts[0] === "evaluation" ? parts.shift() + "/" : "";
  if (parts[0] === "league" && parts.length === 3) return [`${prefix}league/${parts[1]}/*`, parts[2]];
  if (["agents", "policies"].includes(parts[0]) && parts.length > 2)
    return [`${prefix}${parts[0]}/*/${parts.slice(2).join("/")}`, parts[1]];
  return [prefix + parts.join("/"), ""];
}

// All measures with their members: { measure: { member: path } }.
function measuresOf(runs) {
  const found = {};
  for (const run of runs)
    for (const path of Object.keys(run.series)) {
      const [measure, member] = measureOf(path);
      (found[measure] ||= {})[member] = path;
    }
  return found;
}

function words(measure) {
  return measure.replace(/\/\*/g, "").replace(/_/g, " ").split("/").join(": ").replace("all:", "together:");
}

function pointsOf(run, path) {
  const { steps, values } = run.series[path] || { steps: [], values: [] };
  return values.flatMap((value, k) => (value === null ? [] : [[steps[k], value]]));
}

// A run's value at a step, between the entries beside it; undefined beyond its ends.
function valueAt(points, step) {
  const after = points.findIndex(([x]) => x >= step);
  if (after < 0 || (after === 0 && points[0][0] > step)) return undefined;
  const [x1, y1] = points[after];
  if (x1 === step) return y1;
  const [x0, y0] = points[after - 1];
  return y0 + ((y1 - y0) * (step - x0)) / (x1 - x0);
}

function meanOfRuns(all) {
  const steps = [...new Set(all.flatMap((points) => points.map(([x]) => x)))].sort((a, b) => a - b);
  const [mean, low, high] = [[], [], []];
  for (const step of steps) {
    const values = all.map((points) => valueAt(points, step)).filter((y) => y !== undefined);
    if (values.length < all.length) continue;
    mean.push([step, values.reduce((sum, y) => sum + y, 0) / values.length]);
    low.push([step, Math.min(...values)]);
    high.push([step, Math.max(...values)]);
  }
  return { points: mean, band: [low, high] };
}

function curvesOf(measure, members) {
  const { runs } = report.data;
  const names = Object.keys(members);
  if (byId("mean").checked)
    return names.map((member, k) => ({
      ...meanOfRuns(runs.map((run) => pointsOf(run, members[member])).filter((points) => points.length)),
      name: member || words(measure), hue: k, dash: dashOf(k),
    }));
  return runs.flatMap((run, r) =>
    names.map((member, k) => {
      const path = members[member];
      return {
        points: pointsOf(run, path),
        name: [runs.length > 1 ? run.name : "", member].filter(Boolean).join(", ") || words(measure),
        hue: runs.length > 1 ? r : k,
        dash: runs.length > 1 ? DASHES[k % DASHES.length] : dashOf(k),
      };
    }),
  ).filter(({ points }) => points.length);
}

function showCurves() {
  const measure = byId("curve").value;
  const members = measuresOf(report.data.runs)[measure];
  if (!members) return;
  const lines = curvesOf(measure, members);
  const xs = lines.flatMap(({ points }) => points.map(([x]) => x));
  const [from, to] = [Math.min(0, ...xs), Math.max(...xs, 1)];
  const label = `${words(measure)} over environment steps`;
  const showX = (x) => `${shortNumber(x)}${x === to ? " steps" : ""}`;
  byId("curves").replaceChildren(lineChart(lines, { label, height: 300, from, to, showX }).chart);
  byId("lines").replaceChildren(
    ...lines.slice(0, 24).map(({ name, hue, dash, points }) => {
      const stroke = draw("line", { x1: 0, x2: 26, y1: 5, y2: 5, style: `stroke:${hueOf(hue)};stroke-width:2.4`, "stroke-dasharray": dash || "" });
      return make("span", {}, draw("svg", { class: "state", viewBox: "0 0 26 10", "aria-hidden": "true" }, stroke), `${name} ${number(points.at(-1)[1])}`);
    }),
    ...(lines.length > 24 ? [make("span", {}, `and ${lines.length - 24} more`)] : []),
  );
}

function showMeasures() {
  const measures = Object.keys(measuresOf(report.data.runs)).sort((a, b) => a.localeCompare(b));
  const chosen = byId("curve").value || report.data.measure;
  byId("curve").replaceChildren(...measures.map((measure) => make("option", { value: measure }, words(measure))));
  byId("curve").value = measures.includes(chosen) ? chosen : measures[0] || "";
  byId("mean-label").hidden = report.data.runs.length < 2;
}

function showResult() {
  const { evaluation } = report.data;
  byId("result").hidden = !evaluation;
  if (!evaluation) return;
  byId("headline").replaceChildren(...evaluation.headline.map((line) => make("p", {}, line)));
  fillTable(byId("evaluation"), evaluation.columns, evaluation.rows);
}

function showLeague() {
  const [run] = report.data.runs;
  const league = report.data.runs.length === 1 ? run.league : null;
  byId("league").hidden = !league;
  if (!league) return;
  fillTable(byId("wins"), ["", ...league.players], league.players.map((name, k) => [name, ...league.win_rate[k].map((x) => (x === null ? "" : `${Math.round(100 * x)} %`))]));
  byId("wins").querySelectorAll("tbody tr").forEach((row, r) =>
    row.querySelectorAll("td").forEach((cell, c) => {
      const rate = league.win_rate[r][c];
      if (rate !== null) cell.style.background = `color-mix(in srgb, var(--accent) ${Math.round(40 * rate)}%, transparent)`;
    }),
  );
}

const show = (value) => (typeof value === "string" ? value : JSON.stringify(value));

function showConfigurations() {
  const { runs } = report.data;
  const keys = [...new Set(runs.flatMap((run) => Object.keys(run.config)))];
  const row = (key) => [key, ...runs.map((run) => (key in run.config ? show(run.config[key]) : ""))];
  const head = ["", ...runs.map((run) => run.name)];
  fillTable(byId("configuration"), head, keys.map(row));
  const differing = keys.filter((key) => new Set(row(key).slice(1)).size > 1);
  byId("differences").hidden = runs.length < 2;
  fillTable(byId("differing"), head, differing.map(row));
  fillTable(byId("times"), head, report.data.times.map(([name, ...values]) => [name, ...values]));
}

function showReport(data) {
  report.data = data;
  showFacts(data);
  showMeasures();
  showCurves();
  showResult();
  showLeague();
  showConfigurations();
}

// A run that goes on is looked at again and again.
async function refresh() {
  try {
    const answer = await fetch("data");
    if (answer.ok) showReport(await unpack(await answer.text()));
  } finally {
    setTimeout(refresh, 1000 * report.data.refresh_s);
  }
}

async function start() {
  const data = await readData();
  setUpTheme(byId("theme"));
  byId("curve").addEventListener("change", showCurves);
  byId("mean").addEventListener("change", showCurves);
  showReport(data);
  if (data.replay) {
    byId("episodes").hidden = false;
    startReplay(data.replay, byId("episodes"));
  } else byId("episodes").remove();
  if (data.refresh_s) setTimeout(refresh, 1000 * data.refresh_s);
}

start();
