"""The outcomes of one model to its result: arms, each against the first, the noise floor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from contextcliff_dagster.analysis.bin_statistics import ProfileContext
from contextcliff_dagster.analysis.records import AnalysisSettings
from contextcliff_dagster.contracts import ContextCliffError
from contextcliff_dagster.extensions.continuation.analysis.arm import analyse_arm
from contextcliff_dagster.extensions.continuation.analysis.arms import compare_arms
from contextcliff_dagster.extensions.continuation.analysis.outcomes import (
    LEAST_TEXTS,
    clean_outcomes,
)
from contextcliff_dagster.extensions.continuation.analysis.wording import human_sentence
from contextcliff_dagster.extensions.continuation.results import ContinuationResult, NoiseFloor

if TYPE_CHECKING:
    import pandas as pd

    from contextcliff_dagster.contracts.arrays import Floats
    from contextcliff_dagster.extensions.continuation.analysis.outcomes import ArmOutcomes

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
