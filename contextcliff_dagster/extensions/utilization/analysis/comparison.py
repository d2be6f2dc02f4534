"""Comparison of two formats: differences with intervals and a band, divergence, verdict."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from contextcliff_dagster.analysis.contrast import exchanged_sums, sign_flip_p_value, units_needed
from contextcliff_dagster.analysis.statistics.falling_curve import draw_curves, falling_posterior
from contextcliff_dagster.analysis.statistics.intervals import (
    Crossing,
    band_quantile,
    crossing_of,
    design_effect,
    newcombe_limits,
    score_correlation,
    shrunk_correlation,
)
from contextcliff_dagster.analysis.statistics.rank_tests import holm
from contextcliff_dagster.contracts.results.json_form import nulls
from contextcliff_dagster.extensions.utilization.analysis.wording import (
    divergence_sentence,
    format_name,
    shown_direction,
)
from contextcliff_dagster.extensions.utilization.rendering.sentences import FORMATS, Format
from contextcliff_dagster.extensions.utilization.results import (
    DifferenceTest,
    Divergence,
    DivergenceStatus,
    FormatVerdict,
    KindDifference,
    McNemar,
    PairedT,
    ScaleDifference,
    ScopeComparison,
    SeedsNeeded,
)

if TYPE_CHECKING:
    from contextcliff_dagster.analysis.records import AnalysisSettings
    from contextcliff_dagster.contracts.arrays import Floats
    from contextcliff_dagster.extensions.utilization.analysis.answers import Matched, Question, Side


_HALVINGS = 50


@dataclass(frozen=True, slots=True)
class Likeness:
    """Correlation within a document; ``assumed`` if it was not estimated.

    ``difference`` refers to differences of scores, ``a`` and ``b`` to the scores of each side.
    """

    difference: float
    a: float
    b: float
    assumed: bool


def likeness_of(matched: Matched) -> Likeness:
    """Return the correlations within documents of ``matched``, pooled over strata."""
    sides = matched.a, matched.b
    a, b = (score_correlation(side.document, side.score, side.stratum) for side in sides)
    if matched.paired:
        change = matched.a.score - matched.b.score
        differ = float(np.abs(change).sum())
        pooled = shrunk_correlation(matched.a.document, change, matched.a.stratum, differ)
    else:
        pooled = max(a[0], b[0]), a[1] or b[1]
    return Likeness(pooled[0], a[0], b[0], assumed=pooled[1])


def difference_limits(matched: Matched, likeness: Likeness, z: float) -> tuple[float, float]:
    """Return the lower and upper limit of the difference at ``z`` standard errors.

    The limits enclose the observed difference; without an answer they are (-1, 1). Paired data use
    Tango's score statistic (1998, Statistics in Medicine 17, 891-908), unpaired data Newcombe's
    square-and-add of Wilson intervals (1998, Statistics in Medicine 17, 873-890).
    """
    if not len(matched.a.score) or not len(matched.b.score):
        return -1.0, 1.0
    if not matched.paired:
        of_a, of_b = _effective(matched, likeness)
        return newcombe_limits(of_a, of_b, z)
    only_a, only_b, n = _discordant(matched, likeness)
    observed = (only_a - only_b) / n

    def limit(end: float) -> float:
        inside, outside = observed, end
        for _ in range(_HALVINGS):
            middle = 0.5 * (inside + outside)
            if abs(tango_z(only_a, only_b, n, middle)) < z:
                inside = middle
            else:
                outside = middle
        return outside

    return limit(-1.0), limit(1.0)


def tango_z(only_a: float, only_b: float, n: float, difference: float) -> float:
    """Return Tango's statistic of ``n`` pairs; one side alone is right in ``only_a``, ``only_b``.

    >>> round(tango_z(0.0, 0.0, 40.0, 0.1), 3)
    -2.108
    """
    linear = -only_a - only_b + (2.0 * n - only_a + only_b) * difference
    root = math.sqrt(max(linear**2 + 8.0 * n * only_b * difference * (1.0 - difference), 0.0))
    of_b = (root - linear) / (4.0 * n)
    variance = n * (2.0 * of_b + difference * (1.0 - difference))
    excess = only_a - only_b - n * difference
    return 0.0 if abs(excess) < 1e-9 else excess / math.sqrt(max(variance, 1e-12))


def _discordant(matched: Matched, likeness: Likeness) -> tuple[float, float, float]:
    """Return pairs right only in a, only in b, and all pairs, each over the design effect."""
    change = matched.a.score - matched.b.score
    worth = design_effect(np.bincount(matched.a.document), likeness.difference)
    only_a, only_b = float(change.clip(0).sum()), float((-change).clip(0).sum())
    return only_a / worth, only_b / worth, len(change) / worth


def _effective(matched: Matched, likeness: Likeness) -> list[tuple[float, float]]:
    """Return the share of right answers and the effective number of questions of each side."""
    sides: list[tuple[Side, float]] = [(matched.a, likeness.a), (matched.b, likeness.b)]
    return [
        (
            float(side.score.mean()),
            len(side.score) / design_effect(np.bincount(side.document), correlation),
        )
        for side, correlation in sides
    ]


PERMUTATIONS = 4_999


@dataclass(frozen=True, slots=True)
class Estimate:
    """Two means, their difference with a score interval, and a permutation test."""

    mean_a: float
    mean_b: float
    difference: float
    ci_low: float
    ci_high: float
    p_value: float | None
    p_exact: bool


def estimate_difference(
    matched: Matched, likeness: Likeness, settings: AnalysisSettings, *key: int
) -> Estimate | None:
    """Return the difference over all questions of ``matched``; None if a side has no answer.

    All questions have equal weight; whole documents are permuted within their strata. The interval
    comes from `difference_limits`.

    Args:
        likeness: correlations pooled over all compared scales.
        key: name of the random stream, used with the seed of ``settings``; if paired, it does not
            depend on the order of the sides.
    """
    a, b = matched.a, matched.b
    if not len(a.score) or not len(b.score):
        return None
    rng = np.random.default_rng((settings.seed, 18, *key))
    p_value: float | None
    if matched.paired:
        change = a.by_document()[1] - b.by_document()[1]
        p_value, exact = sign_flip_p_value(change, PERMUTATIONS, rng)
    else:
        p_value, exact = exchange_p_value(a, b, PERMUTATIONS, rng), False
    mean_a, mean_b = float(a.score.mean()), float(b.score.mean())
    difference = mean_a - mean_b
    low, high = difference_limits(matched, likeness, band_quantile(settings.confidence, 1))
    return Estimate(
        mean_a,
        mean_b,
        difference,
        min(low, difference),
        max(high, difference),
        p_value,
        exact,
    )


def difference_test(
    matched: Matched,
    likeness: Likeness,
    z: float,
    dropped: int,
    settings: AnalysisSettings,
    *key: int,
) -> DifferenceTest:
    """Return the difference over all questions of ``matched``, with all its tests.

    Args:
        z: quantile of the simultaneous band (`band_quantile`).
        dropped: number of excluded questions.
        key: see `estimate_difference`.
    """
    estimate = estimate_difference(matched, likeness, settings, *key)
    if estimate is None:
        return nulls(DifferenceTest, n=0, n_documents=0, dropped=dropped, p_exact=False)
    a, b, paired = matched.a, matched.b, matched.paired
    difference = estimate.difference
    low, high = difference_limits(matched, likeness, z)
    documents = min(int(side.document.max()) + 1 for side in (a, b))
    binary = paired and bool(np.isin([a.score, b.score], (0.0, 1.0)).all())
    n_a, s_a, _ = a.by_document()
    return DifferenceTest(
        n=min(len(a.score), len(b.score)),
        n_documents=documents,
        dropped=dropped,
        **asdict(estimate),
        band_low=min(low, difference),
        band_high=max(high, difference),
        only_a=int((a.score > b.score).sum()) if binary else None,
        only_b=int((b.score > a.score).sum()) if binary else None,
        p_holm=None,
        mcnemar=mcnemar_test(matched) if paired else None,
        t_test=paired_t_test((s_a - b.by_document()[1]) / n_a) if paired else None,
    )


ASSUMES = (
    "The t-test assumes normal differences of document means with equal variance; few documents "
    "with 0/1 answers meet this only roughly, so the exact tests decide."
)


def exchange_p_value(
    one: Side, other: Side, permutations: int, rng: np.random.Generator
) -> float | None:
    """Return the two-sided p-value of exchanging documents between sides within strata.

    The statistic sums, over strata, how far the first side's documents score above the stratum's
    mean. It uses ``permutations`` drawn exchanges plus the observed one. None if no stratum has
    documents of both sides.
    """
    (n_a, s_a, of_a), (n_b, s_b, of_b) = one.by_document(), other.by_document()
    shared_strata = np.intersect1d(of_a, of_b)
    if not len(shared_strata):
        return None
    sums = np.zeros(1 + permutations)
    for stratum in shared_strata:
        in_a, in_b = of_a == stratum, of_b == stratum
        sides = (n_a[in_a], s_a[in_a]), (n_b[in_b], s_b[in_b])
        sums += exchanged_sums(*sides, permutations, rng)
    return float((np.abs(sums) >= abs(sums[0]) - 1e-9).mean())


def mcnemar_test(matched: Matched) -> McNemar | None:
    """Return the exact test on one question per document; None if a score is not 0 or 1.

    The question's index is the seed modulo the number of questions that both sides answered, in
    order of their numbers, so that question kinds take turns regardless of outcomes.
    """
    a, b = matched.a, matched.b
    order = np.lexsort((a.question, a.document))
    document = a.document[order]
    first = np.flatnonzero(np.diff(document, prepend=-1))
    count = np.diff(first, append=len(document))
    chosen = order[first + a.seed[order][first] % count]
    right_a, right_b = a.score[chosen], b.score[chosen]
    if not len(chosen) or not np.isin([right_a, right_b], (0.0, 1.0)).all():
        return None
    only_a, only_b = int((right_a > right_b).sum()), int((right_b > right_a).sum())
    return McNemar(
        n=len(chosen), only_a=only_a, only_b=only_b, p_value=binomial_p_value(only_a, only_b)
    )


def binomial_p_value(one: int, other: int) -> float:
    """Return the two-sided p-value of two counts at even chances: twice the smaller tail.

    >>> binomial_p_value(0, 5)
    0.0625
    """
    from scipy.special import bdtr

    return min(2.0 * float(bdtr(min(one, other), one + other, 0.5)), 1.0)


def paired_t_test(change: Floats) -> PairedT | None:
    """Return Student's test of the documents' mean differences (D); None for one document."""
    from scipy.special import stdtr

    if len(change) < 2:
        return None
    degrees, spread = len(change) - 1, float(change.std(ddof=1))
    if spread < 1e-12:
        return PairedT(t=None, degrees=degrees, p_value=None, assumes=ASSUMES)
    t = float(change.mean()) / (spread / len(change) ** 0.5)
    p_value = min(2.0 * float(stdtr(degrees, -abs(t))), 1.0)
    return PairedT(t=t, degrees=degrees, p_value=p_value, assumes=ASSUMES)


_DRAWS = 2_000
TAIL = 1.0
"""Share of the error rate beyond each end of the interval. With rounding outwards to scales, the
intervals of planted readers covered the truth in .955 to 1.000 of data sets."""


def first_crossing(
    matched: Matched,
    likeness: Likeness,
    scales: Sequence[int],
    margin: float,
    confidence: float,
    seeds: tuple[int, int],
) -> Crossing:
    """Return the first length at which ``a`` scores more than ``margin`` above ``b``.

    Args:
        scales: tokens of at least two ascending scales at which both formats have answers.
        seeds: two different seeds, for the draws of ``a`` and of ``b``.
    """
    drawn = _draws(matched.a, likeness.a, len(scales), seeds[0])
    drawn -= _draws(matched.b, likeness.b, len(scales), seeds[1])
    return crossing_of(drawn, scales, margin, TAIL * (1.0 - confidence))


def _draws(side: Side, correlation: float, scales: int, seed: int) -> Floats:
    """Return posterior draws of the mean score at each scale (draws, scales)."""
    n = np.bincount(side.scale, minlength=scales).astype(np.float64)
    s: Floats = np.bincount(side.scale, weights=side.score, minlength=scales).astype(np.float64)
    worth = np.ones(scales)
    for i in range(scales):
        of_document = np.unique(side.document[side.scale == i], return_counts=True)[1]
        worth[i] = design_effect(of_document, correlation)
    # Scales weigh alike, so that what is likely does not depend on how many answers each has.
    posterior = falling_posterior(n, s, worth, 1, np.full(scales, 1.0 / scales))
    base, weights = draw_curves(posterior, _DRAWS, np.random.default_rng(seed))
    curves: Floats = base[:, None] * np.concatenate([np.ones((_DRAWS, 1)), weights], axis=1)
    return curves


def locate_divergence(
    matched: Matched,
    likeness: Likeness,
    bands: Sequence[tuple[float | None, float | None]],
    answered: Sequence[int],
    asked: Question,
) -> Divergence:
    """Return where the two formats of ``asked`` diverge, if the band shows that they do.

    Args:
        bands: limits of the simultaneous band at each scale of ``asked``.
        answered: scales at which both formats have answers; ``matched`` has only these.
    """
    margin = asked.margin
    place = np.full(len(asked.scales), -1)
    place[list(answered)] = np.arange(len(answered))
    sides = [replace(side, scale=place[side.scale]) for side in (matched.a, matched.b)]
    scales = [asked.scales[i].tokens for i in answered]
    seeds = [asked.settings.seed * len(FORMATS) + FORMATS.index(f) for f in (asked.a, asked.b)]

    def crossing(first: int) -> Crossing:
        if len(scales) < 2:
            return Crossing(None, None, None)
        second = 1 - first
        swapped_sides = replace(matched, a=sides[first], b=sides[second])
        same = replace(likeness, a=likeness.b, b=likeness.a) if first else likeness
        ends = seeds[first], seeds[second]
        return first_crossing(swapped_sides, same, scales, margin, asked.settings.confidence, ends)

    status: DivergenceStatus = "not_parted"
    better, shown_at = None, None
    for i in answered:
        low, high = bands[i]
        if (low is not None and low > margin) or (high is not None and high < -margin):
            better = asked.a if low is not None and low > margin else asked.b
            shown_at = asked.scales[i].tokens
            break
    if better is None:
        # Either format may part from the other later: the earlier limit holds for both.
        lows = [crossing(first).low for first in (0, 1)]
        earliest = None if None in lows else min(low for low in lows if low is not None)
        crossing_point = Crossing(None, earliest, None)
    elif shown_at == scales[0]:
        status, crossing_point = "at_smallest", Crossing(None, None, shown_at)
    else:
        status, crossing_point = "parted", crossing(0 if better == asked.a else 1)
    result = Divergence(
        status=status,
        better=better,
        tokens=crossing_point.tokens,
        low_tokens=crossing_point.low,
        high_tokens=crossing_point.high,
        shown_at_tokens=shown_at,
        sentence="",
    )
    largest = scales[-1] if scales else None
    last = largest == asked.scales[-1].tokens
    sentence = divergence_sentence(result, asked.a, asked.b, margin, largest, last=last)
    return replace(result, sentence=sentence)


def compare_scope(matched: Matched, asked: Question) -> ScopeComparison:
    """Compare two formats at each scale of ``asked`` and over all scales."""
    settings = asked.settings
    likeness = likeness_of(matched)
    answered = [
        i
        for i in range(len(asked.scales))
        if (matched.a.scale == i).any() and (matched.b.scale == i).any()
    ]
    sample = matched.where(np.isin(matched.a.scale, answered), np.isin(matched.b.scale, answered))
    members = len(answered) + (len(answered) > 1)
    z = band_quantile(settings.confidence, max(members, 1))
    overall = difference_test(
        sample, likeness, z, int(matched.dropped.sum()), settings, *asked.key, 0
    )
    tests = [
        difference_test(
            sample.at_scale(i), likeness, z, int(matched.dropped[i]), settings, *asked.key, 1 + i
        )
        for i in range(len(asked.scales))
    ]
    adjusted = holm([test.p_value for test in tests])
    tests = [
        replace(test, p_holm=p, not_tested=_not_tested(test, matched, asked, i))
        for i, (test, p) in enumerate(zip(tests, adjusted, strict=True))
    ]
    bands = [test for test in tests if test.n]
    reach = [max(abs(t.band_low or 0.0), abs(t.band_high or 0.0)) for t in bands]
    excluded = max(reach) if reach else None
    return ScopeComparison(
        benchmark=asked.benchmark,
        correlation=likeness.difference,
        correlation_assumed=likeness.assumed,
        overall=overall,
        scales=[
            ScaleDifference(
                scale=scale.label,
                scale_tokens=scale.tokens,
                tokens_a=_mean_tokens(matched.a, i),
                tokens_b=_mean_tokens(matched.b, i),
                test=test,
            )
            for i, (scale, test) in enumerate(zip(asked.scales, tests, strict=True))
        ],
        divergence=locate_divergence(
            sample, likeness, [(t.band_low, t.band_high) for t in tests], answered, asked
        ),
        equivalent=excluded is not None and excluded <= asked.margin,
        excluded=excluded,
        kinds=_by_kind(sample, likeness, asked),
        seeds_needed=seeds_needed(
            sample, likeness, _noise(sample, tests), max(members, 1), settings.confidence
        ),
    )


def _noise(matched: Matched, tests: Sequence[DifferenceTest]) -> float:
    """Return the mean share of differing pairs, minus the difference at scales that show one."""
    if not matched.paired:
        return 0.0
    shares = []
    for i, test in enumerate(tests):
        if test.n and test.difference is not None:
            inside = matched.a.scale == i
            differ = float(np.abs(matched.a.score - matched.b.score)[inside].mean())
            shown = (test.band_low or 0.0) > 0.0 or (test.band_high or 0.0) < 0.0
            shares.append(max(differ - abs(test.difference), 0.0) if shown else differ)
    return float(np.mean(shares)) if shares else 0.0


def _mean_tokens(side: Side, scale: int) -> int | None:
    tokens = side.tokens[side.scale == scale]
    return round(float(tokens.mean())) if len(tokens) else None


def _not_tested(test: DifferenceTest, matched: Matched, asked: Question, scale: int) -> str | None:
    if test.n:
        return None if matched.paired else "Unpaired: paired tests do not apply."
    missing = [
        format_name(name)
        for name, side in ((asked.a, matched.a), (asked.b, matched.b))
        if not (side.scale == scale).any()
    ]
    label = asked.scales[scale].label
    if matched.paired:
        return f"At {label} no question has an answer in both formats."
    return f"At {label} there is no answer as {' or '.join(missing)}."


def _by_kind(matched: Matched, likeness: Likeness, asked: Question) -> list[KindDifference]:
    kinds = [kind for kind in np.unique(matched.a.kind).tolist() if kind]
    rows = []
    for number, kind in enumerate(kinds):
        inside = matched.where(matched.a.kind == kind, matched.b.kind == kind)
        estimate = estimate_difference(inside, likeness, asked.settings, *asked.key, 1000 + number)
        if estimate is None:
            continue
        rows.append(
            KindDifference(
                question_kind=kind,
                n=min(len(inside.a.score), len(inside.b.score)),
                **{name: value for name, value in asdict(estimate).items() if name != "p_exact"},
                p_holm=None,
            )
        )
    adjusted = holm([row.p_value for row in rows])
    return [replace(row, p_holm=p) for row, p in zip(rows, adjusted, strict=True)]


POWER = 0.8
DIFFERENCES = (0.1, 0.2)


def seeds_needed(
    matched: Matched, likeness: Likeness, noise: float, members: int, confidence: float
) -> list[SeedsNeeded]:
    """Return the documents per scale that show each of `DIFFERENCES` with power .8, two-sided.

    Uses `units_needed`; a document's mean difference over m questions has the variance
    [1 + (m - 1) rho] v / m. If paired, v = p - d^2, where p = ``noise`` + d is the share of
    discordant pairs; if unpaired, v is the sum of both sides' variances.

    Args:
        noise: share of pairs that differ if the formats are equal.
        members: comparisons in the simultaneous band, which share the error rate.
    """
    a, b = matched.a, matched.b
    rows = []
    for difference in DIFFERENCES:
        if not len(a.score) or not len(b.score):
            rows.append(nulls(SeedsNeeded, difference=difference))
            continue
        questions = len(a.score) / (int(a.document.max()) + 1)
        discordance = None
        variance = float(a.score.var() + b.score.var())
        if matched.paired:
            discordance = min(noise + difference, 1.0)
            variance = discordance - difference**2
        variance *= (1.0 + (questions - 1.0) * likeness.difference) / questions
        one, every = (
            units_needed(difference, variance, (1.0 - confidence) / tests, POWER)
            for tests in (1, members)
        )
        rows.append(
            SeedsNeeded(
                difference=difference,
                one_scale=one,
                all_scales=every,
                discordance=discordance,
                correlation=likeness.difference,
                questions=questions,
            )
        )
    return rows


def verdict_of(
    pooled: ScopeComparison,
    benchmarks: Sequence[ScopeComparison],
    a: Format,
    b: Format,
    *,
    floor: bool = False,
) -> tuple[FormatVerdict, Format | None]:
    """Return the verdict and the better format if there is one. The first match applies:

    - ``task_dependent``: the bands of two benchmarks exclude 0 in opposite directions. Each band
      errs in either direction with half the error rate. If at most three benchmarks are truly equal
      or of one sign, this verdict is wrong with at most the error rate.
    - ``floor``: both formats start at the floor (``floor``, all benchmarks pooled), and no band
      excludes 0.
    - ``no_difference``: the pooled band lies within the margin at every compared scale (two
      one-sided tests at each, Schuirmann 1987), and no benchmark's band leaves the margin.
    - one format is better: the pooled band excludes 0 at a scale or for the mean over scales, and
      never in the other direction.
    - ``undecided``: none of the above.
    """
    ways = {shown_direction(scope) for scope in benchmarks}
    if {1, -1} <= ways:
        return "task_dependent", None
    if floor and not ways - {0} and not shown_direction(pooled):
        return "floor", None
    diverges = any(scope.divergence.status != "not_parted" for scope in benchmarks)
    if pooled.equivalent and not diverges:
        return "no_difference", None
    way = shown_direction(pooled)
    if way not in (1, -1):
        return "undecided", None
    better = a if way == 1 else b
    if "prose" not in (a, b):
        return ("first_better" if way == 1 else "second_better"), better
    return ("prose_better" if better == "prose" else "structure_better"), better
