// The picture: bands, curves, caps, bins, single answers. Drawn anew at every change.
// Baseline, curve and caps of one score; undefined without a fit.
const fitOf = (model, state) => model.fits[state.score];
const capAt = (model, state) => fitOf(model, state)?.caps.find(([one]) => one === state.tolerance)?.[1];

// A bin of one model as the chart and the panel need it.
function binOf(data, row, place, score) {
  const { bins } = data.models[row], means = bins.scores[score];
  const get = (name) => (means ? means[name][place] : null);
  return {
    row, place, key: bins.key[place], from: bins.from[place], to: bins.to[place], at: bins.at[place],
    n: bins.n[place], missing: bins.missing[place], failures: bins.failures[place],
    mean: get("mean"), low: get("ci_low"), high: get("ci_high"),
    words: get("words") ?? "not measured",
  };
}

const describe = (data, bin, score) =>
  `${data.models[bin.row].name}, bin ${bin.key}, ${whole(bin.from)} to ${whole(bin.to)} tokens: ` +
  `${data.scores[score]} ${bin.words}, n = ${whole(bin.n)}`;

function scaleOf(data, rows, axis, left, right) {
  const seen = [];
  for (const row of rows) {
    const model = data.models[row];
    seen.push(...model.fits[model.primary].curve.tokens, ...model.bins.at, ...[model.bins.from[0], model.bins.to.at(-1)]);
  }
  const positive = seen.filter((x) => x > 0);
  return lengthScale(positive.length ? positive : [100, 10000], axis, left, right);
}

// Exact zeros and ones would hide each other on two lines: each model has a lane for them.
const LANE = 8;
const spread = (i) => (i * 0.6180339887) % 1;

function drawPoints(data, row, lane, x, y, state) {
  const points = pointsOf(data, row), scores = points && points[state.score];
  if (!scores) return "";
  let path = "";
  for (let i = 0; i < scores.length; i++) {
    const score = scores[i];
    if (score === null) continue;
    const off = 7 + LANE * (lane + 0.85 * spread(i));
    const height = score === 0 ? y(0) + off : score === 1 ? y(1) - off : y(score);
    path += `M${x.at(points.x[i]).toFixed(1)} ${height.toFixed(1)}h0`;
  }
  return svg("path", { class: "points", d: path });
}

function drawModel(data, row, lane, x, y, state, frame) {
  const model = data.models[row], own = look(row);
  const group = svg("g", { class: own.style });
  if (state.points) group.append(drawPoints(data, row, lane, x, y, state));
  const fit = fitOf(model, state);
  if (!fit) return group;
  const { tokens, mean, ci_low: low, ci_high: high } = fit.curve;
  if (tokens.length > 1) {
    const up = tokens.map((t, i) => `${x.at(t).toFixed(1)} ${y(high[i]).toFixed(1)}`);
    const down = tokens.map((t, i) => `${x.at(t).toFixed(1)} ${y(low[i]).toFixed(1)}`).reverse();
    const line = tokens.map((t, i) => `${x.at(t).toFixed(1)} ${y(mean[i]).toFixed(1)}`);
    group.append(
      svg("path", { class: "band", d: `M${[...up, ...down].join("L")}z` }),
      svg("path", { class: "curve", d: `M${line.join("L")}`, "stroke-dasharray": own.dash || null }),
    );
  }
  if (fit.baseline !== null) {
    const floor = fit.baseline - state.tolerance * Math.max(fit.baseline - model.chance, 0);
    group.append(svg("path", { class: "floor", d: `M${frame.left} ${y(floor)}H${frame.right}` }));
    if (state.models.size === 1)
      group.append(svg("text", { class: "soft", x: frame.left + 4, y: y(floor) + 14 }, `${percent(state.tolerance)} below the baseline`));
  }
  const cap = capAt(model, state);
  if (cap && cap >= x.low && cap <= x.high) {
    const at = x.at(cap);
    group.append(svg("path", { class: "cap", d: `M${at.toFixed(1)} ${frame.foot}V${frame.top}` }));
    const words = `cap ${whole(cap)}`, wide = 10 + 7 * words.length;
    // On the side with room; equal caps share a label, what would cover another is left out.
    const free = !frame.named.has(cap) && [[at + 2, at + wide], [at - wide, at - 2]].find(([from, to]) =>
      from >= 0 && to <= frame.right + 8 &&
      frame.taken.every(([left, right]) => to <= left || from >= right));
    if (free) {
      frame.named.add(cap);
      frame.taken.push(free);
      const left = free[0] < at;
      group.append(svg("text", { class: "name", x: at + (left ? -5 : 5), y: frame.top + 8,
        "text-anchor": left ? "end" : null }, words));
    }
  }
  return group;
}

// One group a bin, which can be pointed at and focused.
function drawBins(data, row, x, y, state, shift, marks) {
  const model = data.models[row], own = look(row), group = svg("g", { class: own.style });
  let line = "";
  for (let place = 0; place < model.bins.key.length; place++) {
    const bin = binOf(data, row, place, state.score);
    const left = x.at(bin.at || Math.sqrt(Math.max(bin.from, 1) * Math.max(bin.to, 1))) + shift;
    if (bin.mean === null) {  // no score to be drawn at: a cross at the axis, below zero
      if (left > x.at(x.high)) continue;
      group.append(svg("path", { class: "none", d: `M${left - 4} ${y(0) + 3}l8 8m0 -8l-8 8` },
        svg("title", {}, describe(data, bin, state.score))));
      continue;
    }
    const top = y(bin.mean);
    line += `${line ? "L" : "M"}${left.toFixed(1)} ${top.toFixed(1)}`;
    const known = bin.low !== null && bin.high !== null;
    const open = state.bin && state.bin.row === row && state.bin.place === place;
    const mark = svg(
      "g",
      { class: `bin${known ? "" : " bare"}`, role: "button", tabindex: "-1",
        "aria-label": describe(data, bin, state.score), "aria-expanded": open ? "true" : "false", "aria-controls": "bin" },
      svg("circle", { class: "halo", cx: left, cy: top, r: 13 }),
      known ? svg("path", { class: "interval", d: `M${left} ${y(bin.low)}V${y(bin.high)}` }) : null,
      svg("path", { class: "mark", d: own.mark, transform: `translate(${left} ${top})` }),
    );
    marks.push({ element: mark, left, top, row, place, bin });
    group.append(mark);
  }
  if (!fitOf(model, state)) group.prepend(svg("path", { class: "between", d: line }));
  return group;
}

// Draw into `root`; returns the marks with their places.
function drawChart(root, data, state, width) {
  const rows = data.models.map((_, row) => row).filter((row) => state.models.has(row));
  const lanes = state.points ? 10 + LANE * Math.max(rows.length, 1) : 0;
  const narrow = width < 560, height = (narrow ? 290 : 360) + 2 * lanes;
  const edge = { left: 40, right: 12, top: 26 + lanes, bottom: 46 + lanes };
  const x = scaleOf(data, rows.length ? rows : [0], state.axis, edge.left, width - edge.right);
  const y = (score) => height - edge.bottom - score * (height - edge.top - edge.bottom);
  const marks = [], grid = svg("g", { class: "grid", "aria-hidden": "true" });
  for (const score of [0, 0.25, 0.5, 0.75, 1]) {
    grid.append(
      svg("path", { d: `M${edge.left} ${y(score)}H${width - edge.right}` }),
      svg("text", { x: edge.left - 8, y: y(score) + 4, "text-anchor": "end" }, String(score)),
    );
  }
  const foot = height - edge.bottom + lanes + 4;
  for (const tokens of x.ticks(narrow ? 5 : 9)) {
    const at = x.at(tokens);
    grid.append(
      svg("path", { d: `M${at} ${foot}v5` }),
      svg("text", { x: at, y: foot + 19, "text-anchor": "middle" }, short(tokens)),
    );
  }
  grid.append(
    svg("text", { class: "axis", x: width - edge.right, y: height - 4, "text-anchor": "end" },
      `${data.axis}${state.axis === "log" ? ", log scale" : ""}`),
  );
  const chosen = svg("path", { class: "chosen" });
  if (state.bin && state.models.has(state.bin.row)) {
    const { from, to } = binOf(data, state.bin.row, state.bin.place, state.score);
    const left = x.at(Math.max(from, x.low)), right = x.at(Math.min(to, x.high));
    chosen.setAttribute("d", `M${left} 2H${right}V${foot}H${left}z`);
  }
  const frame = { left: edge.left, right: width - edge.right, top: 2, foot, taken: [], named: new Set() };
  for (const row of rows) {
    const cap = capAt(data.models[row], state);
    if (cap) frame.taken.push([x.at(cap) - 1, x.at(cap) + 1]);
  }
  const gap = Math.min(7, 24 / Math.max(rows.length, 1));
  root.setAttribute("viewBox", `0 0 ${width} ${height}`);
  root.replaceChildren(
    chosen, grid,
    ...rows.map((row, i) => drawModel(data, row, i, x, y, state, frame)),
    ...rows.map((row, i) => drawBins(data, row, x, y, state, (i - (rows.length - 1) / 2) * gap, marks)),
  );
  return marks;
}
