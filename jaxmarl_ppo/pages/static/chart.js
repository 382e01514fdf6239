// Lines over time.

const HUES = ["blue", "vermilion", "green", "purple", "orange", "sky"];
const DASHES = ["", "6 3", "2 3", "9 3 2 3"];
const hueOf = (index) => `var(--${HUES[index % HUES.length]})`;
const dashOf = (index) => DASHES[Math.floor(index / HUES.length) % DASHES.length];
const number = (x) => (Math.abs(x) >= 100 ? x.toFixed(0) : Number(x.toPrecision(3)).toString());

// With a unit, as an axis has room for.
function shortNumber(x) {
  for (const [unit, size] of [["G", 1e9], ["M", 1e6], ["k", 1e3]])
    if (Math.abs(x) >= size) return `${Number((x / size).toPrecision(3))}${unit}`;
  return number(x);
}

const SVG = "http://www.w3.org/2000/svg";
function draw(tag, properties, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(properties)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

// Round numbers within two others, some four of them.
function ticksBetween(low, high) {
  const rough = (high - low) / 4;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find((times) => times * power >= rough) * power;
  const ticks = [];
  for (let k = Math.ceil(low / step); k * step <= high + step * 1e-9; k++) ticks.push(k * step);
  return ticks;
}

// `lines` are { points, hue, dash, band }: points and the band's two edges are lists of [x, y].
// The result is an SVG element, and where it has numbers of its axes, and the other way round.
function lineChart(lines, { label, height = 210, from, to, showX = shortNumber }) {
  const [width, left, right, bottom] = [760, 52, 12, 22];
  const ys = lines.flatMap(({ points, band }) => [...points, ...(band ? band.flat() : [])].map(([, y]) => y));
  let [low, high] = [Math.min(...ys), Math.max(...ys)];
  if (!ys.length || low === high) [low, high] = [(ys[0] || 0) - 1, (ys[0] || 0) + 1];
  const span = Math.max(to - from, 1e-9);
  const x = (value) => left + ((width - left - right) * (value - from)) / span;
  const y = (value) => 8 + ((height - bottom - 8) * (high - value)) / (high - low);
  const chart = draw("svg", { viewBox: `0 0 ${width} ${height}`, class: "state chart", role: "img", "aria-label": label });
  for (const value of ticksBetween(low, high))
    chart.append(
      draw("line", { x1: left, x2: width - right, y1: y(value), y2: y(value), style: "stroke:var(--edge);stroke-width:.5" }),
      draw("text", { x: left - 6, y: y(value) + 4, "text-anchor": "end" }, shortNumber(value)),
    );
  for (const [value, anchor] of [[from, "start"], [to, "end"]])
    chart.append(draw("text", { x: x(value), y: height - 5, "text-anchor": anchor }, showX(value)));
  const path = (points) => points.map(([at, value]) => `${x(at).toFixed(1)} ${y(value).toFixed(1)}`).join("L");
  for (const { points, hue, dash, band } of lines) {
    if (!points.length) continue;
    if (band) chart.append(draw("path", { d: `M${path(band[0])}L${path([...band[1]].reverse())}Z`, class: "band", style: `fill:${hueOf(hue)};opacity:.16` }));
    chart.append(draw("path", { d: `M${path(points)}`, class: "line", style: `fill:none;stroke:${hueOf(hue)};stroke-width:1.8`, "stroke-dasharray": dash || "" }));
    if (points.length < 40)
      for (const [at, value] of points) chart.append(draw("circle", { cx: x(at), cy: y(value), r: 2.6, style: `fill:${hueOf(hue)}` }));
  }
  const atPixel = (event) => {
    const box = chart.getBoundingClientRect();
    return from + ((((event.clientX - box.left) / box.width) * width - left) * span) / (width - left - right);
  };
  return { chart, x, y, atPixel, height: height - bottom };
}
