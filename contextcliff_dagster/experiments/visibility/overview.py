"""A result in one row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from contextcliff_dagster.experiments.visibility.report.names import VERDICT_WORDS, effect_name
from contextcliff_dagster.experiments.visibility.report.tables import (
    fallback_share,
    unparsable_share,
)

if TYPE_CHECKING:
    from contextcliff_dagster.experiments.visibility.results import VisibilityResult


def overview(result: VisibilityResult) -> dict[str, Any]:
    """Return the result as one row: verdict, regret at both ends, each effect on it, fallbacks."""
    everything = next((one for one in result.curves if one.axis is None), None)
    row: dict[str, Any] = {
        "model": result.model,
        "showing more": result.verdict.replace("_", " "),
        "benchmarks": ", ".join(result.benchmarks),
        "runs": result.n_runs,
        "runs that are not whole": len(result.missing),
        "regret at the start": everything and everything.points[0].regret,
        "regret after the last step": everything and everything.points[-1].regret,
    }
    for one in result.effects:
        if one.outcome == "regret":
            row[f"{effect_name(one)}: difference"] = one.difference
            row[f"{effect_name(one)}: verdict"] = VERDICT_WORDS[one.verdict]
    return {
        **row,
        "fallback steps": fallback_share(result),
        "unparsable steps": unparsable_share(result),
    }
