"""One arm: its tests with one adjustment over all of them, the verdict, where a loss lies."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from contextcliff_dagster.analysis.statistics.sign_flips import holm
from contextcliff_dagster.extensions.continuation.analysis.decline import (
    PERMUTATIONS,
    size_outcomes,
)
from contextcliff_dagster.extensions.continuation.analysis.intervals import ClusterBootstrap
from contextcliff_dagster.extensions.continuation.analysis.location import locate_loss
from contextcliff_dagster.extensions.continuation.analysis.planning import (
    components_of,
    plan_study,
)
from contextcliff_dagster.extensions.continuation.analysis.wording import (
    declines,
    first_significant,
    floor_sentence,
    location_sentence,
    plan_sentence,
    unscored_sentence,
    verdict_reason,
)
from contextcliff_dagster.extensions.continuation.results import (
    ArmResult,
    ContinuationVerdict,
    Endpoint,
    EndpointName,
    LossLocation,
    Trend,
)

if TYPE_CHECKING:
    from contextcliff_dagster.analysis.records.settings import AnalysisSettings
    from contextcliff_dagster.contracts.arrays import Floats, Ints
    from contextcliff_dagster.extensions.continuation.analysis.outcomes import ArmOutcomes

ROOM = 2.0
"""Margins that the smallest size must score at least, or the absence of a decline says little."""


@dataclass(frozen=True, slots=True)
class _Tested:
    score: Endpoint
    intact: Endpoint
    tests: int
    most: int
    """Tests that the sizes allow, whether or not they can become significant here."""


def analyse_arm(arm: ArmOutcomes, margin: float, settings: AnalysisSettings) -> ArmResult:
    """The result of one arm. The error rate, 1 - confidence, is over all its one-sided tests."""
    drawn = ClusterBootstrap(arm.clusters(), settings)
    tested = _tests(arm, drawn, settings)
    alpha = 1.0 - settings.confidence
    endpoints = [
        replace(one, location=_location(arm, one, settings))
        for one in (tested.score, tested.intact)
    ]
    score, intact = endpoints
    verdict, reason = _verdict(
        replace(tested, score=score, intact=intact), arm.unscored, margin, alpha
    )
    components = components_of(arm)
    base = next((one.mean for one in score.sizes if one.mean is not None), None)
    plan = []
    if components is not None and base:
        plan = plan_study(components, base, margin, tested.most, settings.confidence)
    measured = arm.measured
    result = ArmResult(
        arm=arm.arm,
        verdict=verdict,
        reason=reason,
        sentences=[],
        n=int((~np.isnan(arm.intact)).sum()),
        missing=arm.missing,
        unscored=float(arm.unscored.max(initial=0.0)),
        n_passages=int(measured.sum()),
        n_texts=len(np.unique(arm.text[measured])),
        clusters=arm.unit,
        tests=tested.tests,
        score=score,
        intact=intact,
        collapses=arm.collapses,
        components=components,
        plan=plan,
    )
    sentences = [location_sentence(one) for one in endpoints]
    if verdict in ("undecided", "insufficient_data"):
        sentences.append(plan_sentence(result, margin))
    return replace(result, sentences=[one for one in sentences if one])


def _tests(arm: ArmOutcomes, drawn: ClusterBootstrap, settings: AnalysisSettings) -> _Tested:
    """Both endpoints with adjusted p-values.

    A test that cannot become significant whatever the signs (no passage differs, or too few do) is
    no member of the family (Tarone 1990, Biometrics 46, 515-522).
    """
    alpha = 1.0 - settings.confidence
    names: tuple[EndpointName, ...] = ("score", "intact")
    p_values: list[float | None] = []
    most = 0
    raw = []
    for name in names:
        found = size_outcomes(arm, name, drawn, settings)
        rng = np.random.default_rng((settings.seed, 24, int(name == "intact")))
        trend = trend_over_sizes(arm.means(name), arm.sizes, drawn, rng)
        for one, least in zip(found.sizes, found.least, strict=True):
            possible = least is not None and least <= alpha
            p_values.append(one.decline.p_value if one.decline and possible else None)
            most += one.decline is not None
        p_values.append(None if trend is None else trend.p_value)
        most += len(arm.sizes) > 2
        raw.append((name, found.sizes, trend))
    adjusted = iter(holm(p_values))
    endpoints = []
    for name, sizes, trend in raw:
        rows = []
        for one in sizes:
            p = next(adjusted)
            decline = None if one.decline is None else replace(one.decline, p_holm=p)
            rows.append(replace(one, decline=decline))
        p = next(adjusted)
        uppers = [one.decline.upper for one in rows if one.decline is not None]
        known = [upper for upper in uppers if upper is not None]
        endpoints.append(
            Endpoint(
                name=name,
                sizes=rows,
                trend=None if trend is None else replace(trend, p_holm=p),
                location=None,
                excluded=max(known) if known and len(known) == len(uppers) else None,
            )
        )
    tests = sum(p is not None for p in p_values)
    return _Tested(endpoints[0], endpoints[1], tests, max(most, 1))


def _location(
    arm: ArmOutcomes, endpoint: Endpoint, settings: AnalysisSettings
) -> LossLocation | None:
    alpha = 1.0 - settings.confidence
    if not declines(endpoint, alpha):
        return None
    return locate_loss(arm, endpoint.name, first_significant(endpoint, alpha), settings)


def _verdict(
    tested: _Tested, unscored: Floats, margin: float, alpha: float
) -> tuple[ContinuationVerdict, str]:
    """The verdict, the first that applies:

    - ``insufficient_data``: fewer than two sizes with outcomes, or so few passages that no single
      size could become significant.
    - ``collapse``, ``decline``: a size or the trend of the share without collapse, of the score.
    - ``no_decline``: a greater one than the margin is excluded at every size, of both; the smallest
      size scores enough to lose it, and no size has more generations without a score than it.
    - ``undecided``.
    """
    score, intact = tested.score, tested.intact
    passages = max((one.decline.n_passages for one in intact.sizes if one.decline), default=0)
    if sum(one.mean is not None for one in intact.sizes) < 2:
        return "insufficient_data", (
            "Insufficient data: outcomes at two context sizes or more are needed."
        )
    tests = max(tested.tests, 1)
    if 0.5**passages > alpha / tests:
        needed = int(np.ceil(np.log2(tests / alpha)))
        return "insufficient_data", (
            f"Insufficient data: at least {needed} passages at several sizes are needed, and there "
            f"{'is' if passages == 1 else 'are'} {passages}."
        )
    verdict: ContinuationVerdict = "undecided"
    base = next((one.mean for one in score.sizes if one.mean is not None), None)
    excluded = [one.excluded for one in (score, intact)]
    if declines(intact, alpha):
        verdict = "collapse"
    elif declines(score, alpha):
        verdict = "decline"
    elif all(limit is not None and limit <= margin for limit in excluded):
        if base is None or base < ROOM * margin:
            return "undecided", f"Undecided: {floor_sentence(base or 0.0, margin)}"
        worst = int(np.argmax(unscored))
        if unscored[worst] > margin:
            at = score.sizes[worst].context_tokens
            sentence = unscored_sentence(at, float(unscored[worst]), margin)
            return "undecided", f"Undecided: {sentence}"
        verdict = "no_decline"
    return verdict, verdict_reason(verdict, score, intact, margin, alpha)


LEAST_SIZES = 3


def trend_over_sizes(
    means: Floats, sizes: Ints, drawn: ClusterBootstrap, rng: np.random.Generator
) -> Trend | None:
    """The slope over log2 size, passages with their own level; None where it says nothing.

    The statistic is the sum over passages of sum_s (x_s - mean x) y_s, x = log2 size, over the
    sizes that the passage has. Without an effect of the size, a passage's means are exchangeable
    over its sizes. (1 + reached) / (1 + drawn) permutations.

    Args:
        means: of passages by size (P, S), NaN where there is none.
        sizes: context sizes in tokens (S).
    """
    known = ~np.isnan(means)
    if known.any(axis=0).sum() < LEAST_SIZES:
        return None
    x = np.log2(sizes)
    enough = known.sum(axis=1) > 1
    observed, spread, per_passage = 0.0, 0.0, np.full(len(means), np.nan)
    falls = np.zeros(PERMUTATIONS)
    for pattern in np.unique(known[enough], axis=0):
        rows = np.flatnonzero(enough & (known == pattern).all(axis=1))
        centred = x[pattern] - x[pattern].mean()
        y = means[np.ix_(rows, np.flatnonzero(pattern))]
        observed -= float((y @ centred).sum())
        spread += len(rows) * float(centred @ centred)
        per_passage[rows] = y @ centred / (centred @ centred)
        for values in y[np.ptp(y, axis=1) > 0.0]:
            falls -= rng.permuted(np.tile(values, (PERMUTATIONS, 1)), axis=1) @ centred
    if spread == 0.0 or np.ptp(falls) < 1e-12:
        return None
    low, high = drawn.interval(per_passage)
    slope = -observed / spread
    return Trend(
        slope=slope,
        ci_low=None if low is None else min(low, slope),
        ci_high=None if high is None else max(high, slope),
        p_value=float((1 + (falls >= observed - 1e-9).sum()) / (1 + PERMUTATIONS)),
        p_holm=None,
    )
