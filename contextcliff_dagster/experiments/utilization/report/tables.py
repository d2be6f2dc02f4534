"""Tables of the report on utilization."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from contextcliff_dagster.experiments.utilization.report.names import FORMAT_NAMES, scope_name
from contextcliff_dagster.reporting.sections import (
    Bracketed,
    Bullets,
    Cell,
    Code,
    DataTable,
    Paragraph,
    Section,
)
from contextcliff_dagster.reporting.wording.number_format import (
    difference,
    estimate,
    level,
    score,
    tokens,
)

if TYPE_CHECKING:
    from contextcliff_dagster.experiments.utilization.curve_results import AxisProfile
    from contextcliff_dagster.experiments.utilization.report.page import WrongAnswer
    from contextcliff_dagster.experiments.utilization.results import (
        DifferenceTest,
        FormatComparison,
        ScopeComparison,
        UtilizationResult,
    )

MOST_WRONG = 24


def formats(result: UtilizationResult) -> DataTable:
    """Verdict, caps and mean of each format and benchmark."""
    rows: list[list[Cell]] = []
    for curve in result.curves:
        profile = curve.tokens
        rows.append(
            [
                FORMAT_NAMES[curve.format],
                scope_name(curve.benchmark, result.benchmarks),
                f"{curve.n:,} ({curve.n_documents:,})",
                Bracketed(estimate(curve.mean, curve.ci_low, curve.ci_high)),
                profile.verdict if profile else "none",
                _cap(profile),
                _drop(profile),
                _cap(curve.records),
            ]
        )
    columns = [
        "format",
        "benchmark",
        "answers (documents)",
        "mean score",
        "verdict",
        "safe cap, tokens",
        "half of the drop at, tokens",
        "safe cap, records",
    ]
    caption = (
        f"Caps: the longest length up to which a loss of {level(result.tolerance)} of the baseline "
        f"is excluded at {level(result.confidence)}, in tokens of that format, and in records"
    )
    return DataTable(columns, rows, caption, right=())


def _cap(profile: AxisProfile | None) -> str:
    return "none" if profile is None else tokens(profile.cap, "none")


def _drop(profile: AxisProfile | None) -> Cell:
    if profile is None or profile.drop_at is None:
        return None
    low, high = (tokens(end, "open") for end in (profile.drop_at_low, profile.drop_at_high))
    return Bracketed(f"{tokens(profile.drop_at)} [{low}, {high}]")


def comparison(pair: FormatComparison, result: UtilizationResult) -> list[Section]:
    """Where the two formats of a pair part, for all benchmarks and each."""
    title = f"{FORMAT_NAMES[pair.a]} and {FORMAT_NAMES[pair.b]}"
    said = [*pair.sentences, *([pair.unpaired_reason] if pair.unpaired_reason else [])]
    sections = [Section(title, [Bullets(said)], 3)]
    for scoped in (pair.pooled, *pair.benchmarks):
        rows: list[list[Cell]] = [
            [
                one.scale,
                f"{tokens(one.tokens_a)} / {tokens(one.tokens_b)}",
                one.test.n,
                score(one.test.mean_a),
                score(one.test.mean_b),
                _difference(one.test),
                _band(one.test),
                _p(one.test.p_holm),
            ]
            for one in scoped.scales
        ]
        rows.append(
            [
                "all scales",
                "",
                scoped.overall.n,
                score(scoped.overall.mean_a),
                score(scoped.overall.mean_b),
                _difference(scoped.overall),
                _band(scoped.overall),
                _p(scoped.overall.p_value),
            ]
        )
        columns = [
            "scale",
            "mean tokens",
            "n",
            FORMAT_NAMES[pair.a],
            FORMAT_NAMES[pair.b],
            "difference",
            "band over all scales",
            "p (Holm)",
        ]
        name = scope_name(scoped.benchmark, result.benchmarks)
        parted = Paragraph(Bracketed(scoped.divergence.sentence))
        table = DataTable(columns, rows, right=())
        sections.append(Section(name[0].upper() + name[1:], [parted, table], 4))
    return sections


def certainty(pair: FormatComparison, result: UtilizationResult) -> list[Section]:
    """The other tests of a pair's pooled differences, and the seeds that a difference needs."""
    title = f"{FORMAT_NAMES[pair.a]} and {FORMAT_NAMES[pair.b]}"
    scoped = pair.pooled
    rows: list[list[Cell]] = []
    for name, test in [
        *((one.scale, one.test) for one in scoped.scales),
        ("all scales", scoped.overall),
    ]:
        discordant = "" if test.only_a is None else f"{test.only_a} / {test.only_b}"
        mcnemar = test.mcnemar and f"{_p(test.mcnemar.p_value)} (n = {test.mcnemar.n})"
        paired_t = test.t_test and _p(test.t_test.p_value)
        p_values = _p(test.p_value), mcnemar or None, paired_t or None
        resampled = test.bootstrap_low, test.bootstrap_high
        bootstrap = None if None in resampled else Bracketed(_limits(*resampled))
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
    return [Section(title, [*blocks, Bullets(notes), _seeds(scoped, result)], 3)]


def _correlation(scoped: ScopeComparison) -> str:
    how = "assumed, as too few answers differ" if scoped.correlation_assumed else "estimated"
    return (
        f"The band takes differences within a document as correlated by {scoped.correlation:.2f} "
        f"({how})."
    )


def _seeds(scoped: ScopeComparison, result: UtilizationResult) -> DataTable:
    rows: list[list[Cell]] = [
        [f"{one.difference:.2g}", one.one_scale, one.all_scales] for one in scoped.seeds_needed
    ]
    caption = "Seeds (documents of a scale and benchmark) that show a difference with power 0.8"
    return DataTable(["difference", "at one scale", "with the band over all scales"], rows, caption)


def length_and_work(result: UtilizationResult) -> list[Section]:
    """What else grows or differs with length: tokens a record, position of the evidence."""
    sizes: list[list[Cell]] = [
        [
            scope_name(one.benchmark, result.benchmarks),
            FORMAT_NAMES[one.format],
            one.n_documents,
            f"{one.mean:.1f}",
            None if one.ratio is None else f"x {one.ratio:.2f}",
        ]
        for one in result.tokens_per_record
    ]
    positions: list[list[Cell]] = [
        [
            FORMAT_NAMES[one.format],
            one.third,
            one.n,
            Bracketed(estimate(one.mean, one.ci_low, one.ci_high)),
        ]
        for one in result.positions
    ]
    first = FORMAT_NAMES[result.formats[0]] if result.formats else "the first format"
    sections = []
    if sizes:
        columns = ["benchmark", "format", "documents", "tokens a record", f"of {first}"]
        sections.append(Section("Tokens a record", [DataTable(columns, sizes, right=(2,))], 3))
    if positions:
        columns = ["format", "third of the document", "n", "mean score"]
        sections.append(
            Section("Position of the evidence", [DataTable(columns, positions, right=(2,))], 3)
        )
    return sections


def effects(result: UtilizationResult) -> DataTable:
    """Every other condition against its reference."""
    rows: list[list[Cell]] = [
        [
            one.factor,
            f"{one.level} vs. {one.reference}",
            "all" if one.format is None else FORMAT_NAMES[one.format],
            one.n,
            score(one.mean),
            score(one.mean_reference),
            "not measured"
            if one.difference is None
            else Bracketed(f"{difference(one.difference)} {_limits(one.ci_low, one.ci_high)}"),
            _p(one.p_holm),
        ]
        for one in result.effects
    ]
    columns = ["condition", "levels", "format", "n", "mean", "reference", "difference", "p (Holm)"]
    return DataTable(columns, rows, right=())


def wrong_answers(wrong: Sequence[WrongAnswer]) -> list[Section]:
    """Examples of answers that scored 0."""
    if not wrong:
        return []
    rows: list[list[Cell]] = [
        [
            Code(one.model),
            Code(one.cell),
            one.question,
            Code(one.expected),
            None if one.answer is None else Code(_short(one.answer)),
            one.failure,
            one.needed,
            None if one.evidence_position is None else f"{one.evidence_position:.2f}",
        ]
        for one in wrong[:MOST_WRONG]
    ]
    columns = [
        "model",
        "documents",
        "question",
        "right",
        "answer",
        "failure",
        "records that matter",
        "position",
    ]
    caption = f"{len(rows)} of {len(wrong):,} wrong answers, spread over formats and scales"
    return [Section("Wrong answers", [DataTable(columns, rows, caption, right=())], 3)]


def _short(answer: str, most: int = 160) -> str:
    line = " ".join(answer.split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def _difference(test: DifferenceTest) -> Cell:
    if test.difference is None:
        return "not measured"
    return Bracketed(f"{difference(test.difference)} {_limits(test.ci_low, test.ci_high)}")


def _band(test: DifferenceTest) -> Cell:
    if test.band_low is None or test.band_high is None:
        return None
    return Bracketed(_limits(test.band_low, test.band_high))


def _limits(low: float | None, high: float | None) -> str:
    if low is None or high is None:
        return "(no interval)"
    return f"[{difference(low)}, {difference(high)}]"


def _p(value: float | None) -> str:
    return "" if value is None else f"{value:.2g}"
