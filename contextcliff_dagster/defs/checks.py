"""Asset checks: what must hold before a number is believed; answered as each asset is made."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import dagster as dg

from contextcliff_dagster.contracts import UNSCORED_TAGS
from contextcliff_dagster.defs.asset_specs import asset_key
from contextcliff_dagster.defs.ui.rendering import table
from contextcliff_dagster.scoring.truncation import COLUMNS, Truncation, refusal, truncations
from contextcliff_dagster.studies import Study

if TYPE_CHECKING:
    import pyarrow as pa

    from contextcliff_dagster.contracts.results import Cliffs
    from contextcliff_dagster.experiments.length_profile.regression import Regression

MISSING_SHARE_LIMIT = 0.05
"""More unanswered calls than this could move a bin's mean by more than its interval shows."""
PLATEAU_FLOOR = 0.5
"""Below this baseline a further drop says little about length: the task itself is too hard."""


def _spec(
    study: Study, asset: str, name: str, description: str, *, blocking: bool = False
) -> dg.AssetCheckSpec:
    return dg.AssetCheckSpec(
        name, asset=asset_key(study, asset), description=description, blocking=blocking
    )


def _result(
    study: Study,
    asset: str,
    name: str,
    passed: bool,
    why: str,
    *,
    error: bool = False,
    **metadata: Any,
) -> dg.AssetCheckResult:
    return dg.AssetCheckResult(
        asset_key=asset_key(study, asset),
        check_name=name,
        passed=passed,
        severity=dg.AssetCheckSeverity.ERROR if error else dg.AssetCheckSeverity.WARN,
        description=why,
        metadata=metadata,
    )


def audit_checks(study: Study) -> list[dg.AssetCheckSpec]:
    return [
        _spec(study, "distribution_audit", "starved_bins", "Every bin has enough documents."),
        _spec(study, "distribution_audit", "target_range", "The corpus spans the study's target."),
    ]


def check_audit(study: Study, audit: Mapping[str, Any]) -> list[dg.AssetCheckResult]:
    starved = list(audit["starved_bins"])
    refused = audit["verdict"] == "refuse"
    return [
        _result(
            study,
            "distribution_audit",
            "starved_bins",
            not starved,
            f"starved: {', '.join(starved)}" if starved else "no bin is starved",
            error=study.bins.starved == "refuse",
            starved=len(starved),
        ),
        _result(
            study,
            "distribution_audit",
            "target_range",
            not refused,
            str(audit["advice"]),
            error=True,
            verdict=str(audit["verdict"]),
        ),
    ]


def manifest_checks(study: Study) -> list[dg.AssetCheckSpec]:
    return [
        _spec(study, "manifest", "manifest_hash", "The files on disk have the SHA-256 they claim.")
    ]


def check_manifest(study: Study, claimed: str, found: str) -> list[dg.AssetCheckResult]:
    why = f"SHA-256 {found[:12]}" if claimed == found else f"claims {claimed[:12]}, is {found[:12]}"
    return [
        _result(study, "manifest", "manifest_hash", claimed == found, why, error=True, sha256=found)
    ]


def record_checks(study: Study) -> list[dg.AssetCheckSpec]:
    return [
        _spec(study, "eval_records", "missing_share", "Nearly every planned call has an answer."),
        _spec(
            study,
            "eval_records",
            "no_transport_error_scored",
            "Calls without an answer have no score: neither wrong nor right.",
        ),
        _spec(
            study,
            "eval_records",
            "no_silent_truncation",
            "No server cut prompts without a word; else nothing is concluded from the records.",
            blocking=True,
        ),
    ]


def check_records(study: Study, records: pa.Table) -> list[dg.AssetCheckResult]:
    unscored = {tag.value for tag in UNSCORED_TAGS}
    rows = records.select(["model", "failure", "score", "em", "f1", "contained"]).to_pylist()
    missing = [row for row in rows if row["failure"] in unscored]
    # A document beyond the window is a property of the model, reported as such, not an accident.
    lost = [row for row in missing if row["failure"] != "context_overflow"]
    share = len(lost) / len(rows)
    wrong = [
        row
        for row in missing
        if any(row[s] is not None for s in ("score", "em", "f1", "contained"))
    ]
    return [
        _result(
            study,
            "eval_records",
            "missing_share",
            share <= MISSING_SHARE_LIMIT,
            f"{len(lost)} of {len(rows)} calls have no answer "
            f"({share:.1%}; limit {MISSING_SHARE_LIMIT:.0%})",
            missing=len(lost),
            overflow=len(missing) - len(lost),
            share=share,
        ),
        _result(
            study,
            "eval_records",
            "no_transport_error_scored",
            not wrong,
            f"{len(wrong)} of {len(missing)} calls without an answer carry a score",
            error=True,
            scored=len(wrong),
        ),
        _check_truncation(study, records),
    ]


def cut_without_a_word(study: Study, rows: Iterable[Mapping[str, Any]]) -> list[Truncation]:
    """The study's models whose servers cut more than a few prompts.

    Models that the study does not name any more are left out: taking one out of it is a way on.
    """
    return [f for f in truncations(rows) if f.too_many and f.model in study.models]


def _check_truncation(study: Study, records: pa.Table) -> dg.AssetCheckResult:
    rows = records.select(list(COLUMNS)).to_pylist()
    found, cut = truncations(rows), cut_without_a_word(study, rows)
    why = " ".join(refusal(model, study.name) for model in cut)
    return _result(
        study,
        "eval_records",
        "no_silent_truncation",
        not cut,
        why or "every prompt was read whole, as far as the servers tell",
        error=True,
        by_model=table(
            [
                {
                    "model": model.model,
                    "calls": model.calls,
                    "cut": model.marked + model.at_ceiling,
                    "share": model.share,
                    "all read as (tokens)": model.ceiling_tokens,
                    "no usage reported": model.without_usage,
                    "no count of our own": model.without_own_count,
                }
                for model in found
            ]
        ),
    )


def cliff_checks(study: Study) -> list[dg.AssetCheckSpec]:
    return [
        _spec(
            study,
            "cliffs",
            "plateau",
            "Each model can do the task on its shortest documents: there is a height to fall from.",
        ),
        _spec(
            study,
            "cliffs",
            "no_shrink",
            "No model has become worse than in the pinned baseline, beyond noise.",
        ),
    ]


def check_regression(study: Study, found: Regression) -> dg.AssetCheckResult:
    rows = [
        {"model": model, **{name: value for name, value in shrink.to_dict().items() if name != "n"}}
        for model, shrink in found.shrinks.items()
    ]
    return _result(
        study,
        "cliffs",
        "no_shrink",
        not found.shrunk,
        found.sentence,
        error=True,
        baseline=found.baseline or "none",
        campaign=found.campaign,
        **({"models": table(rows)} if rows else {}),
    )


def check_cliffs(study: Study, cliffs: Sequence[Cliffs]) -> list[dg.AssetCheckResult]:
    low = [
        (r.model, r.baseline.mean)
        for r in cliffs
        if r.baseline.mean is None or r.baseline.mean < PLATEAU_FLOOR
    ]
    why = (
        "; ".join(_said(model, mean) for model, mean in low)
        or "every baseline is at least " + f"{PLATEAU_FLOOR:.2f}"
    )
    return [_result(study, "cliffs", "plateau", not low, why, below=len(low))]


def _said(model: str, mean: float | None) -> str:
    return f"{model}: no baseline" if mean is None else f"{model}: baseline {mean:.2f}"
