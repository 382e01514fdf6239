// Watching episodes tick by tick.

const view = { data: null, episode: 0, tick: 0, timer: null, plot: null };

const episode = () => view.data.episodes[view.episode];
const numTicks = () => episode().ticks.length;

function showPicture() {
  const { lines, frames } = episode();
  byId("picture").replaceChildren(parsePicture(frames[view.tick].map((k) => lines[k]).join("\n")));
}

function describe() {
  const title = byId("picture").querySelector("title");
  return title ? title.textContent : `Tick ${view.tick}`;
}

// What is said of a tick is what led to it: the actions of the tick before it are the next to come,
// so cards show the decision that is made in the picture that is shown.
function showAgents() {
  const ticks = episode().ticks;
  const atEnd = view.tick === numTicks();
  const slots = atEnd ? [] : ticks[view.tick];
  byId("agents").replaceChildren(
    ...view.data.agents.map((agent, i) => agentCard(agent, slots[i], returnSoFar(i), atEnd)),
  );
}

function returnSoFar(slot) {
  let sum = 0;
  for (const tick of episode().ticks.slice(0, view.tick)) sum += tick[slot] ? tick[slot].reward : 0;
  return sum;
}

const actionName = (action) => (view.data.actions ? view.data.actions[action] : String(action));

function agentCard(agent, now, earned, atEnd) {
  const acts = now && "action" in now;
  const does = atEnd ? "the end" : !now ? "not there" : acts ? "acts" : "waits";
  const head = make(
    "header", {}, parsePicture(agent.sign), make("b", {}, agent.name),
    make("span", { className: `does ${acts ? "acts" : ""}` }, does),
  );
  const card = make("section", { className: `card agent ${acts ? "" : "waits"}` }, head);
  if (now) {
    const name = episode().names[now.player];
    const elo = view.data.elo[name];
    card.append(make("div", { className: "who" }, elo === undefined ? name : `${name}, Elo ${elo}`));
  }
  const numbers = [`return ${number(earned)}`];
  if (now && now.reward) numbers.push(`earns ${number(now.reward)}`);
  if (now && "value" in now) numbers.push(`value ${number(now.value)}`);
  if (now && "entropy" in now) numbers.push(`entropy ${number(now.entropy)}`);
  if (now && now.first) numbers.push("a life begins, memory is empty");
  if (now && now.end) numbers.push(now.end === "terminated" ? "its life ends" : "its life is cut off");
  card.append(make("div", { className: "numbers" }, ...numbers.map((x) => make("span", {}, x))));
  if (acts) card.append(...decision(now));
  return card;
}

function decision(now) {
  const parts = [];
  if ("mistake" in now) {
    const best = now.best.map(actionName).join(", ");
    parts.push(
      now.mistake
        ? make("div", { className: "bad" }, `Mistake: best is ${best}`)
        : make("div", { className: "good" }, "A best move"),
    );
  }
  if (now.scripts) {
    const said = Object.entries(now.scripts).map(([name, action]) => `${name}: ${actionName(action)}`);
    parts.push(make("div", { className: "who" }, `Scripts would do ${said.join(", ")}`));
  }
  if (!now.probs) {
    const action = Array.isArray(now.action) ? now.action.join(", ") : actionName(now.action);
    parts.push(make("div", { className: "numbers" }, `action ${action}`));
    return parts;
  }
  const bars = make("div", { className: "bars" });
  for (const [action, share, best] of now.probs) {
    const fill = make("i");
    fill.style.width = `${Math.round(100 * share)}%`;
    const mark = best ? " \u2713" : "";
    bars.append(
      make("span", { className: action === now.action ? "taken" : "" }, `${actionName(action)}${mark}`),
      make("span", { className: "bar" }, fill),
      make("span", {}, `${(100 * share).toFixed(share < 0.1 ? 1 : 0)} %`),
    );
  }
  parts.push(bars);
  return parts;
}

function series(measure) {
  return view.data.agents.map((_, slot) => {
    let sum = 0;
    return episode().ticks.map((tick) => {
      const now = tick[slot];
      if (!now) return null;
      sum += now.reward;
      if (measure === "return") return sum;
      return measure in now ? now[measure] : null;
    });
  });
}

function showChart() {
  const measure = byId("measure");
  // One line for all that is known: an agent that waits goes on where it was.
  const lines = series(measure.value).map((values, slot) => ({
    points: values.flatMap((value, t) => (value === null ? [] : [[t, value]])), hue: slot, dash: dashOf(slot),
  }));
  const label = `${measure.selectedOptions[0].text} of every agent over ticks`;
  const to = Math.max(numTicks() - 1, 1);
  const plot = lineChart(lines, { label, from: 0, to, showX: (t) => (t ? String(t) : "tick 0") });
  plot.chart.append(draw("line", { id: "now", y1: 4, y2: plot.height, style: "stroke:var(--ink);stroke-width:1.2" }));
  plot.chart.addEventListener("click", (event) => go(Math.round(plot.atPixel(event))));
  view.plot = plot;
  byId("chart").replaceChildren(plot.chart);
  byId("legend").replaceChildren(
    ...view.data.agents.map((agent) => make("span", {}, parsePicture(agent.sign), agent.name)),
  );
}

function moveNow() {
  const at = view.plot.x(Math.min(view.tick, Math.max(numTicks() - 1, 0)));
  for (const end of ["x1", "x2"]) byId("now").setAttribute(end, at);
}

const isMistake = (tick) => tick.some((slot) => slot && slot.mistake);

function showMarks() {
  const marks = [];
  episode().ticks.forEach((tick, t) => {
    const kind = isMistake(tick) ? "mistake" : tick.some((slot) => slot && slot.reward > 0) ? "reward" : "";
    if (!kind) return;
    const mark = make("i", { className: kind });
    mark.style.left = `${(100 * t) / Math.max(numTicks(), 1)}%`;
    marks.push(mark);
  });
  byId("marks").replaceChildren(...marks);
  const known = episode().ticks.some((tick) => tick.some((slot) => slot && "mistake" in slot));
  byId("mistake").hidden = !known;
  byId("mistake").disabled = !episode().ticks.some(isMistake);
}

function showTick() {
  showPicture();
  showAgents();
  moveNow();
  byId("slider").value = view.tick;
  byId("slider").setAttribute("aria-valuetext", `tick ${view.tick} of ${numTicks()}`);
  byId("tick").textContent = `tick ${view.tick} of ${numTicks()}`;
  for (const id of ["first", "back"]) byId(id).disabled = view.tick === 0;
  for (const id of ["forward", "last"]) byId(id).disabled = view.tick === numTicks();
  // Not while it plays, which would be more words than anybody can say.
  if (!view.timer) byId("spoken").textContent = describe();
}

function go(tick) {
  view.tick = Math.max(0, Math.min(numTicks(), tick));
  showTick();
}

function pause() {
  clearInterval(view.timer);
  view.timer = null;
  byId("play").textContent = "Play";
  byId("spoken").textContent = describe();
}

function play() {
  if (view.tick === numTicks()) view.tick = 0;
  byId("play").textContent = "Pause";
  clearInterval(view.timer);
  view.timer = setInterval(() => {
    if (view.tick < numTicks()) go(view.tick + 1);
    if (view.tick === numTicks()) pause();
  }, 1000 / Number(byId("speed").value));
}

const toggle = () => (view.timer ? pause() : play());

function nextMistake(backwards) {
  const found = episode().ticks.map((tick, t) => (isMistake(tick) ? t : -1)).filter((t) => t >= 0);
  if (!found.length) return;
  if (view.timer) pause();
  const later = backwards ? found.filter((t) => t < view.tick) : found.filter((t) => t > view.tick);
  go(later.length ? (backwards ? later.at(-1) : later[0]) : backwards ? found.at(-1) : found[0]);
}

function chooseEpisode(index) {
  if (view.timer) pause();
  view.episode = index;
  view.tick = 0;
  byId("episode").selectedIndex = index;
  byId("slider").max = numTicks();
  showMarks();
  showChart();
  showTick();
}

const KEYS = {
  " ": toggle,
  ArrowLeft: () => go(view.tick - 1),
  ArrowRight: () => go(view.tick + 1),
  Home: () => go(0),
  End: () => go(numTicks()),
  m: () => nextMistake(false),
  M: () => nextMistake(true),
  e: () => chooseEpisode((view.episode + 1) % view.data.episodes.length),
};

function episodeName(one, index) {
  const sums = view.data.agents.map((agent, slot) => {
    const earned = one.ticks.reduce((sum, tick) => sum + (tick[slot] ? tick[slot].reward : 0), 0);
    return `${agent.name} ${number(earned)}`;
  });
  const what = one.interest.length ? ` (${one.interest.join(", ")})` : "";
  const shown = sums.length > 4 ? `${sums.slice(0, 3).join(", ")}, \u2026` : sums.join(", ");
  return `${index + 1}${what}: ${shown}`;
}

// Shows episodes in the elements of replay.html; keys are those pressed within `root`.
function startReplay(data, root) {
  view.data = data;
  byId("episode").replaceChildren(
    ...view.data.episodes.map((one, index) => make("option", {}, episodeName(one, index))),
  );
  byId("slider").addEventListener("input", (event) => {
    if (view.timer) pause();
    go(Number(event.target.value));
  });
  byId("episode").addEventListener("change", (event) => chooseEpisode(event.target.selectedIndex));
  byId("measure").addEventListener("change", showChart);
  byId("speed").addEventListener("change", () => view.timer && play());
  const buttons = {
    first: () => go(0), back: () => go(view.tick - 1), play: toggle,
    forward: () => go(view.tick + 1), last: () => go(numTicks()), mistake: () => nextMistake(false),
  };
  for (const [id, act] of Object.entries(buttons)) byId(id).addEventListener("click", act);
  root.addEventListener("keydown", (event) => {
    const typing = event.target.closest("select,input:not([type=range])");
    const onButton = event.key === " " && event.target.closest("button");
    if (typing || onButton || event.ctrlKey || event.metaKey || event.altKey) return;
    const act = KEYS[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  });
  chooseEpisode(0);
}
