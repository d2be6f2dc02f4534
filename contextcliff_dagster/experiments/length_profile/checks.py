"""What must hold before a length profile is believed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.contracts import UNSCORED_TAGS
from contextcliff_dagster.experiments.common.experiment import CheckOutcome, CheckSpec
from contextcliff_dagster.scoring.truncation import COLUMNS as TRUNCATION_COLUMNS
from contextcliff_dagster.scoring.truncation import refusal, truncations
from contextcliff_dagster.studies import Study

if TYPE_CHECKING:
    from pathlib import Path

    from contextcliff_dagster.contracts.results import Cliffs
    from contextcliff_dagster.experiments.length_profile.regression import Regression

MISSING_SHARE_LIMIT = 0.05
"""More unanswered calls than this could move a bin's mean by more than its interval shows."""
PLATEAU_FLOOR = 0.5
"""Below this baseline a further drop says little about length: the task itself is too hard."""

_SCORES = ("score", "em", "f1", "contained")
COLUMNS = list(dict.fromkeys(("model", "failure", *_SCORES, *TRUNCATION_COLUMNS)))
"""Of EVAL_RECORDS, what the checks look at."""

CHECKS = (
    CheckSpec("missing_share", "Nearly every planned call has an answer."),
    CheckSpec(
        "no_transport_error_scored",
        "Calls without an answer have no score: they count as neither wrong nor right.",
    ),
    CheckSpec(
        "no_silent_truncation",
        "No server truncated prompts silently; otherwise the records support no conclusion.",
        blocking=True,
    ),
    CheckSpec(
        "plateau",
        "Each model can do the task on its shortest documents, so a drop can be measured.",
        of="result",
    ),
    CheckSpec(
        "no_shrink",
        "No model has become worse than in the pinned baseline, beyond noise.",
        of="result",
    ),
)


def check_records(study: Study, rows: Sequence[Mapping[str, Any]]) -> list[CheckOutcome]:
    """Return the outcomes of the checks of records, given as rows of EVAL_RECORDS."""
    unscored = {tag.value for tag in UNSCORED_TAGS}
    missing = [row for row in rows if row["failure"] in unscored]
    # A document beyond the window is a property of the model, reported as such, not an accident.
    lost = [row for row in missing if row["failure"] != "context_overflow"]
    share = len(lost) / len(rows)
    wrong = [row for row in missing if any(row[name] is not None for name in _SCORES)]
    return [
        CheckOutcome(
            "missing_share",
            share <= MISSING_SHARE_LIMIT,
            f"{len(lost)} of {len(rows)} calls have no answer "
            f"({share:.1%}; limit {MISSING_SHARE_LIMIT:.0%})",
            values={"missing": len(lost), "overflow": len(missing) - len(lost), "share": share},
        ),
        CheckOutcome(
            "no_transport_error_scored",
            not wrong,
            f"{len(wrong)} of {len(missing)} calls without an answer carry a score",
            error=True,
            values={"scored": len(wrong)},
        ),
        _check_truncation(study, rows),
    ]


def _check_truncation(study: Study, rows: Sequence[Mapping[str, Any]]) -> CheckOutcome:
    every = truncations(rows)
    # Models that the study does not name any more are left out: taking one out of it is a way on.
    cut = [one for one in every if one.too_many and one.model in study.models]
    why = " ".join(refusal(model, study.name) for model in cut)
    return CheckOutcome(
        "no_silent_truncation",
        not cut,
        why or "every prompt was read whole, as far as the servers report",
        error=True,
        rows={
            "by_model": [
                {
                    "model": model.model,
                    "calls": model.calls,
                    "cut": model.marked + model.at_ceiling,
                    "share": model.share,
                    "all prompts counted as (tokens)": model.ceiling_tokens,
                    "no usage reported": model.without_usage,
                    "no count of our own": model.without_own_count,
                }
                for model in every
            ]
        },
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

    ``page``: where the comparison is shown.
    """
    rows = [
        {"model": model, **{name: value for name, value in shrink.to_dict().items() if name != "n"}}
        for model, shrink in regression.shrinks.items()
    ]
    return CheckOutcome(
        "no_shrink",
        not regression.shrunk and not regression.unjudged,
        regression.sentence,
        error=bool(regression.shrunk),
        values={
            "baseline": regression.baseline or "none",
            "campaign": regression.campaign,
            **({"regression.html": page} if page else {}),
        },
        rows={"models": rows} if rows else {},
    )
