"""Report tables: models, formats, pairs of formats and other conditions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from contextcliff_dagster.extensions.utilization.analysis.wording import (
    beyond_zero,
    capitalised,
    format_name,
)
from contextcliff_dagster.extensions.utilization.report.names import scope_name
from contextcliff_dagster.extensions.utilization.results import headline_pair
from contextcliff_dagster.reporting.sections import (
    Block,
    Bracketed,
    Bullets,
    Cell,
    Code,
    DataTable,
    Paragraph,
    Section,
)
from contextcliff_dagster.reporting.wording import (
    VERDICT_PHRASE,
    estimate,
    level,
    limits,
    listed,
    p_value,
    score,
    tokens,
    two_digits,
    with_limits,
)

if TYPE_CHECKING:
    from contextcliff_dagster.extensions.utilization.benchmarks.data import BenchmarkName
    from contextcliff_dagster.extensions.utilization.rendering.sentences import Format
    from contextcliff_dagster.extensions.utilization.results import (
        AxisProfile,
        DifferenceTest,
        FormatComparison,
        FormatVerdict,
        ScopeComparison,
        UtilizationResult,
    )


def formats(result: UtilizationResult) -> DataTable:
    """Return a table of verdict, caps and mean by format and benchmark, without empty columns."""
    scopes, drops = [], []
    rows: list[list[Cell]] = []
    for curve in result.curves:
        profile = curve.tokens
        scopes.append(scope_name(curve.benchmark, result.benchmarks))
        drops.append(_drop(profile))
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
    if any(drops):
        columns.append("half of the drop at, tokens")
        rows = [[*row, drop] for row, drop in zip(rows, drops, strict=True)]
    if len(result.benchmarks) > 1:
        columns.insert(1, "benchmark")
        rows = [[row[0], scope, *row[1:]] for row, scope in zip(rows, scopes, strict=True)]
    of = "" if len(result.benchmarks) > 1 else f"{scope_name(None, result.benchmarks)}. "
    caption = (
        f"{capitalised(of)}Safe cap: the longest length at which a loss of "
        f"{level(result.tolerance)} of the baseline is ruled out at {level(result.confidence)}, in "
        "tokens of that format, and in records"
    )
    return DataTable(columns, rows, caption, right=())


def lengths(result: UtilizationResult) -> DataTable:
    """Return a table of the tokens of all formats, by scale and benchmark."""
    found = {
        (curve.benchmark, curve.format, scale.scale): scale.tokens
        for curve in result.curves
        for scale in curve.scales
    }
    scopes: Sequence[BenchmarkName | None] = result.benchmarks
    scopes = scopes if len(scopes) > 1 else [None]

    def beside(scope: BenchmarkName | None, scale: str) -> str:
        return " / ".join(tokens(found.get((scope, f, scale)), "–") for f in result.formats)

    rows = [[scale, *(beside(scope, scale) for scope in scopes)] for scale in result.scales]
    columns = ["scale", *(scope_name(scope, result.benchmarks) for scope in scopes)]
    names = " / ".join(map(format_name, result.formats))
    caption = f"Mean tokens of a document, {names} (match: {result.match})"
    return DataTable(columns, rows, caption, right=())


def _cap(profile: AxisProfile | None) -> str:
    return "none" if profile is None else tokens(profile.cap, "none")


def _drop(profile: AxisProfile | None) -> Cell:
    if profile is None or profile.drop_at is None:
        return None
    low, high = (tokens(end, "open") for end in (profile.drop_at_low, profile.drop_at_high))
    return Bracketed(f"{tokens(profile.drop_at)} [{low}, {high}]")


def models(results: Sequence[UtilizationResult]) -> DataTable:
    """Return a table with one row of results per model."""
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
        "Each model: its verdict, the safe cap of each format in its own tokens, and where the "
        "formats diverge, in tokens of the JSON lines"
    )
    return DataTable(["model", "formats", *caps, "diverge at"], rows, caption, right=())


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
    curves = (curve for curve in result.curves if curve.benchmark is None and curve.format == name)
    return next((curve.tokens for curve in curves), None)


def _parting(result: UtilizationResult) -> Cell:
    """The length at which the formats of the headline's pair diverge."""
    pair = headline_pair(result.comparisons)
    if pair is None or (divergence := pair.pooled.divergence).better is None:
        return None
    if divergence.status == "at_smallest":
        return f"{tokens(divergence.shown_at_tokens)} or less"
    low, high = (tokens(end, "open") for end in (divergence.low_tokens, divergence.high_tokens))
    at = divergence.tokens or divergence.shown_at_tokens or 0
    return Bracketed(f"{tokens(two_digits(at))} [{low}, {high}]")


def length_and_work(result: UtilizationResult) -> list[Section]:
    """Return tables of other properties that vary: tokens per record, evidence position."""
    sizes: list[list[Cell]] = [
        [
            scope_name(row.benchmark, result.benchmarks),
            format_name(row.format),
            row.n_documents,
            f"{row.mean:.1f}",
            None if row.ratio is None else f"x {row.ratio:.2f}",
        ]
        for row in result.tokens_per_record
    ]
    positions: list[list[Cell]] = [
        [
            format_name(position.format),
            position.third,
            position.n,
            Bracketed(estimate(position.mean, position.ci_low, position.ci_high)),
        ]
        for position in result.positions
    ]
    first = format_name(result.formats[0]) if result.formats else "the first format"
    sections = []
    if sizes:
        columns = ["benchmark", "format", "documents", "tokens per record", f"relative to {first}"]
        sections.append(Section("Tokens per record", [DataTable(columns, sizes, right=())], 3))
    if positions:
        columns = ["format", "third of the document", "n", "mean score"]
        sections.append(
            Section("Position of the evidence", [DataTable(columns, positions, right=())], 3)
        )
    return sections


def effects(result: UtilizationResult) -> DataTable:
    """Return a table of every other condition against its reference."""
    rows: list[list[Cell]] = [
        [
            row.factor,
            f"{row.level} vs. {row.reference}",
            "all" if row.format is None else format_name(row.format),
            row.n,
            score(row.mean),
            score(row.mean_reference),
            Bracketed(with_limits(row.difference, row.ci_low, row.ci_high)),
            p_value(row.p_holm),
        ]
        for row in result.effects
    ]
    columns = ["condition", "levels", "format", "n", "mean", "reference", "difference", "p (Holm)"]
    return DataTable(columns, rows, right=())


def arms(result: UtilizationResult) -> list[Block]:
    """Return a line for each further condition: its effect over all formats, with the interval."""
    whole = result.formats[0] if len(result.formats) == 1 else None
    lines = [
        Bracketed(
            f"{row.factor}, {row.level} minus {row.reference}: "
            f"{with_limits(row.difference, row.ci_low, row.ci_high)}"
        )
        for row in result.effects
        if row.factor != "benchmark" and row.format == whole
    ]
    lead = f"Effects on the mean score, each with its interval at {level(result.confidence)}:"
    return [Paragraph(lead), Bullets(lines)] if lines else []


def comparison(pair: FormatComparison, result: UtilizationResult) -> list[Section]:
    """Return tables of a pair's differences by scale, for all benchmarks and each."""
    title = capitalised(f"{format_name(pair.a)} and {format_name(pair.b)}")
    unpaired = [pair.unpaired_reason] if pair.unpaired_reason else []
    sections = [Section(title, [Bullets([Bracketed(pair.sentences[0]), *unpaired])], 3)]
    caption = (
        "Differences with the interval of that scale alone, and with the band that holds for all "
        "scales at once; p-values of the permutation test, Holm-adjusted (last row: not adjusted)"
    )
    for scoped in (pair.pooled, *pair.benchmarks):
        rows: list[list[Cell]] = [
            [scale.scale, *_row(scale.test), p_value(scale.test.p_holm)] for scale in scoped.scales
        ]
        rows.append(["all scales", *_row(scoped.overall), p_value(scoped.overall.p_value)])
        columns = [
            "scale",
            "n",
            format_name(pair.a),
            format_name(pair.b),
            "difference",
            "band over all scales",
            "p",
        ]
        name = scope_name(scoped.benchmark, result.benchmarks)
        blocks: list[Block] = [DataTable(columns, rows, caption, right=())]
        if scoped.divergence.sentence not in pair.sentences[:1]:
            blocks.insert(0, Paragraph(Bracketed(scoped.divergence.sentence)))
        blocks += [Paragraph(text) for text in disagreements(scoped, result.confidence)]
        sections.append(Section(capitalised(name), blocks, 4))
    return sections


def _row(test: DifferenceTest) -> list[Cell]:
    return [test.n, score(test.mean_a), score(test.mean_b), _difference(test), _band(test)]


def disagreements(scoped: ScopeComparison, confidence: float) -> list[str]:
    """Return sentences on scales where the band and the adjusted tests disagree, and why."""
    alpha = 1.0 - confidence
    band_alone, test_alone, fewest = [], [], math.inf
    for scale in scoped.scales:
        in_band = beyond_zero(scale.test.band_low, scale.test.band_high) != 0
        in_test = scale.test.p_holm is not None and scale.test.p_holm <= alpha
        if in_band and not in_test:
            band_alone.append(scale.scale)
            fewest = min(fewest, scale.test.n_documents)
        elif in_test and not in_band:
            test_alone.append(scale.scale)
    sentences = []
    if band_alone:
        why = "the test exchanges whole documents, the band counts every question"
        least = 2.0 ** (1 - fewest)
        if scoped.overall.only_a is not None and least * len(scoped.scales) > alpha:
            why = (
                f"with {fewest:.0f} documents the smallest possible p-value is {least:.2g} before "
                "Holm's adjustment, so the test needs more seeds"
            )
        sentences.append(
            f"At {listed(band_alone)} the band excludes 0, but the adjusted permutation test does "
            f"not reject (p > {alpha:.2g}): {why}. The verdict follows the band."
        )
    if test_alone:
        sentences.append(
            f"At {listed(test_alone)} the adjusted permutation test rejects (p <= {alpha:.2g}), "
            "but the band includes 0: the band also covers the size of the differences at every "
            "scale and their mean. The verdict follows the band."
        )
    return sentences


def certainty(pair: FormatComparison) -> list[Section]:
    """Return tables of a pair's other tests and of the seeds needed to show a difference."""
    title = f"{format_name(pair.a)} and {format_name(pair.b)}"
    scoped = pair.pooled
    rows: list[list[Cell]] = []
    for name, test in [
        *((scale.scale, scale.test) for scale in scoped.scales),
        ("all scales", scoped.overall),
    ]:
        discordant = "" if test.only_a is None else f"{test.only_a} / {test.only_b}"
        mcnemar = test.mcnemar and f"{p_value(test.mcnemar.p_value)} (n = {test.mcnemar.n})"
        paired_t = test.t_test and p_value(test.t_test.p_value)
        p_values = p_value(test.p_value), mcnemar or None, paired_t or None
        rows.append([name, discordant, *p_values])
    columns = [
        "scale",
        "right in only one",
        "permutation",
        "McNemar, exact",
        "paired t-test",
    ]
    blocks = [DataTable(columns, rows, "p-values of single scales, not adjusted", right=())]
    assumptions = {test.t_test.assumes for test in (s.test for s in scoped.scales) if test.t_test}
    notes = [
        "Permutation: formats exchanged for whole documents. McNemar: one question per document.",
        *sorted(assumptions),
        *sorted({scale.test.not_tested for scale in scoped.scales if scale.test.not_tested}),
        _correlation(scoped),
    ]
    return [Section(title, [*blocks, Bullets(notes), _seeds(scoped)], 3)]


def _correlation(scoped: ScopeComparison) -> str:
    how = "assumed, as too few answers differ" if scoped.correlation_assumed else "estimated"
    return (
        f"The band uses a correlation of {scoped.correlation:.2f} between differences within a "
        f"document ({how})."
    )


def _seeds(scoped: ScopeComparison) -> DataTable:
    rows: list[list[Cell]] = [
        [f"{row.difference:.2g}", row.one_scale, row.all_scales] for row in scoped.seeds_needed
    ]
    caption = "Seeds (documents per scale and benchmark) to show a difference with power 0.8"
    return DataTable(["difference", "at one scale", "with the band over all scales"], rows, caption)


def _difference(test: DifferenceTest) -> Cell:
    return Bracketed(with_limits(test.difference, test.ci_low, test.ci_high))


def _band(test: DifferenceTest) -> Cell:
    if test.band_low is None or test.band_high is None:
        return None
    return Bracketed(limits(test.band_low, test.band_high))
