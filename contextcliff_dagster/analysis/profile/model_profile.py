"""Eval records of one model to its metrics and its verdict: assembly of what others compute."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import fields, replace
from datetime import UTC, datetime
from importlib import metadata
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from contextcliff_dagster.analysis import METHOD_VERSION
from contextcliff_dagster.analysis.attention.result import judge_attention
from contextcliff_dagster.analysis.cliff.conclusion import (
    LOOK_SHARE,
    baseline_of,
    cap_after_looks,
    caps_at,
    conclude,
    drops_that_recover,
    limited_cap,
    missing_by_length,
    zones_of,
)
from contextcliff_dagster.analysis.confounds.confound_audit import audit_confounds
from contextcliff_dagster.analysis.confounds.evidence_position import (
    evidence_curve,
    evidence_sentence,
)
from contextcliff_dagster.analysis.confounds.measuring_time import (
    IN_ORDER,
    compare_levels,
    length_time_correlation,
    time_warnings,
)
from contextcliff_dagster.analysis.curves.falling_curve import curve_points, fitted_mean
from contextcliff_dagster.analysis.latency.bin_latency import (
    canaries_of,
    joint_cap,
    latency_limit,
    slowdown_sentences,
    slowdowns_of,
)
from contextcliff_dagster.analysis.profile.bin_statistics import (
    bin_metrics,
    bin_statistics,
    latency_excess,
    totals_of,
)
from contextcliff_dagster.analysis.profile.context import ModelProfile, ProfileContext
from contextcliff_dagster.analysis.profile.data_warnings import data_warnings, score_doubt
from contextcliff_dagster.analysis.records.samples import Sample, clean_records
from contextcliff_dagster.analysis.records.settings import AnalysisSettings
from contextcliff_dagster.analysis.robustness.published_definitions import (
    effective_lengths,
    threshold_rules,
)
from contextcliff_dagster.analysis.robustness.sample_size import required_sample_size
from contextcliff_dagster.analysis.robustness.sensitivity import sensitivity
from contextcliff_dagster.analysis.robustness.token_ratio import (
    cap_in_prompt_tokens,
    token_ratio,
    unequal_sentence,
)
from contextcliff_dagster.analysis.robustness.variance_signal import (
    variance_sentence,
    variance_signal,
)
from contextcliff_dagster.contracts import RESULT_VERSION, LengthBin
from contextcliff_dagster.contracts.results import Cliffs, Metrics
from contextcliff_dagster.contracts.results.caps import CapAtTolerance, LastOctave, Look
from contextcliff_dagster.contracts.results.cliffs import (
    Cliff,
    CriticalThreshold,
    ScoreName,
    VarianceSignal,
)
from contextcliff_dagster.contracts.results.fields import Provenance, ResultHead
from contextcliff_dagster.contracts.results.metrics import Calls, LatencyByKind, PrimaryScoreName

if TYPE_CHECKING:
    import pandas as pd

    from contextcliff_dagster.analysis.cliff.verdict import Finding

__all__ = ["AnalysisSettings", "ModelProfile", "ProfileContext", "profile_model"]

REPORTED_TOLERANCES = (0.10, 0.20, 0.30)


def profile_model(
    records: pd.DataFrame,
    bins: Sequence[LengthBin],
    settings: AnalysisSettings,
    context: ProfileContext,
) -> ModelProfile:
    """Analyse the records of one model.

    Args:
        records: columns of ``EVAL_RECORDS``, or as little as ``length_tokens`` and ``score``; any
            order.
        bins: of the manifest; empty takes deciles of the scored lengths.

    Raises:
        ContextCliffError: the records lack a needed column or hold impossible values. Too little
            data is no error: the verdict says so.
    """
    sample = clean_records(records, bins, settings.chance)
    documents = sample.documents()
    canaries = canaries_of(sample)
    rows = bin_statistics(sample, settings, canaries)
    slowdowns = slowdowns_of(sample, canaries, settings)
    # A server that became slower over the run looks like one that is slow on long documents.
    rho = length_time_correlation(sample)
    in_order = rho is not None and abs(rho) >= IN_ORDER
    slow_warnings = [] if in_order else slowdown_sentences(slowdowns)
    baseline = baseline_of(documents, settings)
    conclusion = conclude(documents, settings, baseline)
    unanswered = missing_by_length(sample, settings)
    finding = conclusion.finding
    cap = limited_cap(cap_after_looks(finding, settings, context.looks), unanswered, settings)
    conclusion = replace(conclusion, cap=cap)
    limit = latency_limit(sample, settings)
    joint = joint_cap(cap.tokens, None if in_order else slowdowns.ttft, limit)
    if joint is not None:
        joint = replace(joint, prompt_tokens=cap_in_prompt_tokens(sample.calls, joint.tokens))
    scored = [r for r in rows if r.mean is not None]
    definitions, definition_warnings = effective_lengths(
        [r.median_tokens for r in scored if r.median_tokens is not None],
        [r.mean for r in scored if r.mean is not None],
        baseline=baseline.mean,
    )
    audit = audit_confounds(sample, finding, settings, context.controls)
    by_position = evidence_curve(sample, "evidence_position", settings)
    by_distance = evidence_curve(sample, "inter_evidence_tokens", settings)
    ratio = token_ratio(sample)
    scatter = _variance_signal(sample, finding, settings)
    warnings = [
        *sample.warnings,
        *context.warnings,
        unequal_sentence(ratio, context.tokenizer),
        f"Guessing scores {settings.chance:.2f}: what is lost is measured above that."
        if settings.chance
        else None,
        *audit.warnings,
        evidence_sentence(by_position, settings.confidence),
        evidence_sentence(by_distance, settings.confidence),
        *data_warnings(sample, rows, finding, cap, context, settings),
        *time_warnings(sample, settings, rho),
        *definition_warnings,
        *slow_warnings,
        variance_sentence(scatter),
    ]
    window = context.window_tokens
    cliff = critical = None
    if (loss := finding.cliff) is not None:
        location, low, high = loss.tokens
        critical = CriticalThreshold(location, location / window if window else None)
        cliff = Cliff(
            location_tokens=location,
            ci_low=low,
            ci_high=high,
            drop=loss.drop.value,
            drop_ci_low=loss.drop.low,
            drop_ci_high=loss.drop.high,
            p_value=loss.p_value,
        )
    missing_allow = None if unanswered is None else unanswered.cap_tokens or 0
    # These take most of the time, and NumPy's loops let two threads use two cores.
    with ThreadPoolExecutor(1) as pool:
        more = pool.submit(
            required_sample_size,
            sample,
            documents,
            finding,
            settings,
            missing_allow,
            None if context.per_bin is None else context.looks,
        )
        if settings.second_opinions:
            share = LOOK_SHARE if context.looks else 1.0
            varied = sensitivity(
                sample, documents, conclusion, settings, context.primary, share, missing_allow
            )
            levels = compare_levels(sample, settings)
    head = _head(sample, settings, context)
    cliffs = Cliffs(
        **head,
        score=ScoreName(context.score_name, 1),
        verdict=finding.verdict,
        verdict_note=finding.note or None,
        score_doubt=score_doubt(sample, varied, finding.verdict, context)
        if settings.second_opinions
        else None,
        safe_cap_tokens=cap.tokens,
        safe_cap_reason=cap.reason,
        cap_basis="shown" if cap.tokens else "baseline" if cap.baseline_tokens else None,
        baseline_cap_tokens=cap.baseline_tokens,
        last_octave=_last_octave(sample, cap.tokens),
        cap_prompt_tokens=cap_in_prompt_tokens(sample.calls, cap.tokens),
        critical_threshold=critical,
        confidence=settings.confidence,
        tolerance=settings.tolerance,
        chance=settings.chance,
        caps_by_tolerance=[
            CapAtTolerance(at, limited_cap(cap, unanswered, settings).tokens)
            for at, cap in caps_at(finding, REPORTED_TOLERANCES, settings, context.looks)
        ],
        looks=[]
        if context.per_bin is None
        else [*context.looks, Look(context.per_bin, len(sample.examples), cap.tokens)],
        missing_by_length=unanswered,
        recovery=drops_that_recover(conclusion, settings),
        copied_share=context.copied_share,
        length_time_correlation=rho,
        certify=more.result(),
        baseline=baseline
        if finding.curve is None
        else replace(baseline, fitted=finding.curve.baseline_mean),
        cliff=cliff,
        zones=zones_of(finding, cap.tokens, sample),
        curve=[]
        if finding.curve is None
        else curve_points(finding.curve, settings.confidence, finding.dip_window),
        bins=rows,
        rules=threshold_rules(rows, window),
        definitions=definitions,
        sensitivity=varied if settings.second_opinions else [],
        variance_signal=scatter,
        token_ratio=ratio,
        slowdown=slowdowns,
        latency_limit=limit,
        joint_cap=joint,
        confounds=audit.confounds,
        mix=audit.mix,
        controls=audit.controls,
        by_position=by_position,
        by_distance=by_distance,
        attention=judge_attention(context.attention, sample, finding, window, settings),
        levels=levels if settings.second_opinions else [],
        warnings=[sentence for sentence in warnings if sentence is not None],
    )
    metrics = Metrics(
        **head,
        score=PrimaryScoreName(context.score_name, context.primary, 1),
        calls=Calls(len(sample.calls), int(sample.calls["answered"].sum())),
        totals=totals_of(sample.calls),
        latency=LatencyByKind(canaries["ttft"].latency(), canaries["duration"].latency()),
        variance_signal=scatter,
        mix=audit.mix,
        slowdown=slowdowns,
        bins=[
            bin_metrics(row, latency_excess(sample, canaries, i), i, sample)
            for i, row in enumerate(rows)
        ],
        warnings=[*sample.warnings, *context.warnings, *slow_warnings],
    )
    return ModelProfile(metrics, cliffs)


def _head(sample: Sample, settings: AnalysisSettings, context: ProfileContext) -> dict[str, Any]:
    """What both files begin with."""
    created = context.created_at or datetime.now(UTC).isoformat(timespec="seconds")
    planned = len(sample.calls)
    unanswered = int((~sample.calls["answered"]).sum())
    given = dict(context.provenance)
    versions = {"contextcliff-dagster": _version(), "numpy": np.__version__}
    provenance = {
        **given,
        "hashes": dict(given.get("hashes", {})),
        "versions": {**versions, **given.get("versions", {})},
        "seeds": {"analysis": settings.seed, **given.get("seeds", {})},
        "times": dict(given.get("times", {})),
    }
    head = ResultHead(
        schema_version=RESULT_VERSION,
        created_at=created,
        study=context.study,
        model=context.model,
        campaign=context.campaign,
        task=context.task,
        tokenizer=context.tokenizer,
        identity=context.identity,
        window_tokens=context.window_tokens,
        length_unit="document",
        n=len(sample.examples),
        n_documents=int(sample.examples["document"].nunique()) if sample.documents_known else None,
        missing=sample.missing,
        missing_share=unanswered / planned if planned else 0.0,
        provenance=cast("Provenance", provenance),
        method_version=METHOD_VERSION,
        scorer_version=context.scorer_version,
    )
    return {one.name: getattr(head, one.name) for one in fields(head)}


def _version() -> str:
    with suppress(metadata.PackageNotFoundError):
        return metadata.version("contextcliff-dagster")
    return "uninstalled"


def _last_octave(sample: Sample, cap: int | None) -> LastOctave | None:
    if cap is None:
        return None
    lengths = sample.examples["length_tokens"]
    inside = sample.examples[(2 * lengths > cap) & (lengths <= cap)]
    documents = int(inside["document"].nunique()) if sample.documents_known else None
    return LastOctave(len(inside), documents)


def _variance_signal(
    sample: Sample, finding: Finding, settings: AnalysisSettings
) -> VarianceSignal:
    examples = sample.examples
    lengths = examples["length_tokens"].to_numpy(np.int64)
    return variance_signal(
        examples["document"].to_numpy(np.int64),
        lengths,
        examples["score"].to_numpy(np.float64),
        None if finding.curve is None else fitted_mean(finding.curve, lengths, finding.dip_window),
        permutations=settings.permutations,
        seed=settings.seed,
    )
