"""Tables of the report on continuations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.extensions.continuation.analysis.wording import NAMES
from contextcliff_dagster.extensions.continuation.report.metric_figures import metric_name
from contextcliff_dagster.reporting.html.metric_chart import interval_words, number_words
from contextcliff_dagster.reporting.sections import Bracketed, Cell, Code, DataTable
from contextcliff_dagster.reporting.wording.number_format import (
    difference,
    estimate,
    level,
    score,
    tokens,
)

if TYPE_CHECKING:
    from contextcliff_dagster.extensions.continuation.results import (
        ArmDifference,
        ArmResult,
        ContinuationResult,
        Decline,
        Endpoint,
        LossLocation,
        MetricSize,
        Recitation,
    )


def arms(result: ContinuationResult) -> DataTable:
    """Verdict and location of each arm."""
    rows: list[list[Cell]] = [
        [
            Code(arm.arm),
            arm.verdict.replace("_", " "),
            f"{arm.n:,} ({arm.n_passages:,} of {arm.n_texts:,})",
            Bracketed(_ends(arm.score)),
            Bracketed(_ends(arm.intact)),
            _place(arm.score.location),
            _place(arm.intact.location),
        ]
        for arm in result.arms
    ]
    columns = [
        "arm",
        "verdict",
        "generations",
        "score",
        "intact",
        "score lost at",
        "intact lost at",
    ]
    caption = (
        f"Each arm from {tokens(result.sizes[0])} to {tokens(result.sizes[-1])} tokens of context; "
        "generations (passages of texts); mean score and share without collapse (intact) at the "
        "smallest and at the largest size; tokens at which half of either is lost"
    )
    return DataTable(columns, rows, caption, right=())


def _ends(endpoint: Endpoint) -> str:
    known = [one.mean for one in endpoint.sizes if one.mean is not None]
    return f"{score(known[0])} to {score(known[-1])}" if known else "not measured"


def _place(found: LossLocation | None) -> Cell:
    if found is None:
        return None
    at = tokens(found.tokens, "open")
    return Bracketed(f"{at} [{tokens(found.low_tokens)}, {tokens(found.high_tokens)}]")


def sizes(arm: ArmResult, result: ContinuationResult) -> list[DataTable]:
    """Means and declines of one arm at each size, a table an endpoint."""
    found = []
    for endpoint in (arm.score, arm.intact):
        rows: list[list[Cell]] = [
            [
                tokens(one.context_tokens),
                f"{one.n:,} ({one.n_passages:,})",
                Bracketed(estimate(one.mean, one.ci_low, one.ci_high)),
                _decline(one.decline),
                _p(None if one.decline is None else one.decline.p_value),
                _p(None if one.decline is None else one.decline.p_holm),
                None if one.decline is None else difference(one.decline.upper),
            ]
            for one in endpoint.sizes
        ]
        trend = endpoint.trend
        if trend is not None:
            slope = f"{difference(-trend.slope)} a doubling"
            rows.append(["trend", None, None, slope, _p(trend.p_value), _p(trend.p_holm), None])
        columns = [
            "tokens of context",
            "generations (passages)",
            NAMES[endpoint.name],
            "decline",
            "p",
            "p, Holm",
            "excluded above",
        ]
        caption = (
            f"{NAMES[endpoint.name].capitalize()} by context size, {level(result.confidence)} "
            f"intervals; decline from the smallest size, one-sided tests; Holm over {arm.tests} "
            "tests"
        )
        found.append(DataTable(columns, rows, caption, right=()))
    return found


def _decline(found: Decline | None) -> Cell:
    if found is None or found.decline is None:
        return None
    return Bracketed(
        f"{difference(found.decline)} [{difference(found.ci_low)}, {difference(found.ci_high)}]"
    )


def _p(value: float | None) -> Cell:
    if value is None:
        return None
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def collapses(arm: ArmResult, result: ContinuationResult) -> DataTable | None:
    """Collapsed generations by kind and size; None without any."""
    kinds = sorted({kind for one in arm.collapses for kind in one})
    if not kinds:
        return None
    rows: list[list[Cell]] = [
        [tokens(size), *(found.get(kind, 0) for kind in kinds), one.n]
        for size, found, one in zip(result.sizes, arm.collapses, arm.intact.sizes, strict=True)
    ]
    return DataTable(
        ["tokens of context", *kinds, "generations"], rows, "Collapsed generations by kind"
    )


def differences(result: ContinuationResult) -> DataTable | None:
    """Each arm less the reference: means over sizes and extra declines; None with one arm."""
    rows: list[list[Cell]] = []
    for compared in result.comparisons:
        rows += [[Code(compared.arm), *_difference(row)] for row in compared.overall]
    if not rows:
        return None
    columns = ["arm", "of", "passages", "difference", "p", "p, Holm"]
    caption = (
        f"Each arm less {result.reference}, passages paired; two-sided tests, Holm over all rows"
    )
    return DataTable(columns, rows, caption, right=())


def _difference(row: ArmDifference) -> Sequence[Cell]:
    what = f"{NAMES[row.endpoint]}, mean over sizes"
    if row.extra_decline:
        what = f"decline of the {NAMES[row.endpoint]} up to {tokens(row.context_tokens)} tokens"
    span = f"[{difference(row.ci_low)}, {difference(row.ci_high)}]"
    return (
        what,
        row.n_passages,
        Bracketed(f"{difference(row.difference)} {span}"),
        _p(row.p_value),
        _p(row.p_holm),
    )


def plan(arm: ArmResult) -> DataTable | None:
    """Passages that a decline needs; None where the variance is not known."""
    if not arm.plan:
        return None
    rows: list[list[Cell]] = [
        [f"{row.decline:g}", f"{row.power:g}", row.rounds, row.n_passages] for row in arm.plan
    ]
    return DataTable(
        ["decline of the score", "power", "rounds", "passages"],
        rows,
        "Passages that show a decline at one context size, from this study's variance",
    )


def metrics(arm: ArmResult, result: ContinuationResult) -> DataTable | None:
    """Means of every metric of one arm at each size; None without any metric."""
    rows: list[list[Cell]] = []
    for metric in result.metrics:
        own = next((one for one in metric.arms if one.arm == arm.arm), None)
        if own is None:
            continue
        author = metric.author
        spread = "" if author is None or author.sd is None else f" ± {number_words(author.sd)}"
        rows.append(
            [
                metric_name(metric.name),
                *(Bracketed(interval_words(one.mean, _interval(one))) for one in own.sizes),
                "not measured" if author is None else f"{number_words(author.mean)}{spread}",
            ]
        )
    if not rows:
        return None
    columns = ["metric", *(f"{tokens(size)} tokens" for size in result.sizes), "authors"]
    caption = (
        f"Means over passages with {level(result.confidence)} intervals; of the authors, with the "
        "SD between passages. No test rests on them"
    )
    return DataTable(columns, rows, caption, right=())


def _interval(one: MetricSize) -> tuple[float, float] | None:
    return None if one.ci_low is None or one.ci_high is None else (one.ci_low, one.ci_high)


def recitation(found: Recitation) -> DataTable:
    """Recited continuations of each arm by size."""
    sizes = [one.context_tokens for one in found.arms[0].sizes]
    rows: list[list[Cell]] = [
        [Code(arm.arm), *(f"{one.recited:,} of {one.n:,}" for one in arm.sizes)]
        for arm in found.arms
    ]
    caption = "Recited continuations, of those long enough to be compared"
    return DataTable(
        ["arm", *(f"{tokens(size)} tokens" for size in sizes)], rows, caption, right=()
    )


def overview(result: ContinuationResult) -> dict[str, Any]:
    """Return the result as one row: verdict, and score and share without collapse at each end."""
    reference = result.arms[0]
    row: dict[str, Any] = {
        "model": result.model,
        "verdict": result.verdict.replace("_", " "),
        "of": reference.arm,
        "arms": len(result.arms),
    }
    for what, endpoint in (("score", reference.score), ("intact", reference.intact)):
        for one in (endpoint.sizes[0], endpoint.sizes[-1]):
            row[f"{what} at {one.context_tokens:,} tokens"] = one.mean
        place = endpoint.location
        row[f"half of the loss of {what} at (tokens)"] = place and place.tokens
    return {**row, "continuations": result.n, "without a text": result.missing}
