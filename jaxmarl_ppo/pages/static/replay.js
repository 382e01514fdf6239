// Watching episodes step by step.

const view = { data: null, episode: 0, step: 0, timer: null, plot: null, severalPlayers: false, showsScripts: false };

const episode = () => view.data.episodes[view.episode];
const numSteps = () => episode().steps.length;

function showPicture() {
  const { lines, frames } = episode();
  const picture = parsePicture(frames[view.step].map((k) => lines[k]).join("\n"));
  byId("picture").replaceChildren(picture);
  byId("picture-key").replaceChildren(...markChoices(picture));
}

// Marks in the picture what is done next and what would be best; gives the legend of these marks.
function markChoices(picture) {
  const seen = new Set();
  const mark = (slot, action, ...kinds) => {
    for (const place of picture.querySelectorAll(`[data-action="${action}"],[data-slot="${slot}"][data-shows="${action}"]`)) {
      place.classList.add(...kinds);
      for (const kind of kinds) seen.add(`${place.localName === "g" ? "way" : "cell"} ${kind}`);
    }
  };
  const slots = view.step === numSteps() ? [] : episode().steps[view.step];
  slots.forEach((now, slot) => {
    if (!now || !("action" in now) || Array.isArray(now.action)) return;
    // Where every move is a best one, marks on all of them would say nothing.
    const good = now.all_best ? [] : now.best || ("advice" in now ? [now.advice] : []);
    if (now.all_best) seen.add("all best");
    for (const action of good) mark(slot, action, "best");
    mark(slot, now.action, "chosen", ...("mistake" in now ? [now.mistake ? "wrong" : "right"] : []));
  });
  // Frames within their cells, so that those of neighbours do not touch.
  for (const cell of picture.querySelectorAll("rect[data-action].best:not(.chosen)")) {
    const [x, y, width, height] = ["x", "y", "width", "height"].map((name) => Number(cell.getAttribute(name)));
    const inset = 0.14 * Math.min(width, height);
    cell.after(draw("rect", { class: "best-frame", x: x + inset, y: y + inset, width: width - 2 * inset, height: height - 2 * inset, rx: inset / 2 }));
  }
  const frame = (kind, words) => make("span", {}, make("i", { className: `frame ${kind}` }), words);
  const legend = [];
  if (seen.has("cell wrong")) legend.push(frame("wrong", "next move, a mistake"));
  else if (seen.has("cell right")) legend.push(frame("right", "next move, a best one"));
  else if (seen.has("cell chosen")) legend.push(frame("", "next move"));
  if (seen.has("all best")) legend.push(make("span", {}, "every move is a best one"));
  if (seen.has("cell best")) legend.push(frame("best", "best moves"));
  if (seen.has("cell chosen") && view.step) legend.push(frame("before", "last move"));
  if (seen.has("way chosen")) legend.push(make("span", {}, "thick arrow: what is done next"));
  if (picture.querySelector("[data-shows].best:not(.chosen)")) legend.push(make("span", {}, `dashed arrow: what ${episode().reference} would do`));
  return legend;
}

function describe() {
  const title = byId("picture").querySelector("title");
  return title ? title.textContent : `Step ${view.step}`;
}

// Lines over steps, which break where a life ends or nobody is there: who comes next is another one.
function series(measure) {
  return view.data.agents.map((_, slot) => {
    const points = [];
    let sum = 0;
    episode().steps.forEach((step, t) => {
      const now = step[slot];
      if (now) {
        sum += now.reward;
        const value = measure === "return" ? sum : now[measure];
        // An agent that waits goes on where it was.
        if (value !== undefined) points.push([t, value]);
      }
      if (now && !now.end) return;
      sum = 0;
      if (points.length && points.at(-1)[1] !== null) points.push([t, null]);
    });
    return points;
  });
}

function showChart() {
  const measure = byId("measure");
  const lines = series(measure.value).map((points, slot) => ({
    points, hue: slot, dash: dashOf(slot), sign: view.data.agents[slot].sign, name: view.data.agents[slot].name,
  }));
  const label = `${measure.selectedOptions[0].text} of every agent over steps`;
  drawInto(byId("chart"), (width) => {
    const plot = lineChart(lines, { label, width, from: 0, to: Math.max(numSteps(), 1), nameX: "step" });
    plot.chart.append(draw("line", { id: "now", y1: 4, y2: plot.height, style: "stroke:var(--ink);stroke-width:1.2" }));
    plot.chart.addEventListener("click", (event) => go(Math.round(plot.atPixel(event))));
    view.plot = plot;
    byId("chart").replaceChildren(plot.chart);
    moveNow();
  });
  const shown = lines.filter(({ points }) => points.length);
  byId("legend").replaceChildren(...shown.map((line) => make("span", {}, lineSample(line), line.name)));
}

function moveNow() {
  for (const end of ["x1", "x2"]) byId("now").setAttribute(end, view.plot.x(view.step));
}

const isMistake = (step) => step.some((slot) => slot && slot.mistake);

// Above, mistakes by the signs of those who make them; below, where somebody earns or loses. What is
// so at many steps is for the chart to show.
function showMarks() {
  const { steps } = episode();
  // The slider's knob is 16 pixels wide, and stays within its ends.
  const place = (mark, t) => {
    mark.style.left = `calc(8px + (100% - 16px) * ${t / Math.max(steps.length, 1)})`;
    return mark;
  };
  const sign = (slot) => make("span", { className: "mistake" }, parsePicture(view.data.agents[slot].sign));
  const mistakes = steps.flatMap((step, t) => step.flatMap((now, slot) => (now && now.mistake ? [place(sign(slot), t)] : [])));
  const key = (kind, words) => make("span", {}, make("i", { className: kind }), words);
  const rows = [["mistakes", mistakes, key("mistake", "mistake, below the sign of who makes it")]];
  for (const [kind, isSo, words] of [["earned", (x) => x > 0, "somebody earns"], ["lost", (x) => x < 0, "somebody loses"]]) {
    const found = steps.flatMap((step, t) => (step.some((now) => now && isSo(now.reward)) ? [t] : []));
    const few = found.length <= Math.max(3, steps.length / 4);
    rows.push(["rewards", few ? found.map((t) => place(make("i", { className: kind }), t)) : [], key(kind, words)]);
  }
  const shown = rows.filter(([, marks]) => marks.length);
  byId("marks").replaceChildren(...shown.map(([className, marks]) => make("div", { className }, ...marks)));
  byId("marks-key").replaceChildren(...shown.map(([, , words]) => words));
  const known = steps.some((step) => step.some((slot) => slot && "mistake" in slot));
  for (const id of ["mistake", "mistake-key"]) byId(id).hidden = !known;
  byId("mistake").disabled = !mistakes.length;
}

function showStep() {
  showPicture();
  showAgents();
  moveNow();
  byId("slider").value = view.step;
  byId("slider").setAttribute("aria-valuetext", `step ${view.step} of ${numSteps()}`);
  byId("step").textContent = `step ${view.step} of ${numSteps()}`;
  for (const id of ["first", "back"]) byId(id).disabled = view.step === 0;
  for (const id of ["forward", "last"]) byId(id).disabled = view.step === numSteps();
  // Not while it plays, which would be more words than anybody can say.
  if (!view.timer) byId("spoken").textContent = describe();
}

function go(step) {
  view.step = Math.max(0, Math.min(numSteps(), step));
  showStep();
}

function pause() {
  clearInterval(view.timer);
  view.timer = null;
  byId("play").textContent = "Play";
  byId("spoken").textContent = describe();
}

function play() {
  if (view.step === numSteps()) view.step = 0;
  byId("play").textContent = "Pause";
  clearInterval(view.timer);
  view.timer = setInterval(() => {
    if (view.step < numSteps()) go(view.step + 1);
    if (view.step === numSteps()) pause();
  }, 1000 / Number(byId("speed").value));
}

const toggle = () => (view.timer ? pause() : play());

function nextMistake(backwards) {
  const found = episode().steps.map((step, t) => (isMistake(step) ? t : -1)).filter((t) => t >= 0);
  if (!found.length) return;
  if (view.timer) pause();
  const later = backwards ? found.filter((t) => t < view.step) : found.filter((t) => t > view.step);
  go(later.length ? (backwards ? later.at(-1) : later[0]) : backwards ? found.at(-1) : found[0]);
}

function chooseEpisode(index) {
  if (view.timer) pause();
  view.episode = index;
  view.step = 0;
  byId("episode").selectedIndex = index;
  byId("slider").max = numSteps();
  showMarks();
  showChart();
  showStep();
}

const KEYS = {
  " ": toggle,
  ArrowLeft: () => go(view.step - 1),
  ArrowRight: () => go(view.step + 1),
  Home: () => go(0),
  End: () => go(numSteps()),
  m: () => nextMistake(false),
  M: () => nextMistake(true),
  e: () => chooseEpisode((view.episode + 1) % view.data.episodes.length),
};

function episodeName(one, index) {
  const { agents } = view.data;
  const sums = agents.map((_, slot) => one.steps.reduce((sum, step) => sum + (step[slot] ? step[slot].reward : 0), 0));
  const what = one.interest.length ? ` (${one.interest.join(", ")})` : "";
  const together = agents.length > 1 && sums.every((sum) => sum === sums[0]);
  const shown = sums.map((sum, slot) => `${agents[slot].name} ${number(sum)}`).join(", ");
  const all = number(sums.reduce((sum, x) => sum + x, 0));
  return `${index + 1}${what}: ${together ? `each ${number(sums[0])}` : agents.length > 4 ? `all together ${all}` : shown}`;
}

// Shows episodes in the elements of replay.html; keys are those pressed within `root`.
function startReplay(data, root) {
  view.data = data;
  const holds = (one) => one.steps.flatMap((step) => step.flatMap((now) => (now ? [one.names[now.player]] : [])));
  view.severalPlayers = new Set(data.episodes.flatMap(holds)).size > 1;
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
    first: () => go(0), back: () => go(view.step - 1), play: toggle,
    forward: () => go(view.step + 1), last: () => go(numSteps()), mistake: () => nextMistake(false),
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
