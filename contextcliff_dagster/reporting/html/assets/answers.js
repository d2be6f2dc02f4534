// A bin that was opened: its numbers, and its answers where the page holds them.
const FIRST = 25, MOST_WRONG = 100;
const NO_ANSWER = ["context_overflow", "transport_error", "invalid_truncated"];

// Single answers of a model: length and scores, from the answers themselves where they are here.
function pointsOf(data, row) {
  if (!data.given) return data.models[row].points ?? null;
  const given = data.given[row];
  given.x ??= given.example.map((example) => data.examples.x[example]);
  return given;
}

function inBin(data, bin) {
  const last = bin.place === data.models[bin.row].bins.key.length - 1;
  return (x) => x >= bin.from && (x < bin.to || (last && x <= bin.to));
}

// Models that have this very bin: those of one study share them.
function sameBin(data, state) {
  const { row, place } = state.bin, own = binOf(data, row, place, state.score);
  const found = [];
  data.models.forEach((model, other) => {
    const there = model.bins.key.indexOf(own.key);
    if (!state.models.has(other) || there < 0) return;
    const bin = binOf(data, other, there, state.score);
    if (bin.from === own.from && bin.to === own.to) found.push(bin);
  });
  return found.length ? found : [own];
}

function binTable(data, bins, state) {
  const head = ["model", data.scores[state.score], "n", "no answer", "wrong answers by tag"];
  const rows = bins.map((bin) => {
    const tags = Object.entries(bin.failures).filter(([name]) => !NO_ANSWER.includes(name));
    return tag("tr", {},
      tag("th", { scope: "row" }, chip(bin.row), ` ${data.models[bin.row].name}`),
      tag("td", {}, bin.words),
      tag("td", { class: "n" }, whole(bin.n)), tag("td", { class: "n" }, whole(bin.missing)),
      tag("td", {}, tags.map(([name, n]) => `${name} ${n}`).join(", ") || "none"));
  });
  return tag("div", { class: "table", role: "group", tabindex: "0", "aria-label": "The bin's numbers" },
    tag("table", {}, tag("thead", {}, tag("tr", {}, ...head.map((name, i) => tag("th", { scope: "col", class: i === 2 || i === 3 ? "n" : null }, name)))),
      tag("tbody", {}, ...rows)));
}

// Answers of the bin by example, in order of length: [{example, given: [{row, i}]}].
function answersOf(data, bins) {
  const found = new Map();
  for (const bin of bins) {
    const points = pointsOf(data, bin.row), within = inBin(data, bin);
    points.example.forEach((example, i) => {
      if (!within(points.x[i])) return;
      if (!found.has(example)) found.set(example, []);
      found.get(example).push({ row: bin.row, i });
    });
  }
  return [...found].map(([example, given]) => ({ example, given }))
    .sort((a, b) => data.examples.x[a.example] - data.examples.x[b.example] || a.example - b.example);
}

// Right where the score is 1, wrong where it is 0, else how right; null: no answer.
function gradeOf(data, { row, i }, score) {
  const given = data.given[row];
  const value = (given[score] ?? given[data.models[row].primary])[i];
  if (value === null) return { value, name: "none", text: "no answer" };
  if (value >= 1) return { value, name: "right", text: "right" };
  return value <= 0 ? { value, name: "wrong", text: "wrong" } : { value, name: "partly", text: `score ${value}` };
}

function position(share) {
  if (share === null) return null;
  const words = `evidence at ${percent(Math.round(share * 100) / 100)} of the document`;
  return tag("span", { class: "position" },
    svg("svg", { viewBox: "0 0 60 8", "aria-hidden": "true" },
      svg("path", { d: "M1 4H59" }), svg("circle", { cx: 1 + 58 * share, cy: 4, r: 3.5 })), words);
}

function answerItem(data, { example, given }, score) {
  const { x, document: names, question, accepted } = data.examples, wanted = accepted[example];
  return tag("li", { class: "asked" },
    tag("p", { class: "facts" }, names && names[example] ? tag("span", { dir: "auto" }, names[example]) : null,
      tag("span", {}, `${whole(x[example])} tokens`), position(data.examples.position[example])),
    tag("p", { class: "question", dir: "auto" }, question[example] ?? "The question is no longer in the sample."),
    wanted ? tag("p", { class: "accepted" }, tag("span", { class: "soft" }, "Accepted: "),
      tag("span", { dir: "auto" }, wanted.join(" | "))) : null,
    tag("ul", { class: "given" }, ...given.map((one) => {
      const columns = data.given[one.row], grade = gradeOf(data, one, score), failure = columns.tag[one.i];
      const read = columns.read && columns.read[one.i];
      return tag("li", { class: grade.name },
        tag("p", { class: "facts" }, chip(one.row), tag("span", {}, data.models[one.row].name),
          tag("strong", { class: "grade" }, grade.text), failure ? tag("code", {}, failure) : null),
        tag("p", { class: "answer", dir: "auto" }, columns.answer[one.i] ?? "No answer is stored."),
        read ? tag("p", { class: "answer" }, tag("span", { class: "soft" }, "Scored: "),
          tag("span", { dir: "auto" }, read)) : null);
    })));
}

function answerList(data, bins, state) {
  const all = answersOf(data, bins), { score } = state;
  const has = (name) => (one) => one.given.some((given) => gradeOf(data, given, score).name === name);
  const kinds = [["all", "All", () => true], ["wrong", "Wrong", (one) => has("wrong")(one) || has("partly")(one)],
    ["right", "Right", has("right")]];
  const list = tag("ol", { class: "answers" }), more = tag("p");
  const show = (filter, most) => {
    const chosen = all.filter(filter);
    list.replaceChildren(...chosen.slice(0, most).map((one) => answerItem(data, one, score)));
    more.replaceChildren();
    if (chosen.length > most) {
      const button = tag("button", { type: "button" }, `Show all ${whole(chosen.length)}`);
      button.addEventListener("click", () => show(filter, Infinity));
      more.append(button);
    } else if (!chosen.length) more.append("None.");
  };
  const choices = kinds.map(([name, words, filter], i) => {
    const input = tag("input", { type: "radio", name: "kind", value: name, checked: i === 0 });
    input.addEventListener("change", () => show(filter, FIRST));
    return tag("label", { class: "choice" }, input, tag("span", {}, `${words} ${whole(all.filter(filter).length)}`));
  });
  show(() => true, FIRST);
  const parts = [tag("fieldset", { class: "kinds" }, tag("legend", {}, "Answers"), ...choices), list, more];
  parts.push(tag("p", { class: "soft" }, `[…]: shortened to ${whole(data.limit)} characters. ` +
    "A code such as \\u202e stands for an invisible character."));
  return parts;
}

// Put the wrong answers of all models into the fold about answers, or how to get them.
function showWrong(data) {
  const folds = [...document.querySelectorAll(".folds details")];
  const fold = folds.find((one) => one.querySelector("summary").textContent.trim() === "What did it answer?");
  if (!fold || !(data.given || data.how)) return;
  const box = tag("section", { id: "wrong" }, tag("h3", {}, "Wrong answers"));
  fold.querySelector("summary").after(box);
  if (!data.given) {
    box.append(tag("p", {}, "Questions and answers are not in this file. To include them: ", tag("code", {}, data.how)));
    return;
  }
  const bins = data.models.flatMap((model, row) => model.bins.key.map((_, place) => binOf(data, row, place, model.primary)));
  const isWrong = (one) => ["wrong", "partly"].includes(gradeOf(data, one, data.models[one.row].primary).name);
  const all = answersOf(data, bins).map(({ example, given }) => ({ example, given: given.filter(isWrong) })).filter((one) => one.given.length);
  const list = tag("ol", { class: "answers" }, ...all.slice(0, MOST_WRONG).map((one) => answerItem(data, one, data.models[one.given[0].row].primary)));
  box.append(list, tag("p", {}, all.length ? (all.length > MOST_WRONG ? `${whole(all.length - MOST_WRONG)} more questions: click a dot of the picture.` : "") : "None."));
}

// Fill `panel` with the chosen bin.
function showBin(panel, data, state, close) {
  const bins = sameBin(data, state), [bin] = bins;
  const button = tag("button", { type: "button" }, "Close");
  button.addEventListener("click", close);
  panel.setAttribute("aria-label", `Bin ${bin.key}`);
  panel.replaceChildren(
    tag("div", { class: "row" }, tag("h3", {}, `Bin ${bin.key}: ${whole(bin.from)} to ${whole(bin.to)} tokens`), button),
    binTable(data, bins, state),
    ...(data.given ? answerList(data, bins, state)
      : [tag("p", {}, data.how ? "Questions and answers are not in this file, because documents are often private. To include them: "
        : "This page contains only numbers.", tag("code", {}, data.how))]));
  panel.hidden = false;
}
