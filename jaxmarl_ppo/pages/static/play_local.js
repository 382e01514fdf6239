// The table is in this page, with the rules of the game and the players as programs.

const table = { now: null, end: null, past: [], persons: [], choices: {}, earned: [], programs: {}, data: null };

const numbers = (array) => Array.from(array.data);
const actors = (look) => numbers(look.acts).map((acts, slot) => Boolean(acts) && !(slot in table.choices));

function look() {
  const [cells, acts, legal, players] = table.programs.look(table.now);
  return { cells: table.end || cells, acts, legal, players };
}

function legalActions(seen, slot) {
  const width = seen.legal.shape[1];
  return numbers(seen.legal).slice(slot * width, (slot + 1) * width).flatMap((x, action) => (x ? [action] : []));
}

const waitsFor = (seen) => (table.end ? [] : actors(seen).flatMap((acts, slot) => (acts && table.persons.includes(slot) ? [slot] : [])));

function step(actions) {
  const num = table.data.agents.length;
  const [chosen, byPerson] = [newArray("int32", [num]), newArray("bool", [num])];
  for (const [slot, action] of Object.entries(actions)) [chosen.data[slot], byPerson.data[slot]] = [action, 1];
  table.past.push({ now: table.now, earned: table.earned });
  const found = table.programs.tick([...table.now, chosen, byPerson]);
  const [reward, over, end] = found.slice(-3);
  table.now = found.slice(0, -4);
  table.earned = table.earned.map((sum, slot) => sum + reward.data[slot]);
  table.end = over.data[0] ? end : null;
  return numbers(found.at(-4));
}

function goOn() {
  for (let count = 0; count < 10000; count++) {
    if (table.end || waitsFor(look()).length || !table.persons.length) return;
    step({});
  }
}

function newKey() {
  return newArray("uint32", [2], crypto.getRandomValues(new Uint32Array(2)));
}

function beginGame(key) {
  Object.assign(table, { now: table.programs.begin([key]), end: null, past: [], choices: {} });
  table.earned = table.data.agents.map(() => 0);
}

const cellName = (row, col) => (col < 26 ? `${String.fromCharCode(97 + col)}${row + 1}` : `${row + 1}.${col + 1}`);

// The first and the last cell of stones in a row that have won, by their places; none without such.
function winningLine(cells, length) {
  const [rows, cols] = cells.shape;
  const held = (row, col) => (row >= 0 && row < rows && col >= 0 && col < cols ? cells.data[row * cols + col] : -1);
  for (let place = 0; place < rows * cols; place++) {
    const [row, col] = [Math.floor(place / cols), place % cols];
    if (cells.data[place] < 0) continue;
    for (const [down, right] of [[0, 1], [1, 0], [1, 1], [1, -1]]) {
      const line = Array.from({ length }, (_, k) => [row + k * down, col + k * right]);
      if (line.every(([r, c]) => held(r, c) === cells.data[place])) return [line[0], line.at(-1)];
    }
  }
  return null;
}

// The board, with crosses and rings in the colours of their slots.
function drawCells(cells, before) {
  const [rows, cols] = cells.shape;
  const byColumn = table.data.num_actions === cols && rows > 1;
  const parts = [];
  const held = table.data.agents.map(() => []);
  forEach(cells.shape, ([row, col], place) => {
    const owner = cells.data[place];
    const [left, top] = [12 + 40 * col, 12 + 40 * row];
    const isNew = before && owner >= 0 && before.data[place] < 0;
    const frame = isNew ? "stroke:var(--ink);stroke-width:1.5" : "stroke:none";
    parts.push(`<rect x="${left + 1}" y="${top + 1}" width="38" height="38" rx="4" data-action="${byColumn ? col : place}" style="fill:var(--field);${frame}"/>`);
    const name = cellName(row, col);
    if (owner >= 0) held[owner].push(name);
    const [x, y] = [left + 20, top + 20];
    if (owner === 0) parts.push(`<path d="M${x - 10} ${y - 10}L${x + 10} ${y + 10}M${x - 10} ${y + 10}L${x + 10} ${y - 10}" style="fill:none;stroke:var(--blue);stroke-width:5" pointer-events="none"/>`);
    else if (owner === 1) parts.push(`<circle cx="${x}" cy="${y}" r="11" style="fill:none;stroke:var(--vermilion);stroke-width:5" pointer-events="none"/>`);
    else if (!byColumn) parts.push(`<text x="${x}" y="${y + 3}" text-anchor="middle" font-size="9" style="fill:var(--faint)">${name}</text>`);
  });
  const line = table.data.in_a_row ? winningLine(cells, table.data.in_a_row) : null;
  if (line) {
    const points = line.map(([row, col]) => `${32 + 40 * col} ${32 + 40 * row}`);
    parts.push(`<path class="won" d="M${points.join("L")}" style="fill:none;stroke:var(--ink);stroke-width:2.5" pointer-events="none"/>`);
  }
  const said = held.map((names, slot) => `${slot ? "ring" : "cross"}: ${names.join(", ") || "none"}`).join("; ");
  const size = `0 0 ${24 + 40 * cols} ${24 + 40 * rows}`;
  return `<svg xmlns="http://www.w3.org/2000/svg" class="state" viewBox="${size}" role="img" font-family="system-ui,sans-serif"><title>Board after ${held.flat().length} moves; ${said}</title>${parts.join("")}</svg>`;
}

function viewOf() {
  const seen = look();
  const acts = actors(seen);
  const before = table.past.length ? table.programs.look(table.past.at(-1).now)[0] : null;
  return {
    picture: drawCells(seen.cells, before),
    over: Boolean(table.end),
    turn: table.end ? [] : acts.flatMap((x, slot) => (x ? [slot] : [])),
    agents: table.data.agents.map(({ name }, slot) => ({
      name, person: table.persons.includes(slot), return: table.earned[slot],
      player: table.data.players[seen.players.data[slot]],
    })),
    legal: Object.fromEntries(waitsFor(seen).map((slot) => [slot, legalActions(seen, slot)])),
    mine: table.persons,
  };
}

const DOES = {
  begin({ seats }) {
    if (!seats.length) throw new Error("choose a side to play");
    table.persons = seats;
    beginGame(newKey());
    goOn();
  },
  act({ slot, action }) {
    table.choices[slot] = action;
    if (waitsFor(look()).length) return;
    step(table.choices);
    table.choices = {};
    goOn();
  },
  undo() {
    for (let k = table.past.length - 1; k >= 0; k--) {
      const acts = table.programs.look(table.past[k].now)[1];
      if (!table.persons.some((slot) => acts.data[slot])) continue;
      Object.assign(table, table.past[k], { end: null, choices: {} });
      table.past.length = k;
      return;
    }
    throw new Error("there is nothing to undo");
  },
  hint({ slot }) {
    const [probs, value] = table.programs.ask(table.now);
    const width = probs.shape[1];
    const hints = {};
    if (Number.isFinite(value.data[slot])) {
      hints.value = value.data[slot];
      hints.probs = Object.fromEntries(legalActions(look(), slot).map((k) => [k, probs.data[slot * width + k]]));
    }
    return { hints, slot };
  },
};

// Games that were played where the players come from: the same is to be computed here.
function largestDifference() {
  let largest = 0;
  for (const { key, steps } of table.data.checks) {
    beginGame(newArray("uint32", [2], Uint32Array.from(key)));
    for (const { actions, probs } of steps) {
      const found = table.programs.ask(table.now)[0].data;
      probs.forEach((p, k) => p !== null && (largest = Math.max(largest, Math.abs(p - found[k]))));
      step({ ...actions });
    }
  }
  return largest;
}

function connect(data) {
  table.data = data;
  for (const [name, program] of Object.entries(data.programs)) table.programs[name] = readProgram(program);
  byId("together").remove();
  if (!(largestDifference() < 1e-3)) {
    byId("error").textContent = "This browser does not compute what was trained; nothing can be played here.";
    return;
  }
  game.send = (message) => {
    try {
      hear(DOES[message.do](message) || viewOf());
    } catch (error) {
      hear({ error: error.message });
    }
  };
  say({ do: "begin", seats: chosenSides() });
}
