// Elements, numbers as people read them, and scales.
const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === false || value === undefined) continue;
    element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

const svg = (tag, attributes = {}, ...children) =>
  fill(document.createElementNS(SVG, tag), attributes, children);
const tag = (name, attributes = {}, ...children) =>
  fill(document.createElement(name), attributes, children);

const whole = (value) => (value === null ? "unknown" : Math.round(value).toLocaleString("en-US"));
const percent = (value) => `${Math.round(value * 1e4) / 100}%`;
const count = (n, noun) => `${whole(n)} ${noun}${n === 1 ? "" : "s"}`;

function short(tokens) {
  for (const [unit, size] of [["M", 1024 ** 2], ["k", 1024]])
    if (tokens >= size) return `${Number((tokens / size).toPrecision(3))}${unit}`;
  return `${Number(tokens.toPrecision(3))}`;
}

// Powers of two, thinned or filled, as in the printed picture.
function logTicks(low, high, most) {
  const first = Math.ceil(Math.log2(low) - 1e-9), last = Math.floor(Math.log2(high) + 1e-9);
  const powers = [];
  for (let e = first; e <= last; e++) powers.push(2 ** e);
  if (powers.length >= 4) {
    const step = Math.ceil(powers.length / most);
    return powers.filter((_, i) => i % step === (powers.length - 1) % step);
  }
  for (const parts of [2, 4, 8, 16, 32]) {
    const fine = [];
    for (let e = first - 1; e <= last; e++)
      for (let i = 0; i < parts; i++) fine.push(2 ** e * (1 + i / parts));
    const inside = fine.filter((t) => t >= low && t <= high && (t >= parts || Number.isInteger(t)));
    if (inside.length >= 3) return inside.filter((_, i) => i % Math.ceil(inside.length / most) === 0);
  }
  return powers;
}

function linearTicks(low, high, most) {
  const rough = (high - low) / Math.max(most - 1, 1);
  const unit = 2 ** Math.floor(Math.log2(rough));
  const step = unit >= rough ? unit : 2 * unit;
  const ticks = [];
  for (let t = Math.ceil(low / step) * step; t <= high; t += step) ticks.push(t);
  return ticks;
}

// The length axis: `at` gives the pixel of a length, `ticks` round lengths.
function lengthScale(seen, axis, left, right) {
  let low = Math.min(...seen), high = Math.max(...seen);
  if (axis === "log") {
    if (high < 2 * low) [low, high] = [low / 1.5, high * 1.5];
    const air = (high / low) ** 0.03, from = Math.log(low / air), to = Math.log(high * air);
    const at = (x) => left + ((Math.log(Math.max(x, 1e-9)) - from) / (to - from)) * (right - left);
    return { low: low / air, high: high * air, at, ticks: (most) => logTicks(low / air, high * air, most) };
  }
  low = 0;
  high *= 1.03;
  const at = (x) => left + ((x - low) / (high - low)) * (right - left);
  return { low, high, at, ticks: (most) => linearTicks(low, high, most) };
}
