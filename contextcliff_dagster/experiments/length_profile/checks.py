"""What must hold before a length profile is believed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from contextcliff_dagster.experiments.common.experiment import CheckOutcome, CheckSpec
from contextcliff_dagster.experiments.common.record_checks import RECORD_CHECKS

if TYPE_CHECKING:
    from pathlib import Path

    from contextcliff_dagster.contracts.results import Cliffs
    from contextcliff_dagster.experiments.length_profile.regression import Regression

PLATEAU_FLOOR = 0.5
"""Below this baseline a further drop says little about length: the task itself is too hard."""

CHECKS = (
    *RECORD_CHECKS,
    CheckSpec(
        "plateau",
        "Each model can do the task on its shortest documents, so a drop can be measured.",
        of="result",
    ),
    CheckSpec(
        "no_shrink",
        "No model has become worse than in the pinned baseline, beyond noise; skipped where no "
        "baseline is pinned, and in the baseline itself.",
        of="result",
    ),
)


def check_plateau(cliffs: Sequence[Cliffs]) -> CheckOutcome:
    """Return whether each model has a baseline that a drop could be seen from."""
    baselines = {result.model: result.baseline.mean for result in cliffs}
    low = {m: mean for m, mean in baselines.items() if mean is None or mean < PLATEAU_FLOOR}
    why = "; ".join(
        f"{model}: no baseline" if mean is None else f"{model}: baseline {mean:.2f}"
        for model, mean in low.items()
    )
    return CheckOutcome(
        "plateau",
        not low,
        why or f"every baseline is at least {PLATEAU_FLOOR:.2f}",
        values={"below": len(low)},
    )


def check_shrink(regression: Regression, page: Path | None = None) -> CheckOutcome:
    """Return whether every model was judged and none has become worse than in the baseline.

    Skipped where there is no other campaign to compare with. ``page``: where the comparison is
    shown.
    """
    if regression.baseline in (None, regression.campaign):
        return CheckOutcome("no_shrink", None, regression.sentence)
    rows = [
        {"model": model, **{name: value for name, value in asdict(shrink).items() if name != "n"}}
        for model, shrink in regression.shrinks.items()
    ]
    return CheckOutcome(
        "no_shrink",
        not regression.shrunk and not regression.unjudged,
        regression.sentence,
        error=bool(regression.shrunk),
        values={
            "baseline": regression.baseline,
            "campaign": regression.campaign,
            **({"regression.html": page} if page else {}),
        },
        rows={"models": rows} if rows else {},
    )
