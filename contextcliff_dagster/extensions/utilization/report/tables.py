"""Tables of models, formats and other conditions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from contextcliff_dagster.extensions.utilization.analysis.wording import capitalised, format_name
from contextcliff_dagster.extensions.utilization.report.names import scope_name
from contextcliff_dagster.reporting.sections import Bracketed, Cell, Code, DataTable, Section
from contextcliff_dagster.reporting.wording.number_format import (
    difference,
    estimate,
    level,
    limits,
    score,
    tokens,
    two_digits,
)
from contextcliff_dagster.reporting.wording.sentences import VERDICT_PHRASE

if TYPE_CHECKING:
    from contextcliff_dagster.extensions.utilization.curve_results import AxisProfile
    from contextcliff_dagster.extensions.utilization.rendering.formats import Format
    from contextcliff_dagster.extensions.utilization.results import (
        FormatComparison,
        FormatVerdict,
        UtilizationResult,
    )


def formats(result: UtilizationResult) -> DataTable:
    """Verdict, caps and mean of each format and benchmark; no column that would say nothing."""
    scopes, found = [], []
    rows: list[list[Cell]] = []
    for curve in result.curves:
        profile = curve.tokens
        scopes.append(scope_name(curve.benchmark, result.benchmarks))
        found.append(_drop(profile))
        rows.append(
            [
                format_name(curve.format),
                f"{curve.n:,} ({curve.n_documents:,})",
                Bracketed(estimate(curve.mean, curve.ci_low, curve.ci_high)),
                VERDICT_PHRASE[profile.verdict] if profile else "no answer",
                _cap(profile),
                _cap(curve.records),
            ]
        )
    columns = ["format", "answers (documents)", "mean score", "verdict", "safe cap, tokens"]
    columns.append("safe cap, records")
    if any(found):
        columns.append("half of the drop at, tokens")
        rows = [[*row, drop] for row, drop in zip(rows, found, strict=True)]
    if len(result.benchmarks) > 1:
        columns.insert(1, "benchmark")
        rows = [[row[0], scope, *row[1:]] for row, scope in zip(rows, scopes, strict=True)]
    of = "" if len(result.benchmarks) > 1 else f"{scope_name(None, result.benchmarks)}. "
    caption = (
        f"{capitalised(of)}Caps: the longest length up to which a loss of "
        f"{level(result.tolerance)} of the baseline is excluded at {level(result.confidence)}, in "
        "tokens of that format, and in records"
    )
    return DataTable(columns, rows, caption, right=())


def _cap(profile: AxisProfile | None) -> str:
    return "none" if profile is None else tokens(profile.cap, "none")


def _drop(profile: AxisProfile | None) -> Cell:
    if profile is None or profile.drop_at is None:
        return None
    low, high = (tokens(end, "open") for end in (profile.drop_at_low, profile.drop_at_high))
    return Bracketed(f"{tokens(profile.drop_at)} [{low}, {high}]")


def models(results: Sequence[UtilizationResult]) -> DataTable:
    """What is found of each model in a line."""
    rows: list[list[Cell]] = [
        [
            Code(result.model),
            _VERDICTS[result.verdict],
            *(_cap(_pooled(result, name)) for name in results[0].formats),
            _parting(result),
        ]
        for result in results
    ]
    caps = [f"cap, {format_name(name)}" for name in results[0].formats]
    caption = (
        "Each model: what is found of formats, the safe cap of each in its own tokens, and where "
        "they part, in tokens of the JSON lines"
    )
    return DataTable(["model", "formats", *caps, "part at"], rows, caption, right=())


_VERDICTS: Mapping[FormatVerdict, str] = {
    "floor": "both at the floor",
    "structure_better": "structure better",
    "prose_better": "prose better",
    "first_better": "first better",
    "second_better": "second better",
    "no_difference": "no difference",
    "task_dependent": "depends on the benchmark",
    "undecided": "undecided",
}


def _pooled(result: UtilizationResult, name: Format) -> AxisProfile | None:
    curves = (one for one in result.curves if one.benchmark is None and one.format == name)
    return next((one.tokens for one in curves), None)


def _parting(result: UtilizationResult) -> Cell:
    """Of the pair that the headline is about."""
    pair = headline_pair(result)
    if pair is None or (found := pair.pooled.divergence).better is None:
        return None
    if found.status == "at_smallest":
        return f"{tokens(found.shown_at_tokens)} or less"
    low, high = (tokens(end, "open") for end in (found.low_tokens, found.high_tokens))
    at = found.tokens or found.shown_at_tokens or 0
    return Bracketed(f"{tokens(two_digits(at))} [{low}, {high}]")


def headline_pair(result: UtilizationResult) -> FormatComparison | None:
    """The pair that the result's verdict is about."""
    with_prose = (one for one in result.comparisons if "prose" in (one.a, one.b))
    return next(with_prose, result.comparisons[0] if result.comparisons else None)


def length_and_work(result: UtilizationResult) -> list[Section]:
    """What else grows or differs with length: tokens a record, position of the evidence."""
    sizes: list[list[Cell]] = [
        [
            scope_name(one.benchmark, result.benchmarks),
            format_name(one.format),
            one.n_documents,
            f"{one.mean:.1f}",
            None if one.ratio is None else f"x {one.ratio:.2f}",
        ]
        for one in result.tokens_per_record
    ]
    positions: list[list[Cell]] = [
        [
            format_name(one.format),
            one.third,
            one.n,
            Bracketed(estimate(one.mean, one.ci_low, one.ci_high)),
        ]
        for one in result.positions
    ]
    first = format_name(result.formats[0]) if result.formats else "the first format"
    sections = []
    if sizes:
        columns = ["benchmark", "format", "documents", "tokens a record", f"of {first}"]
        sections.append(Section("Tokens a record", [DataTable(columns, sizes, right=())], 3))
    if positions:
        columns = ["format", "third of the document", "n", "mean score"]
        sections.append(
            Section("Position of the evidence", [DataTable(columns, positions, right=())], 3)
        )
    return sections


def effects(result: UtilizationResult) -> DataTable:
    """Every other condition against its reference."""
    rows: list[list[Cell]] = [
        [
            one.factor,
            f"{one.level} vs. {one.reference}",
            "all" if one.format is None else format_name(one.format),
            one.n,
            score(one.mean),
            score(one.mean_reference),
            "not measured"
            if one.difference is None
            else Bracketed(f"{difference(one.difference)} {limits(one.ci_low, one.ci_high)}"),
            p_value(one.p_holm),
        ]
        for one in result.effects
    ]
    columns = ["condition", "levels", "format", "n", "mean", "reference", "difference", "p (Holm)"]
    return DataTable(columns, rows, right=())


def p_value(value: float | None) -> str:
    """A p-value to two digits; nothing where there is none."""
    return "" if value is None else f"{value:.2g}"
