// One metric over context size: rounds, means with intervals, trend, the author's line.

function roundTicks(low, high, most) {
  const rough = (high - low) / most, unit = 10 ** Math.floor(Math.log10(rough));
  const step = unit * [1, 2, 2.5, 5, 10].find((f) => f * unit >= rough * (1 - 1e-9));
  const ticks = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; k++) ticks.push(Number((k * step).toPrecision(12)));
  return ticks;
}

const tickWords = (value) => (Math.abs(value) >= 1000 ? whole(value) : String(Number(value.toPrecision(6))));
const signed = (value) => `${value > 0 ? "+" : value < 0 ? "\u2212" : ""}${Number(Math.abs(value).toPrecision(2))}`;

const figuresOf = (data, row, key) => data.lines[row].metrics[key] ?? null;

// Every number that the panel shows: its axis holds them all, however far a collapse has gone.
function seenIn(data, key, state, rows) {
  const seen = [];
  for (const row of rows) {
    const own = figuresOf(data, row, key);
    if (!own) continue;
    seen.push(...own.mean);
    if (state.bars) seen.push(...own.low, ...own.high);
    if (state.rounds === row) seen.push(...own.rounds.flat());
  }
  if (state.author)
    for (const { line, figures } of data.authors)
      if (figures[key] && (line === null || rows.includes(line))) seen.push(...figures[key]);
  return seen.filter((value) => value !== null);
}

function valueScale(seen, labels, top, foot, inverted) {
  let low = Math.min(...seen), high = Math.max(...seen);
  if (labels.length) [low, high] = [Math.max(0, low - 1), Math.min(labels.length - 1, high + 1)];
  const flat = high - low < 1e-9 * Math.max(1, Math.abs(high));
  const air = flat ? Math.max(Math.abs(high) * 0.1, 0.05) : 0.06 * (high - low);
  [low, high] = [low - air, high + air];
  const at = (value) => {
    const share = (value - low) / (high - low);
    return foot - (inverted ? 1 - share : share) * (foot - top);
  };
  return { low, high, at };
}

// Monotone cubic through the points (Fritsch and Carlson 1980): no bump that the means lack.
function smoothPath(points) {
  const n = points.length;
  if (n < 3) return `M${points.map((p) => p.map((v) => v.toFixed(1)).join(" ")).join("L")}`;
  const step = [], slope = [];
  for (let i = 0; i + 1 < n; i++) {
    step.push(points[i + 1][0] - points[i][0]);
    slope.push((points[i + 1][1] - points[i][1]) / step[i]);
  }
  const tangent = points.map((_, i) => {
    if (i === 0) return slope[0];
    if (i === n - 1) return slope[n - 2];
    if (slope[i - 1] * slope[i] <= 0) return 0;
    const a = 2 * step[i] + step[i - 1], b = step[i] + 2 * step[i - 1];
    return (a + b) / (a / slope[i - 1] + b / slope[i]);
  });
  let path = `M${points[0].map((v) => v.toFixed(1)).join(" ")}`;
  for (let i = 0; i + 1 < n; i++) {
    const [x, y] = points[i], [nextX, nextY] = points[i + 1], third = step[i] / 3;
    path += `C${[x + third, y + tangent[i] * third, nextX - third, nextY - tangent[i + 1] * third, nextX, nextY].map((v) => v.toFixed(1)).join(" ")}`;
  }
  return path;
}

// Least squares of the means on log2 tokens: slope a doubling, and the mean at a size.
function trendOf(data, row, key) {
  const own = figuresOf(data, row, key);
  const known = own ? data.lines[row].sizes.map((size, i) => [Math.log2(size), own.mean[i]]).filter(([, mean]) => mean !== null) : [];
  if (known.length < 2) return null;
  const mean = (of) => of.reduce((sum, value) => sum + value, 0) / of.length;
  const x = mean(known.map(([at]) => at)), y = mean(known.map(([, value]) => value));
  const spread = mean(known.map(([at]) => (at - x) ** 2));
  const slope = mean(known.map(([at, value]) => (at - x) * (value - y))) / spread;
  return { slope, from: 2 ** known[0][0], to: 2 ** known.at(-1)[0], at: (tokens) => y + slope * (Math.log2(tokens) - x) };
}

function drawAuthors(data, key, rows, y, frame) {
  const drawn = [];
  for (const { line, figures } of data.authors) {
    if (!figures[key] || (line !== null && !rows.includes(line))) continue;
    const [mean, low, high] = figures[key];
    const group = svg("g", { class: line === null ? "author" : look(line).style });
    if (low !== null) {
      const [a, b] = [y.at(low), y.at(high)].sort((one, other) => one - other);
      group.append(svg("rect", { class: "spread", x: frame.left, y: a, width: frame.right - frame.left, height: Math.max(b - a, 0) }));
    }
    group.append(svg("path", { class: "own", d: `M${frame.left} ${y.at(mean).toFixed(1)}H${frame.right}` }));
    drawn.push(group);
  }
  return drawn;
}

function drawRounds(data, row, key, x, y) {
  const { sizes } = data.lines[row], { rounds } = figuresOf(data, row, key);
  const count = Math.max(0, ...rounds.map((one) => one.length)), paths = [];
  for (let round = 0; round < count; round++) {
    let line = "", dots = "";
    sizes.forEach((size, i) => {
      const value = rounds[i][round] ?? null;
      if (value === null) return;
      const place = `${x.at(size).toFixed(1)} ${y.at(value).toFixed(1)}`;
      line += `${line ? "L" : "M"}${place}`;
      dots += `M${place}h0`;
    });
    paths.push(svg("path", { class: "round", d: line }), svg("path", { class: "dots", d: dots }));
  }
  return paths;
}

function drawLine(data, row, key, x, y, state, shift, metric) {
  const own = figuresOf(data, row, key), { sizes, name } = data.lines[row], style = look(row);
  const group = svg("g", { class: style.style }), marks = [], points = [];
  if (!own) return { group, marks };
  if (state.rounds === row) group.append(...drawRounds(data, row, key, x, y));
  sizes.forEach((size, i) => own.mean[i] !== null && points.push([x.at(size) + shift, y.at(own.mean[i])]));
  const straight = `M${points.map((point) => point.map((v) => v.toFixed(1)).join(" ")).join("L")}`;
  if (points.length > 1)
    group.append(svg("path", { class: "curve", d: state.smooth ? smoothPath(points) : straight, "stroke-dasharray": style.dash || null }));
  const trend = state.trend ? trendOf(data, row, key) : null;
  if (trend) {
    const steps = [...Array(33).keys()].map((i) => trend.from * (trend.to / trend.from) ** (i / 32));
    group.append(svg("path", { class: "trend", d: `M${steps.map((t) => `${x.at(t).toFixed(1)} ${y.at(trend.at(t)).toFixed(1)}`).join("L")}` }));
  }
  sizes.forEach((size, i) => {
    if (own.mean[i] === null) return;
    const left = x.at(size) + shift, top = y.at(own.mean[i]);
    const bar = state.bars && own.low[i] !== null;
    const label = `${name}, ${whole(size)} tokens of context: ${metric.name} ${own.words[i]}, ${own.count[i]}`;
    const element = svg("g", { class: "bin", role: "img", tabindex: "-1", "aria-label": label },
      svg("circle", { class: "halo", cx: left, cy: top, r: 11 }),
      bar ? svg("path", { class: "interval", d: `M${left.toFixed(1)} ${y.at(own.low[i]).toFixed(1)}V${y.at(own.high[i]).toFixed(1)}` }) : null,
      svg("path", { class: "mark", d: style.mark, transform: `translate(${left.toFixed(1)} ${top.toFixed(1)})${state.layout === "all" ? " scale(.7)" : ""}` }));
    marks.push({ element, left, top, row, place: i });
    group.append(element);
  });
  return { group, marks };
}

// Draw a metric into `root`; returns the marks with their places.
function drawPanel(root, data, metric, state, width) {
  const { key, labels } = metric, small = state.layout === "all";
  const height = small ? 150 : state.layout === "four" ? 240 : width < 560 ? 290 : 360;
  const rows = [...state.lines].sort((a, b) => a - b);
  const frame = { left: small ? 38 : 52, right: width - 10, top: 10, foot: height - (small ? 22 : 42) };
  const seen = seenIn(data, key, state, rows), named = `${metric.name} over context size`;
  root.setAttribute("viewBox", `0 0 ${width} ${height}`);
  root.setAttribute("aria-label", seen.length ? `${named}; the arrow keys move between points` : `${named}: not measured`);
  if (!seen.length) {
    root.replaceChildren(svg("text", { x: width / 2, y: height / 2, "text-anchor": "middle" },
      rows.length ? "not measured" : `no ${data.kind} is chosen`));
    return [];
  }
  const x = lengthScale(data.lines.flatMap((line) => line.sizes), state.axis, frame.left, frame.right);
  const y = valueScale(seen, labels, frame.top, frame.foot, state.inverted.has(key));
  const grid = svg("g", { class: "grid", "aria-hidden": "true" });
  const ticks = labels.length ? [...labels.keys()].filter((v) => v >= y.low && v <= y.high) : roundTicks(y.low, y.high, small ? 3 : 5);
  for (const value of ticks)
    grid.append(svg("path", { d: `M${frame.left} ${y.at(value).toFixed(1)}H${frame.right}` }),
      svg("text", { x: frame.left - 6, y: y.at(value) + 4, "text-anchor": "end" }, labels[value] ?? tickWords(value)));
  for (const tokens of x.ticks(width < 320 ? 4 : width < 560 ? 5 : 9))
    grid.append(svg("path", { d: `M${x.at(tokens).toFixed(1)} ${frame.foot + 3}v4` }),
      svg("text", { x: x.at(tokens), y: frame.foot + 19, "text-anchor": "middle" }, short(tokens)));
  if (!small)
    grid.append(svg("text", { class: "axis", x: frame.right, y: height - 4, "text-anchor": "end" },
      `context size in tokens${state.axis === "log" ? ", log scale" : ""}`));
  const gap = Math.min(small ? 3 : 6, 20 / Math.max(rows.length, 1));
  const lines = rows.map((row, i) => drawLine(data, row, key, x, y, state, (i - (rows.length - 1) / 2) * gap, metric));
  root.replaceChildren(grid, ...(state.author ? drawAuthors(data, key, rows, y, frame) : []), ...lines.map(({ group }) => group));
  return lines.flatMap(({ marks }) => marks);
}
