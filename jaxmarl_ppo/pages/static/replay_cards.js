// What every agent decides in the picture that is shown, and how it stands.

// A picture stands between two steps: cards tell of the step that comes next.
function showAgents() {
  const steps = episode().steps;
  const atEnd = view.step === numSteps();
  const slots = atEnd ? [] : steps[view.step];
  const all = view.data.agents.map((_, slot) => slot);
  const acting = all.filter((slot) => slots[slot] && "action" in slots[slot]);
  const others = all.filter((slot) => !acting.includes(slot));
  byId("agents").replaceChildren(
    make("h2", {}, atEnd ? "The end" : `Next, at step ${view.step}`),
    ...acting.map((slot) => actingCard(slot, slots[slot])),
    ...(others.length ? [restCard(others, slots, atEnd)] : []),
  );
}

// Of the life that goes on, or has just ended with the episode: who is born again begins at nothing.
function returnSoFar(slot) {
  const steps = episode().steps;
  let sum = 0;
  for (let t = view.step - 1; t >= 0; t--) {
    const now = steps[t][slot];
    if (!now || (now.end && t < numSteps() - 1)) break;
    sum += now.reward;
  }
  return sum;
}

const actionName = (action) => (view.data.actions ? view.data.actions[action] : String(action));

// Names of actions are in the order of masks: the options of one choice after those of the other.
function factorName(column, otherwise) {
  const name = view.data.actions && view.data.actions[column];
  return name === undefined || name === null ? otherwise : name;
}

// A player is named where there are several, unless it is called as its agent is.
function holder(now, slot) {
  if (!now) return "";
  const name = episode().names[now.player];
  const elo = view.data.elo[name];
  if (elo !== undefined) return `${name}, Elo ${elo}`;
  return view.severalPlayers && name !== view.data.agents[slot].name ? name : "";
}

function standing(slot, now) {
  const words = [`return ${number(returnSoFar(slot))}`];
  if (now && now.reward) words.push(`earns ${number(now.reward)}`);
  if (now && now.end) words.push(now.end === "terminated" ? "its life ends" : "its life is cut off");
  return words;
}

// Those who decide nothing, in a line each for those that wait and those that are not there.
function restCard(others, slots, atEnd) {
  const chip = (slot, words) =>
    make("span", {}, parsePicture(view.data.agents[slot].sign), make("b", {}, view.data.agents[slot].name), words.filter(Boolean).join(", "));
  const card = make("section", { className: "card agent rest" });
  const waiting = atEnd ? others : others.filter((slot) => slots[slot]);
  if (waiting.length)
    card.append(
      make("div", { className: "row" }, make("span", { className: "does" }, atEnd ? "Returns" : "Wait"),
        ...waiting.map((slot) => chip(slot, [holder(slots[slot], slot), ...standing(slot, slots[slot])]))),
    );
  const away = atEnd ? [] : others.filter((slot) => !slots[slot]);
  if (away.length)
    card.append(make("div", { className: "row soft" }, make("span", { className: "does" }, "Not there"), ...away.map((slot) => chip(slot, []))));
  return card;
}

// Whether somebody else held the slot before, or nobody.
const isReborn = (slot) => episode().steps.slice(0, view.step).some((step) => !step[slot] || step[slot].end);

// A number with its explanation, for those who point at it.
const explained = (words, meaning) => make("abbr", { title: meaning }, words);

function actingCard(slot, now) {
  const agent = view.data.agents[slot];
  const head = make(
    "header", {}, parsePicture(agent.sign), make("b", {}, agent.name),
    make("span", { className: "who" }, holder(now, slot)),
  );
  const numbers = [...standing(slot, now)];
  if ("value" in now) numbers.push(explained(`value ${number(now.value)}`, "What its critic expects it to earn from here on"));
  if ("entropy" in now) {
    const most = now.probs ? ` and ${number(Math.log(now.probs.length))} for ${now.probs.length} equally likely actions` : "";
    numbers.push(explained(`entropy ${number(now.entropy)}`, `How undecided it is, in nats: 0 for a single action${most}`));
  }
  if (now.first && episode().remembers[now.player]) numbers.push("its memory is empty");
  else if (now.first && isReborn(slot)) numbers.push("a new life");
  const card = make("section", { className: "card agent acts" }, head);
  card.append(make("div", { className: "numbers" }, ...numbers.map((x) => make("span", {}, x))));
  card.append(...(now.choices ? factors(slot, now) : decision(now)));
  return card;
}

function decision(now) {
  const parts = [];
  if ("mistake" in now) {
    const best = now.best.map(actionName).join(", ");
    const words = now.mistake ? `Mistake: ${actionName(now.action)}, where best is ${best}` : `A best move: ${actionName(now.action)}`;
    parts.push(make("div", { className: now.mistake ? "bad" : "good" }, words));
  }
  if (now.probs) parts.push(bars(now));
  else if (!parts.length) {
    const action = Array.isArray(now.action) ? now.action.join(", ") : actionName(now.action);
    parts.push(make("div", { className: "numbers" }, `action ${action}`));
  }
  if ("advice" in now) parts.push(make("div", { className: "who" }, `\u2713 what ${episode().reference} would do${now.probs ? "" : `: ${actionName(now.advice)}`}`));
  if (now.scripts) parts.push(otherScripts(now.scripts));
  return parts;
}

// The three cells of a bar: its name, the bar, and words.
// A share of null has no bar.
function bar(name, isTaken, share, words) {
  const fill = make("i");
  fill.style.width = `${Math.round(100 * share)}%`;
  const line = make("span", { className: share === null ? "" : "bar" }, fill);
  return [make("span", { className: isTaken ? "taken" : "" }, name), line, make("span", {}, words)];
}

const percent = (share) => `${(100 * share).toFixed(share < 0.1 ? 1 : 0)} %`;

function bars(now) {
  const table = make("div", { className: "bars" });
  for (const [action, share, best] of now.probs) {
    const mark = best || action === now.advice ? " \u2713" : "";
    table.append(...bar(`${actionName(action)}${mark}`, action === now.action, share, percent(share)));
  }
  return table;
}

// A group of bars for every choice, and one of numbers, from the lowest to the highest.
function factors(slot, now) {
  const { starts, bounds } = view.data.layout;
  const groups = now.choices.map(({ taken, probs }, choice) => {
    const name = (option) => factorName(starts[choice] + option, String(option));
    const title = make("div", { className: "who" }, `choice ${choice + 1}`);
    const rows = (probs || []).flatMap(([option, share]) => bar(name(option), option === taken, share, percent(share)));
    const said = make("div", { className: "numbers" }, name(taken));
    return make("div", { className: "factor" }, title, probs ? make("div", { className: "bars" }, ...rows) : said);
  });
  const rows = now.numbers.flatMap((x, k) => {
    const [low, high] = bounds[slot][k];
    const name = factorName(starts.at(-1) + k, `number ${k + 1}`);
    if (low === null || high === null) return bar(name, true, null, number(x));
    const share = high > low ? (x - low) / (high - low) : 0;
    return bar(name, true, share, `${number(x)} (${number(low)} to ${number(high)})`);
  });
  if (rows.length) groups.push(make("div", { className: "factor" }, make("div", { className: "bars" }, ...rows)));
  return groups;
}

function otherScripts(scripts) {
  const said = Object.entries(scripts).map(([name, action]) => make("div", {}, `${name}: ${actionName(action)}`));
  const fold = make("details", { className: "scripts", open: view.showsScripts }, make("summary", {}, "Other scripts"), ...said);
  fold.addEventListener("toggle", () => (view.showsScripts = fold.open));
  return fold;
}
