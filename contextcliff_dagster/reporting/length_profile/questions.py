"""Sections on the questions and on attention, each shown only if it was measured."""

from __future__ import annotations

from collections.abc import Sequence

from contextcliff_dagster.contracts import Verdict
from contextcliff_dagster.contracts.results import Cliffs
from contextcliff_dagster.contracts.results.json_form import MeanScore
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
    located,
    percent,
    score,
    score_name,
    sentence,
    shown_mix,
    tokens,
)


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
    size = (
        f" (difference {curve.difference:+.2f} [{low:+.2f}, {high:+.2f}])"
        if curve.difference is not None and low is not None and high is not None
        else ""
    )
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
    for level in levels:
        names = [*level.levels]
        of = "" if names == [level.name] else f" ({', '.join(names)})"
        location: Cell = "none found"
        if level.location_tokens is not None:
            location = Bracketed(located(level.location_tokens, level.ci_low, level.ci_high))
        rows.append(
            [
                f"{level.name}{of}",
                tokens(level.n),
                tokens(level.n_documents),
                score(level.baseline, "none"),
                VERDICT_PHRASE[level.verdict],
                tokens(level.safe_cap_tokens, "none supported"),
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
