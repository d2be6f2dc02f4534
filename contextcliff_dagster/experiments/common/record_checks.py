"""What must hold of the records of any experiment before they are believed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.contracts import UNSCORED_TAGS
from contextcliff_dagster.experiments.common.outcomes import CheckOutcome, CheckSpec
from contextcliff_dagster.scoring.truncation import COLUMNS as TRUNCATION_COLUMNS
from contextcliff_dagster.scoring.truncation import refusal, truncations

if TYPE_CHECKING:
    import pyarrow as pa

    from contextcliff_dagster.studies import Study

MISSING_SHARE_LIMIT = 0.05
"""More unanswered calls than this could move a mean by more than its interval shows."""

_SCORES = ("score", "em", "f1", "contained")
_COLUMNS = list(dict.fromkeys(("model", "failure", *_SCORES, *TRUNCATION_COLUMNS)))

RECORD_CHECKS = (
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
)


def check_records(study: Study, records: pa.Table) -> list[CheckOutcome]:
    """Return the outcomes of `RECORD_CHECKS`, for records with the columns of EVAL_RECORDS."""
    rows: list[dict[str, Any]] = records.select(_COLUMNS).to_pylist()
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
