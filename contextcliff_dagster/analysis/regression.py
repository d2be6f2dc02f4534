"""Test of whether a model has become worse than its pinned baseline, with few false alarms a year.

Answers flip: with probability ``flip_rate`` an example gets the opposite result, in the run as well
as in the baseline, which is itself random. Some runs have more flips, so the rate is estimated from
other runs and from the run's own plateau. A loss that flips do not explain is called a shrink.

Windows (`count_windows`). In a window of lengths the number of lost answers (right before and wrong
now) is compared with Binomial(examples, flip_rate). All examples count, not only the right ones,
because a random baseline also loses its lucky answers. A window counts only if

- losses outnumber gains (sign test at 10%) and occur on three documents or more,
- and gains, in the window widened by its size on either side and in the whole sample, do not
  exceed what flips explain (at 2%): a model that answers at random gains as much as it loses.

If runs differ in their flips, the larger tail probability counts.

Flip rates (`FlipRates`): the fraction of right answers that an unchanged model loses in one run, if
runs differ. A run's rate has a Beta distribution, whose mean and within-run correlation have a
prior on a grid. They are updated by runs of the unchanged model (beta-binomial), then by this run's
own losses on the plateau outside the window in question. Counts are divided by the dispersion of
whole documents, because flips affect all questions on a document (Rao and Scott 1992, Biometrics
48, 577-585).

Shrink (`find_shrink`): three tests.

- *Lost answers at the loss*: at the lengths where a cliff that moved down shows first, namely from
  half of the length at which the baseline has fallen by 30% up to that length.
- *Lost answers anywhere*: in every window of neighbouring lengths. The smallest tail probability
  over all windows is a scan statistic (Naus 1965, JASA 60, 532-538), whose null distribution is
  simulated.
- *Signed changes*: the largest standardised sum, over all windows, of the score differences minus
  the part that flips explain, compared with signs flipped per document. This test is for graded
  scores and noisy models.

All are one-sided. A run's error rate is the yearly rate divided by its runs and models, and split
among the tests; by Bonferroni's inequality the yearly rate holds although runs share the baseline.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from contextcliff_dagster.analysis.statistics.intervals import loss_lengths, rank_groups

if TYPE_CHECKING:
    from contextcliff_dagster.analysis.contrast import Pairs
    from contextcliff_dagster.contracts.arrays import Bools, Floats, Ints

LEAST_DOCUMENTS = 3
SIGN_LEVEL, NOISE_LEVEL = 0.10, 0.02


@dataclass(frozen=True)
class Changes:
    """How each example's result changed between the two runs, in order of length (E)."""

    was_right: Bools
    lost: Bools
    gained: Bools
    document: Ints
    length_tokens: Ints

    @classmethod
    def of(cls, pairs: Pairs) -> Changes:
        """Return the changes: a score of .5 or more is right; lost or gained if it moves by .5."""
        order = np.argsort(pairs.example_document, kind="stable")
        a, b = pairs.examples_a[order], pairs.examples_b[order]
        right, document = a >= 0.5, pairs.example_document[order]
        return cls(
            right,
            right & (b - a <= -0.5),
            ~right & (b - a >= 0.5),
            document,
            pairs.a.length_tokens[document],
        )


class Window(NamedTuple):
    """A window's first and last length, and the changes in it."""

    from_tokens: int
    to_tokens: int
    examples: int
    right: int
    lost: int
    gained: int


@dataclass(frozen=True)
class Windows:
    """Counts of examples per window [start, end) (W); ``barred`` windows are excluded."""

    start: Ints
    end: Ints
    examples: Ints
    tail: Floats
    barred: Bools


def count_windows(
    changes: Changes, start: Ints, end: Ints, flip_rate: float, rates: FlipRates | None = None
) -> Windows:
    """Count the lost answers in each window [start, end), with their tail probability under flips.

    ``rates``: this run's flip rates; None: ``flip_rate``.
    """
    from scipy.stats import binom

    size = len(changes.lost)
    lost, gained = _running(changes.lost), _running(changes.gained)
    first = np.zeros(size, dtype=bool)  # only the first lost answer of each document
    places = np.flatnonzero(changes.lost)
    first[places[np.unique(changes.document[places], return_index=True)[1]]] = True
    distinct = _running(first)
    losses, gains = lost[end] - lost[start], gained[end] - gained[start]
    wide = end - start
    low, high = np.maximum(start - wide, 0), np.minimum(end + wide, size)
    around = gained[high] - gained[low]
    barred = (
        (np.asarray(binom.sf(losses - 1, losses + gains, 0.5)) > SIGN_LEVEL)
        | (distinct[end] - distinct[start] < LEAST_DOCUMENTS)
        | (np.asarray(binom.sf(around - 1, high - low, flip_rate)) < NOISE_LEVEL)
        | bool(binom.sf(int(gained[-1]) - 1, size, flip_rate) < NOISE_LEVEL)
    )
    tail = np.asarray(binom.sf(losses - 1, wide, flip_rate))
    rare = tail < 0.05  # larger values are noise anyway
    if rates is not None and rare.any():
        learned = rates.tail(start[rare], end[rare], losses[rare])
        tail[rare] = np.maximum(tail[rare], learned)
    return Windows(start, end, wide, tail, barred)


def window_at(changes: Changes, start: int, end: int) -> Window:
    """Return the window [start, end) of the examples; at least one example."""
    inside = slice(start, end)
    lengths = changes.length_tokens[inside]
    return Window(
        int(lengths[0]),
        int(lengths[-1]),
        len(lengths),
        int(changes.was_right[inside].sum()),
        int(changes.lost[inside].sum()),
        int(changes.gained[inside].sum()),
    )


def at_the_loss(
    changes: Changes, loss_tokens: float, flip_rate: float, rates: FlipRates | None = None
) -> tuple[float, int, int]:
    """Return p-value, start and end of the window in which a moved cliff shows first.

    It extends from half of ``loss_tokens``, the length at which the baseline falls by its
    tolerance, to that length. Only the baseline determines it, so p needs no adjustment.
    """
    lengths = changes.length_tokens
    start = int(np.searchsorted(lengths, loss_tokens / 2))
    end = int(np.searchsorted(lengths, loss_tokens, side="right"))
    if end <= start:
        return 1.0, 0, len(lengths)
    return window_p_value(changes, start, end, flip_rate, rates), start, end


def window_p_value(
    changes: Changes, start: int, end: int, flip_rate: float, rates: FlipRates | None = None
) -> float:
    """Return the p-value of lost answers in the window [start, end); 1 if it is excluded."""
    windows = count_windows(changes, np.array([start]), np.array([end]), flip_rate, rates)
    return 1.0 if windows.barred[0] else float(windows.tail[0])


def _running(flags: Bools) -> Ints:
    return np.concatenate([[0], np.cumsum(flags)]).astype(np.int64)


LEAST_RUNS = 5  # from this number on, variation between runs is estimated
_LOGITS = np.linspace(-16.0, 3.0, 220)
RATES: Floats = 1.0 / (1.0 + np.exp(-_LOGITS))
_EDGES = np.concatenate([[0.0], 1.0 / (1.0 + np.exp(-0.5 * (_LOGITS[1:] + _LOGITS[:-1]))), [1.0]])
_MEANS = 2.0 ** np.arange(-20.0, 2.1, 0.5)
"""Possible flip rates, relative to the study's rate. The prior is flat below that (a server may
answer identically every time) and log-normal above it, with an SD of .7 octaves."""
_CORRELATIONS = np.array([0.0005, 0.002, 0.008, 0.02, 0.06])
_BELIEF = np.array([0.5, 0.3, 0.15, 0.04, 0.01])
"""Prior probabilities; equal ones would need more than five runs to show that runs are alike."""


@dataclass(frozen=True)
class FlipRates:
    """Flip rates of one run: ``weights`` of `RATES` from other runs, ``dispersion`` of documents (1
    if questions are independent), ``lost`` among the first 0, 1, ... plateau examples (m + 1)."""

    weights: Floats
    dispersion: float
    lost: Ints

    @classmethod
    def of(
        cls, now: Changes, unchanged: Sequence[Changes], plateau_tokens: float, flip_rate: float
    ) -> FlipRates:
        """Estimate them from the plateau (below ``plateau_tokens``) of this and other runs."""
        from scipy.special import betaln

        counts, off, expected = [], 0.0, 0.0
        for run in (*unchanged, now):
            short = run.length_tokens < plateau_tokens
            document = run.document[short]
            n = np.bincount(document)
            lost = np.bincount(document, weights=run.lost[short])
            rate = lost.sum() / max(n.sum(), 1)
            off += float(np.square(lost - n * rate).sum())
            expected += float(n.sum() * rate * (1.0 - rate))
            counts.append((lost.sum(), n.sum()))
        dispersion = max(off / expected, 1.0) if expected else 1.0
        a, b, log, density = _beliefs(flip_rate)
        for lost, n in np.array(counts[:-1]).reshape(-1, 2) / dispersion:
            log = log + betaln(a + lost, b + n - lost) - betaln(a, b)
        weights: Floats = np.exp(log - log.max()) @ density
        inside = now.lost[now.length_tokens < plateau_tokens]
        return cls(weights / weights.sum(), dispersion, _running(inside))

    def outside(self, start: Ints, end: Ints) -> Floats:
        """Return P(`RATES`) given the plateau outside windows [start, end) (W, P)."""
        size = len(self.lost) - 1
        first, last = np.minimum(start, size), np.minimum(end, size)
        lost = (self.lost[-1] - self.lost[last] + self.lost[first]) / self.dispersion
        n = (size - last + first) / self.dispersion
        with np.errstate(divide="ignore"):
            log = np.log(self.weights) + np.outer(lost, np.log(RATES))
        log += np.outer(n - lost, np.log1p(-RATES))
        weights = np.exp(log - log.max(axis=1, keepdims=True))
        return np.asarray(weights / weights.sum(axis=1, keepdims=True), np.float64)

    def tail(self, start: Ints, end: Ints, lost: Ints) -> Floats:
        """Return the probability of at least ``lost`` lost answers in windows [start, end) (W)."""
        from scipy.special import betainc

        k, n = lost / self.dispersion, (end - start) / self.dispersion
        at_least = betainc(np.maximum(k, 1e-9)[:, None], (n - k + 1.0)[:, None], RATES)
        return np.asarray((self.outside(start, end) * at_least).sum(axis=1), np.float64)

    def upper(self, start: Ints, end: Ints, level: float) -> Floats:
        """Return the rate that the run's rate exceeds with probability at most ``level`` (W)."""
        beyond = np.cumsum(self.outside(start, end)[:, ::-1], axis=1)[:, ::-1]
        return np.asarray(RATES[np.argmax(beyond <= level, axis=1)], np.float64)


@cache
def _beliefs(flip_rate: float) -> tuple[Floats, Floats, Floats, Floats]:
    """Return a and b of each Beta distribution, its log prior (B), its mass near `RATES` (B, P)."""
    from scipy.special import betainc

    mean, rho = (grid.ravel() for grid in np.meshgrid(flip_rate * _MEANS, _CORRELATIONS))
    mean = np.minimum(mean, 0.5)
    a, b = mean * (1.0 / rho - 1.0), (1.0 - mean) * (1.0 / rho - 1.0)
    higher = np.maximum(np.log2(mean / flip_rate), 0.0)
    log = np.repeat(np.log(_BELIEF), len(_MEANS)) - np.square(higher)
    return a, b, log, np.diff(betainc(a[:, None], b[:, None], _EDGES), axis=1)


SHARES = (0.6, 0.3, 0.1)
"""Shares of a run's error rate for lost answers at the loss, anywhere, and signed changes."""
LOSS = 0.3
"""A moved cliff is tested where the baseline's loss from its plateau reaches this fraction."""
_PIECES = 20
_WIDTHS = (1, 2, 3, 4, 6, 10, 20)
"""Window sizes, as numbers of neighbouring pieces of the sample, in order of length."""
_FIRST_DRAWS, _ENOUGH_HITS = 199, 10
_AT_ONCE = 1_000_000
_MOST_DRAWS = 200_000


@dataclass(frozen=True, slots=True)
class RegressionSettings:
    """Noise level and error rate of the test for a shrink.

    Attributes:
        flip_rate: fraction of calls whose answer may change by chance.
        yearly_error: probability that an unchanged study fails at least once in a year.
        runs_per_year: number of runs that share ``yearly_error``.
    """

    flip_rate: float = 0.05
    yearly_error: float = 0.05
    runs_per_year: int = 52

    def alpha(self, models: int) -> float:
        """Return the error rate allotted to one model in one run."""
        return self.yearly_error / self.runs_per_year / max(models, 1)


@dataclass(frozen=True, slots=True)
class Shrink:
    """The result of a run for one model.

    Attributes:
        shrunk: whether the model is worse than the baseline by more than noise.
        p_value: smallest p-value of the tests, each divided by its share; compared with ``alpha``.
        from_tokens, to_tokens: the window with the clearest losses.
        examples, right, lost, gained: numbers in that window: all; right in the baseline; right in
            the baseline and wrong now; wrong in the baseline and right now.
        n: examples compared; before, now: their mean scores.
        runs: other runs of the unchanged model, used to estimate the variation of flips.
        unusual: rate of lost answers, at all lengths, in an unusual run; null if runs are assumed
            to be alike.
    """

    shrunk: bool
    p_value: float
    alpha: float
    from_tokens: int
    to_tokens: int
    examples: int
    right: int
    lost: int
    gained: int
    n: int
    before: float
    now: float
    runs: int = 0
    unusual: float | None = None


def find_shrink(
    pairs: Pairs,
    alpha: float,
    *,
    unchanged: Sequence[Pairs] = (),
    flip_rate: float = 0.05,
    seed: int = 0,
    chance: float = 0.0,
) -> Shrink:
    """Test paired records of one model, ``a`` the baseline and ``b`` the newest run.

    Args:
        alpha: error rate of this test (`RegressionSettings.alpha`).
        unchanged: other runs of the unchanged model against the same baseline, to estimate how
            flips vary. With fewer than five, runs are assumed to be alike.
        chance: mean score of guessing.
    """
    rng = np.random.default_rng(seed)
    pieces = rank_groups(pairs.a.n, _PIECES)
    changes = Changes.of(pairs)
    side = pairs.a
    one = np.ones((len(side.n), 1))
    lost_at = float(np.exp(loss_lengths(side.length_tokens, side.n, side.s, one, LOSS, chance)[0]))
    lost_at = min(lost_at, float(side.length_tokens[-1]))
    rates = None
    if len(unchanged) >= LEAST_RUNS:
        others = [Changes.of(other) for other in unchanged]
        rates = FlipRates.of(changes, others, lost_at / 2, flip_rate)
    p, start, end = at_the_loss(changes, lost_at, flip_rate, rates)
    p = min(p / SHARES[0], 1.0)
    if p > alpha:  # else the answer is there
        p_anywhere, *window = _anywhere(changes, pieces, pairs, alpha, flip_rate, rates, rng)
        if p_anywhere / SHARES[1] < p:
            p, (start, end) = p_anywhere / SHARES[1], window
    if p > alpha:
        level = alpha * SHARES[2]
        p = min(p, _signed_changes(pairs, pieces, level, flip_rate, rates, rng) / SHARES[2])
    shrink = replace(_shrink(pairs, changes, start, end, p, alpha), runs=len(unchanged))
    if rates is None:
        return shrink
    whole = np.array([0]), np.array([len(changes.lost)])
    return replace(shrink, unusual=float(rates.upper(*whole, alpha * SHARES[1])[0]))


def _shrink(pairs: Pairs, changes: Changes, start: int, end: int, p: float, alpha: float) -> Shrink:
    total = float(pairs.a.n.sum())
    return Shrink(
        p <= alpha,
        p,
        alpha,
        *window_at(changes, start, end),
        n=int(total),
        before=float(pairs.a.s.sum()) / total,
        now=float(pairs.b.s.sum()) / total,
    )


def find_sentinel_shrink(pairs: Pairs, alpha: float, *, flip_rate: float = 0.05) -> Shrink:
    """Test a few examples at the cap for a shrink, as one window, with an exact test."""
    changes = Changes.of(pairs)
    p = window_p_value(changes, 0, len(changes.lost), flip_rate)
    return _shrink(pairs, changes, 0, len(changes.lost), p, alpha)


_STARTS = np.concatenate([np.arange(_PIECES - width + 1) for width in _WIDTHS])
_ENDS = _STARTS + np.repeat(_WIDTHS, [_PIECES - width + 1 for width in _WIDTHS])


def _over_windows(per_piece: Floats) -> Floats:
    """Convert sums per piece into sums per window: (..., pieces) -> (..., windows)."""
    zero = np.zeros((*per_piece.shape[:-1], 1))
    running = np.concatenate([zero, np.cumsum(per_piece, axis=-1)], axis=-1)
    out: Floats = running[..., _ENDS] - running[..., _STARTS]
    return out


def _examples(pieces: Ints, pairs: Pairs) -> Ints:
    return np.bincount(pieces, weights=pairs.a.n, minlength=_PIECES).astype(np.int64)


def _anywhere(
    changes: Changes,
    pieces: Ints,
    pairs: Pairs,
    alpha: float,
    flip_rate: float,
    rates: FlipRates | None,
    rng: np.random.Generator,
) -> tuple[float, int, int]:
    """Return the p-value of the scan over all windows, and the clearest window's start and end."""
    from scipy.stats import binom

    in_piece = _examples(pieces, pairs)
    edge = np.concatenate([[0], np.cumsum(in_piece)])
    is_window = edge[_ENDS] > edge[_STARTS]
    low, high = _STARTS[is_window], _ENDS[is_window]
    windows = count_windows(changes, edge[low], edge[high], flip_rate, rates)
    tail = np.where(windows.barred, 1.0, windows.tail)
    best = int(np.argmin(tail))
    window = int(windows.start[best]), int(windows.end[best])
    if tail[best] > SHARES[1] * alpha:  # not significant even as a single test
        return 1.0, *window
    observed = float(tail[best]) * (1 + 1e-9)
    # The least count of each window with a tail probability as small.
    counts = np.asarray(binom.isf(observed, windows.examples, flip_rate)).astype(np.int64)
    counts = np.maximum(counts - 1, 0)
    for _ in range(3):
        counts += np.asarray(binom.sf(counts - 1, windows.examples, flip_rate)) > observed

    def reached(draws: int) -> int:
        drawn = rng.binomial(in_piece, flip_rate, size=(draws, _PIECES))
        running = np.concatenate([np.zeros((draws, 1), np.int64), np.cumsum(drawn, axis=1)], axis=1)
        return int(((running[:, high] - running[:, low]) >= counts).any(axis=1).sum())

    return _monte_carlo(reached, SHARES[1] * alpha, len(low)), *window


def _signed_changes(
    pairs: Pairs,
    pieces: Ints,
    alpha: float,
    flip_rate: float,
    rates: FlipRates | None,
    rng: np.random.Generator,
) -> float:
    """Return the p-value of the largest standardised loss over all windows, by sign flips."""
    # A flip turns a score s into 1 - s: the expected loss of an unchanged model. Expected
    # gains are not counted, because an answer that stays wrong is not a loss.
    expected = np.minimum(flip_rate * (pairs.a.n - 2.0 * pairs.a.s), 0.0)
    change = pairs.b.s - pairs.a.s - expected
    member = (pieces[:, None] == np.arange(_PIECES)[None, :]).astype(np.float64)
    squares = _over_windows(change**2 @ member)
    scale: Floats = np.sqrt(np.where(squares > 0, squares, np.inf)).astype(np.float64)
    weighted = -change[:, None] * member
    reduced = _over_windows(weighted.sum(axis=0))
    if rates is not None:  # upper limit on the part that flips explain
        edge = np.concatenate([[0], np.cumsum(_examples(pieces, pairs))])
        most = rates.upper(edge[_STARTS], edge[_ENDS], alpha / 2)
        flips = _over_windows(np.maximum(2.0 * pairs.a.s - pairs.a.n, 0.0) @ member)
        reduced = reduced - np.maximum(most - flip_rate, 0.0) * flips
    observed = float((reduced / scale).max()) - 1e-9
    if observed <= 0:
        return 1.0

    def reached(draws: int) -> int:
        signs = 2.0 * rng.integers(0, 2, size=(draws, len(change)), dtype=np.int8) - 1.0
        return int(((_over_windows(signs @ weighted) / scale).max(axis=1) >= observed).sum())

    return _monte_carlo(reached, alpha, max(len(change), len(scale)))


def _monte_carlo(reached: Callable[[int], int], alpha: float, width: int) -> float:
    """Return (1 + draws reaching the observed) / (1 + draws); stop early if clearly noise."""
    # Stopping at a number of hits keeps it valid (Besag and Clifford 1991, Biometrika 78, 301-304).
    draws = _FIRST_DRAWS
    hits: int = reached(draws)
    wanted = int(min(max(4.0 / alpha, 20_000), _MOST_DRAWS))
    step = max(1, _AT_ONCE // max(width, 1))
    while draws < wanted and hits < _ENOUGH_HITS:
        more = min(step, wanted - draws, 4 * draws)
        hits, draws = hits + reached(more), draws + more
    return (1.0 + hits) / (1.0 + draws)
