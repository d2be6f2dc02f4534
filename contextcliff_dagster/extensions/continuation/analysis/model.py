"""Analysis of one model: its arms, comparisons of each arm with the first, and the noise floor.

Arms are compared on the same passages by means over sizes, by single sizes, and by extra decline.

Tests are two-sided and flip the signs of whole passages. Holm's adjustment of means over sizes and
extra declines covers all arms and both endpoints. Single sizes are adjusted within an arm and
endpoint, because they show where a difference lies, not whether there is one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, get_args

import numpy as np

from contextcliff_dagster.analysis.bin_statistics import ProfileContext
from contextcliff_dagster.analysis.contrast import sign_flip_p_value
from contextcliff_dagster.analysis.records import AnalysisSettings
from contextcliff_dagster.analysis.statistics.rank_tests import holm
from contextcliff_dagster.extensions.continuation.analysis.arm import (
    PERMUTATIONS,
    analyse_arm,
    intact_upper,
    mean_interval,
)
from contextcliff_dagster.extensions.continuation.analysis.outcomes import (
    LEAST_TEXTS,
    ArmOutcomes,
    clean_outcomes,
    mean_known,
)
from contextcliff_dagster.extensions.continuation.analysis.wording import (
    arm_sentence,
    human_sentence,
)
from contextcliff_dagster.extensions.continuation.results import (
    ArmComparison,
    ArmDifference,
    ArmVerdict,
    ContinuationResult,
    EndpointName,
    NoiseFloor,
)

if TYPE_CHECKING:
    import pandas as pd

    from contextcliff_dagster.contracts.arrays import Floats, Ints


ENDPOINTS: tuple[EndpointName, ...] = get_args(EndpointName)


def compare_arms(
    arms: Sequence[ArmOutcomes], margin: float, settings: AnalysisSettings
) -> list[ArmComparison]:
    """Compare each further arm with the first; return an empty list with a single arm."""
    reference = arms[0]
    families = [_overall(arm, reference, i, settings) for i, arm in enumerate(arms[1:])]
    adjusted = iter(holm([row.p_value for rows in families for row in rows]))
    comparisons = []
    for place, (arm, rows) in enumerate(zip(arms[1:], families, strict=True)):
        overall = [replace(row, p_holm=next(adjusted)) for row in rows]
        sizes = _by_size(arm, reference, place, settings)
        alike = _alike(arm, reference, sizes, margin, settings.confidence)
        verdict = _verdict(overall, alike=alike, alpha=1.0 - settings.confidence)
        comparisons.append(
            ArmComparison(
                arm=arm.arm,
                reference=reference.arm,
                verdict=verdict,
                sentence=arm_sentence(verdict, (arm.arm, reference.arm), overall, margin),
                overall=overall,
                sizes=sizes,
            )
        )
    return comparisons


def _overall(
    arm: ArmOutcomes, reference: ArmOutcomes, place: int, settings: AnalysisSettings
) -> list[ArmDifference]:
    rows = []
    for endpoint in ENDPOINTS:
        gap = arm.means(endpoint) - reference.means(endpoint)
        rows.append(_difference(mean_known(gap), endpoint, reference.clusters(), settings, place))
        common_sizes = np.flatnonzero((~np.isnan(gap)).any(axis=0))
        if len(common_sizes) > 1:
            # Passages without an outcome at either end have no extra decline.
            extra = gap[:, common_sizes[0]] - gap[:, common_sizes[-1]]
            row = _difference(extra, endpoint, reference.clusters(), settings, place, 1)
            largest = int(arm.sizes[common_sizes[-1]])
            rows.append(replace(row, context_tokens=largest, extra_decline=True))
    return rows


def _by_size(
    arm: ArmOutcomes, reference: ArmOutcomes, place: int, settings: AnalysisSettings
) -> list[ArmDifference]:
    differences = []
    for endpoint in ENDPOINTS:
        gap = arm.means(endpoint) - reference.means(endpoint)
        rows = [
            replace(
                _difference(
                    gap[:, size], endpoint, reference.clusters(), settings, place, 2 + size
                ),
                context_tokens=int(tokens),
            )
            for size, tokens in enumerate(arm.sizes)
        ]
        adjusted = holm([row.p_value for row in rows])
        differences += [replace(row, p_holm=p) for row, p in zip(rows, adjusted, strict=True)]
    return differences


def _difference(
    gaps: Floats,
    endpoint: EndpointName,
    clusters: Ints,
    settings: AnalysisSettings,
    *key: int,
) -> ArmDifference:
    gaps = np.where(np.abs(gaps) < 1e-12, 0.0, gaps)
    values = gaps[~np.isnan(gaps)]
    p_value = None
    if len(values):
        rng = np.random.default_rng((settings.seed, 22, int(endpoint == "intact"), *key))
        p_value = sign_flip_p_value(values, PERMUTATIONS, rng)[0]
    low, high = mean_interval(gaps, clusters, settings.confidence)
    return ArmDifference(
        endpoint=endpoint,
        context_tokens=None,
        extra_decline=False,
        n_passages=len(values),
        difference=float(values.mean()) if len(values) else None,
        ci_low=low,
        ci_high=high,
        p_value=p_value,
        p_holm=None,
    )


def _verdict(overall: Sequence[ArmDifference], *, alike: bool, alpha: float) -> ArmVerdict:
    """Return the verdict from significant means and extra declines or, if none are, ``alike``."""
    ways = {
        -1 if ((row.difference or 0.0) < 0.0) != row.extra_decline else 1
        for row in overall
        if row.p_holm is not None and row.p_holm <= alpha and row.difference
    }
    if len(ways) == 2:
        return "mixed"
    if ways:
        return "better" if ways == {1} else "worse"
    return "alike" if alike else "undecided"


def _alike(
    arm: ArmOutcomes,
    reference: ArmOutcomes,
    sizes: Sequence[ArmDifference],
    margin: float,
    confidence: float,
) -> bool:
    """Return whether, at every size, the limits of both endpoints lie within the margin.

    They do not if, in either arm, the fraction of unscored generations exceeds the margin.
    """
    if max(arm.unscored.max(initial=0.0), reference.unscored.max(initial=0.0)) > margin:
        return False
    ends = [
        end
        for row in sizes
        if row.endpoint == "score" and row.n_passages
        for end in (row.ci_low, row.ci_high)
    ]
    for size in range(len(arm.sizes)):
        pair = arm.intact[:, size], reference.intact[:, size]
        if not all((~np.isnan(side)).any() for side in pair):
            continue
        ends += [intact_upper(*pair, confidence), intact_upper(*pair[::-1], confidence)]
    return bool(ends) and all(end is not None and abs(end) <= margin for end in ends)


LEAST_HUMAN = 10


def analyse_model(
    rows: pd.DataFrame,
    margin: float = 0.1,
    *,
    settings: AnalysisSettings | None = None,
    context: ProfileContext | None = None,
    arms: Sequence[str] = (),
    asked: Sequence[int] = (),
    human: Sequence[float] | Floats = (),
) -> ContinuationResult:
    """Return the result of one model over context sizes; the order of rows does not matter.

    Args:
        rows: rows as for `outcomes.clean_outcomes`.
        margin: smallest decline that matters, above 0 and at most .5.
        settings: confidence, seed and number of resamples.
        context: names of model, study, campaign and tokenizer, the window, and warnings to include.
        arms: names in report order; the first is the reference.
        asked: sizes of the study (tokens), those without a row included.
        human: scores of held-out author passages, used only for the noise floor.

    Raises:
        ContextCliffError: as `outcomes.clean_outcomes`.
    """
    settings = settings or AnalysisSettings()
    context = context or ProfileContext(model="model")
    outcomes = clean_outcomes(rows, arms, asked)
    results = [analyse_arm(arm, margin, settings) for arm in outcomes]
    comparisons = compare_arms(outcomes, margin, settings)
    noise = noise_floor(human, results[0].n_passages, settings)
    reference = results[0]
    several = len(results) > 1
    headline = [
        *(f"{item.arm}: {item.reason}" if several else item.reason for item in results),
        *(item.sentence for item in comparisons),
    ]
    if noise is not None and (sentence := human_sentence(noise, reference)):
        headline.append(sentence)
    return ContinuationResult(
        schema_version="1.0",
        **context.names,
        tokenizer=context.tokenizer,
        window_tokens=context.window_tokens,
        sizes=[int(tokens) for tokens in outcomes[0].sizes],
        reference=reference.arm,
        confidence=settings.confidence,
        margin=margin,
        seed=settings.seed,
        n=sum(item.n for item in results),
        missing=sum(item.missing for item in results),
        verdict=reference.verdict,
        headline=headline,
        human=noise,
        arms=results,
        comparisons=comparisons,
        warnings=[*context.warnings, *_warnings(outcomes)],
    )


def noise_floor(
    scores: Sequence[float] | Floats, passages: int, settings: AnalysisSettings
) -> NoiseFloor | None:
    """Return the mean human score and the range of means of ``passages`` scores, or None."""
    values = np.asarray(scores, np.float64)
    values = values[~np.isnan(values)]
    if len(values) < LEAST_HUMAN or not passages:
        return None
    rng = np.random.default_rng((settings.seed, 23))
    means = values[rng.integers(0, len(values), size=(settings.resamples, passages))].mean(axis=1)
    tail = 0.5 * (1.0 - settings.confidence)
    low, high = np.quantile(means, (tail, 1.0 - tail))
    return NoiseFloor(
        n=len(values),
        mean=float(values.mean()),
        floor_low=float(low),
        floor_high=float(high),
        floor_passages=passages,
    )


def _warnings(arms: Sequence[ArmOutcomes]) -> list[str]:
    warnings = []
    for arm in arms:
        measured = arm.measured
        texts = len(np.unique(arm.text[measured]))
        if 0 < texts < LEAST_TEXTS:
            warnings.append(
                f"Arm {arm.arm} has passages of {texts} text{'' if texts == 1 else 's'}: the "
                f"conclusions hold only for {'it' if texts == 1 else 'these'}; "
                f"at least {LEAST_TEXTS} texts are needed to generalize."
            )
        mask = ~np.isnan(arm.intact)
        partial = int((measured & ~np.all(mask.any(axis=2), axis=1)).sum())
        if partial:
            warnings.append(
                f"Arm {arm.arm}: {partial} of {int(measured.sum())} passages lack a context size "
                "and are left out of its comparisons."
            )
        unscored = int((mask & np.isnan(arm.score)).sum())
        if unscored:
            warnings.append(
                f"Arm {arm.arm}: {unscored} of {int(mask.sum())} generations have no score: they "
                "count only for the share without collapse."
            )
    return warnings
