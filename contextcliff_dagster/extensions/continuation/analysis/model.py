"""The outcomes of one model to its result: arms, each against the first, the noise floor.

Arms compared on the same passages: means over sizes, each size, and how much more one declines.

Sign flips are two-sided and of whole passages. Holm's adjustment of means over sizes and of extra
declines is over all arms and both endpoints; that of single sizes is over the sizes of one arm and
endpoint, which say where a difference lies and not whether there is one.
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
from contextcliff_dagster.contracts import ContextCliffError
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
    """Each arm but the first against the first; empty with a single one."""
    reference = arms[0]
    families = [_overall(arm, reference, i, settings) for i, arm in enumerate(arms[1:])]
    adjusted = iter(holm([row.p_value for rows in families for row in rows]))
    found = []
    for place, (arm, rows) in enumerate(zip(arms[1:], families, strict=True)):
        overall = [replace(row, p_holm=next(adjusted)) for row in rows]
        sizes = _by_size(arm, reference, place, settings)
        alike = _alike(arm, reference, sizes, margin, settings.confidence)
        verdict = _verdict(overall, alike=alike, alpha=1.0 - settings.confidence)
        found.append(
            ArmComparison(
                arm=arm.arm,
                reference=reference.arm,
                verdict=verdict,
                sentence=arm_sentence(verdict, (arm.arm, reference.arm), overall, margin),
                overall=overall,
                sizes=sizes,
            )
        )
    return found


def _overall(
    arm: ArmOutcomes, reference: ArmOutcomes, place: int, settings: AnalysisSettings
) -> list[ArmDifference]:
    rows = []
    for endpoint in ENDPOINTS:
        apart = arm.means(endpoint) - reference.means(endpoint)
        rows.append(_difference(mean_known(apart), endpoint, reference.clusters(), settings, place))
        both = np.flatnonzero((~np.isnan(apart)).any(axis=0))
        if len(both) > 1:
            # Passages without an outcome at either end have no extra decline.
            extra = apart[:, both[0]] - apart[:, both[-1]]
            row = _difference(extra, endpoint, reference.clusters(), settings, place, 1)
            largest = int(arm.sizes[both[-1]])
            rows.append(replace(row, context_tokens=largest, extra_decline=True))
    return rows


def _by_size(
    arm: ArmOutcomes, reference: ArmOutcomes, place: int, settings: AnalysisSettings
) -> list[ArmDifference]:
    found = []
    for endpoint in ENDPOINTS:
        apart = arm.means(endpoint) - reference.means(endpoint)
        rows = [
            replace(
                _difference(
                    apart[:, size], endpoint, reference.clusters(), settings, place, 2 + size
                ),
                context_tokens=int(tokens),
            )
            for size, tokens in enumerate(arm.sizes)
        ]
        adjusted = holm([row.p_value for row in rows])
        found += [replace(row, p_holm=p) for row, p in zip(rows, adjusted, strict=True)]
    return found


def _difference(
    apart: Floats,
    endpoint: EndpointName,
    clusters: Ints,
    settings: AnalysisSettings,
    *key: int,
) -> ArmDifference:
    apart = np.where(np.abs(apart) < 1e-12, 0.0, apart)
    known = apart[~np.isnan(apart)]
    p_value = None
    if len(known):
        rng = np.random.default_rng((settings.seed, 22, int(endpoint == "intact"), *key))
        p_value = sign_flip_p_value(known, PERMUTATIONS, rng)[0]
    low, high = mean_interval(apart, clusters, settings.confidence)
    return ArmDifference(
        endpoint=endpoint,
        context_tokens=None,
        extra_decline=False,
        n_passages=len(known),
        difference=float(known.mean()) if len(known) else None,
        ci_low=low,
        ci_high=high,
        p_value=p_value,
        p_holm=None,
    )


def _verdict(overall: Sequence[ArmDifference], *, alike: bool, alpha: float) -> ArmVerdict:
    """A significant mean or extra decline decides, else whether the arms are alike."""
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
    """Whether at every size the score's interval and the share's limits lie within the margin.

    Where a greater share of either arm's generations has no score, the scores cannot show it.
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
    human: Sequence[float] | Floats = (),
) -> ContinuationResult:
    """Return what the outcomes of one model say of context sizes. No row order matters.

    Args:
        rows: as `outcomes.clean_outcomes` takes them.
        margin: decline that matters, above 0 and at most .5.
        settings: confidence, seed and number of resamples.
        context: names of the model, study, campaign, tokenizer; its window; warnings to repeat.
        arms: in the order in which they are reported; the first is the reference.
        human: scores of held-out passages by the authors, for the noise floor alone.

    Raises:
        ContextCliffError: as `outcomes.clean_outcomes`; the margin or a human score is out of its
            range.
    """
    if not 0.0 < margin <= 0.5:
        raise ContextCliffError(f"The margin is {margin:g}; choose one above 0 and up to 0.5.")
    settings = settings or AnalysisSettings()
    context = context or ProfileContext(model="model")
    outcomes = clean_outcomes(rows, arms)
    found = [analyse_arm(arm, margin, settings) for arm in outcomes]
    comparisons = compare_arms(outcomes, margin, settings)
    noise = noise_floor(human, found[0].n_passages, settings)
    reference = found[0]
    several = len(found) > 1
    headline = [
        *(f"{one.arm}: {one.reason}" if several else one.reason for one in found),
        *(one.sentence for one in comparisons),
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
        n=sum(one.n for one in found),
        missing=sum(one.missing for one in found),
        verdict=reference.verdict,
        headline=headline,
        human=noise,
        arms=found,
        comparisons=comparisons,
        warnings=[*context.warnings, *_warnings(outcomes)],
    )


def noise_floor(
    scores: Sequence[float] | Floats, passages: int, settings: AnalysisSettings
) -> NoiseFloor | None:
    """Mean of human scores, and the range of means of ``passages`` of them; None with too few.

    Raises:
        ContextCliffError: a score is outside 0..1.
    """
    known = np.asarray(scores, np.float64)
    known = known[~np.isnan(known)]
    if ((known < 0.0) | (known > 1.0)).any():
        raise ContextCliffError("A score of a human passage is outside 0..1.")
    if len(known) < LEAST_HUMAN or not passages:
        return None
    rng = np.random.default_rng((settings.seed, 23))
    drawn = known[rng.integers(0, len(known), size=(settings.resamples, passages))].mean(axis=1)
    tail = 0.5 * (1.0 - settings.confidence)
    low, high = np.quantile(drawn, (tail, 1.0 - tail))
    return NoiseFloor(
        n=len(known),
        mean=float(known.mean()),
        floor_low=float(low),
        floor_high=float(high),
        floor_passages=passages,
    )


def _warnings(arms: Sequence[ArmOutcomes]) -> list[str]:
    found = []
    for arm in arms:
        measured = arm.measured
        texts = len(np.unique(arm.text[measured]))
        if 0 < texts < LEAST_TEXTS:
            found.append(
                f"Arm {arm.arm} has passages of {texts} text{'' if texts == 1 else 's'}: what is "
                f"concluded holds for passages of {'it' if texts == 1 else 'these'}; "
                f"{LEAST_TEXTS} texts or more are needed to speak of others."
            )
        known = ~np.isnan(arm.intact)
        lacking = int((measured & ~np.all(known.any(axis=2), axis=1)).sum())
        if lacking:
            found.append(
                f"Arm {arm.arm}: {lacking} of {int(measured.sum())} passages lack a context size "
                "and are left out where it is compared."
            )
        unscored = int((known & np.isnan(arm.score)).sum())
        if unscored:
            found.append(
                f"Arm {arm.arm}: {unscored} of {int(known.sum())} generations have no score: they "
                "count for the share without collapse alone."
            )
    return found
