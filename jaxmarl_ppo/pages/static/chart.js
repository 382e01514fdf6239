// Lines over time, drawn at the width at which they stand, so that a phone shows words of full size.

const HUES = ["blue", "vermilion", "green", "purple", "orange", "sky"];
const DASHES = ["", "6 3", "2 3", "9 3 2 3"];
const hueOf = (index) => `var(--${HUES[index % HUES.length]})`;
const dashOf = (index) => DASHES[Math.floor(index / HUES.length) % DASHES.length];
function number(x) {
  if (Math.abs(x) >= 1e4) return Math.round(x).toLocaleString("en");
  return Math.abs(x) >= 100 ? x.toFixed(0) : Number(x.toPrecision(3)).toString();
}

const SVG = "http://www.w3.org/2000/svg";
function draw(tag, properties, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(properties)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

// The shapes of agents' signs: corners, and where the first one is, in half turns.
const SHAPES = [null, [4, 0.25], [3, -0.5], [4, 0], [6, 0], [3, 0.5]];
const shapeOf = (index) => (index + Math.floor(index / SHAPES.length)) % SHAPES.length;

// A point of a line: the sign of whoever it is of, or the shape of its number.
function marker({ sign, shape, hue }, x, y, radius) {
  if (sign) {
    const picture = parsePicture(sign);
    const place = { class: "state marker", x: x - 1.7 * radius, y: y - 1.7 * radius, width: 3.4 * radius, height: 3.4 * radius };
    for (const [name, value] of Object.entries(place)) picture.setAttribute(name, value);
    return picture;
  }
  const outline = SHAPES[shapeOf(shape ?? hue)];
  const style = `fill:${hueOf(hue)}`;
  if (!outline) return draw("circle", { class: "marker", cx: x.toFixed(1), cy: y.toFixed(1), r: radius, style });
  const [corners, turn] = outline;
  const reach = radius * (corners === 3 ? 1.45 : 1.25);
  const points = Array.from({ length: corners }, (_, k) => {
    const angle = Math.PI * ((2 * k) / corners + turn);
    return `${(x + reach * Math.cos(angle)).toFixed(1)} ${(y + reach * Math.sin(angle)).toFixed(1)}`;
  });
  return draw("path", { class: "marker", d: `M${points.join("L")}Z`, style });
}

const goalLine = (x1, x2, y) =>
  draw("line", { class: "goal", x1, x2, y1: y, y2: y, style: "stroke:var(--ink);stroke-width:1.6", "stroke-dasharray": "2 4" });

const sample = (...parts) => draw("svg", { class: "state sample", viewBox: "0 0 36 18", "aria-hidden": "true" }, ...parts);

const bandSample = ({ hue }) => sample(draw("rect", { x: 0, y: 2, width: 36, height: 14, style: `fill:${hueOf(hue)};opacity:.3` }));

// How a line looks, to stand before its name.
function lineSample(line) {
  const stroke = draw("line", { x1: 0, x2: 36, y1: 9, y2: 9, style: `stroke:${hueOf(line.hue)};stroke-width:2.4`, "stroke-dasharray": line.dash || "" });
  return sample(stroke, marker(line, 18, 9, line.sign ? 5.2 : 4));
}

// From the widest step of one, two or five down, the first that suits.
function stepFor(span, suits) {
  for (let power = Math.ceil(Math.log10(span)); power > -300; power--)
    for (const times of [5, 2, 1]) if (suits(times * 10 ** power)) return times * 10 ** power;
  return span;
}

function ticksBetween(low, high, step) {
  const ticks = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9; k++) ticks.push(k * step);
  return ticks;
}

// Names numbers of an axis in one unit, as exactly as its step needs.
function axisNumbers(ticks, step) {
  const largest = Math.max(...ticks.map(Math.abs));
  const [unit, size] = [["G", 1e9], ["M", 1e6], ["k", 1e3]].find(([, size]) => largest >= Math.max(size, 1e4)) || ["", 1];
  const digits = Math.ceil(-Math.log10(step / size) - 1e-9);
  if (digits > 4) return ticks.map((x) => (x ? x.toExponential(1) : "0"));
  return ticks.map((x) => (Math.abs(x) < step / 2 ? "0" : (x / size).toFixed(Math.max(0, digits)) + unit));
}

// Stretches of points without a gap, which is a point without a y.
function stretches(points) {
  const found = [[]];
  for (const point of points) point[1] === null ? found.push([]) : found.at(-1).push(point);
  return found.filter((stretch) => stretch.length);
}

// Where numbers of both axes lie, and which of them are named.
function scalesOf(ys, { width, height, from, to }) {
  let [low, high] = [Math.min(...ys), Math.max(...ys)];
  if (!ys.length || low === high) [low, high] = [(ys[0] || 0) - 1, (ys[0] || 0) + 1];
  const step = stepFor(high - low, (size) => ticksBetween(low, high, size).length >= 3);
  const ticksY = ticksBetween(low, high, step);
  const namesY = axisNumbers(ticksY, step);
  const [left, right, top, bottom] = [14 + 7 * Math.max(...namesY.map((name) => name.length)), width - 14, 12, height - 40];
  const span = Math.max(to - from, 1e-9);
  const stepX = stepFor(span, (size) => (size * (right - left)) / span <= Math.max(140, (right - left) / 3));
  const ticksX = ticksBetween(from, to, stepX);
  return {
    left, right, top, bottom, ticksX, ticksY, namesY, namesX: axisNumbers(ticksX, stepX),
    x: (value) => left + ((right - left) * (value - from)) / span,
    y: (value) => top + ((bottom - top) * (high - value)) / (high - low),
    back: (pixel) => from + ((pixel - left) * span) / (right - left),
  };
}

function drawAxes(chart, scales, nameX) {
  const { left, right, bottom, x, y } = scales;
  scales.ticksY.forEach((value, k) =>
    chart.append(
      draw("line", { x1: left, x2: right, y1: y(value), y2: y(value), style: "stroke:var(--edge);stroke-width:.6" }),
      draw("text", { class: "y", x: left - 7, y: y(value) + 4, "text-anchor": "end" }, scales.namesY[k]),
    ),
  );
  scales.ticksX.forEach((value, k) =>
    chart.append(draw("text", { class: "x", x: x(value), y: bottom + 16, "text-anchor": x(value) > right - 16 ? "end" : "middle" }, scales.namesX[k])),
  );
  chart.append(draw("text", { x: (left + right) / 2, y: bottom + 34, "text-anchor": "middle" }, nameX));
}

function drawLine(line, index, { left, right, x, y }) {
  const { points, hue, dash, band, opacity } = line;
  const group = draw("g", opacity ? { opacity } : {});
  const parts = stretches(points);
  const path = (some) => some.map(([at, value]) => `${x(at).toFixed(1)} ${y(value).toFixed(1)}`).join("L");
  if (!parts.length) return group;
  if (band) group.append(draw("path", { d: `M${path(band[0])}L${path([...band[1]].reverse())}Z`, class: "band", style: `fill:${hueOf(hue)};opacity:.16` }));
  group.append(draw("path", { d: parts.map((part) => `M${path(part)}`).join(""), class: "line", style: `fill:none;stroke:${hueOf(hue)};stroke-width:1.8`, "stroke-dasharray": dash || "" }));
  // Signs along the line, those of several lines not at the same places.
  const all = parts.flat();
  const gap = all.length * 26 < right - left ? 0 : 110;
  let next = gap ? left + ((37 * index) % gap) : 0;
  for (const [at, value] of all) {
    if (x(at) < next && all.length > 1) continue;
    group.append(marker(line, x(at), y(value), line.sign ? 4.2 : 3.2));
    next = x(at) + gap;
  }
  return group;
}

// Periods with other numbers than those before and after, by turns darker, named where there is room.
function drawPeriods(chart, periods, { x, top, bottom }) {
  periods.forEach(({ from, to, name }, k) => {
    const [left, width] = [x(from), x(to) - x(from)];
    const opacity = k % 2 ? 0.1 : 0.04;
    const style = `fill:var(--ink);opacity:${opacity}`;
    chart.append(draw("rect", { class: "period", x: left.toFixed(1), width: Math.max(0, width).toFixed(1), y: top, height: bottom - top, style }));
    if (7 * name.length < width) chart.append(draw("text", { class: "period", x: left + width / 2, y: top + 12, "text-anchor": "middle" }, name));
  });
}

// `lines` are { points, hue, dash, shape or sign, band, opacity }: points and the band's two edges are lists of
// [x, y], and a y of null breaks a line. `goals` are { at, name }, known numbers to compare with, which a legend names;
// `periods` are { from, to, name }.
// The result is an SVG element, and where it has numbers of its axes, and the x axis the other way round.
function lineChart(lines, { label, width, height = 220, from, to, nameX, goals = [], periods = [] }) {
  const points = lines.flatMap(({ points, band }) => [...points, ...(band ? band.flat() : [])]);
  const ys = [...points.map(([, y]) => y).filter((y) => y !== null), ...goals.map(({ at }) => at)];
  const scales = scalesOf(ys, { width, height, from, to });
  const { left, right, x, y } = scales;
  const chart = draw("svg", { viewBox: `0 0 ${width} ${height}`, width, height, class: "state chart", role: "img", "aria-label": label });
  drawPeriods(chart, periods, scales);
  drawAxes(chart, scales, nameX);
  chart.append(...lines.map((line, index) => drawLine(line, index, scales)));
  for (const { at } of goals) chart.append(goalLine(left, right, y(at)));
  const atPixel = (event) => {
    const box = chart.getBoundingClientRect();
    return scales.back(((event.clientX - box.left) / box.width) * width);
  };
  return { chart, x, y, atPixel, height: scales.bottom };
}

// Draws into an element at its width, and again whenever that is another one.
const drawers = new Map();
const widths = new ResizeObserver((changes) =>
  requestAnimationFrame(() => {
    for (const { target } of changes) drawAtWidth(target);
  }),
);
function drawInto(element, drawAt) {
  drawers.set(element, { drawAt, width: 0 });
  widths.observe(element);
  drawAtWidth(element);
}
function drawAtWidth(element) {
  const drawer = drawers.get(element);
  const width = Math.max(260, Math.floor(element.clientWidth));
  if (width === drawer.width) return;
  drawer.width = width;
  drawer.drawAt(width);
}
