"""A result in one row, and what must hold before it is believed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.experiments.common.experiment import Alarm, CheckOutcome, CheckSpec

if TYPE_CHECKING:
    from contextcliff_dagster.extensions.utilization.results import UtilizationResult

PLATEAU_FLOOR = 0.3
"""Below this baseline in every format neither a loss nor a difference can be large."""

DIFFERENCES = frozenset(
    {"structure_better", "prose_better", "first_better", "second_better", "task_dependent"}
)
"""Verdicts that say that formats differ."""

PLATEAU = CheckSpec(
    "plateau",
    "Each model can do the task on its shortest documents in one format at least, so that a loss "
    "and a difference can be measured.",
    of="result",
)


def overview(result: UtilizationResult) -> dict[str, Any]:
    """Return the result as one row: verdict, where the formats part, the cap of each format."""
    row: dict[str, Any] = {"model": result.model, "verdict": result.verdict.replace("_", " ")}
    if result.comparisons:
        parting = result.comparisons[0].pooled.divergence
        row |= {
            "part at (JSON tokens)": parting.tokens,
            "between": parting.low_tokens,
            "and": parting.high_tokens,
        }
    for curve in result.curves:
        if curve.benchmark is None:
            row[f"{curve.format}: mean score"] = curve.mean
            row[f"{curve.format}: safe cap (tokens)"] = curve.tokens and curve.tokens.cap
    return {**row, "answers": result.n}


def check_plateau(results: Sequence[UtilizationResult]) -> CheckOutcome:
    """Return whether each model has, in some format, a baseline that a loss could be seen from."""
    low = {
        result.model: best
        for result in results
        if (best := max(_baselines(result).values(), default=0.0)) < PLATEAU_FLOOR
    }
    why = "; ".join(f"{model}: baseline {best:.2f} at best" for model, best in low.items())
    return CheckOutcome(
        PLATEAU.name,
        not low,
        why or f"every model has a baseline of {PLATEAU_FLOOR:.2f} or more in some format",
        values={"below": len(low)},
        rows={"baselines": [{"model": one.model, **_baselines(one)} for one in results]},
    )


def difference_alarm(results: Sequence[UtilizationResult], campaign: str) -> Alarm | None:
    """Return what the alert channels get; None where no model is shown to differ by format."""
    differ = [result for result in results if result.verdict in DIFFERENCES]
    if not differ:
        return None
    return Alarm(
        "formats_differ",
        campaign,
        [f"{result.model}: {result.verdict}" for result in differ],
        " ".join(f"{result.model}: {result.headline[0]}" for result in differ),
        {"campaign": campaign, "models": [overview(result) for result in differ]},
    )


def _baselines(result: UtilizationResult) -> Mapping[str, float]:
    return {
        str(curve.format): curve.tokens.baseline
        for curve in result.curves
        if curve.benchmark is None and curve.tokens and curve.tokens.baseline is not None
    }
