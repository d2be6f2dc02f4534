"""A threshold of entropy for the degraded region: is an answer wrong where entropy crosses it?

The region is one of lengths, so a threshold that only marks long documents would be right about it
and say nothing new. It is therefore judged on answers: fitted on half of the documents, its
balanced error (the mean of the share of wrong answers missed and of right answers flagged) is
measured on the other half and compared with that of a length fitted on the same half. Supported is
a threshold whose error is below that of chance, .5, by its upper limit, and below that of length by
the lower limit of the difference.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Literal

import numpy as np

from contextcliff_dagster.analysis.statistics.proportions import (
    band_quantile,
    design_effect,
    score_correlation,
    wilson_limits,
)
from contextcliff_dagster.contracts.results.attention import BalancedError, EntropyThreshold
from contextcliff_dagster.contracts.results.fields import nulls

if TYPE_CHECKING:
    from contextcliff_dagster.analysis.attention.matched import MatchedAttention
    from contextcliff_dagster.analysis.records.settings import AnalysisSettings
    from contextcliff_dagster.contracts.arrays import Bools, Floats, Ints

LEAST_OF_A_CLASS = 10
"""Right answers, and wrong ones, that either half needs."""
CHANCE = 0.5


@dataclass(frozen=True, slots=True)
class Cut:
    """A threshold and the side of it that is flagged as wrong."""

    value: float
    side: Literal["above", "below"]

    def flags(self, values: Floats) -> Bools:
        """Whether each of ``values`` is flagged."""
        return values > self.value if self.side == "above" else values < self.value


def fit_threshold(matched: MatchedAttention, settings: AnalysisSettings) -> EntropyThreshold:
    """Fit on one half of the documents, measure on the other."""
    fit, wrong = first_half(matched), matched.wrong
    sizes = {"n_fit": int(fit.sum()), "n_test": int((~fit).sum())}
    classes = [int((wrong[half] == kind).sum()) for half in (fit, ~fit) for kind in (True, False)]
    if min(classes) < LEAST_OF_A_CLASS:
        why = (
            f"the halves have {classes[0]} and {classes[2]} wrong answers and {classes[1]} and "
            f"{classes[3]} right ones, and it needs {LEAST_OF_A_CLASS} of each"
        )
        return nulls(EntropyThreshold, supported=False, refused_because=why, **sizes)
    entropy = matched.examples["entropy"].to_numpy(np.float64)
    length = matched.length_tokens.astype(np.float64)
    cut = best_cut(entropy[fit], wrong[fit])
    by_length = best_cut(length[fit], wrong[fit])
    test, document = wrong[~fit], matched.document[~fit]
    lost = cut.flags(entropy[~fit]) != test
    lost_by_length = by_length.flags(length[~fit]) != test
    error = balanced_error(lost, test, document, settings.confidence)
    length_error = balanced_error(lost_by_length, test, document, settings.confidence)
    gain = _gain(lost_by_length.astype(float) - lost, test, document, settings.confidence)
    return EntropyThreshold(
        supported=error.ci_high < CHANCE and gain[1] > 0,
        value=cut.value,
        side=cut.side,
        error=error,
        length_error=length_error,
        gain=gain[0],
        gain_ci_low=gain[1],
        gain_ci_high=gain[2],
        refused_because=None,
        **sizes,
    )


def first_half(matched: MatchedAttention) -> Bools:
    """Whether an example's document is of the half that is fitted on, by a hash of its name."""
    frame = matched.examples
    documents = frame["document_id"].astype(str)
    names = documents.where(documents != "", frame["example_id"].astype(str))
    halves = {name: sha256(f"threshold:{name}".encode()).digest()[0] % 2 for name in set(names)}
    return np.array([halves[name] == 0 for name in names], dtype=bool)


def best_cut(values: Floats, wrong: Bools) -> Cut:
    """The cut of least balanced error, halfway between two values; the first of several as good."""
    order = np.argsort(values, kind="stable")
    ranked, bad = values[order], wrong[order].astype(np.float64)
    ends = np.flatnonzero(np.append(np.diff(ranked) > 0, True))
    missed = np.cumsum(bad)[ends] / bad.sum()
    spared = np.cumsum(1 - bad)[ends] / (1 - bad).sum()
    error = 0.5 * (missed + 1 - spared)  # flagged: all above
    above, below = int(np.argmin(error)), int(np.argmax(error))
    place, side = (above, "above") if error[above] <= 1 - error[below] else (below, "below")
    at = ends[place]
    following = ranked[min(at + 1, len(ranked) - 1)]
    middle = 0.5 * (ranked[at] + following)
    return Cut(float(middle), "above" if side == "above" else "below")


def balanced_error(lost: Bools, wrong: Bools, document: Ints, confidence: float) -> BalancedError:
    """Of judgements ``lost`` (N); its interval squares and adds those of both shares, Wilson's.

    Questions on one document count as fewer, by the design effect (`statistics.proportions`); the
    sum of limits is that of Newcombe (1998, Statistics in Medicine 17, 873-890).
    """
    z = band_quantile(confidence, 1)
    value = below = above = 0.0
    for kind in (True, False):
        mine = lost[wrong == kind].astype(np.float64)
        units = document[wrong == kind]
        rho, _ = score_correlation(units, mine, np.zeros(len(mine), np.int64))
        _, sizes = np.unique(units, return_counts=True)
        n = len(mine) / design_effect(sizes, rho)
        share = float(mine.mean())
        low, high = wilson_limits(share, n, z)
        value += 0.5 * share
        below += (share - low) ** 2
        above += (high - share) ** 2
    low, high = value - 0.5 * math.sqrt(below), value + 0.5 * math.sqrt(above)
    return BalancedError(value=value, ci_low=max(low, 0.0), ci_high=min(high, 1.0))


def _gain(
    saved: Floats, wrong: Bools, document: Ints, confidence: float
) -> tuple[float, float, float]:
    """Mean over both classes of ``saved`` (N), Student's interval over documents."""
    from scipy.special import stdtrit

    means = {kind: float(saved[wrong == kind].mean()) for kind in (True, False)}
    parts = np.zeros(len(saved))
    for kind, mean in means.items():
        mine = wrong == kind
        parts[mine] = 0.5 * (saved[mine] - mean) / mine.sum()
    _, own = np.unique(document, return_inverse=True)
    sums = np.bincount(own, weights=parts)
    error = math.sqrt(float(sums @ sums) * len(sums) / max(len(sums) - 1, 1))
    half = float(stdtrit(max(len(sums) - 1, 1), 0.5 + 0.5 * confidence)) * error
    value = 0.5 * (means[True] + means[False])
    return value, max(value - half, -1.0), min(value + half, 1.0)
