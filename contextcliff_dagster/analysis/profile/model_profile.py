"""Eval records of one model to its metrics and its verdict.

This module only assembles: every number comes from the module named after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from datetime import UTC, datetime
from importlib import metadata
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from contextcliff_dagster.analysis.cliff.baseline import baseline_of
from contextcliff_dagster.analysis.cliff.conclusion import cap_at, conclude
from contextcliff_dagster.analysis.cliff.verdict import Finding, Loss
from contextcliff_dagster.analysis.cliff.zones import zones_of
from contextcliff_dagster.analysis.confounds.summary import judge_questions
from contextcliff_dagster.analysis.curves.fitted_curve import Estimate, curve_band, fitted_mean
from contextcliff_dagster.analysis.latency.bin_latency import slow_bins_warning
from contextcliff_dagster.analysis.latency.joint_cap import (
    joint_cap,
    slowdown_sentences,
    slowdowns_of,
)
from contextcliff_dagster.analysis.profile.bin_statistics import (
    bin_statistics,
    canaries_of,
    latency_excess,
)
from contextcliff_dagster.analysis.profile.call_totals import bin_metrics, totals_of
from contextcliff_dagster.analysis.profile.context import ModelProfile, ProfileContext
from contextcliff_dagster.analysis.records.samples import Sample, clean_records
from contextcliff_dagster.analysis.records.settings import AnalysisSettings
from contextcliff_dagster.analysis.robustness.cap_in_prompt_tokens import cap_in_prompt_tokens
from contextcliff_dagster.analysis.robustness.other_detectors import second_opinions
from contextcliff_dagster.analysis.robustness.published_definitions import effective_lengths
from contextcliff_dagster.analysis.robustness.sample_size import certify
from contextcliff_dagster.analysis.robustness.sensitivity import sensitivity
from contextcliff_dagster.analysis.robustness.threshold_rules import threshold_rules
from contextcliff_dagster.analysis.robustness.token_ratio import token_ratio, unequal_sentence
from contextcliff_dagster.analysis.robustness.variance_signal import (
    variance_sentence,
    variance_signal,
)
from contextcliff_dagster.contracts import SCHEMA_VERSION, LengthBin, Verdict
from contextcliff_dagster.contracts.results import Cliffs, Metrics
from contextcliff_dagster.contracts.results.cliffs import (
    CapAtTolerance,
    Cliff,
    CriticalThreshold,
    CurvePoint,
    ScoreName,
    VarianceSignal,
)
from contextcliff_dagster.contracts.results.fields import BinResult, Provenance, ResultHead
from contextcliff_dagster.contracts.results.metrics import Calls, LatencyByKind, PrimaryScoreName

if TYPE_CHECKING:
    import pandas as pd

    from contextcliff_dagster.analysis.cliff.cap import Cap

__all__ = ["AnalysisSettings", "ModelProfile", "ProfileContext", "profile_model"]

REPORTED_TOLERANCES = (0.10, 0.20, 0.30)
_MISSING_WORTH_A_WARNING = 0.05


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
    sample = clean_records(records, bins)
    documents = sample.documents()
    canaries = canaries_of(sample)
    rows = bin_statistics(sample, settings, canaries)
    excesses = [latency_excess(sample, canaries, i) for i in range(len(rows))]
    slowdowns = slowdowns_of(sample, canaries, settings)
    by_bin = [(row.bin, excess) for row, excess in zip(rows, excesses, strict=True)]
    slow_warnings = [*slowdown_sentences(slowdowns), *slow_bins_warning(by_bin)]
    baseline = baseline_of(documents, settings)
    conclusion = conclude(documents, settings, baseline.mean)
    finding, cap = conclusion.finding, conclusion.cap
    scored = [r for r in rows if r.mean is not None]
    definitions, definition_warnings = effective_lengths(
        [r.median_tokens for r in scored if r.median_tokens is not None],
        [r.mean for r in scored if r.mean is not None],
        baseline=baseline.mean,
    )
    questions = judge_questions(sample, finding, settings, context.controls)
    ratio = token_ratio(sample)
    unequal = unequal_sentence(ratio, context.tokenizer) if ratio else None
    warnings = [
        *sample.warnings,
        *context.warnings,
        *([unequal] if unequal else []),
        *finding.warnings,
        *questions.warnings,
        *_data_warnings(sample, rows, finding, cap, context),
        *definition_warnings,
        *slow_warnings,
    ]
    scatter = _variance_signal(sample, finding, settings)
    if (said := variance_sentence(scatter)) is not None:
        warnings.append(said)
    cliff = _loss(finding.cliff)
    # These take most of the time, and NumPy's loops let two threads use two cores.
    with ThreadPoolExecutor(1) as pool:
        more = pool.submit(certify, documents, finding, settings, sample.calls, len(scored))
        if settings.second_opinions:
            tolerance, verdict = settings.tolerance, finding.verdict
            others = pool.submit(
                second_opinions, documents, rows, baseline, tolerance, verdict, cliff
            )
            varied = sensitivity(sample, documents, conclusion, settings, context.primary)
    head = _head(sample, settings, context)
    examples = sample.examples
    cliffs = Cliffs(
        **head,
        score=ScoreName(context.score_name, 1),
        verdict=finding.verdict,
        safe_cap_tokens=cap.tokens,
        safe_cap_reason=cap.reason,
        cap_prompt_tokens=cap_in_prompt_tokens(sample.calls, cap.tokens),
        critical_threshold=_critical_threshold(cliff, context.window_tokens),
        confidence=settings.confidence,
        tolerance=settings.tolerance,
        caps_by_tolerance=[
            CapAtTolerance(tolerance, cap_at(finding, tolerance, settings.confidence).tokens)
            for tolerance in REPORTED_TOLERANCES
        ],
        certify=more.result(),
        baseline=baseline,
        cliff=cliff,
        zones=zones_of(
            finding,
            cap.tokens,
            examples["length_tokens"].to_numpy(np.int64),
            examples["score"].to_numpy(np.float64),
        ),
        curve=_curve(finding, settings),
        bins=rows,
        rules=threshold_rules(rows, context.window_tokens),
        definitions=definitions,
        detectors=others.result() if settings.second_opinions else [],
        sensitivity=varied if settings.second_opinions else [],
        variance_signal=scatter,
        token_ratio=ratio,
        joint_cap=joint_cap(cap.tokens, slowdowns.ttft),
        confounds=questions.confounds,
        mix=questions.mix,
        controls=questions.controls,
        by_position=questions.by_position,
        by_distance=questions.by_distance,
        levels=questions.levels,
        warnings=warnings,
    )
    metrics = Metrics(
        **head,
        score=PrimaryScoreName(context.score_name, context.primary, 1),
        calls=Calls(len(sample.calls), int(sample.calls["answered"].sum())),
        totals=totals_of(sample.calls),
        latency=LatencyByKind(canaries["ttft"].latency(), canaries["duration"].latency()),
        variance_signal=scatter,
        mix=questions.mix,
        slowdown=slowdowns,
        bins=[
            bin_metrics(row, excess, i, sample)
            for i, (row, excess) in enumerate(zip(rows, excesses, strict=True))
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
    provenance = {
        **given,
        "hashes": dict(given.get("hashes", {})),
        "versions": {
            "contextcliff-dagster": _version(),
            "numpy": np.__version__,
            **given.get("versions", {}),
        },
        "seeds": {"analysis": settings.seed, **given.get("seeds", {})},
        "times": dict(given.get("times", {})),
    }
    documents = int(sample.examples["document"].nunique())
    head = ResultHead(
        schema_version=SCHEMA_VERSION,
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
        n_documents=documents if sample.documents_known else None,
        missing=sample.missing,
        missing_share=unanswered / planned if planned else 0.0,
        provenance=cast("Provenance", provenance),
    )
    return {one.name: getattr(head, one.name) for one in fields(head)}


def _version() -> str:
    try:
        return metadata.version("contextcliff-dagster")
    except metadata.PackageNotFoundError:
        return "uninstalled"


def _loss(loss: Loss | None) -> Cliff | None:
    if loss is None:
        return None

    def tokens(estimate: Estimate) -> tuple[int, int, int]:
        return round(estimate.value), int(estimate.low), int(np.ceil(estimate.high))

    location, low, high = tokens(loss.location)
    return Cliff(
        location_tokens=location,
        ci_low=low,
        ci_high=high,
        drop=loss.drop.value,
        drop_ci_low=loss.drop.low,
        drop_ci_high=loss.drop.high,
        p_value=loss.p_value,
    )


def _curve(finding: Finding, settings: AnalysisSettings) -> list[CurvePoint]:
    if finding.refined is None:
        return []
    fit, flat = finding.refined, not finding.visible
    return curve_band(fit, settings.confidence, _window(finding), flat=flat)


def _window(finding: Finding) -> tuple[int, int] | None:
    return finding.degraded if finding.verdict is Verdict.DIP else None


def _variance_signal(
    sample: Sample, finding: Finding, settings: AnalysisSettings
) -> VarianceSignal:
    examples = sample.examples
    lengths = examples["length_tokens"].to_numpy(np.int64)
    fit = finding.refined
    return variance_signal(
        examples["document"].to_numpy(np.int64),
        lengths,
        examples["score"].to_numpy(np.float64),
        None if fit is None else fitted_mean(fit, lengths, _window(finding)),
        permutations=settings.permutations,
        seed=settings.seed,
    )


def _critical_threshold(cliff: Cliff | None, window: int | None) -> CriticalThreshold | None:
    if cliff is None:
        return None
    tokens = cliff.location_tokens
    return CriticalThreshold(tokens, tokens / window if window else None)


def _data_warnings(
    sample: Sample, rows: list[BinResult], finding: Finding, cap: Cap, context: ProfileContext
) -> list[str]:
    """Sentences about what limits the result."""
    warnings = []
    calls = sample.calls
    unanswered = int((~calls["answered"]).sum())
    if len(calls) and unanswered / len(calls) > _MISSING_WORTH_A_WARNING:
        warnings.append(
            f"{unanswered} of {len(calls)} planned calls have no answer "
            f"({unanswered / len(calls):.0%}): the result uses the others."
        )
    empty = [row.bin for row in rows if row.n == 0]
    if empty:
        warnings.append(f"No answer was scored in {', '.join(empty)}.")
    if finding.verdict is Verdict.STABLE and cap.tokens is None:
        warnings.append(
            "No drop is visible, but there are too few examples to call any length safe."
        )
    first = next((row for row in rows if row.sd is not None), None)
    if first and first.sd == 0 and len(rows) > 1:
        warnings.append(
            f"All scores of {first.bin} are equal: against a baseline SD of 0 any spread fires "
            "the SD and variance rules."
        )
    if context.window_tokens and len(sample.examples):
        longest = int(sample.examples["length_tokens"].max())
        if longest < 0.5 * context.window_tokens:
            warnings.append(
                f"The longest scored document has {longest:,} tokens, "
                f"{longest / context.window_tokens:.0%} of the window: nothing was measured beyond."
            )
    return warnings
