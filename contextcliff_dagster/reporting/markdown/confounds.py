"""The page's sections about the questions: mix, controls, evidence, levels; each where measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from contextcliff_dagster.reporting.markdown.escaping import code, plain, table
from contextcliff_dagster.reporting.wording.confound_terms import (
    CATEGORY_WORDS,
    control_words,
    shown_mix,
)
from contextcliff_dagster.reporting.wording.number_format import (
    estimate,
    number,
    percent,
    score,
    tokens,
)
from contextcliff_dagster.reporting.wording.sentences import VERDICT_PHRASE, part, parts, sentence

Result = Mapping[str, Any]


def question_lines(result: Result, picture: str | None) -> list[str]:
    """All sections of one model; nothing where the records say nothing of their questions."""
    lines = [
        *_mix_lines(result),
        *_control_lines(result),
        *_evidence_lines(result, "by_position"),
        *_evidence_lines(result, "by_distance"),
        *_level_lines(result),
    ]
    if lines and picture:
        lines += ["", f"![The score against what else the questions are]({picture})"]
    return lines


def refused_lines(name: str, result: Result) -> list[str]:
    """What was not told of the evidence, for the section on what was not measured."""
    said = {"by_position": "where the evidence stands", "by_distance": "two pieces of evidence"}
    return [
        f"- {code(name)}: no test of the score by {words}: {plain(why)}."
        for key, words in said.items()
        if (why := part(result, key).get("refused_because"))
    ]


def _mix_lines(result: Result) -> list[str]:
    row = shown_mix(result)
    if row is None:
        return []
    words = CATEGORY_WORDS.get(str(row.get("category")), str(row.get("category")))
    cells = [
        [
            code(b.get("bin")),
            score(b.get("mean"), "no answers"),
            _mean(b, "standardised", "ci", "too few in common"),
            percent(b.get("covered")),
        ]
        for b in parts(row, "bins")
    ]
    head = ["bin", "mean as measured", "mean at the equal mix", "of the mix in the bin"]
    listed = ", ".join(
        f"{plain(value)} {percent(share)}"
        for value, share in zip(row.get("values") or (), row.get("shares") or (), strict=False)
        if number(share)
    )
    return [
        "",
        f"### At an equal mix of {plain(words)}",
        "",
        f"Every bin with the same mix: {listed}.",
        "",
        *table(head, cells, right=(1, 2, 3)),
    ]


def _control_lines(result: Result) -> list[str]:
    controls = parts(result, "controls")
    if not controls:
        return []
    by_bin: dict[str, list[str]] = {}
    for control in controls:
        for b in parts(control, "bins"):
            n = tokens(b.get("n"), "0")
            shown = f"{_mean(b, 'mean', 'ci', 'no answers')}, n = {n}"
            by_bin.setdefault(str(b.get("bin")), []).append(shown)
    means = {str(b.get("bin")): _mean(b, "mean", "ci", "none") for b in parts(result, "bins")}
    names = [control_words(str(control.get("name"))) for control in controls]
    rows = [[code(key), means.get(key, "none"), *cells] for key, cells in by_bin.items()]
    lines = ["", "### Controls: the same questions without the document", ""]
    for control in controls:
        lines += [f"- {plain(sentence(text))}" for text in control.get("says") or ()]
        if control.get("name") == "oracle":
            asked, known = tokens(control.get("n_all"), "?"), tokens(control.get("n_askable"), "?")
            lines.append(f"- {known} of {asked} examples say where their evidence is.")
    return [*lines, "", *table(["bin", "whole document", *names], rows, right=(1, 2, 3))]


def _evidence_lines(result: Result, key: str) -> list[str]:
    curve = part(result, key)
    groups = parts(curve, "groups")
    if sum(number(g.get("mean")) is not None for g in groups) < 2:
        return []
    position = key == "by_position"
    heading = (
        "Where the evidence stands" if position else "How far two pieces of evidence lie apart"
    )
    rows = [
        [
            _span(g, position),
            tokens(g.get("n"), "0"),
            tokens(g.get("n_documents"), "0"),
            _mean(g, "mean", "ci", "too few"),
            _mean(g, "at_equal_length", "at_equal_length", "lengths too different"),
        ]
        for g in groups
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


def _test(curve: Result, position: bool) -> str:
    asked = f"{tokens(curve.get('n'), '0')} of {tokens(curve.get('n_all'), '0')} examples say it"
    what = "the place" if position else "the distance"
    p = number(curve.get("p_value"))
    if p is None:
        return f"{asked}. Not tested: {plain(sentence(curve.get('refused_because')))}"
    groups, at = parts(curve, "groups"), curve.get("group")
    if not isinstance(at, int) or at >= len(groups):
        return f"{asked}. That {what} means nothing at equal length has p = {p:.3f}."
    low, high = number(curve.get("difference_low")), number(curve.get("difference_high"))
    size = number(curve.get("difference"))
    shown = (
        f" (difference {size:+.2f} [{low:+.2f}, {high:+.2f}])"
        if size is not None and low is not None and high is not None
        else ""
    )
    return (
        f"{asked}. That {what} means nothing at equal length has p = {p:.3f}; "
        f"{_span(groups[at], position)} differs most{shown}."
    )


def _span(group: Result, position: bool) -> str:
    low, high = number(group.get("low")) or 0.0, number(group.get("high")) or 0.0
    if position:
        return f"{100 * low:.0f} to {100 * high:.0f}%"
    return f"{tokens(low)} to {tokens(high)}"


def _level_lines(result: Result) -> list[str]:
    levels = parts(result, "levels")
    if not levels:
        return []
    rows = [
        [
            f"{plain(r.get('name'))}{_of(r)}",
            tokens(r.get("n"), "0"),
            tokens(r.get("n_documents"), "0"),
            score(r.get("baseline"), "none"),
            plain(VERDICT_PHRASE.get(str(r.get("verdict")), r.get("verdict"))),
            tokens(r.get("safe_cap_tokens"), "none supported"),
            _place(r),
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
            f"- {plain(r.get('name'))}: {plain(sentence(r.get('safe_cap_reason')))}"
            for r in levels
            if r.get("safe_cap_reason")
        ),
    ]


def _of(level: Result) -> str:
    named: Sequence[Any] = level.get("levels") or ()
    return "" if list(named) == [level.get("name")] else f" ({', '.join(map(plain, named))})"


def _place(level: Result) -> str:
    if number(level.get("location_tokens")) is None:
        return "none found"
    span = f" [{tokens(level.get('ci_low'))}, {tokens(level.get('ci_high'))}]"
    return f"{tokens(level.get('location_tokens'))}{span}"


def _mean(row: Result, key: str, interval: str, missing: str) -> str:
    if number(row.get(key)) is None:
        return missing
    return estimate(row.get(key), row.get(f"{interval}_low"), row.get(f"{interval}_high"))
