"""Assembly of one model's profile: `metrics.json` and `cliffs.json`.

A table of mean scores by length, without the underlying answers, gives the same kind of result
(`profile_table`). Every table gets the published definitions, which need only means
(`robustness.effective_lengths`). A verdict needs the precision of each mean. If every length states
its n, it is treated as n independent examples scored 0 or 1 with the stated mean. Scores in [0, 1]
with that mean cannot vary more, so the result is conservative for graded scores. Questions on one
document vary more, which a table cannot show, so the result warns about it.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from datetime import UTC, datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from contextcliff_dagster.analysis import METHOD_VERSION
from contextcliff_dagster.analysis.attention import judge_attention
from contextcliff_dagster.analysis.bin_statistics import (
    ModelProfile,
    ProfileContext,
    bin_metrics,
    bin_statistics,
    data_warnings,
    latency_excess,
    score_doubt,
    totals_of,
)
from contextcliff_dagster.analysis.cliff import (
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
from contextcliff_dagster.analysis.confounds import (
    IN_ORDER,
    audit_confounds,
    compare_levels,
    evidence_curve,
    evidence_sentence,
    length_time_correlation,
    time_warnings,
)
from contextcliff_dagster.analysis.latency import (
    canaries_of,
    joint_cap,
    latency_limit,
    slowdown_sentences,
    slowdowns_of,
)
from contextcliff_dagster.analysis.records import AnalysisSettings, Sample, clean_records
from contextcliff_dagster.analysis.robustness import (
    REPORTED_TOLERANCES,
    cap_in_prompt_tokens,
    effective_lengths,
    prompt_line,
    sensitivity,
    threshold_rules,
    token_ratio,
    unequal_sentence,
    variance_sentence,
    variance_signal,
)
from contextcliff_dagster.analysis.sample_size import required_sample_size
from contextcliff_dagster.analysis.statistics.falling_curve import curve_points, fitted_mean
from contextcliff_dagster.analysis.statistics.intervals import exact_interval
from contextcliff_dagster.contracts import RESULT_VERSION, LengthBin, package_version
from contextcliff_dagster.contracts.results import Cliffs, Metrics
from contextcliff_dagster.contracts.results.cliffs import (
    Baseline,
    CapAtTolerance,
    Cliff,
    CriticalThreshold,
    LastOctave,
    Look,
    ScoreName,
    VarianceSignal,
    Zone,
)
from contextcliff_dagster.contracts.results.json_form import (
    BinResult,
    Provenance,
    ResultHead,
    nulls,
)
from contextcliff_dagster.contracts.results.metrics import Calls, LatencyByKind, PrimaryScoreName

if TYPE_CHECKING:
    import pandas as pd

    from contextcliff_dagster.analysis.cliff import Finding
    from contextcliff_dagster.score_files.records import MeansTable

MOST_EXAMPLES = 1_000_000
"""Maximum number of examples for a table; a larger n is scaled down, which is conservative."""

ASSUMED = (
    "The table gives only means and n: each n is taken as that many independent examples scored 0 "
    "or 1. If questions share documents, intervals are too narrow and the cap may be too long; "
    "give the number of documents as n then."
)


def profile_table(table: MeansTable, settings: AnalysisSettings, context: ProfileContext) -> Cliffs:
    """Return ``cliffs.json`` for a table of means: one bin per length, null where a table has none.

    ``definitions`` use the table's ``base_score`` in place of the first length's mean and its
    ``threshold`` in place of .856. Without n at every length the verdict is ``insufficient_data``,
    and only lengths with n have an interval.
    """
    tokens = table.length_tokens.tolist()
    bins = [
        LengthBin(f"b{i:02d}", low, high, low, low, low, 0, 0)
        for i, (low, high) in enumerate(pairwise([*tokens, tokens[-1] + 1]))
    ]
    known = bool(np.isfinite(table.n).all())
    result = profile_model(examples_of(table), bins, settings, context).cliffs
    rows = [_row(table, i, b, settings) for i, b in enumerate(bins)]
    definitions, warnings = effective_lengths(
        tokens,
        table.mean.tolist(),
        base_score=table.base_score,
        threshold=table.threshold,
    )
    baseline = _baseline(table, result.baseline.to_tokens if known else None, settings)
    own_warnings = [*context.warnings]
    if known:
        # Omit warnings on scores that no table has, and on definitions.
        other = ("RULER's", "NoLiMa's", "All answers of")
        of_verdict = [text for text in result.warnings if text not in context.warnings]
        own_warnings += [ASSUMED, *(text for text in of_verdict if not text.startswith(other))]
        low, high = baseline.ci_low or 0.0, baseline.ci_high or 0.0
        if table.base_score is not None and not low <= table.base_score <= high:
            own_warnings.append(
                f"The base score {table.base_score:.3f} differs from the shortest lengths' "
                f"({baseline.mean:.3f}): the definitions use it, verdict and cap do not."
            )
    else:
        missing_n = int(np.isnan(table.n).sum())
        result = replace(
            result,
            safe_cap_reason=f"The table gives no n for {missing_n} of its {len(table.n)} lengths: "
            "the means have no known precision and support neither a verdict nor a cap.",
            sensitivity=[],
        )
    zones = [replace(zone, mean=_mean_within(table, zone)) for zone in result.zones]
    return replace(
        result,
        n=int(np.nansum(table.n)),
        baseline=baseline,
        zones=zones,
        cap_score=_cap_score(zones),
        bins=rows,
        rules=threshold_rules(rows, context.window_tokens),
        definitions=definitions,
        warnings=[*own_warnings, *warnings],
    )


def examples_of(table: MeansTable) -> pd.DataFrame:
    """Return 0/1 examples that reproduce the table's means; empty unless every row has n.

    Rounding to whole examples carries its remainder to the next length, so that the sum over any
    range of lengths is off by less than one.
    """
    import pandas as pd

    if not np.isfinite(table.n).all():
        return pd.DataFrame({"length_tokens": np.zeros(0), "score": np.zeros(0)})
    n = np.maximum(table.n * min(1.0, MOST_EXAMPLES / table.n.sum()), 1.0).astype(np.int64)
    hits = np.diff(np.round(np.cumsum(n * table.mean)), prepend=0.0).astype(np.int64)
    hits = np.clip(hits, 0, n)
    counts = np.column_stack([hits, n - hits]).ravel()
    scores = np.repeat(np.tile([1.0, 0.0], len(n)), counts)
    return pd.DataFrame({"length_tokens": np.repeat(table.length_tokens, n), "score": scores})


def _row(
    table: MeansTable, index: int, length_bin: LengthBin, settings: AnalysisSettings
) -> BinResult:
    n, mean = float(table.n[index]), float(table.mean[index])
    low, high = _interval(mean, n, settings)
    return nulls(
        BinResult,
        **{name: getattr(length_bin, name) for name in _OF_BIN},
        n=0 if np.isnan(n) else int(n),
        mean=mean,
        ci_low=low,
        ci_high=high,
        missing=0,
        ci_width=None if low is None or high is None else high - low,
    )


_OF_BIN = ("bin", "edge_low", "edge_high", "min_tokens", "median_tokens", "max_tokens")


def _interval(
    mean: float, n: float, settings: AnalysisSettings
) -> tuple[float, float] | tuple[None, None]:
    return (None, None) if np.isnan(n) else exact_interval(mean * n, n, settings.confidence)


def _baseline(table: MeansTable, to_tokens: int | None, settings: AnalysisSettings) -> Baseline:
    """Return the baseline: the shortest 15% of the examples or, without n, the base or first score.

    Args:
        to_tokens: longest length of the region; ``None`` if n is unknown.
    """
    if to_tokens is None:
        mean = float(table.mean[0]) if table.base_score is None else table.base_score
        first = int(table.length_tokens[0]) if table.base_score is None else None
        return Baseline(mean, None, None, 0, first)
    in_baseline = table.length_tokens <= to_tokens
    n = float(table.n[in_baseline].sum())
    mean = float((table.n * table.mean)[in_baseline].sum()) / n
    low, high = _interval(mean, n, settings)
    return Baseline(mean, low, high, int(n), to_tokens)


def _mean_within(table: MeansTable, zone: Zone) -> float | None:
    tokens = table.length_tokens
    inside = (zone.from_tokens <= tokens) & (tokens < zone.to_tokens)
    return float(np.average(table.mean[inside], weights=table.n[inside])) if inside.any() else None


__all__ = ["AnalysisSettings", "ModelProfile", "ProfileContext", "profile_model"]


def profile_model(
    records: pd.DataFrame,
    bins: Sequence[LengthBin],
    settings: AnalysisSettings,
    context: ProfileContext,
) -> ModelProfile:
    """Analyse the records of one model.

    Args:
        records: columns of ``EVAL_RECORDS``, at least ``length_tokens`` and ``score``; in any
            order.
        bins: bins of the manifest; if empty, deciles of the scored lengths.

    Raises:
        ContextCliffError: the records lack a needed column or hold impossible values. Too little
            data gives a verdict, not an error.
    """
    sample = clean_records(records, bins, settings.chance)
    documents = sample.documents()
    canaries = canaries_of(sample)
    rows = bin_statistics(sample, settings, canaries)
    slowdowns = slowdowns_of(sample, canaries, settings)
    # A server that slowed down over the run looks like one that is slow on long documents.
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
    cliff, critical = _cliff(finding, window, sample)
    missing_allow = None if unanswered is None else unanswered.cap_tokens or 0
    # These take most of the time, and NumPy releases the GIL: two threads use two cores.
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
    zones = zones_of(finding, cap.tokens, sample)
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
        cap_score=_cap_score(zones),
        lost_at_tokens=finding.lost_at(settings),
        min_score=settings.min_score,
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
        zones=zones,
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


def _cap_score(zones: Sequence[Zone]) -> float | None:
    return next((zone.mean for zone in zones if zone.name == "stable"), None)


def _cliff(
    finding: Finding, window: int | None, sample: Sample
) -> tuple[Cliff | None, CriticalThreshold | None]:
    """Return the drop and its midpoint; both are None if there is no drop."""
    if (loss := finding.cliff) is None:
        return None, None
    location, low, high = loss.tokens
    cliff = Cliff(
        location_tokens=location,
        ci_low=low,
        ci_high=high,
        drop=loss.drop.value,
        drop_ci_low=loss.drop.low,
        drop_ci_high=loss.drop.high,
        p_value=loss.p_value,
    )
    # The window counts the model's own tokens.
    slope, _ = prompt_line(sample.calls) or (1.0, 0.0)
    return cliff, CriticalThreshold(location, slope * location / window if window else None)


def _head(sample: Sample, settings: AnalysisSettings, context: ProfileContext) -> dict[str, Any]:
    """Return the header fields that both files share."""
    created = context.created_at or datetime.now(UTC).isoformat(timespec="seconds")
    planned = len(sample.calls)
    unanswered = int((~sample.calls["answered"]).sum())
    given = dict(context.provenance)
    ours = package_version("contextcliff-dagster") or "uninstalled"
    versions = {"contextcliff-dagster": ours, "numpy": np.__version__}
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
        **{name: getattr(context, name) for name in _OF_CONTEXT},
        n=len(sample.examples),
        n_documents=int(sample.examples["document"].nunique()) if sample.documents_known else None,
        missing=sample.missing,
        missing_share=unanswered / planned if planned else 0.0,
        provenance=cast("Provenance", provenance),
        method_version=METHOD_VERSION,
    )
    return {field.name: getattr(head, field.name) for field in fields(head)}


_OF_CONTEXT = (
    *("study", "model", "campaign", "task", "tokenizer", "identity", "window_tokens"),
    *("length_unit", "scorer_version"),
)
"""Fields of the header that the context gives."""


def _last_octave(sample: Sample, cap: int | None) -> LastOctave | None:
    if cap is None:
        return None
    lengths = sample.examples["length_tokens"]
    in_octave = sample.examples[(2 * lengths > cap) & (lengths <= cap)]
    documents = int(in_octave["document"].nunique()) if sample.documents_known else None
    return LastOctave(len(in_octave), documents)


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
