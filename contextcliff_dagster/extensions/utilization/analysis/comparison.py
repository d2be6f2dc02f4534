"""A pair of formats on one benchmark or on all: differences by scale, band, divergence, verdict."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from contextcliff_dagster.analysis.statistics.proportions import band_quantile
from contextcliff_dagster.analysis.statistics.sign_flips import holm
from contextcliff_dagster.extensions.utilization.analysis.differences import (
    difference_test,
    estimate_difference,
)
from contextcliff_dagster.extensions.utilization.analysis.divergence import locate_divergence
from contextcliff_dagster.extensions.utilization.analysis.score_intervals import likeness_of
from contextcliff_dagster.extensions.utilization.analysis.wording import (
    format_name,
    shown_direction,
)
from contextcliff_dagster.extensions.utilization.rendering.formats import Format
from contextcliff_dagster.extensions.utilization.results import (
    DifferenceTest,
    FormatVerdict,
    KindDifference,
    ScaleDifference,
    ScopeComparison,
    SeedsNeeded,
)

if TYPE_CHECKING:
    from contextcliff_dagster.extensions.utilization.analysis.asked import Question
    from contextcliff_dagster.extensions.utilization.analysis.matching import Matched, Side
    from contextcliff_dagster.extensions.utilization.analysis.score_intervals import Likeness


def compare_scope(matched: Matched, asked: Question) -> ScopeComparison:
    """Compare two formats at each scale of ``asked``, which ``matched`` numbers, and over all."""
    settings = asked.settings
    likeness = likeness_of(matched)
    answered = [
        i
        for i in range(len(asked.scales))
        if (matched.a.scale == i).any() and (matched.b.scale == i).any()
    ]
    both = matched.where(np.isin(matched.a.scale, answered), np.isin(matched.b.scale, answered))
    members = len(answered) + (len(answered) > 1)
    z = band_quantile(settings.confidence, max(members, 1))
    overall = difference_test(
        both, likeness, z, int(matched.dropped.sum()), settings, *asked.key, 0
    )
    tests = [
        difference_test(
            both.at_scale(i), likeness, z, int(matched.dropped[i]), settings, *asked.key, 1 + i
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
            both, likeness, [(t.band_low, t.band_high) for t in tests], answered, asked
        ),
        equivalent=excluded is not None and excluded <= asked.margin,
        excluded=excluded,
        kinds=_by_kind(both, likeness, asked),
        seeds_needed=seeds_needed(
            both, likeness, _noise(both, tests), max(members, 1), settings.confidence
        ),
    )


def _noise(matched: Matched, tests: Sequence[DifferenceTest]) -> float:
    """Share of pairs that differ, less the difference at scales where one is shown (mean)."""
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
        found = estimate_difference(inside, likeness, asked.settings, *asked.key, 1000 + number)
        if found is None:
            continue
        rows.append(
            KindDifference(
                question_kind=kind,
                n=min(len(inside.a.score), len(inside.b.score)),
                mean_a=found.mean_a,
                mean_b=found.mean_b,
                difference=found.difference,
                ci_low=found.ci_low,
                ci_high=found.ci_high,
                p_value=found.p_value,
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
    """Documents a scale that show each of `DIFFERENCES` with power .8, two-sided.

    D = phi / m * [z_a sqrt(v0) + z_b sqrt(v1)]^2 / d^2, with m questions a document and design
    effect phi = 1 + (m - 1) rho. Paired, v0 is the share of discordant pairs, ``noise`` + d, and
    v1 = v0 - d^2 (Connor 1987, Biometrics 43, 207-211); unpaired, v0 = v1 is the sum of both
    sides' variances.

    Args:
        noise: share of pairs that differ apart from a difference of the formats, which adds to it.
        members: of the simultaneous band, whose z_a is Bonferroni's.
    """
    a, b = matched.a, matched.b
    rows = []
    for difference in DIFFERENCES:
        if not len(a.score) or not len(b.score):
            rows.append(SeedsNeeded(
                difference=difference, one_scale=None, all_scales=None, discordance=None,
                correlation=None, questions=None,
            ))  # fmt: skip
            continue
        questions = len(a.score) / (int(a.document.max()) + 1)
        discordance = None
        variance = float(a.score.var() + b.score.var())
        variances = variance, variance
        if matched.paired:
            discordance = min(noise + difference, 1.0)
            variances = discordance, discordance - difference**2
        worth = 1.0 + (questions - 1.0) * likeness.difference
        rows.append(
            SeedsNeeded(
                difference=difference,
                one_scale=_documents(worth / questions, variances, difference, confidence, 1),
                all_scales=_documents(
                    worth / questions, variances, difference, confidence, members
                ),
                discordance=discordance,
                correlation=likeness.difference,
                questions=questions,
            )
        )
    return rows


def _documents(
    worth: float,
    variances: tuple[float, float],
    difference: float,
    confidence: float,
    members: int,
) -> int:
    normal = NormalDist()
    z_a = normal.inv_cdf(1.0 - 0.5 * (1.0 - confidence) / members)
    reach = z_a * math.sqrt(variances[0]) + normal.inv_cdf(POWER) * math.sqrt(variances[1])
    return max(math.ceil(worth * (reach / difference) ** 2), 2)


def verdict_of(
    pooled: ScopeComparison,
    benchmarks: Sequence[ScopeComparison],
    a: Format,
    b: Format,
    *,
    floor: bool = False,
) -> tuple[FormatVerdict, Format | None]:
    """The verdict that all bands allow, and the better format where it names one; the first of:

    - ``task_dependent``: two benchmarks whose bands exclude 0 in opposite directions. Each band
      errs in either direction with half the error rate, so where at most three benchmarks are
      truly alike or of one sign this is wrong with at most the error rate.
    - ``floor``: where ``floor`` (both formats begin there, all benchmarks pooled), and no band
      excludes 0.
    - ``no_difference``: the pooled band lies within the margin at every scale compared (two
      one-sided tests at each, Schuirmann 1987), and no benchmark's band leaves it.
    - one is better: the pooled band excludes 0 at a scale or for the mean over scales, and nowhere
      in the other direction.
    - ``undecided``.
    """
    ways = {shown_direction(scope) for scope in benchmarks}
    if {1, -1} <= ways:
        return "task_dependent", None
    if floor and not ways - {0} and not shown_direction(pooled):
        return "floor", None
    parted = any(scope.divergence.status != "not_parted" for scope in benchmarks)
    if pooled.equivalent and not parted:
        return "no_difference", None
    way = shown_direction(pooled)
    if way not in (1, -1):
        return "undecided", None
    better = a if way == 1 else b
    if "prose" not in (a, b):
        return ("first_better" if way == 1 else "second_better"), better
    return ("prose_better" if better == "prose" else "structure_better"), better
