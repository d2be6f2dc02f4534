"""Analysis of one model's records: every format, every pair of formats, every other condition.

Also covers effects of other conditions (arms) and of the benchmark, each with an interval.

Evidence position and tokens per record are included because they can mimic a format effect.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from itertools import combinations
from typing import TYPE_CHECKING, Literal

import numpy as np

from contextcliff_dagster.analysis.bin_statistics import ProfileContext
from contextcliff_dagster.analysis.records import AnalysisSettings
from contextcliff_dagster.analysis.statistics.rank_tests import holm
from contextcliff_dagster.contracts import ContextCliffError
from contextcliff_dagster.contracts.results.json_form import Missing, nulls
from contextcliff_dagster.extensions.utilization.analysis.answers import (
    BASE,
    Matched,
    Question,
    Scale,
    at_floor,
    clean_answers,
    correlation_of,
    format_curve,
    match_rows,
    mean_over_documents,
)
from contextcliff_dagster.extensions.utilization.analysis.comparison import (
    compare_scope,
    estimate_difference,
    likeness_of,
    verdict_of,
)
from contextcliff_dagster.extensions.utilization.analysis.wording import (
    cap_sentence,
    comparison_sentences,
    floor_sentence,
    format_name,
    parting_clause,
    shown_direction,
)
from contextcliff_dagster.extensions.utilization.benchmarks.data import (
    BENCHMARKS,
    BenchmarkName,
    Evidence,
)
from contextcliff_dagster.extensions.utilization.rendering.sentences import FORMATS, Format
from contextcliff_dagster.extensions.utilization.results import (
    Effect,
    FormatComparison,
    FormatCurve,
    PositionScore,
    ScopeComparison,
    TokensPerRecord,
    UtilizationResult,
    headline_pair,
)
from contextcliff_dagster.reporting.wording import listed, unanswered_sentence

if TYPE_CHECKING:
    import pandas as pd


def effects_of(
    rows: pd.DataFrame,
    formats: Sequence[Format],
    scales: Sequence[int],
    settings: AnalysisSettings,
    base_levels: Mapping[str, str],
) -> list[Effect]:
    """Return the effects of every arm and every benchmark, for all formats and for each.

    Arms are compared with the base, paired by document and question. Benchmarks are compared with
    each other at shared scales, permuting documents within a scale. All share one Holm family.

    Args:
        base_levels: arm key -> its level in the base; "base" is used for unknown keys.
    """
    of_formats: list[Format | None] = [None, *formats] if len(formats) > 1 else [*formats]
    effects = []
    base = rows[rows["arm"] == BASE]
    for number, arm in enumerate(sorted(set(rows["arm"]) - {BASE})):
        factor, _, level = str(arm).partition("=")
        if "+" in str(arm):
            factor, level = "combination", str(arm)
        reference = base_levels.get(factor, BASE)
        arm_rows = rows[rows["arm"] == arm]
        for place, format in enumerate(of_formats):
            arm_side, base_side = (_of_format(side, format) for side in (arm_rows, base))
            if not len(arm_side):
                continue
            # Where the arm was not asked, the base has nothing to be compared with.
            base_side = base_side[base_side["document_key"].isin(arm_side["document_key"])]
            matched = match_rows(arm_side, base_side, scales, paired=True, within_format=True)
            effect = _effect(matched, settings, 20, number, place)
            effects.append(
                replace(effect, factor=factor, level=level, reference=reference, format=format)
            )
    benchmarks = sorted(set(base["benchmark"]))
    for number, name in enumerate(benchmarks if len(benchmarks) > 1 else []):
        for place, format in enumerate(of_formats):
            inside = _of_format(base, format)
            mine = inside["benchmark"] == name
            effect = _effect(
                _against_others(inside[mine], inside[~mine], scales), settings, 21, number, place
            )
            effects.append(
                replace(
                    effect,
                    factor="benchmark",
                    level=name,
                    reference="other benchmarks",
                    format=format,
                )
            )
    adjusted = holm([effect.p_value for effect in effects])
    return [replace(effect, p_holm=p) for effect, p in zip(effects, adjusted, strict=True)]


def _of_format(rows: pd.DataFrame, format: Format | None) -> pd.DataFrame:
    return rows if format is None else rows[rows["format"] == format]


def _against_others(mine: pd.DataFrame, others: pd.DataFrame, scales: Sequence[int]) -> Matched:
    matched = match_rows(mine, others, scales, paired=False)
    places = np.intersect1d(matched.a.scale, matched.b.scale)
    matched = matched.where(np.isin(matched.a.scale, places), np.isin(matched.b.scale, places))
    a, b = (replace(side, stratum=side.scale) for side in (matched.a, matched.b))
    return replace(matched, a=a, b=b)


def _effect(matched: Matched, settings: AnalysisSettings, *key: int) -> Effect:
    estimate = estimate_difference(matched, likeness_of(matched), settings, *key)
    names = {"factor": "", "level": "", "reference": ""}
    dropped = int(matched.dropped.sum())
    if estimate is None:
        return nulls(Effect, **names, paired=matched.paired, n=0, n_documents=0, dropped=dropped)
    return Effect(
        **names,
        format=None,
        paired=matched.paired,
        n=len(matched.a.score),
        n_documents=int(matched.a.document.max()) + 1,
        dropped=dropped,
        mean=estimate.mean_a,
        mean_reference=estimate.mean_b,
        difference=estimate.difference,
        ci_low=estimate.ci_low,
        ci_high=estimate.ci_high,
        p_value=estimate.p_value,
        p_holm=None,
    )


_THIRDS: tuple[Literal["first", "middle", "last"], ...] = ("first", "middle", "last")


def position_scores(
    base: pd.DataFrame, formats: Sequence[Format], settings: AnalysisSettings
) -> list[PositionScore]:
    """Return scores by the third of the document with the evidence; empty if unknown."""
    answered = base[base["evidence_position"].notna() & base["score"].notna()]
    third = np.clip(np.floor(answered["evidence_position"].astype(np.float64) * 3.0), 0, 2)
    scores = []
    for format in formats if len(answered) else ():
        correlation = correlation_of(base[base["format"] == format])
        for i, name in enumerate(_THIRDS):
            inside = answered[(answered["format"] == format) & (third == i)]
            score = mean_over_documents(inside, correlation, settings)
            scores.append(PositionScore(format=format, third=name, **asdict(score)))
    return scores


def tokens_per_record(base: pd.DataFrame, formats: Sequence[Format]) -> list[TokensPerRecord]:
    """Return tokens per record by format, without documents of unknown record count."""
    documents = base[base["records"].notna()].drop_duplicates(["format", "document_key"])
    rows = []
    for benchmark in BENCHMARKS:
        reference = None
        for format in formats:
            mine = documents[
                (documents["benchmark"] == benchmark) & (documents["format"] == format)
            ]
            if not len(mine) or not mine["records"].sum():
                continue
            mean = float(mine["length_tokens"].sum() / mine["records"].sum())
            if format == formats[0]:
                reference = mean
            rows.append(
                TokensPerRecord(
                    format=format,
                    benchmark=benchmark,
                    n_documents=len(mine),
                    mean=mean,
                    ratio=None if reference is None else mean / reference,
                )
            )
    return rows


Match = Literal["content", "tokens"]
UNPAIRED = (
    "Each format has its own documents of the same number of tokens, so answers are not paired: "
    "tests permute documents between formats."
)


def analyse_model(
    records: pd.DataFrame,
    margin: float = 0.1,
    *,
    settings: AnalysisSettings | None = None,
    context: ProfileContext | None = None,
    formats: Sequence[Format] | None = None,
    match: Match = "content",
    evidence: Evidence | None = None,
    base_levels: Mapping[str, str] | None = None,
    asked: Sequence[Scale] = (),
) -> UtilizationResult:
    """Return the result for one model's records; deterministic and independent of row order.

    Args:
        records: one model's records in the form of `answers.clean_answers`.
        margin: largest score difference of equal formats, above 0 and below 1.
        settings: tolerance and confidence of caps and intervals, seed of all resampling.
        context: names of the model, study, campaign, tokenizer; its window; warnings to repeat.
        formats: formats in order of comparison, the first is the reference; by default those of
            the records, JSON lines first.
        match: ``tokens`` if each format has its own documents, so that nothing is paired.
        evidence: evidence setting of the base condition, copied into the result.
        base_levels: arm key -> its level in the base (``{"order": "chronological"}``).
        asked: scales of the study, those without a record included.

    Raises:
        ContextCliffError: see `answers.clean_answers`; also if there is no record of the base
            condition.
    """
    settings = settings or AnalysisSettings()
    context = context or ProfileContext(model=_model_of(records))
    paired = match == "content"
    rows = clean_answers(records, paired=paired)
    base = rows[rows["arm"] == BASE]
    if not len(base):
        raise ContextCliffError(
            "The records hold no answer under the base condition, the reference for all others."
        )
    present = set(base["format"])
    formats = [format for format in formats or FORMATS if format in present]
    names: list[BenchmarkName] = [name for name in BENCHMARKS if name in set(base["benchmark"])]
    labels = rows.drop_duplicates("scale_tokens").sort_values("scale_tokens")
    recorded = [
        Scale(str(label), int(tokens))
        for label, tokens in zip(labels["scale"], labels["scale_tokens"], strict=True)
    ]
    known = {scale.tokens for scale in recorded}
    unrecorded = [scale for scale in asked if scale.tokens not in known]
    scales = sorted([*recorded, *unrecorded], key=lambda scale: scale.tokens)
    scopes: list[BenchmarkName | None] = [None, *(names if len(names) > 1 else [])]
    curves = [
        format_curve(_scope(base[base["format"] == format], scope), format, scope, scales, settings)
        for scope in scopes
        for format in formats
    ]
    comparisons = [
        _compare(base, pair, curves, scales, margin, settings, paired=paired)
        for pair in combinations(formats, 2)
    ]
    first_pair = headline_pair(comparisons)
    n, missing = int(rows["score"].notna().sum()), Missing.of(rows["missing"])
    return UtilizationResult(
        schema_version="1.0",
        **context.names,
        tokenizer=context.tokenizer,
        window_tokens=context.window_tokens,
        match=match,
        evidence=evidence,
        needed_shortest=_needed(records, recorded[0]),
        needed_longest=_needed(records, recorded[-1]),
        benchmarks=names,
        formats=formats,
        scales=[scale.label for scale in scales],
        confidence=settings.confidence,
        margin=margin,
        tolerance=settings.tolerance,
        seed=settings.seed,
        n=n,
        missing=missing,
        verdict=first_pair.verdict if first_pair else "undecided",
        headline=_headline(curves, first_pair, margin, settings),
        curves=curves,
        comparisons=comparisons,
        effects=effects_of(
            rows, formats, [scale.tokens for scale in scales], settings, base_levels or {}
        ),
        positions=position_scores(base, formats, settings),
        tokens_per_record=tokens_per_record(base, formats),
        warnings=[
            *context.warnings,
            *filter(None, [unanswered_sentence(missing, n)]),
            *_warnings(base, formats, names, scales),
            *_floors(curves, names),
        ],
    )


def _model_of(records: pd.DataFrame) -> str:
    return str(records["model"].iloc[0]) if "model" in records and len(records) else "model"


def _needed(records: pd.DataFrame, scale: Scale) -> float | None:
    """Return the mean number of relevant records per question at a scale, base condition."""
    if "needed" not in records:
        return None
    mine = (records["arm"] == BASE) & (records["scale_tokens"] == scale.tokens)
    needed = records.loc[mine, "needed"].dropna()
    return float(needed.mean()) if len(needed) else None


def _scope(rows: pd.DataFrame, benchmark: BenchmarkName | None) -> pd.DataFrame:
    return rows if benchmark is None else rows[rows["benchmark"] == benchmark]


def _compare(
    base: pd.DataFrame,
    pair: tuple[Format, Format],
    curves: Sequence[FormatCurve],
    scales: Sequence[Scale],
    margin: float,
    settings: AnalysisSettings,
    *,
    paired: bool,
) -> FormatComparison:
    """Compare a pair of formats over all benchmarks and in each benchmark."""
    a, b = pair
    tokens = [scale.tokens for scale in scales]
    scopes = []
    for scope in dict.fromkeys(curve.benchmark for curve in curves):
        rows = _scope(base, scope)
        sides = [rows[rows["format"] == format] for format in pair]
        matched = match_rows(sides[0], sides[1], tokens, paired=paired)
        one = compare_scope(matched, Question(a, b, scope, scales, margin, settings))
        scopes.append(_at_floor(one, pair) if _both_at_floor(curves, scope, pair) else one)
    pooled, benchmarks = scopes[0], scopes[1:]
    verdict, better = verdict_of(pooled, benchmarks, a, b, floor=_both_at_floor(curves, None, pair))
    return FormatComparison(
        a=a,
        b=b,
        paired=paired,
        unpaired_reason=None if paired else UNPAIRED,
        verdict=verdict,
        better=better,
        pooled=pooled,
        benchmarks=benchmarks,
        sentences=comparison_sentences(verdict, better, pooled, benchmarks, pair, margin),
    )


def _both_at_floor(
    curves: Sequence[FormatCurve], scope: BenchmarkName | None, pair: tuple[Format, Format]
) -> bool:
    mine = [curve for curve in curves if curve.benchmark == scope and curve.format in pair]
    return len(mine) == 2 and all(map(at_floor, mine))


def _at_floor(scope: ScopeComparison, pair: tuple[Format, Format]) -> ScopeComparison:
    """Return the comparison without a claim of equality, because both formats fail."""
    if shown_direction(scope):
        return scope
    nowhere = replace(scope.divergence, low_tokens=None, sentence=floor_sentence(scope, pair))
    return replace(scope, equivalent=False, divergence=nowhere)


def _headline(
    curves: Sequence[FormatCurve],
    first: FormatComparison | None,
    margin: float,
    settings: AnalysisSettings,
) -> list[str]:
    profiles = [
        (curve.format, curve.tokens, at_floor(curve))
        for curve in curves
        if curve.benchmark is None and (first is None or curve.format in (first.a, first.b))
    ]
    parting = None if first is None else parting_clause(first.pooled.divergence, margin)
    caps = cap_sentence(profiles, settings.tolerance, settings.confidence, parting)
    if first is None:
        return [caps, "A single format was measured: nothing is compared."]
    if parting is None:
        return [caps, *first.sentences]
    return [caps, *(text for text in first.sentences if text != first.pooled.divergence.sentence)]


def _warnings(
    base: pd.DataFrame,
    formats: Sequence[Format],
    benchmarks: Sequence[BenchmarkName],
    scales: Sequence[Scale],
) -> list[str]:
    """Return warnings on scales at which a format or benchmark has no answers."""
    answered = base[base["score"].notna()]
    cells = answered[["format", "benchmark", "scale_tokens"]].drop_duplicates()
    measured = set(cells.itertuples(index=False, name=None))
    warnings = []
    for scale in scales:
        for format in formats:
            lacking = [name for name in benchmarks if (format, name, scale.tokens) not in measured]
            if not lacking:
                continue
            place = "" if len(lacking) == len(benchmarks) else f" in {', '.join(lacking)}"
            sentence = f"No answer as {format_name(format)} at {scale.label}{place}"
            warnings.append(
                sentence + ": nothing is compared there."
                if not place
                else sentence + ": all benchmarks together are the others there."
            )
    return warnings


def _floors(curves: Sequence[FormatCurve], benchmarks: Sequence[BenchmarkName]) -> list[str]:
    """Return a warning on benchmarks at the floor in every format if others are not."""
    floors = [
        name
        for name in benchmarks
        if all(at_floor(curve) for curve in curves if curve.benchmark == name)
    ]
    if len(benchmarks) < 2 or not floors or all(at_floor(c) for c in curves if not c.benchmark):
        return []
    return [
        f"Almost no answer is right in {listed(floors)}, in any format: this shows no "
        "difference between formats and lowers the pooled scores."
    ]
