"""Analysis of one arm over context sizes: declines, location of the loss, verdict, plan."""

from __future__ import annotations

from dataclasses import replace
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from contextcliff_dagster.analysis.contrast import ClusterMeans, sign_flip_p_value, units_needed
from contextcliff_dagster.analysis.statistics.falling_curve import draw_curves, falling_posterior
from contextcliff_dagster.analysis.statistics.intervals import (
    band_quantile,
    crossing_of,
    design_effect,
    newcombe_limits,
    score_correlation,
    wilson_limits,
)
from contextcliff_dagster.analysis.statistics.rank_tests import holm
from contextcliff_dagster.contracts.results.json_form import nulls
from contextcliff_dagster.extensions.continuation.analysis.outcomes import mean_known
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
    Components,
    ContinuationVerdict,
    Decline,
    Endpoint,
    EndpointName,
    LossLocation,
    Plan,
    SizeOutcome,
    Trend,
)

if TYPE_CHECKING:
    from contextcliff_dagster.analysis.records import AnalysisSettings
    from contextcliff_dagster.contracts.arrays import Floats, Ints
    from contextcliff_dagster.extensions.continuation.analysis.outcomes import ArmOutcomes


PERMUTATIONS = 4_999
MOST_ROUNDS = 20
"""Maximum rounds whose means are stored in the result for pictures."""


def size_outcomes(
    arm: ArmOutcomes, endpoint: EndpointName, settings: AnalysisSettings
) -> list[tuple[SizeOutcome, float | None]]:
    """Return the means and declines of ``endpoint``, with unadjusted p-values, by size (S).

    Next to each stands the smallest p-value that its test can reach.

    If size has no effect, either sign of a passage's difference is equally likely. Passages that
    lack an outcome at either of two sizes are excluded from their comparison.
    """
    means = arm.means(endpoint)
    base = baseline_size(means)
    sizes: list[tuple[SizeOutcome, float | None]] = []
    for size, tokens in enumerate(arm.sizes):
        mask = ~np.isnan(means[:, size])
        if endpoint == "score":
            low, high = mean_interval(means[:, size], arm.clusters(), settings.confidence)
        else:
            low, high = share_limits(arm.intact[:, size], band_quantile(settings.confidence, 1))
        decline: Decline | None = None
        least: float | None = None
        if base is not None and size > base:
            decline, least = _decline(arm, endpoint, (base, size), settings)
        outcome = SizeOutcome(
            context_tokens=int(tokens),
            n=int((~np.isnan(arm.outcomes(endpoint)[:, size])).sum()),
            n_passages=int(mask.sum()),
            mean=float(means[mask, size].mean()) if mask.any() else None,
            ci_low=None if low is None else max(low, 0.0),
            ci_high=None if high is None else min(high, 1.0),
            decline=decline,
            rounds=round_means(arm.outcomes(endpoint)[:, size]),
        )
        sizes.append((outcome, least))
    return sizes


def round_means(values: Floats) -> list[float | None]:
    """Return the means over passages of ``values`` (P, R) for up to `MOST_ROUNDS` rounds."""
    means = mean_known(values[:, :MOST_ROUNDS].T)
    return [None if np.isnan(mean) else float(mean) for mean in means]


def mean_interval(
    values: Floats, clusters: Ints, confidence: float
) -> tuple[float, float] | tuple[None, None]:
    """Return the interval for the mean of passage values (P); None twice with a single cluster."""
    means = ClusterMeans.of(values, clusters)
    return means.interval(confidence) if means else (None, None)


def baseline_size(means: Floats) -> int | None:
    """Return the index of the smallest size with outcomes, or None if no size has any."""
    usable = np.flatnonzero((~np.isnan(means)).any(axis=0))
    return int(usable[0]) if len(usable) else None


def _decline(
    arm: ArmOutcomes,
    endpoint: EndpointName,
    pair: tuple[int, int],
    settings: AnalysisSettings,
) -> tuple[Decline, float | None]:
    base, size = pair
    means = arm.means(endpoint)
    change = lost(means, base, size)
    losses = change[~np.isnan(change)]
    if not len(losses):
        reason = (
            f"No passage has outcomes at {arm.sizes[base]:,} and at {arm.sizes[size]:,} tokens."
        )
        return nulls(Decline, n_passages=0, p_exact=False, not_tested=reason), None
    rng = np.random.default_rng((settings.seed, 20, size, int(endpoint == "intact")))
    p_value, exact = sign_flip_p_value(losses, PERMUTATIONS, rng, one_sided=True)
    clustered = ClusterMeans.of(change, arm.clusters())
    low, high = clustered.interval(settings.confidence) if clustered else (None, None)
    upper = None
    if endpoint == "score" and clustered:
        at_base = float(means[~np.isnan(change), base].mean())
        upper = clustered.upper(settings.confidence, at_base)
    elif endpoint == "intact":
        sides = arm.intact[:, base], arm.intact[:, size]
        upper = intact_upper(*sides, settings.confidence)
        if not np.ptp(losses):
            # Passages that agree would have the width of single outcomes.
            low, high = intact_limits(*sides, band_quantile(settings.confidence, 1)) or (low, high)
    decline = Decline(
        n_passages=len(losses),
        decline=float(losses.mean()),
        ci_low=low,
        ci_high=high,
        p_value=p_value,
        p_exact=exact,
        p_holm=None,
        upper=upper,
    )
    return decline, 0.5 ** int((losses != 0.0).sum())


def lost(means: Floats, base: int, size: int) -> Floats:
    """Return each passage's mean at ``base`` less that at ``size`` (P), without rounding errors."""
    change = means[:, base] - means[:, size]
    return np.where(np.abs(change) < 1e-12, 0.0, change)


_DRAWS = 4_000
TAIL = 0.5
"""Fraction of the error rate beyond each end of the interval (benchmarks/continuation.py)."""
_LEAST_LOSS = 0.03
"""Loss, as a fraction of the baseline, below which a sampled curve has no loss to locate."""
_BORROWED = 8.0
"""Weight, in passages, of the variance pooled over sizes when estimating that of each size."""
_LEAST, _MOST = 0.01, 0.99
_MOST_WORTH = 10.0
"""Maximum 0/1 outcomes that one generation's score counts as: the dispersion is at least .1."""


def locate_loss(
    arm: ArmOutcomes,
    endpoint: EndpointName,
    shown_at: int | None,
    settings: AnalysisSettings,
) -> LossLocation | None:
    """Return the size at which half of the final loss has occurred, or None without a loss.

    ``shown_at``: first size (tokens) whose decline is significant.
    """
    means = arm.means(endpoint)
    if (base := baseline_size(means)) is None:
        return None
    paired = [s for s in range(base + 1, len(arm.sizes)) if (~np.isnan(lost(means, base, s))).any()]
    if not paired:
        return None
    places = [base, *paired]
    sizes = [int(arm.sizes[s]) for s in places]
    level, worth = _levels(arm, endpoint, places)
    count = len(places)
    posterior = falling_posterior(
        worth, worth * level, np.ones(count), 1, np.full(count, 1.0 / count)
    )
    rng = np.random.default_rng((settings.seed, 21, int(endpoint == "intact")))
    mean, curves = draw_curves(posterior, _DRAWS, rng)
    losing = curves[:, -1] < 1.0 - _LEAST_LOSS
    if not losing.any():
        return None
    fall = 1.0 - np.concatenate([np.ones((int(losing.sum()), 1)), curves[losing]], axis=1)
    crossing = crossing_of(fall, sizes, 0.5 * fall[:, -1], TAIL * (1.0 - settings.confidence))
    return LossLocation(
        tokens=crossing.tokens,
        low_tokens=crossing.low or sizes[0],
        high_tokens=crossing.high or sizes[-1],
        shown_at_tokens=shown_at,
        loss=float((mean[losing] * fall[:, -1]).mean()),
    )


def _levels(arm: ArmOutcomes, endpoint: EndpointName, places: list[int]) -> tuple[Floats, Floats]:
    """Return each place's mean, from paired declines, and the number of outcomes it is worth."""
    means = arm.means(endpoint)
    base = places[0]
    changes = [lost(means, base, s) for s in places[1:]]
    paired = [change[~np.isnan(change)] for change in changes]
    level = np.full(len(places), float(np.nanmean(means[:, base])))
    level[1:] -= [change.mean() for change in paired]
    level = level.clip(_LEAST, _MOST)
    generations = np.array([(~np.isnan(arm.outcomes(endpoint)[:, s])).sum() for s in places])
    if endpoint == "intact":
        return level, generations / _likeness(arm, places)
    spread = np.array([change.var(ddof=1) if len(change) > 1 else np.nan for change in paired])
    pooled = float(np.nanmean(spread)) if not np.isnan(spread).all() else 0.25
    pairs = np.array([len(change) for change in paired], np.float64)
    spread = (pairs * np.nan_to_num(spread, nan=pooled) + _BORROWED * pooled) / (pairs + _BORROWED)
    # Half of a difference's variance comes from the other size, half from the baseline.
    variance = np.concatenate([[0.5 * spread.mean() / pairs.mean()], 0.5 * spread / pairs])
    worth = level * (1.0 - level) / np.maximum(variance, 1e-9)
    return level, np.minimum(worth, _MOST_WORTH * generations)


def _likeness(arm: ArmOutcomes, places: list[int]) -> Floats:
    """Return the design effect, at each size, of rounds of one passage being correlated."""
    outcomes = arm.intact[:, places]
    mask = ~np.isnan(outcomes)
    passage, size, _ = np.nonzero(mask)
    correlation = score_correlation(passage * len(places) + size, outcomes[mask], size)[0]
    rounds = mask.sum(axis=2)
    return np.array([design_effect(rounds[:, i], correlation) for i in range(len(places))])


def intact_upper(first: Floats, other: Floats, confidence: float) -> float | None:
    """Return the upper limit for a decline in the share without collapse, using `intact_limits`.

    >>> whole = np.ones((20, 5))
    >>> round(intact_upper(whole, whole, 0.95), 3)
    0.046
    """
    limits = intact_limits(first, other, NormalDist().inv_cdf(confidence))
    return None if limits is None else float(limits[1])


def intact_limits(first: Floats, other: Floats, z: float) -> tuple[float, float] | None:
    """Return limits for a difference of shares that have some width even without any collapse.

    These are Newcombe's limits, adjusted for the design effect of rounds within passages. Ignoring
    that both sizes have the same passages is conservative.

    Args:
        first, other: 1 or 0 by passage and round, at the smallest size and at another (P, R); NaN
            if missing. Passages that lack either are left out.
        z: normal quantile at either end.
    """
    paired = (~np.isnan(first)).any(axis=1) & (~np.isnan(other)).any(axis=1)
    if not paired.any():
        return None
    one, two = _effective_shares([first[paired], other[paired]])
    return newcombe_limits(one, two, z)


def share_limits(outcomes: Floats, z: float) -> tuple[float, float] | tuple[None, None]:
    """Return Wilson's limits for the share without collapse (P, R), as `intact_limits` adjusts."""
    if np.isnan(outcomes).all():
        return None, None
    low, high = wilson_limits(*_effective_shares([outcomes])[0], z)
    return max(low, 0.0), min(high, 1.0)


def _effective_shares(sides: list[Floats]) -> list[tuple[float, float]]:
    """Return each side's share and effective number of outcomes, given a common correlation."""
    masks = [~np.isnan(side) for side in sides]
    cell = np.concatenate([np.nonzero(mask)[0] + i * len(mask) for i, mask in enumerate(masks)])
    outcome = np.concatenate([side[mask] for side, mask in zip(sides, masks, strict=True)])
    stratum = np.repeat(np.arange(len(sides)), [int(mask.sum()) for mask in masks])
    correlation = score_correlation(cell, outcome, stratum)[0]
    return [
        (float(side[mask].mean()), mask.sum() / design_effect(mask.sum(axis=1), correlation))
        for side, mask in zip(sides, masks, strict=True)
    ]


POWERS = (0.8, 0.9)
MOST_PASSAGES = 2_000


def components_of(arm: ArmOutcomes) -> Components | None:
    """Return the variance components of the scores, or None with fewer than two paired passages.

    The variance of rounds is pooled within passage and size. The interaction of size and passage is
    half the variance of the passages' differences from the smallest size, less the part that is due
    to rounds. With single rounds the two cannot be separated, and ``round`` is null.
    """
    means = arm.means("score")
    if (base := baseline_size(means)) is None:
        return None
    mask = ~np.isnan(arm.score)
    rounds = mask.sum(axis=2)
    degrees = int((rounds - 1).clip(0).sum())
    of_round = None
    if degrees:
        residuals = np.where(mask, arm.score - np.nan_to_num(means)[:, :, None], 0.0)
        of_round = float((residuals**2).sum()) / degrees
    spreads, from_rounds = [], []
    for size in range(base + 1, means.shape[1]):
        change = lost(means, base, size)
        paired = ~np.isnan(change)
        if paired.sum() > 1:
            spreads.append(float(change[paired].var(ddof=1)))
            share = 1.0 / rounds[paired, base] + 1.0 / rounds[paired, size]
            from_rounds.append(float(share.mean()) * (of_round or 0.0))
    if not spreads:
        return None
    within = max(0.5 * float(np.mean(spreads) - np.mean(from_rounds)), 0.0)
    sized = ~np.isnan(means)
    of_passage = np.nanmean(means[sized.any(axis=1)], axis=1)
    mean_rounds = float(rounds[rounds > 0].mean())
    noise = (within + (of_round or 0.0) / mean_rounds) / sized.any(axis=0).sum()
    between = float(of_passage.var(ddof=1)) if len(of_passage) > 1 else 0.0
    return Components(
        passage=float(max(between - noise, 0.0) ** 0.5),
        size_within_passage=within**0.5,
        round=None if of_round is None else of_round**0.5,
        rounds=mean_rounds,
    )


def plan_study(
    components: Components, base: float, margin: float, tests: int, confidence: float
) -> list[Plan]:
    """Return the passages needed to detect a decline of one or two margins with each of `POWERS`.

    Plans have the study's rounds and, if their variance is known, half and twice as many.

    Args:
        base: mean score at the smallest size.
        tests: number of tests in Holm's adjustment, whose first (strictest) step is assumed.
    """
    level = (1.0 - confidence) / tests
    n = max(round(components.rounds), 1)
    rounds = [n] if components.round is None else sorted({max(n // 2, 1), n, 2 * n})
    return [
        Plan(
            decline=decline,
            power=power,
            rounds=count,
            n_passages=passages_needed(components, base, decline, power, count, level),
        )
        for decline in (margin, min(2.0 * margin, 1.0))
        for power in POWERS
        for count in rounds
    ]


def passages_needed(
    components: Components, base: float, decline: float, power: float, rounds: int, level: float
) -> int | None:
    """Return the passages needed to detect ``decline`` at one size, one-sided at ``level``.

    A decline may mean that some generations lose their whole score (a mixture of 0 and baseline
    scores), so the larger of the variances of rounds with and without such losses is used. Return
    None if more than 2,000 passages are needed, or ``base`` is smaller than ``decline``.
    """
    if decline > base:
        return None
    round_variance = (components.round or 0.0) ** 2
    hit = decline / base
    mixed = (1.0 - hit) * round_variance + hit * (1.0 - hit) * base**2
    variance = 2.0 * components.size_within_passage**2
    variance += (round_variance + max(round_variance, mixed)) / rounds
    return units_needed(decline, variance, level, power, two_sided=False, most=MOST_PASSAGES)


ROOM = 2.0
"""Smallest score at the smallest size, in margins, for the absence of a decline to be meaningful.
"""


def analyse_arm(arm: ArmOutcomes, margin: float, settings: AnalysisSettings) -> ArmResult:
    """Return the result of one arm; 1 - confidence is the error rate over all its tests."""
    tested, tests, most = _tests(arm, settings)
    alpha = 1.0 - settings.confidence
    endpoints = [replace(item, location=_location(arm, item, settings)) for item in tested]
    score, intact = endpoints
    verdict, reason = _verdict(score, intact, tests, arm.unscored, margin, alpha)
    components = components_of(arm)
    base = next((item.mean for item in score.sizes if item.mean is not None), None)
    plan = []
    if components is not None and base:
        plan = plan_study(components, base, margin, most, settings.confidence)
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
        tests=tests,
        score=score,
        intact=intact,
        collapses=arm.collapses,
        components=components,
        plan=plan,
    )
    sentences = [location_sentence(item) for item in endpoints]
    if verdict in ("undecided", "insufficient_data"):
        sentences.append(plan_sentence(result, margin))
    return replace(result, sentences=[item for item in sentences if item])


def _tests(arm: ArmOutcomes, settings: AnalysisSettings) -> tuple[list[Endpoint], int, int]:
    """Return score and intact with adjusted p-values, the number of tests, and the number that the
    sizes allow, even of tests that cannot become significant.

    A test that no signs could make significant, because too few passages differ, is left out of
    the family (Tarone 1990, Biometrics 46, 515-522).
    """
    alpha = 1.0 - settings.confidence
    names: tuple[EndpointName, ...] = ("score", "intact")
    p_values: list[float | None] = []
    most = 0
    raw = []
    for name in names:
        outcomes = size_outcomes(arm, name, settings)
        rng = np.random.default_rng((settings.seed, 24, int(name == "intact")))
        trend = trend_over_sizes(
            arm.means(name), arm.sizes, arm.clusters(), rng, settings.confidence
        )
        for row, least in outcomes:
            possible = least is not None and least <= alpha
            p_values.append(row.decline.p_value if row.decline and possible else None)
            most += row.decline is not None
        p_values.append(None if trend is None else trend.p_value)
        most += len(arm.sizes) > 2
        raw.append((name, [row for row, _ in outcomes], trend))
    adjusted = iter(holm(p_values))
    endpoints = []
    for name, sizes, trend in raw:
        rows = []
        for row in sizes:
            p = next(adjusted)
            decline = None if row.decline is None else replace(row.decline, p_holm=p)
            rows.append(replace(row, decline=decline))
        p = next(adjusted)
        uppers = [row.decline.upper for row in rows if row.decline is not None]
        limits = [upper for upper in uppers if upper is not None]
        endpoints.append(
            Endpoint(
                name=name,
                sizes=rows,
                trend=None if trend is None else replace(trend, p_holm=p),
                location=None,
                excluded=max(limits) if limits and len(limits) == len(uppers) else None,
            )
        )
    return endpoints, sum(p is not None for p in p_values), max(most, 1)


def _location(
    arm: ArmOutcomes, endpoint: Endpoint, settings: AnalysisSettings
) -> LossLocation | None:
    alpha = 1.0 - settings.confidence
    if not declines(endpoint, alpha):
        return None
    return locate_loss(arm, endpoint.name, first_significant(endpoint, alpha), settings)


def _verdict(
    score: Endpoint, intact: Endpoint, tests: int, unscored: Floats, margin: float, alpha: float
) -> tuple[ContinuationVerdict, str]:
    """Return the verdict and its reason. The first verdict that applies is chosen:

    - ``insufficient_data``: fewer than two sizes have outcomes, or so few passages that no size
      could become significant.
    - ``collapse``, ``decline``: a size or the trend is significant (share without collapse, score).
    - ``no_decline``: both endpoints rule out a decline above the margin at every size, the smallest
      size scores high enough to show one, and unscored generations do not exceed the margin.
    - ``undecided``: anything else.
    """
    passages = max((item.decline.n_passages for item in intact.sizes if item.decline), default=0)
    if sum(item.mean is not None for item in intact.sizes) < 2:
        return "insufficient_data", (
            "Insufficient data: outcomes at two or more context sizes are needed."
        )
    tests = max(tests, 1)
    if 0.5**passages > alpha / tests:
        needed = int(np.ceil(np.log2(tests / alpha)))
        return "insufficient_data", (
            f"Insufficient data: at least {needed} passages at several sizes are needed, and there "
            f"{'is' if passages == 1 else 'are'} {passages}."
        )
    verdict: ContinuationVerdict = "undecided"
    base = next((item.mean for item in score.sizes if item.mean is not None), None)
    excluded = [item.excluded for item in (score, intact)]
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
    means: Floats, sizes: Ints, clusters: Ints, rng: np.random.Generator, confidence: float
) -> Trend | None:
    """Return the slope over log2 size, with an intercept per passage, or None if undefined.

    The statistic is the sum over passages of sum_s (x_s - mean x) y_s, x = log2 size, over the
    sizes that the passage has. If size has no effect, a passage's means are exchangeable over its
    sizes. The p-value is (1 + reached) / (1 + drawn) permutations.

    Args:
        means: means of passages by size (P, S), NaN if missing.
        sizes: context sizes in tokens (S).
    """
    mask = ~np.isnan(means)
    if mask.any(axis=0).sum() < LEAST_SIZES:
        return None
    x = np.log2(sizes)
    usable = mask.sum(axis=1) > 1
    observed, spread, per_passage = 0.0, 0.0, np.full(len(means), np.nan)
    falls = np.zeros(PERMUTATIONS)
    for pattern in np.unique(mask[usable], axis=0):
        rows = np.flatnonzero(usable & (mask == pattern).all(axis=1))
        centred = x[pattern] - x[pattern].mean()
        y = means[np.ix_(rows, np.flatnonzero(pattern))]
        observed -= float((y @ centred).sum())
        spread += len(rows) * float(centred @ centred)
        per_passage[rows] = y @ centred / (centred @ centred)
        for values in y[np.ptp(y, axis=1) > 0.0]:
            falls -= rng.permuted(np.tile(values, (PERMUTATIONS, 1)), axis=1) @ centred
    if spread == 0.0 or np.ptp(falls) < 1e-12:
        return None
    low, high = mean_interval(per_passage, clusters, confidence)
    slope = -observed / spread
    return Trend(
        slope=slope,
        ci_low=None if low is None else min(low, slope),
        ci_high=None if high is None else max(high, slope),
        p_value=float((1 + (falls >= observed - 1e-9).sum()) / (1 + PERMUTATIONS)),
        p_holm=None,
    )
