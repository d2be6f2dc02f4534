"""Asset checks: what must hold before a number is believed; answered as each asset is made."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

import dagster as dg

from contextcliff_dagster.defs.asset_specs import asset_key
from contextcliff_dagster.defs.ui.rendering import table
from contextcliff_dagster.experiments.common.experiment import CheckOutcome, Experiment
from contextcliff_dagster.studies import Study


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


def specs(
    study: Study, experiment: Experiment, of: Literal["records", "result"]
) -> list[dg.AssetCheckSpec]:
    """Return the checks that an experiment makes of its records or its result."""
    return [
        _spec(study, _asset(experiment, of), check.name, check.description, blocking=check.blocking)
        for check in experiment.checks
        if check.of == of
    ]


def results(
    study: Study,
    experiment: Experiment,
    of: Literal["records", "result"],
    outcomes: Iterable[CheckOutcome],
) -> list[dg.AssetCheckResult]:
    """Return what these checks found, as Dagster shows it."""
    return [
        _result(
            study,
            _asset(experiment, of),
            outcome.name,
            outcome.passed,
            outcome.why,
            error=outcome.error,
            **outcome.values,
            **{name: table(rows) for name, rows in outcome.rows.items()},
        )
        for outcome in outcomes
    ]


def _asset(experiment: Experiment, of: Literal["records", "result"]) -> str:
    return experiment.asset_names(of)[-1]
