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

// Folders by what tells them apart: without the folders in which all of them lie.
function shortNames(names) {
  const parts = names.map((name) => name.split("/"));
  let common = 0;
  while (parts.every((own) => own.length > common + 1 && own[common] === parts[0][common])) common++;
  return parts.map((own) => own.slice(common).join("/"));
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

const INTERVAL = "95 % interval of the interquartile mean";

// Of a group of seeds: mean, interquartile mean (dotted), and the interval of the latter as a band.
function curvesOfGroup(measure, members) {
  const spread = (path, table) => {
    const [evaluation, rest] = path.startsWith("evaluation/") ? ["evaluation/", path.slice(11)] : ["", path];
    return pointsOf(report.data.group, `${evaluation}${table}/${rest}`);
  };
  return Object.keys(members).flatMap((member, k) => {
    const path = members[member];
    const [low, high] = [spread(path, "ci95_low"), spread(path, "ci95_high")];
    const name = member || words(measure);
    return [
      { points: pointsOf(report.data.group, path), name: `${name}, mean`, hue: k, dash: dashOf(k), band: low.length ? [low, high] : undefined, bandName: INTERVAL },
      { points: spread(path, "iqm"), name: `${name}, interquartile mean`, hue: k, dash: "2 3" },
    ].filter(({ points }) => points.length);
  });
}

// Agents whose curves never differ, as those of a team, have one together.
function membersOf(measure) {
  const { runs } = report.data;
  const members = measuresOf(runs)[measure];
  if (!measure.includes("agents/*")) return members;
  const alike = new Map();
  for (const [member, path] of Object.entries(members)) {
    const values = JSON.stringify(runs.map((run) => pointsOf(run, path)));
    alike.set(values, [...(alike.get(values) || []), member]);
  }
  const called = (names) => (names.length > 3 && alike.size === 1 ? "each agent" : names.join(", "));
  return Object.fromEntries([...alike.values()].map((names) => [called(names), members[names[0]]]));
}

// Of snapshots only so much: their lines in the colour of their pool, each while it was in it.
function withPools(lines) {
  const poolOf = ({ member }) => (/@it\d+$/.test(member) ? member.replace(/@it\d+$/, "") : null);
  const groups = [...new Set(lines.map((line) => poolOf(line) ?? line.member))];
  return lines.map((line) => {
    const pool = poolOf(line);
    const hue = groups.indexOf(pool ?? line.member);
    return { ...line, hue, dash: dashOf(hue), ...(pool === null ? {} : { pool, opacity: 0.45 }) };
  });
}

function curvesOf(measure, members) {
  const chosen = byId("which").value;
  const runs = report.data.runs.filter(({ name }) => !chosen || name === chosen);
  const names = Object.keys(members);
  // What members differ in has no mean.
  const together = byId("mean").checked && !measure.startsWith("numbers/");
  if (together && report.data.group) return curvesOfGroup(measure, members);
  if (together)
    return names.map((member, k) => ({
      ...meanOfRuns(runs.map((run) => pointsOf(run, members[member])).filter((points) => points.length)),
      name: `${member || words(measure)}, mean`, bandName: "from the lowest to the highest run", member, hue: k, dash: dashOf(k),
    }));
  const lines = runs.flatMap((run, r) =>
    names.map((member, k) => ({
      points: pointsOf(run, members[member]),
      name: [runs.length > 1 ? run.name : "", member].filter(Boolean).join(", ") || words(measure),
      member,
      hue: runs.length > 1 ? r : k,
      dash: runs.length > 1 ? DASHES[k % DASHES.length] : dashOf(k),
      shape: k,
    })),
  ).filter(({ points }) => points.length);
  return measure === ELO && runs.length === 1 ? withPools(lines) : lines;
}

const ELO = "league/elo/*";

// What a chart's lines are called, and where each stands at its end.
function legendOf(lines) {
  const last = ({ points }) => points.at(-1)[1];
  const shown = new Map();
  for (const line of lines) {
    const key = line.pool === undefined ? line.name : `snapshots of ${line.pool}`;
    shown.set(key, [...(shown.get(key) || []), line]);
  }
  const entries = [...shown].map(([name, [first, ...others]]) => {
    const ends = [first, ...others].map(last);
    const range = others.length ? `${number(Math.min(...ends))} to ${number(Math.max(...ends))}` : number(ends[0]);
    return make("span", {}, lineSample(first), `${name} ${range}`);
  });
  return entries.length > 24 ? [...entries.slice(0, 24), make("span", {}, `and ${entries.length - 24} more`)] : entries;
}

// Of a run that is shown alone: when it had numbers of its own, as stages of a curriculum have.
function periodsOf() {
  const chosen = byId("which").value;
  const runs = report.data.runs.filter(({ name }) => !chosen || name === chosen);
  if (runs.length !== 1) return [];
  return runs[0].changes.map(({ stage, values, ...period }, k) => {
    const said = Object.entries(values).map(([path, value]) => `${path} ${value}`);
    const name = stage === null ? `${k}` : `stage ${stage}`;
    return { ...period, name, values: said.join(", ") || "as configured" };
  });
}

function periodsInWords(periods) {
  const entries = periods.map(({ name, values }) => make("span", {}, `${name}: ${values}`));
  const shown = entries.slice(0, 8);
  return entries.length > 8 ? [...shown, make("span", {}, `and ${entries.length - 8} more`)] : shown;
}

function showLines(measure, chart, legend, height) {
  const lines = curvesOf(measure, membersOf(measure));
  const xs = lines.flatMap(({ points }) => points.map(([x]) => x));
  const [from, to] = [Math.min(0, ...xs), Math.max(...xs, 1)];
  const label = `${words(measure)} over environment steps`;
  const goals = report.data.goals[measure] || [];
  const periods = periodsOf();
  drawInto(chart, (width) =>
    chart.replaceChildren(lineChart(lines, { label, width, height, from, to, nameX: "environment steps", goals, periods }).chart),
  );
  const named = goals.map(({ at, name }) => make("span", {}, sample(goalLine(0, 36, 9)), `${name} ${number(at)}`));
  const banded = lines.filter(({ band }) => band).slice(0, 1);
  const bands = banded.map((line) => make("span", {}, bandSample(line), line.bandName));
  legend.replaceChildren(...legendOf(lines), ...bands, ...named, ...periodsInWords(periods));
}

function showCurves() {
  const measure = byId("curve").value;
  if (measure) showLines(measure, byId("curves"), byId("lines"), 320);
}

// Under which heading a measure is looked for. What agents have as well is of play, not of learning.
function groupOf(measure, measures) {
  if (measure.startsWith("evaluation/")) return "Evaluations";
  if (measure.startsWith("league/")) return "League";
  if (measure.startsWith("numbers/")) return "Numbers of members";
  if (/^(agents|all)\//.test(measure)) return "Play, by agent";
  if (!measure.startsWith("policies/")) return "Speed and machine";
  return measures.includes(measure.replace("policies", "agents")) ? "Play, by policy" : "Learning, by policy";
}

function showMeasures() {
  const measures = Object.keys(measuresOf(report.data.runs)).sort((a, b) => a.localeCompare(b));
  const chosen = byId("curve").value;
  const groups = ["Play, by agent", "Evaluations", "League", "Numbers of members", "Play, by policy", "Learning, by policy", "Speed and machine"];
  const option = (measure) => make("option", { value: measure }, words(measure));
  byId("curve").replaceChildren(
    ...groups.flatMap((label) => {
      const own = measures.filter((measure) => groupOf(measure, measures) === label);
      return own.length ? [make("optgroup", { label }, ...own.map(option))] : [];
    }),
  );
  const wanted = [chosen, ...report.data.measures, ...measures];
  byId("curve").value = wanted.find((measure) => measures.includes(measure)) || "";
  const names = report.data.runs.map(({ name }) => name);
  const which = byId("which").value;
  byId("which").replaceChildren(make("option", { value: "" }, "all runs"), ...names.map((name) => make("option", { value: name }, name)));
  byId("which").value = names.includes(which) ? which : "";
  byId("mean-label").hidden = byId("which-label").hidden = names.length < 2;
}

// The newest value of all that runs are judged by, side by side.
function showNewest() {
  const { runs, evaluation, measures } = report.data;
  const found = measuresOf(runs);
  const others = Object.keys(found).filter((measure) => measure.startsWith("evaluation/"));
  const judged = [...new Set([...measures, "agents/*/return_mean", "all/return_mean", ...others])].filter((x) => x in found);
  byId("newest").hidden = Boolean(evaluation) || (!judged.length && runs.length < 2);
  const newest = (run, path) => {
    const last = pointsOf(run, path).at(-1);
    return last ? last[1] : null;
  };
  const stepsOf = (run) => Math.max(0, ...Object.values(run.series).map(({ steps }) => steps.at(-1)));
  const rows = judged.flatMap((measure) =>
    Object.entries(membersOf(measure)).map(([member, path]) => [
      [words(measure), member].filter(Boolean).join(", "), ...runs.map((run) => newest(run, path)),
    ]),
  );
  // Of a single run the head of the page has them.
  const names = runs.length > 1 && !report.data.group ? [...new Set(runs.flatMap((run) => run.facts.map(([name]) => name)))] : [];
  const facts = names.map((name) => [name, ...runs.map((run) => (run.facts.find(([own]) => own === name) || ["", ""])[1])]);
  const steps = facts.length ? [] : [["environment steps", ...runs.map(stepsOf)]];
  fillTable(byId("ends"), ["", ...runs.map((run) => run.name)], [...facts, ...steps, ...rows]);
}

function showResult() {
  const { evaluation } = report.data;
  byId("result").hidden = !evaluation;
  if (!evaluation) return;
  byId("headline").replaceChildren(...evaluation.headline.map((line) => make("p", {}, line)));
  const { columns, rows } = evaluation.results || { columns: [], rows: [] };
  byId("scenario").parentElement.hidden = !rows.length;
  fillTable(byId("scenario"), columns, rows);
  fillTable(byId("evaluation"), evaluation.columns, evaluation.rows);
}

// Every run's own league, since ratings of different leagues cannot be compared.
function showLeague() {
  const { runs } = report.data;
  const own = runs.filter((run) => run.league);
  byId("league").hidden = !own.length;
  if (!own.length) return;
  if (runs.length === 1) showLines(ELO, byId("elo"), byId("elo-lines"), 260);
  const tables = own.map((run) => {
    const { columns, rows } = run.league;
    const table = make("table", { className: "wins" });
    const said = rows.map(([name, elo, games, ...rates]) => [name, elo, games, ...rates.map((x) => (x === null ? "" : `${Math.round(100 * x)} %`))]);
    fillTable(table, [runs.length > 1 ? run.name : "", "Elo", "games", ...columns.map((name) => `against ${name}`)], said);
    table.querySelectorAll("tbody tr").forEach((row, r) =>
      [...row.querySelectorAll("td")].slice(2).forEach((cell, c) => {
        const rate = rows[r][3 + c];
        if (rate !== null) cell.style.background = `color-mix(in srgb, var(--accent) ${Math.round(40 * rate)}%, transparent)`;
      }),
    );
    return table;
  });
  byId("wins").replaceChildren(...tables);
}

function showLineage() {
  const { lineage } = report.data;
  byId("lineage").hidden = !lineage;
  if (lineage) fillTable(byId("copies"), lineage.columns, lineage.rows);
}

const show = (value) => (typeof value === "string" ? value : JSON.stringify(value));

function showConfigurations() {
  const { runs } = report.data;
  const keys = [...new Set(runs.flatMap((run) => Object.keys(run.config)))];
  const row = (key) => [key, ...runs.map((run) => (key in run.config ? show(run.config[key]) : ""))];
  const head = ["", ...runs.map((run) => run.name)];
  fillTable(byId("configuration"), head, keys.map(row));
  // A key that a run does not have is as good as one without a value.
  const values = (key) => runs.map((run) => show(run.config[key] ?? null));
  const differing = keys.filter((key) => new Set(values(key)).size > 1);
  byId("differences").hidden = !differing.length;
  fillTable(byId("differing"), head, differing.map(row));
  fillTable(byId("times"), report.data.timed ? ["", ...report.data.timed] : head, report.data.times);
}

function showReport(data) {
  const names = shortNames(data.runs.map((run) => run.name));
  data.runs.forEach((run, k) => (run.name = names[k]));
  report.data = data;
  showFacts(data);
  showMeasures();
  showCurves();
  showNewest();
  showResult();
  showLeague();
  showLineage();
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
  byId("mean").checked = Boolean(data.group);
  byId("mean").addEventListener("change", showCurves);
  byId("which").addEventListener("change", () => {
    byId("mean").checked = false;
    showCurves();
  });
  showReport(data);
  if (data.replay) {
    byId("episodes").hidden = false;
    startReplay(data.replay, byId("episodes"));
  } else byId("episodes").remove();
  if (data.refresh_s) setTimeout(refresh, 1000 * data.refresh_s);
}

start();
