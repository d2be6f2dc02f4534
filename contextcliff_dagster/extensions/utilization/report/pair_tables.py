"""Tables of a pair of formats: their differences, and the tests of these."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from contextcliff_dagster.extensions.utilization.analysis.wording import (
    beyond_zero,
    capitalised,
    format_name,
    listed,
)
from contextcliff_dagster.extensions.utilization.report.names import scope_name
from contextcliff_dagster.extensions.utilization.report.tables import p_value
from contextcliff_dagster.reporting.sections import (
    Block,
    Bracketed,
    Bullets,
    Cell,
    DataTable,
    Paragraph,
    Section,
)
from contextcliff_dagster.reporting.wording.number_format import difference, limits, score, tokens

if TYPE_CHECKING:
    from contextcliff_dagster.extensions.utilization.results import (
        DifferenceTest,
        FormatComparison,
        ScopeComparison,
        UtilizationResult,
    )


def comparison(pair: FormatComparison, result: UtilizationResult) -> list[Section]:
    """Where the two formats of a pair part, for all benchmarks and each."""
    title = capitalised(f"{format_name(pair.a)} and {format_name(pair.b)}")
    unpaired = [pair.unpaired_reason] if pair.unpaired_reason else []
    sections = [Section(title, [Bullets([Bracketed(pair.sentences[0]), *unpaired])], 3)]
    caption = (
        "Differences with the interval of that scale alone, and with the band that holds for all "
        "scales at once; p-values of the permutation test, Holm-adjusted (last row: not adjusted)"
    )
    for scoped in (pair.pooled, *pair.benchmarks):
        rows: list[list[Cell]] = [
            [
                one.scale,
                f"{tokens(one.tokens_a)} / {tokens(one.tokens_b)}",
                *_row(one.test),
                p_value(one.test.p_holm),
            ]
            for one in scoped.scales
        ]
        rows.append(["all scales", "", *_row(scoped.overall), p_value(scoped.overall.p_value)])
        columns = [
            "scale",
            "mean tokens",
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
    """Where the band and the adjusted tests of single scales do not say the same, and why."""
    alpha = 1.0 - confidence
    band_alone, test_alone, fewest = [], [], math.inf
    for one in scoped.scales:
        shown = beyond_zero(one.test.band_low, one.test.band_high) != 0
        rejected = one.test.p_holm is not None and one.test.p_holm <= alpha
        if shown and not rejected:
            band_alone.append(one.scale)
            fewest = min(fewest, one.test.n_documents)
        elif rejected and not shown:
            test_alone.append(one.scale)
    sentences = []
    if band_alone:
        why = "the test exchanges whole documents, the band counts every question"
        least = 2.0 ** (1 - fewest)
        if scoped.overall.only_a is not None and least * len(scoped.scales) > alpha:
            why = (
                f"over {fewest:.0f} documents no p-value of this test is below {least:.2g} before "
                "Holm's adjustment, so more seeds are needed for it"
            )
        sentences.append(
            f"At {listed(band_alone)} the band excludes 0, and the adjusted permutation test does "
            f"not reject (p > {alpha:.2g}): {why}. The verdict follows the band."
        )
    if test_alone:
        sentences.append(
            f"At {listed(test_alone)} the adjusted permutation test rejects (p <= {alpha:.2g}), "
            "and the band includes 0: the band also holds for the size of the differences at every "
            "scale and for their mean. The verdict follows the band."
        )
    return sentences


def certainty(pair: FormatComparison) -> list[Section]:
    """The other tests of a pair's pooled differences, and the seeds that a difference needs."""
    title = f"{format_name(pair.a)} and {format_name(pair.b)}"
    scoped = pair.pooled
    rows: list[list[Cell]] = []
    for name, test in [
        *((one.scale, one.test) for one in scoped.scales),
        ("all scales", scoped.overall),
    ]:
        discordant = "" if test.only_a is None else f"{test.only_a} / {test.only_b}"
        mcnemar = test.mcnemar and f"{p_value(test.mcnemar.p_value)} (n = {test.mcnemar.n})"
        paired_t = test.t_test and p_value(test.t_test.p_value)
        p_values = p_value(test.p_value), mcnemar or None, paired_t or None
        resampled = test.bootstrap_low, test.bootstrap_high
        bootstrap = None if None in resampled else Bracketed(limits(*resampled))
        rows.append([name, discordant, *p_values, bootstrap])
    columns = [
        "scale",
        "right in one alone",
        "permutation",
        "McNemar, exact",
        "paired t-test",
        "bootstrap interval",
    ]
    caption = "p-values and bootstrap intervals of single scales, not adjusted"
    blocks = [DataTable(columns, rows, caption, right=())]
    assumed = {test.t_test.assumes for test in (s.test for s in scoped.scales) if test.t_test}
    notes = [
        "Permutation: formats exchanged for whole documents. McNemar: one question a document. "
        "Bootstrap: documents resampled; none where all documents agree.",
        *sorted(assumed),
        *sorted({one.test.not_tested for one in scoped.scales if one.test.not_tested}),
        _correlation(scoped),
    ]
    return [Section(title, [*blocks, Bullets(notes), _seeds(scoped)], 3)]


def _correlation(scoped: ScopeComparison) -> str:
    how = "assumed, as too few answers differ" if scoped.correlation_assumed else "estimated"
    return (
        f"The band takes differences within a document as correlated by {scoped.correlation:.2f} "
        f"({how})."
    )


def _seeds(scoped: ScopeComparison) -> DataTable:
    rows: list[list[Cell]] = [
        [f"{one.difference:.2g}", one.one_scale, one.all_scales] for one in scoped.seeds_needed
    ]
    caption = "Seeds (documents of a scale and benchmark) that show a difference with power 0.8"
    return DataTable(["difference", "at one scale", "with the band over all scales"], rows, caption)


def _difference(test: DifferenceTest) -> Cell:
    if test.difference is None:
        return "not measured"
    return Bracketed(f"{difference(test.difference)} {limits(test.ci_low, test.ci_high)}")


def _band(test: DifferenceTest) -> Cell:
    if test.band_low is None or test.band_high is None:
        return None
    return Bracketed(limits(test.band_low, test.band_high))
