"""The records of one model to its result: every format, every pair, every other condition.

Effects of the other conditions (arms) and of the benchmark, each with an interval.

And what might look like an effect of the format: evidence position, and tokens a record.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING, Literal

import numpy as np

from contextcliff_dagster.analysis.bin_statistics import ProfileContext
from contextcliff_dagster.analysis.records import AnalysisSettings
from contextcliff_dagster.analysis.statistics.rank_tests import holm
from contextcliff_dagster.contracts import ContextCliffError
from contextcliff_dagster.contracts.results.json_form import nulls
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
    missing_of,
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
    listed,
    missing_sentences,
    parting_clause,
    shown_direction,
)
from contextcliff_dagster.extensions.utilization.benchmarks.data import BENCHMARKS, Evidence
from contextcliff_dagster.extensions.utilization.rendering.sentences import FORMATS, Format
from contextcliff_dagster.extensions.utilization.results import (
    Effect,
    FormatComparison,
    PositionScore,
    ScopeComparison,
    TokensPerRecord,
    UtilizationResult,
)

if TYPE_CHECKING:
    import pandas as pd

    from contextcliff_dagster.extensions.utilization.benchmarks.data import BenchmarkName
    from contextcliff_dagster.extensions.utilization.results import FormatCurve


def effects_of(
    rows: pd.DataFrame,
    formats: Sequence[Format],
    scales: Sequence[int],
    settings: AnalysisSettings,
    base_levels: Mapping[str, str],
) -> list[Effect]:
    """Every arm against the base, and every benchmark against the others: all formats, then each.

    Arms are paired by document and question. Benchmarks are compared at the scales that both have,
    and their documents permuted within scale. One family of Holm.

    Args:
        base_levels: what an arm's key is in the base, by key; "base" where unknown.
    """
    of_formats: list[Format | None] = [None, *formats] if len(formats) > 1 else [*formats]
    found = []
    base = rows[rows["arm"] == BASE]
    for number, arm in enumerate(sorted(set(rows["arm"]) - {BASE})):
        factor, _, level = str(arm).partition("=")
        if "+" in str(arm):
            factor, level = "combination", str(arm)
        reference = base_levels.get(factor, BASE)
        changed = rows[rows["arm"] == arm]
        for place, format in enumerate(of_formats):
            one, other = (_of_format(side, format) for side in (changed, base))
            if not len(one):
                continue
            # Where the arm was not asked, the base has nothing to be compared with.
            other = other[other["document_key"].isin(one["document_key"])]
            matched = match_rows(one, other, scales, paired=True, within_format=True)
            effect = _effect(matched, settings, 20, number, place)
            found.append(
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
            found.append(
                replace(
                    effect,
                    factor="benchmark",
                    level=name,
                    reference="other benchmarks",
                    format=format,
                )
            )
    adjusted = holm([effect.p_value for effect in found])
    return [replace(effect, p_holm=p) for effect, p in zip(found, adjusted, strict=True)]


def _of_format(rows: pd.DataFrame, format: Format | None) -> pd.DataFrame:
    return rows if format is None else rows[rows["format"] == format]


def _against_others(mine: pd.DataFrame, others: pd.DataFrame, scales: Sequence[int]) -> Matched:
    matched = match_rows(mine, others, scales, paired=False)
    shared = np.intersect1d(matched.a.scale, matched.b.scale)
    matched = matched.where(np.isin(matched.a.scale, shared), np.isin(matched.b.scale, shared))
    a, b = (replace(side, stratum=side.scale) for side in (matched.a, matched.b))
    return replace(matched, a=a, b=b)


def _effect(matched: Matched, settings: AnalysisSettings, *key: int) -> Effect:
    found = estimate_difference(matched, likeness_of(matched), settings, *key)
    names = {"factor": "", "level": "", "reference": ""}
    dropped = int(matched.dropped.sum())
    if found is None:
        return nulls(Effect, **names, paired=matched.paired, n=0, n_documents=0, dropped=dropped)
    return Effect(
        **names,
        format=None,
        paired=matched.paired,
        n=len(matched.a.score),
        n_documents=int(matched.a.document.max()) + 1,
        dropped=dropped,
        mean=found.mean_a,
        mean_reference=found.mean_b,
        difference=found.difference,
        ci_low=found.ci_low,
        ci_high=found.ci_high,
        p_value=found.p_value,
        p_holm=None,
    )


_THIRDS: tuple[Literal["first", "middle", "last"], ...] = ("first", "middle", "last")


def position_scores(
    base: pd.DataFrame, formats: Sequence[Format], settings: AnalysisSettings
) -> list[PositionScore]:
    """Scores by the third of the document that the evidence lies in; empty where unknown."""
    known = base[base["evidence_position"].notna() & base["score"].notna()]
    third = np.clip(np.floor(known["evidence_position"].astype(np.float64) * 3.0), 0, 2)
    found = []
    for format in formats if len(known) else ():
        correlation = correlation_of(base[base["format"] == format])
        for i, name in enumerate(_THIRDS):
            inside = known[(known["format"] == format) & (third == i)]
            score = mean_over_documents(inside, correlation, settings)
            found.append(
                PositionScore(
                    format=format,
                    third=name,
                    n=score.n,
                    mean=score.mean,
                    ci_low=score.ci_low,
                    ci_high=score.ci_high,
                )
            )
    return found


def tokens_per_record(base: pd.DataFrame, formats: Sequence[Format]) -> list[TokensPerRecord]:
    """Tokens a record of each format; documents of unknown record count are left out."""
    documents = base[base["records"].notna()].drop_duplicates(["format", "document_key"])
    found = []
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
            found.append(
                TokensPerRecord(
                    format=format,
                    benchmark=benchmark,
                    n_documents=len(mine),
                    mean=mean,
                    ratio=None if reference is None else mean / reference,
                )
            )
    return found


Match = Literal["content", "tokens"]
UNPAIRED = (
    "Each format has documents of its own, made to the same number of tokens: paired tests do not "
    "apply, and documents are permuted between formats."
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
) -> UtilizationResult:
    """Return what the records of one model say of formats. Deterministic; no row order matters.

    Args:
        records: as `answers.clean_answers` takes them, of one model.
        margin: difference of scores up to which formats count as alike, above 0 and below 1.
        settings: tolerance and confidence of caps and intervals, seed of every resampling.
        context: names of the model, study, campaign, tokenizer; its window; warnings to repeat.
        formats: in the order in which they are compared, the first is the reference; by default
            those of the records, JSON lines first.
        match: ``tokens``: formats have documents of their own, and nothing is paired.
        evidence: of the base condition, repeated in the result.
        base_levels: what each arm's key is in the base (``{"order": "chronological"}``).

    Raises:
        ContextCliffError: as `answers.clean_answers`; the margin is out of its range, or there is
            no record of the base condition.
    """
    if not 0.0 < margin < 1.0:
        raise ContextCliffError(f"The margin is {margin:g}; choose one between 0 and 1.")
    settings = settings or AnalysisSettings()
    context = context or ProfileContext(model=_model_of(records))
    paired = match == "content"
    rows = clean_answers(records, paired=paired)
    base = rows[rows["arm"] == BASE]
    if not len(base):
        raise ContextCliffError(
            "The records hold no answer under the base condition, with which all others are "
            "compared."
        )
    present = set(base["format"])
    formats = [one for one in formats or FORMATS if one in present]
    names: list[BenchmarkName] = [one for one in BENCHMARKS if one in set(base["benchmark"])]
    labels = rows.drop_duplicates("scale_tokens").sort_values("scale_tokens")
    scales = [
        Scale(str(label), int(tokens))
        for label, tokens in zip(labels["scale"], labels["scale_tokens"], strict=True)
    ]
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
    with_prose = [one for one in comparisons if "prose" in (one.a, one.b)]
    first = next(iter(with_prose or comparisons), None)
    n, missing = int(rows["score"].notna().sum()), missing_of(rows)
    return UtilizationResult(
        schema_version="1.0",
        **context.names,
        tokenizer=context.tokenizer,
        window_tokens=context.window_tokens,
        match=match,
        evidence=evidence,
        needed_shortest=_needed(records, scales[0]),
        needed_longest=_needed(records, scales[-1]),
        benchmarks=names,
        formats=formats,
        scales=[scale.label for scale in scales],
        confidence=settings.confidence,
        margin=margin,
        tolerance=settings.tolerance,
        seed=settings.seed,
        n=n,
        missing=missing,
        verdict=first.verdict if first else "undecided",
        headline=_headline(curves, first, margin, settings),
        curves=curves,
        comparisons=comparisons,
        effects=effects_of(
            rows, formats, [scale.tokens for scale in scales], settings, base_levels or {}
        ),
        positions=position_scores(base, formats, settings),
        tokens_per_record=tokens_per_record(base, formats),
        warnings=[
            *context.warnings,
            *missing_sentences(missing, n),
            *_warnings(base, formats, names, scales),
            *_floors(curves, names),
        ],
    )


def _model_of(records: pd.DataFrame) -> str:
    return str(records["model"].iloc[0]) if "model" in records and len(records) else "model"


def _needed(records: pd.DataFrame, scale: Scale) -> float | None:
    """Records that matter to a question of a scale, on average, under the base condition."""
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
    """Compare ``pair`` over all benchmarks and in each, as ``curves`` have them apart."""
    a, b = pair
    tokens = [scale.tokens for scale in scales]
    compared = []
    for scope in dict.fromkeys(curve.benchmark for curve in curves):
        rows = _scope(base, scope)
        sides = [rows[rows["format"] == one] for one in pair]
        matched = match_rows(sides[0], sides[1], tokens, paired=paired)
        one = compare_scope(matched, Question(a, b, scope, scales, margin, settings))
        compared.append(_at_floor(one, pair) if _both_at_floor(curves, scope, pair) else one)
    pooled, benchmarks = compared[0], compared[1:]
    floor = _both_at_floor(curves, None, pair)
    verdict, better = verdict_of(pooled, benchmarks, a, b, floor=floor)
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
    """Without a claim that formats are alike: two formats that fail alike tell nothing."""
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
    shown = [
        (curve.format, curve.tokens, at_floor(curve))
        for curve in curves
        if curve.benchmark is None and (first is None or curve.format in (first.a, first.b))
    ]
    parting = None if first is None else parting_clause(first.pooled.divergence, margin)
    caps = cap_sentence(shown, settings.tolerance, settings.confidence, parting)
    if first is None:
        return [caps, "A single format was asked: nothing is compared."]
    if parting is None:
        return [caps, *first.sentences]
    return [caps, *(one for one in first.sentences if one != first.pooled.divergence.sentence)]


def _warnings(
    base: pd.DataFrame,
    formats: Sequence[Format],
    benchmarks: Sequence[BenchmarkName],
    scales: Sequence[Scale],
) -> list[str]:
    """Which scales a format or a benchmark has no answers at."""
    answered = base[base["score"].notna()]
    cells = answered[["format", "benchmark", "scale_tokens"]].drop_duplicates()
    there = set(cells.itertuples(index=False, name=None))
    found = []
    for scale in scales:
        for format in formats:
            lacking = [name for name in benchmarks if (format, name, scale.tokens) not in there]
            if not lacking:
                continue
            where = "" if len(lacking) == len(benchmarks) else f" in {', '.join(lacking)}"
            sentence = f"No answer as {format_name(format)} at {scale.label}{where}"
            found.append(
                sentence + ": nothing is compared there."
                if not where
                else sentence + ": all benchmarks together are the others there."
            )
    return found


def _floors(curves: Sequence[FormatCurve], benchmarks: Sequence[BenchmarkName]) -> list[str]:
    """Which benchmarks are at the floor in every format, while all of them together are not."""
    floors = [
        name
        for name in benchmarks
        if all(at_floor(curve) for curve in curves if curve.benchmark == name)
    ]
    if len(benchmarks) < 2 or not floors or all(at_floor(c) for c in curves if not c.benchmark):
        return []
    return [
        f"Almost nothing is answered right in {listed(floors)}, in any format: "
        "that shows no difference of formats, and lowers the scores of all benchmarks together."
    ]
