"""The page's sections about the questions: mix, controls, evidence, levels; each where measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from contextcliff_dagster.reporting.markdown.escaping import code, plain, table
from contextcliff_dagster.reporting.wording.confound_terms import (
    CATEGORY_WORDS,
    control_words,
    shown_mix,
)
from contextcliff_dagster.reporting.wording.number_format import (
    estimate,
    percent,
    score,
    tokens,
)
from contextcliff_dagster.reporting.wording.sentences import VERDICT_PHRASE, sentence

if TYPE_CHECKING:
    from contextcliff_dagster.contracts.results import Cliffs
    from contextcliff_dagster.contracts.results.fields import BinMean
    from contextcliff_dagster.contracts.results.questions import (
        EvidenceCurve,
        EvidenceGroup,
        LevelResult,
    )


def question_lines(result: Cliffs, picture: str | None) -> list[str]:
    """All sections of one model; nothing where the records say nothing of their questions."""
    lines = [
        *_mix_lines(result),
        *_control_lines(result),
        *_evidence_lines(result.by_position, position=True),
        *_evidence_lines(result.by_distance, position=False),
        *_level_lines(result),
    ]
    if lines and picture:
        lines += ["", f"![The score against what else the questions are]({picture})"]
    return lines


def refused_lines(name: str, result: Cliffs) -> list[str]:
    """What was not told of the evidence, for the section on what was not measured."""
    curves = (
        (result.by_position, "where the evidence stands"),
        (result.by_distance, "two pieces of evidence"),
    )
    return [
        f"- {code(name)}: no test of the score by {words}: {plain(curve.refused_because)}."
        for curve, words in curves
        if curve is not None and curve.refused_because
    ]


def _mix_lines(result: Cliffs) -> list[str]:
    row = shown_mix(result)
    if row is None:
        return []
    words = CATEGORY_WORDS[row.category]
    cells = [
        [
            code(b.bin),
            score(b.mean, "no answers"),
            _estimate(b.standardised, b.ci_low, b.ci_high, "too few in common"),
            percent(b.covered),
        ]
        for b in row.bins
    ]
    head = ["bin", "mean as measured", "mean at the equal mix", "of the mix in the bin"]
    listed = ", ".join(
        f"{plain(value)} {percent(share)}"
        for value, share in zip(row.values, row.shares, strict=True)
        if share
    )
    return [
        "",
        f"### At an equal mix of {plain(words)}",
        "",
        f"Every bin with the same mix: {listed}.",
        "",
        *table(head, cells, right=(1, 2, 3)),
    ]


def _control_lines(result: Cliffs) -> list[str]:
    controls = result.controls
    if not controls:
        return []
    by_bin: dict[str, list[str]] = {}
    for control in controls:
        for b in control.bins:
            shown = f"{_mean(b, 'no answers')}, n = {tokens(b.n)}"
            by_bin.setdefault(b.bin, []).append(shown)
    means = {b.bin: _estimate(b.mean, b.ci_low, b.ci_high, "none") for b in result.bins}
    names = [control_words(control.name) for control in controls]
    rows = [[code(key), means.get(key, "none"), *cells] for key, cells in by_bin.items()]
    lines = ["", "### Controls: the same questions without the document", ""]
    for control in controls:
        lines += [f"- {plain(sentence(text))}" for text in control.says]
        if control.name == "oracle":
            asked, known = tokens(control.n_all), tokens(control.n_askable)
            lines.append(f"- {known} of {asked} examples say where their evidence is.")
    return [*lines, "", *table(["bin", "whole document", *names], rows, right=(1, 2, 3))]


def _evidence_lines(curve: EvidenceCurve | None, *, position: bool) -> list[str]:
    if curve is None or sum(g.mean is not None for g in curve.groups) < 2:
        return []
    heading = (
        "Where the evidence stands" if position else "How far two pieces of evidence lie apart"
    )
    rows = [
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
    head = ["place in the text" if position else "tokens between", "n", "documents", "mean"]
    return [
        "",
        f"### {heading}",
        "",
        _test(curve, position),
        "",
        *table([*head, "mean at equal length"], rows, right=(1, 2, 3, 4)),
    ]


def _test(curve: EvidenceCurve, position: bool) -> str:
    asked = f"{tokens(curve.n)} of {tokens(curve.n_all)} examples say it"
    what = "the place" if position else "the distance"
    p, low, high = curve.p_value, curve.difference_low, curve.difference_high
    if p is None:
        return f"{asked}. Not tested: {plain(sentence(curve.refused_because))}"
    if curve.group is None:
        return f"{asked}. That {what} means nothing at equal length has p = {p:.3f}."
    shown = (
        f" (difference {curve.difference:+.2f} [{low:+.2f}, {high:+.2f}])"
        if curve.difference is not None and low is not None and high is not None
        else ""
    )
    return (
        f"{asked}. That {what} means nothing at equal length has p = {p:.3f}; "
        f"{_span(curve.groups[curve.group], position)} differs most{shown}."
    )


def _span(group: EvidenceGroup, position: bool) -> str:
    if position:
        return f"{100 * group.low:.0f} to {100 * group.high:.0f}%"
    return f"{tokens(group.low)} to {tokens(group.high)}"


def _level_lines(result: Cliffs) -> list[str]:
    levels = result.levels
    if not levels:
        return []
    rows = [
        [
            f"{plain(r.name)}{_of(r)}",
            tokens(r.n),
            tokens(r.n_documents),
            score(r.baseline, "none"),
            plain(VERDICT_PHRASE[r.verdict]),
            tokens(r.safe_cap_tokens, "none supported"),
            _location(r),
        ]
        for r in levels
    ]
    head = ["level", "examples", "documents", "baseline", "verdict", "safe cap, tokens"]
    return [
        "",
        "### Levels, each by itself",
        "",
        *table([*head, "half of the drop at"], rows, right=(1, 2, 3, 5)),
        "",
        *(
            f"- {plain(r.name)}: {plain(sentence(r.safe_cap_reason))}"
            for r in levels
            if r.safe_cap_reason
        ),
    ]


def _of(level: LevelResult) -> str:
    named = list(level.levels)
    return "" if named == [level.name] else f" ({', '.join(map(plain, named))})"


def _location(level: LevelResult) -> str:
    if level.location_tokens is None:
        return "none found"
    return f"{tokens(level.location_tokens)} [{tokens(level.ci_low)}, {tokens(level.ci_high)}]"


def _mean(row: BinMean, missing: str) -> str:
    return _estimate(row.mean, row.ci_low, row.ci_high, missing)


def _estimate(mean: float | None, low: float | None, high: float | None, missing: str) -> str:
    return missing if mean is None else estimate(mean, low, high)
