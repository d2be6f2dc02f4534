"""Asset checks: conditions for trusting a number, evaluated when each asset is materialized."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import dagster as dg

from contextcliff_dagster.contracts import StoreError
from contextcliff_dagster.defs.asset_specs import asset_key
from contextcliff_dagster.defs.ui.rendering import table
from contextcliff_dagster.experiments.common.experiment import CheckOutcome, CheckSpec, Experiment
from contextcliff_dagster.experiments.common.study_run import StudyRun
from contextcliff_dagster.studies import Study

AUDIT = (
    CheckSpec("starved_bins", "Every bin has enough documents."),
    CheckSpec("target_range", "The corpus spans the study's target."),
)
MANIFEST = (CheckSpec("manifest_hash", "The files on disk have the SHA-256 they claim."),)


def specs(study: Study, asset: str, checks: Iterable[CheckSpec]) -> list[dg.AssetCheckSpec]:
    """Return the Dagster check specs of an asset."""
    key = asset_key(study, asset)
    return [
        dg.AssetCheckSpec(check.name, asset=key, description=check.description) for check in checks
    ]


def of_newest(
    run: StudyRun,
    own: Sequence[CheckOutcome],
    check: Callable[[StudyRun], Sequence[CheckOutcome]],
) -> Sequence[CheckOutcome]:
    """Return what ``check`` finds in the study's newest begun campaign; ``own`` if ``run`` is it.

    Dagster shows a check's last execution, which would be that of the campaign that ended last.
    Nothing is returned if the newest campaign is not judged yet.
    """
    if (newest := run.of_newest()) is run:
        return own
    with suppress(StoreError):
        return check(newest)
    return ()


def refused(experiment: Experiment, outcomes: Iterable[CheckOutcome]) -> str:
    """Return why the judged campaign goes no further: its failed blocking checks; else empty.

    They end the step here, not in Dagster, which would stop it for another campaign's outcome.
    """
    blocking = {check.name for check in experiment.checks if check.blocking}
    return " ".join(o.why for o in outcomes if o.name in blocking and o.passed is False)


def results(
    study: Study, asset: str, outcomes: Iterable[CheckOutcome]
) -> list[dg.AssetCheckResult]:
    """Return the Dagster results of an asset's checks.

    Skipped checks get no result, because Dagster shows a check without a result as skipped.
    """
    return [
        dg.AssetCheckResult(
            asset_key=asset_key(study, asset),
            check_name=outcome.name,
            passed=outcome.passed,
            severity=dg.AssetCheckSeverity.ERROR if outcome.error else dg.AssetCheckSeverity.WARN,
            description=outcome.why,
            metadata={
                **outcome.values,
                **{name: table(rows) for name, rows in outcome.rows.items()},
            },
        )
        for outcome in outcomes
        if outcome.passed is not None
    ]


def skipped(outcomes: Iterable[CheckOutcome]) -> dict[str, str]:
    """Return metadata for the checked asset that gives the reason for each skipped check."""
    return {
        f"{outcome.name}_skipped": outcome.why for outcome in outcomes if outcome.passed is None
    }


def audit_results(study: Study, audit: Mapping[str, Any]) -> list[dg.AssetCheckResult]:
    starved, verdict = list(audit["starved_bins"]), str(audit["verdict"])
    outcomes = [
        CheckOutcome(
            "starved_bins",
            not starved,
            f"starved: {', '.join(starved)}" if starved else "no bin is starved",
            error=study.bins.starved == "refuse",
            values={"starved": len(starved)},
        ),
        CheckOutcome(
            "target_range",
            verdict != "refuse",
            str(audit["advice"]),
            error=True,
            values={"verdict": verdict},
        ),
    ]
    return results(study, "distribution_audit", outcomes)


def manifest_results(study: Study, claimed: str, actual: str) -> list[dg.AssetCheckResult]:
    same = claimed == actual
    why = f"SHA-256 {actual[:12]}" if same else f"claims {claimed[:12]}, is {actual[:12]}"
    outcome = CheckOutcome("manifest_hash", same, why, error=True, values={"sha256": actual})
    return results(study, "manifest", [outcome])
