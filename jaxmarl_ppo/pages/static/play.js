// Playing at a table.

// `send` is how the table is told; `connect` of another script sets it.
const game = { view: null, send: null, agents: [], hints: null, wantsHints: false, waits: false, chosen: [] };

const say = (message) => game.send(message);
// One move at a time: what is pressed before the table has answered was meant for another position.
function act(slot, action) {
  if (game.waits) return;
  game.waits = true;
  say({ do: "act", slot, action });
}
const mySlot = () => (game.view ? game.view.turn.find((slot) => game.view.mine.includes(slot)) : undefined);

function showPicture() {
  const picture = parsePicture(game.view.picture);
  byId("picture").replaceChildren(picture);
  const slot = mySlot();
  const options = slot === undefined ? [] : game.view.legal[slot] || [];
  if (Array.isArray(options[0])) return showChoices(slot, options);
  const legal = options;
  const places = new Map();
  for (const place of picture.querySelectorAll("[data-action]")) {
    const action = Number(place.dataset.action);
    const isFirst = !places.has(action);
    if (isFirst) places.set(action, place);
    if (!legal.includes(action)) continue;
    if (isBest(action)) place.classList.add("best");
    place.addEventListener("click", () => act(slot, action));
    // A picture that is played on is no single picture any more.
    picture.removeAttribute("role");
    place.classList.add("legal");
    // Of several places of an action one is enough for keys.
    if (!isFirst) continue;
    showShare(place, action);
    place.setAttribute("role", "button");
    place.setAttribute("tabindex", "0");
    place.setAttribute("aria-label", `play ${nameOf(action)}${thought(action)}`);
    place.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      act(slot, action);
    });
  }
  byId("actions").replaceChildren(
    ...legal.filter((action) => !places.has(action)).map((action) => {
      const button = make("button", { type: "button" }, `${nameOf(action)}${thought(action)}`);
      if (isBest(action)) button.classList.add("best");
      button.addEventListener("click", () => act(slot, action));
      return button;
    }),
  );
}

// A group of buttons for every choice; with one choice, its options are played at once.
function showChoices(slot, options) {
  const several = options.length > 1;
  options.forEach((legal, choice) => {
    if (legal.length === 1) game.chosen[choice] = legal[0];
  });
  const pick = (choice, option) => {
    if (!several) return act(slot, [option]);
    game.chosen[choice] = option;
    showChoices(slot, options);
    byId("actions").querySelector(`[data-choice="${choice}"][data-option="${option}"]`).focus();
  };
  const groups = options.map((legal, choice) => {
    const name = several ? `choice ${choice + 1}` : "action";
    const buttons = legal.map((option) => {
      const button = make("button", { type: "button" }, `${optionName(choice, option)}${thoughtOf(choice, option)}`);
      Object.assign(button.dataset, { choice, option });
      if (several) button.setAttribute("aria-pressed", String(game.chosen[choice] === option));
      button.addEventListener("click", () => pick(choice, option));
      return button;
    });
    const group = make("div", { className: "row choice", role: "group", "aria-label": name }, ...buttons);
    if (several) group.prepend(make("span", { className: "soft" }, name));
    return group;
  });
  if (several) {
    const isDone = options.every((legal, choice) => legal.includes(game.chosen[choice]));
    const go = make("button", { type: "button", id: "go", className: "main", disabled: !isDone }, "Play");
    go.addEventListener("click", () => act(slot, options.map((_, choice) => game.chosen[choice])));
    groups.push(go);
  }
  byId("actions").replaceChildren(...groups);
}

// Names of actions are in the order of masks: the options of one choice after those of the other.
const optionName = (choice, option) => nameOf(game.actions ? game.starts[choice] + option : option);

function thoughtOf(choice, option) {
  const shares = game.hints && game.hints.probs ? game.hints.probs[choice] : null;
  return shares ? ` (${percent(shares[option] || 0)})` : "";
}

const isBest = (action) => Boolean(game.hints && game.hints.best && game.hints.best.includes(action));

const shareOf = (action) => (game.hints && game.hints.probs ? game.hints.probs[action] || 0 : null);

const percent = (share) => `${(100 * share).toFixed(0)} %`;

function thought(action) {
  const share = shareOf(action);
  return share === null ? "" : ` (${percent(share)})`;
}

// How likely the policy holds a move, written at the foot of its place.
function showShare(place, action) {
  const share = shareOf(action);
  if (share === null) return;
  const { x, y, width, height } = place.getBBox();
  const words = document.createElementNS(place.namespaceURI, "text");
  const where = { class: "share", x: x + width / 2, y: y + 0.9 * height, "text-anchor": "middle", "font-size": 0.22 * height };
  for (const [name, value] of Object.entries(where)) words.setAttribute(name, value);
  words.textContent = percent(share);
  place.after(words);
}

function statusWords() {
  const { over, turn, mine, agents } = game.view;
  if (over) {
    const earned = mine.map((slot) => agents[slot].return);
    const mean = earned.reduce((sum, x) => sum + x, 0) / Math.max(earned.length, 1);
    if (mine.length !== 1) return "The game is over.";
    return mean > 0 ? "You have won." : mean < 0 ? "You have lost." : "A draw.";
  }
  const names = turn.map((slot) => agents[slot].name).join(", ");
  if (!mine.length) return `${names} to move; begin a game to play.`;
  return mySlot() === undefined ? `${names} to move.` : `Your move, as ${agents[mySlot()].name}.`;
}

function showAgents() {
  byId("agents").replaceChildren(
    ...game.view.agents.map((agent, slot) => {
      const who = !agent.person ? agent.player : game.view.mine.includes(slot) ? "you" : "somebody";
      const row = make(
        "div", { className: "row" }, parsePicture(game.agents[slot].sign), make("b", {}, agent.name),
        make("span", { className: "soft" }, who),
      );
      const card = make("div", { className: `card agent ${game.view.turn.includes(slot) ? "turn" : ""}` }, row);
      card.append(make("span", { className: "soft" }, `return ${agent.return}`));
      if (game.hints && game.hintSlot === slot) {
        const value = game.hints.value === undefined ? "" : `its policy expects ${game.hints.value.toFixed(2)}`;
        const best = game.hints.best ? `best: ${game.hints.best.map(nameOf).join(", ")}` : "";
        for (const words of [value, best]) if (words) card.append(make("span", {}, words));
      }
      return card;
    }),
  );
}

const nameOf = (action) => (game.actions && game.actions[action] !== undefined ? game.actions[action] : String(action));

function show() {
  showPicture();
  showAgents();
  byId("status").textContent = statusWords();
  byId("undo").disabled = !game.view.mine.length;
}

function see(view) {
  game.view = view;
  game.hints = null;
  game.chosen = [];
  game.waits = false;
  byId("error").textContent = "";
  show();
  if (game.wantsHints && mySlot() !== undefined) say({ do: "hint", slot: mySlot() });
}

function chosenSides() {
  return [...document.querySelectorAll("#sides input:checked")].flatMap((box) => box.value.split(",").map(Number));
}

// Of two sides one is chosen, or both for two people at one page; of more, any. Nobody can point at
// numbers, so agents whose actions have some are not offered.
function offerSides(agents, playable = agents.map((_, slot) => slot)) {
  const type = agents.length > 2 ? "checkbox" : "radio";
  const choices = playable.map((slot) => [String(slot), agents[slot].name]);
  if (agents.length === 2 && choices.length === 2) choices.push(["0,1", "both sides"]);
  choices.forEach(([value, name], index) => {
    const box = make("input", { type, name: "side", value, checked: index === 0 });
    byId("sides").append(make("label", {}, box, name));
  });
}

// What the table says, whether it is on a server or in this page.
function hear(message) {
  if (message.address) byId("address").value = message.address;
  else if (message.error) {
    game.waits = false;
    byId("error").textContent = message.error;
  }
  else if (message.hints) {
    game.hints = message.hints;
    game.hintSlot = message.slot;
    show();
  } else see(message);
}

async function start() {
  const data = await readData();
  game.agents = data.agents;
  game.actions = data.actions;
  game.starts = data.starts;
  setUpTheme(byId("theme"));
  byId("title").textContent = data.title;
  offerSides(data.agents, data.playable);
  byId("begin").addEventListener("click", () => say({ do: "begin", seats: chosenSides() }));
  byId("undo").addEventListener("click", () => say({ do: "undo", slot: game.view.mine[0] }));
  byId("hint").addEventListener("click", () => {
    game.wantsHints = !game.wantsHints;
    byId("hint").setAttribute("aria-pressed", String(game.wantsHints));
    see(game.view);
  });
  byId("address").addEventListener("focus", (event) => event.target.select());
  connect(data);
}

start();
