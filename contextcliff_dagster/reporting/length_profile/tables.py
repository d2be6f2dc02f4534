"""Tables of the length profile's page; each gives the reason for a missing number.

Those on the questions and on attention are shown only if these were measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from contextcliff_dagster.analysis.latency import KINDS, KNOWN_WITHIN, WORTH_A_WARNING, WORTH_MS
from contextcliff_dagster.contracts import UNSCORED_TAGS, Verdict
from contextcliff_dagster.contracts.results import Cliffs
from contextcliff_dagster.contracts.results.json_form import BinResult, MeanScore
from contextcliff_dagster.contracts.results.metrics import CATEGORY_WORDS
from contextcliff_dagster.contracts.results.questions import EvidenceCurve, EvidenceGroup
from contextcliff_dagster.reporting.sections import (
    Block,
    Bracketed,
    Bullets,
    Cell,
    Code,
    DataTable,
    Paragraph,
    Section,
    Text,
)
from contextcliff_dagster.reporting.wording import (
    CONTROL_WORDS,
    VERDICT_PHRASE,
    attention_sentences,
    count,
    estimate,
    instability_sentence,
    level,
    located,
    milliseconds,
    no_times,
    percent,
    score,
    score_name,
    sentence,
    shown_mix,
    tokens,
    usefulness,
    window_share,
)

_ALIKE = 0.01
"""Relative spread of the bins' medians up to which one number replaces the table."""


def models_section(results: Sequence[Cliffs], names: Sequence[str]) -> Section:
    """Return a table, one row per model: verdict, caps, drop, baseline, window and counts."""
    short = caps_table(results, [Code(name) for name in names])
    columns = [*short.columns, "documents", "share of window", "window", "tokenizer"]
    rows: list[list[Cell]] = [
        [
            *row,
            tokens(r.n_documents, "unknown"),
            percent(window_share(r), "none"),
            tokens(r.window_tokens, "unknown"),
            Code(r.tokenizer or None),
        ]
        for row, r in zip(short.rows, results, strict=True)
    ]
    return Section("Models", [DataTable(columns, rows, right=(2, 3, 7, 8, 9, 10))], 3)


def caps_table(results: Sequence[Cliffs], names: Sequence[Text]) -> DataTable:
    """Return verdict, cap, midpoint, drop and baseline with intervals, one row per model."""
    head = ["model", "verdict", "safe cap, tokens", "score up to it", "as prompt tokens"]
    head += ["midpoint of the drop, tokens", "drop", "baseline", "examples"]
    rows: list[list[Cell]] = []
    for name, r in zip(names, results, strict=True):
        location: Cell = "no large drop"
        drop: Cell = "no large drop"
        if (cliff := r.cliff) is not None:
            start = "start of the dip: " if r.verdict is Verdict.DIP else ""
            at = located(cliff.location_tokens, cliff.ci_low, cliff.ci_high)
            location = Bracketed(f"{start}{at}")
            span = f"[{percent(cliff.drop_ci_low)}, {percent(cliff.drop_ci_high)}]"
            drop = Bracketed(f"{percent(cliff.drop)} {span}")
        base = r.baseline
        mean = estimate(base.mean, base.ci_low, base.ci_high)
        rows.append(
            [
                name,
                VERDICT_PHRASE[r.verdict],
                tokens(r.safe_cap_tokens, "none supported"),
                usefulness(r) or "–",
                tokens(r.cap_prompt_tokens, "unknown"),
                location,
                drop,
                Bracketed(f"{mean}, n = {tokens(base.n)}"),
                tokens(r.n),
            ]
        )
    return DataTable(head, rows, right=(2, 4, 8))


def zone_sections(result: Cliffs) -> list[Section]:
    """Return the zones as half-open token ranges with the mean score of their answers."""
    if not result.zones:
        reason = "None: the data do not support a division into zones."
        return [Section("Zones", [Paragraph(reason)], 3)]
    rows = []
    for zone in result.zones:
        name, n = zone.name.replace("_", " "), tokens(zone.n, "unknown")
        rows.append([name, tokens(zone.from_tokens), tokens(zone.to_tokens), score(zone.mean), n])
    mean = f"mean {score_name(result)}"
    head = ["zone", "from token", "to below token", mean, "examples"]
    note = (
        "The zones are derived from the data, so their means have no interval of their own; the "
        "bins' means do. The reported drop is the fitted curve's at the longest lengths, or the "
        "dip's, and no ratio of these means."
    )
    return [Section("Zones", [DataTable(head, rows, right=(1, 2, 3, 4)), Paragraph(note)], 3)]


def bin_sections(result: Cliffs) -> list[Section]:
    """Return a table by bin: tokens, counts, mean and interval, spread, failures, latency.

    If known, the server's tokens per token of the study follow: one number for all bins, or a
    section with a row for each.
    """
    bins = result.bins
    if not bins:
        return [Section("Bins", [Paragraph("No bins.")], 3)]
    head: list[Text] = [
        "bin",
        "edges",
        "tokens: min / median / max",
        "n",
        "documents",
        "mean",
        "SD",
        "variance",
        "failure rate",
        "missing",
        "time to first token p50, p95",
    ]
    lost = any(b.delivered_mean is not None for b in bins)
    if lost:
        head.insert(6, "mean, missing as 0")
    rows: list[list[Cell]] = []
    for b in bins:
        delivered: list[Cell] = [score(b.mean if b.delivered_mean is None else b.delivered_mean)]
        scored = b.mean is not None
        no_spread = "needs n of 2" if b.n == 1 or not scored else "unknown"
        time = no_times(result)
        if b.ttft_ms is not None:
            time = f"{milliseconds(b.ttft_ms.p50)}, {milliseconds(b.ttft_ms.p95)}"
        rows.append(
            [
                Code(b.bin),
                f"{tokens(b.edge_low)} to {tokens(b.edge_high)}",
                lengths_of(b),
                "unknown" if scored and not b.n else tokens(b.n),
                tokens(b.n_documents, "unknown"),
                Bracketed(estimate(b.mean, b.ci_low, b.ci_high) if scored else "no answers"),
                *(delivered if lost else []),
                score(b.sd, no_spread),
                score(b.variance, no_spread),
                percent(b.failure_rate, "unknown"),
                tokens(b.missing),
                time,
            ]
        )
    table = DataTable(head, rows, right=[*(3, 4, 6, 7, 8, 9), *([10] if lost else [])])
    wordings = [Paragraph(text)] if (text := instability_sentence(result)) else []
    return token_sections(Section("Bins", [table, *wordings], 3), result)


def lengths_of(b: BinResult) -> str:
    """Return a bin's shortest, median and longest length: ``12 / 40 / 99``."""
    return " / ".join(tokens(n, "?") for n in (b.min_tokens, b.median_tokens, b.max_tokens))


def token_sections(bins: Section, result: Cliffs) -> list[Section]:
    """Return ``bins`` with the server's tokens per token of the study, if known.

    A single number for all bins is added to that section; numbers by bin get their own section.
    """
    ratio = result.token_ratio
    rows = [(row, row.median) for row in ratio.bins if row.median is not None] if ratio else []
    if ratio is None or not rows:
        return [bins]
    medians = sorted(median for _, median in rows)
    tokenizer = Code(result.tokenizer or "the study's tokenizer")
    template = f"{tokens(ratio.template_tokens)} tokens for the chat template"
    off = f"without the prompt around the document and {template}"
    if medians[-1] <= (1 + _ALIKE) * medians[0]:
        middle = f"The server counts {score(medians[len(medians) // 2])} tokens for one of "
        summary = Paragraph([middle, tokenizer, f" in every bin ({off})."])
        return [replace(bins, blocks=[*bins.blocks, summary])]
    cells: list[list[Cell]] = [
        [
            Code(row.bin),
            tokens(row.n),
            score(median),
            f"{score(row.low, '?')} to {score(row.high, '?')}",
        ]
        for row, median in rows
    ]
    head = ["bin", "calls", "server's tokens for one of the study's, median", "range"]
    differ = "Too few calls to compare bins."
    if ratio.spread is not None:
        spread = percent(ratio.spread)
        differ = f"Medians differ by {spread} at most, in bins of three calls or more."
    prompt = "Prompt tokens counted by the server per token of the document in "
    note = Paragraph([prompt, tokenizer, f", {off}. {differ}"])
    table = DataTable(head, cells, right=(1, 2, 3))
    return [bins, Section("Tokens of the study and of the model", [table, note], 3)]


def failure_sections(result: Cliffs) -> list[Section]:
    """Return counts of failure tags per bin; tags that stand for no answer are marked."""
    title = "Failures by tag"
    tagged = [(b, b.failures) for b in result.bins if b.failures is not None]
    tags = sorted({tag for _, failures in tagged for tag in failures})
    if not tags:
        absent = "Not measured: the records carry no failure tags."
        return [Section(title, [Paragraph("No reply has a failure tag." if tagged else absent)], 3)]
    marked = (f"{tag} (no answer)" if tag in UNSCORED_TAGS else tag for tag in tags)
    head = ["bin", "examples", *(f"calls: {tag}" for tag in marked)]
    rows: list[list[Cell]] = [
        [Code(b.bin), tokens(b.n), *(tokens(failures.get(tag, 0)) for tag in tags)]
        for b, failures in tagged
    ]
    sums = [sum(failures.get(tag, 0) for _, failures in tagged) for tag in tags]
    rows.append(["all", tokens(sum(b.n for b, _ in tagged)), *map(tokens, sums)])
    return [Section(title, [DataTable(head, rows, right=range(1, len(head)))], 3)]


def slowdown_sections(result: Cliffs) -> list[Section]:
    """Return the slowdowns beyond a length, noticeable or not; empty if there are none."""
    rows: list[list[Cell]] = []
    for kind, words in KINDS.items():
        test = getattr(result.slowdown, kind) if result.slowdown else None
        if test is None or (slow := test.slowdown) is None:
            continue
        at = located(slow.last_normal_tokens, slow.earliest_tokens, slow.latest_tokens)
        share = f"{slow.excess:+.0%} [{slow.excess_low:+.0%}, {slow.excess_high:+.0%}]"
        late = "unknown" if slow.excess_ms is None else f"{slow.excess_ms:+,.0f} ms"
        rows.append([words, Bracketed(at), Bracketed(share), late, tokens(slow.calls)])
    if not rows:
        return []
    note = (
        f"Only an excess of at least {WORTH_A_WARNING:.0%} and {WORTH_MS:.0f} ms, at a length known"
        f" within a factor of {KNOWN_WITHIN:g}, is a warning and limits the joint cap."
    )
    head = ["time", "higher beyond, tokens", "excess", "in ms", "documents beyond"]
    table = DataTable(head, rows, right=(3, 4))
    return [Section("Slower than expected", [table, Paragraph(note)], 3)]


def cap_sections(result: Cliffs) -> list[Section]:
    """Return the safe cap for several tolerances at the same confidence."""
    title, caps = "Caps by tolerance", result.caps_by_tolerance
    if not caps:
        return [Section(title, [Paragraph("Not measured.")], 3)]
    barred = result.verdict in (Verdict.INSUFFICIENT_DATA, Verdict.FLOOR)
    rows = [[level(c.tolerance), tokens(c.safe_cap_tokens, "none")] for c in caps]
    head = [f"tolerated drop, at {level(result.confidence)} confidence", "safe cap, tokens"]
    blocks: list[Block] = [DataTable(head, rows, right=(1,))]
    if not barred and any(c.safe_cap_tokens is None for c in caps):
        blocks.append(Paragraph("None: the score may drop right after the baseline."))
    return [Section(title, blocks, 3)]


def question_sections(result: Cliffs) -> list[Section]:
    """Return one model's sections on its questions; empty if the records have no such data."""
    return [
        *_mix(result),
        *_controls(result),
        *_evidence(result, position=True),
        *_evidence(result, position=False),
        *_levels(result),
    ]


def few_data_blocks(results: Sequence[Cliffs], names: Sequence[str]) -> list[Block]:
    """Return scores with the document and by control, for models with too few data.

    Empty without controls. Even without a verdict, a control shows whether questions are answered
    without their document.
    """
    rows: list[list[Cell]] = []
    for name, result in zip(names, results, strict=True):
        if result.verdict is Verdict.INSUFFICIENT_DATA:
            rows += [[Code(name), *row] for row in _side_by_side(result)]
    if not rows:
        return []
    note = "Too few data for a verdict on length. The same questions, by what the model was given:"
    return [Paragraph(note), DataTable(["model", *_SIDES], rows, right=())]


_SIDES = ("input used instead", "examples", "score with the document", "score with that input")


def _side_by_side(result: Cliffs) -> list[list[Cell]]:
    rows: list[list[Cell]] = []
    for control in result.controls or ():
        document = control.document
        if document is None:  # written by an earlier version
            continue
        rows.append(
            [
                CONTROL_WORDS[control.name],
                tokens(control.n),
                _estimate(document.mean, document.ci_low, document.ci_high, "no answers"),
                _estimate(control.mean, control.ci_low, control.ci_high, "no answers"),
            ]
        )
    return rows


def refused_tests(result: Cliffs) -> list[str]:
    """Return the tests on evidence that were refused, each with its reason."""
    curves = (
        (result.by_position, "evidence position"),
        (result.by_distance, "distance between two pieces of evidence"),
    )
    return [
        f"no test of the score by {words}: {curve.refused_because}"
        for curve, words in curves
        if curve is not None and curve.refused_because
    ]


def _mix(result: Cliffs) -> list[Section]:
    row = shown_mix(result)
    if row is None:
        return []
    cells: list[list[Cell]] = [
        [
            Code(b.bin),
            score(b.mean, "no answers"),
            _estimate(b.standardised, b.ci_low, b.ci_high, "too few in common"),
            percent(b.covered),
        ]
        for b in row.bins
    ]
    head = ["bin", "mean as measured", "mean at the equal mix", "share of the mix in the bin"]
    pairs = zip(row.values, row.shares, strict=True)
    shares = "; ".join(f"{value}: {percent(share)}" for value, share in pairs if share)
    note = Paragraph(f"The mix, the same in every bin: {shares}.")
    title = f"At an equal mix of {CATEGORY_WORDS[row.category]}"
    return [Section(title, [note, DataTable(head, cells, right=(1, 2, 3))], 3)]


def _controls(result: Cliffs) -> list[Section]:
    controls = result.controls
    if not controls:
        return []
    by_bin: dict[str, list[Cell]] = {}
    items = []
    for control in controls:
        items += [sentence(text) for text in control.says]
        if control.name == "oracle":
            total, askable = tokens(control.n_all), tokens(control.n_askable)
            items.append(f"{askable} of {total} examples give the position of their evidence.")
        for b in control.bins:
            mean = _estimate(b.mean, b.ci_low, b.ci_high, "no answers")
            by_bin.setdefault(b.bin, []).append(Bracketed(f"{mean.text}, n = {tokens(b.n)}"))
    means = {b.bin: _estimate(b.mean, b.ci_low, b.ci_high, "none") for b in result.bins}
    head = ["bin", "whole document", *(CONTROL_WORDS[control.name] for control in controls)]
    rows: list[list[Cell]] = [
        [Code(key), means.get(key, "none"), *cells] for key, cells in by_bin.items()
    ]
    blocks: list[Block] = [Bullets(items)] if items else []
    if sides := _side_by_side(result):
        blocks.append(DataTable(_SIDES, sides, right=(1,)))
    title = "Controls: the same questions without the document"
    return [Section(title, [*blocks, DataTable(head, rows, right=(1, 2, 3))], 3)]


def _evidence(result: Cliffs, *, position: bool) -> list[Section]:
    curve = result.by_position if position else result.by_distance
    if curve is None or sum(g.mean is not None for g in curve.groups) < 2:
        return []
    title = "Evidence position" if position else "Distance between two pieces of evidence"
    rows: list[list[Cell]] = [
        [
            _span(g, position),
            tokens(g.n),
            tokens(g.n_documents),
            _estimate(g.mean, g.ci_low, g.ci_high, "too few"),
            _estimate(
                g.at_equal_length,
                g.at_equal_length_low,
                g.at_equal_length_high,
                "lengths too different",
            ),
        ]
        for g in curve.groups
    ]
    first = "position in the text" if position else "tokens between"
    head = [first, "n", "documents", "mean", "mean at equal length"]
    test = Paragraph(_test(curve, position, 1.0 - result.confidence))
    return [Section(title, [test, DataTable(head, rows, right=(1, 2, 3, 4))], 3)]


def _test(curve: EvidenceCurve, position: bool, alpha: float) -> Text:
    of_all = "" if curve.n == curve.n_all else f" of {tokens(curve.n_all)}"
    noun = "Position" if position else "Distance"
    coverage = f"{noun} known for {tokens(curve.n)}{of_all} examples"
    p, low, high = curve.p_value, curve.difference_low, curve.difference_high
    if p is None:
        return f"{coverage}; not tested: {sentence(curve.refused_because)}"
    effect = "an effect" if p <= alpha else "no effect detected"
    tested = f"{coverage}; {effect} at equal length (p = {p:.2g})"
    if curve.group is None:
        return f"{tested}."
    size = ""
    if curve.difference is not None and low is not None and high is not None:
        size = f" (difference {curve.difference:+.2f} [{low:+.2f}, {high:+.2f}])"
    group = _span(curve.groups[curve.group], position)
    return Bracketed(f"{tested}. Largest difference: {group}{size}.")


def _span(group: EvidenceGroup, position: bool) -> str:
    if position:
        return f"{100 * group.low:.0f} to {100 * group.high:.0f}%"
    return f"{tokens(group.low)} to {tokens(group.high)}"


def _levels(result: Cliffs) -> list[Section]:
    levels = result.levels
    if not levels:
        return []
    rows: list[list[Cell]] = []
    for r in levels:
        names = [*r.levels]
        of = "" if names == [r.name] else f" ({', '.join(names)})"
        location: Cell = "none found"
        if r.location_tokens is not None:
            location = Bracketed(located(r.location_tokens, r.ci_low, r.ci_high))
        rows.append(
            [
                f"{r.name}{of}",
                tokens(r.n),
                tokens(r.n_documents),
                score(r.baseline, "none"),
                VERDICT_PHRASE[r.verdict],
                tokens(r.safe_cap_tokens, "none supported"),
                location,
            ]
        )
    head = ["level", "examples", "documents", "baseline", "verdict", "safe cap, tokens"]
    table = DataTable([*head, "midpoint of the drop, tokens"], rows, right=(1, 2, 3, 5))
    reasons = [f"{r.name}: {sentence(r.safe_cap_reason)}" for r in levels if r.safe_cap_reason]
    return [Section("Each level on its own", [table, *([Bullets(reasons)] if reasons else ())], 3)]


def _estimate(mean: float | None, low: float | None, high: float | None, missing: str) -> Bracketed:
    return Bracketed(missing if mean is None else estimate(mean, low, high))


READING = (
    "Entropy shows how widely the last prompt token spreads its attention over the prompt, divided "
    "by the logarithm of the prompt's tokens: 0 if one token gets all attention, 1 if it is spread "
    "evenly. It describes the inside of the model; verdict and cap rest on the scores alone."
)


def attention_sections(result: Cliffs) -> list[Section]:
    """Return sentences on attention, a table by bin, and how to read it; empty if not measured."""
    if (attention := result.attention) is None:
        return []
    scores = {b.bin: estimate(b.mean, b.ci_low, b.ci_high) for b in result.bins}
    rows: list[list[Cell]] = [
        [
            Code(b.bin),
            tokens(b.tokens),
            tokens(b.entropy.n),
            Bracketed(scores.get(b.bin, "not measured")),
            *(Bracketed(_mean(value)) for value in (b.entropy, b.evidence, b.sinks)),
        ]
        for b in attention.bins
    ]
    head = ["bin", "median tokens", "n", score_name(result), "entropy", "evidence", "first tokens"]
    of = f"{count(attention.n, 'example')} of {attention.n_all:,}"
    caption = f"Entropy, and shares of the attention: {of}, means over heads and layers"
    return [
        Section(
            "Attention of the last prompt token",
            [
                Bullets(attention_sentences(attention)),
                DataTable(head, rows, caption, right=(1, 2)),
                Paragraph(READING),
            ],
            3,
        )
    ]


def _mean(value: MeanScore) -> str:
    return "unknown" if value.mean is None else estimate(value.mean, value.ci_low, value.ci_high)
