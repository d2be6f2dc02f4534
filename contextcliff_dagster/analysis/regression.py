"""Has a model become worse than its pinned baseline: a test that a whole year of runs can bear.

Answers flip: with a probability of at most ``flip_rate`` an example comes out the other way, in
the run and in the baseline, which is a draw itself. What that does not explain is a shrink.

- *Lost answers.* Examples that were right and are wrong now, against Binomial(examples,
  ``flip_rate``), in every window of neighbouring lengths. (Of all examples, not of the right ones:
  where the baseline itself was a draw, its lucky answers are lost again.) The smallest tail
  probability over all windows is a scan statistic (Naus 1965, JASA 60, 532-538) with its null
  distribution by simulation. A window counts only where losses also outnumber gains (sign test at
  5%) and fall on three documents. Where more wrong answers came right than flips explain (at 1%),
  the model is noisier than that and this test stands back.
- *Signed changes.* Of the score differences, less what flips explain, the largest standardised
  sum over all windows, against signs flipped per document. For graded scores and noisy models.

Both are one-sided. A run's error rate is the year's divided by its runs and models, and split
between the two tests; by Bonferroni's inequality the year holds whatever the runs share, the
pinned baseline above all.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from contextcliff_dagster.analysis.pairing import Pairs

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

LOST_SHARE = 0.9
"""Of a run's error rate, spent on lost answers; the rest on signed changes."""
_PIECES = 20
_WIDTHS = (1, 2, 3, 4, 6, 10, 20)
"""Of the sample by rank of length; windows are runs of so many neighbouring pieces."""
_LEAST_DOCUMENTS = 3
_FIRST_DRAWS, _ENOUGH_HITS = 999, 20
_AT_ONCE = 1_000_000
_MOST_DRAWS = 200_000


@dataclass(frozen=True, slots=True)
class RegressionSettings:
    """What counts as noise.

    Attributes:
        flip_rate: share of calls whose answer may differ without anything being wrong.
        yearly_error: probability that an unchanged study fails at least once in a year.
        runs_per_year: runs among which that is divided.
    """

    flip_rate: float = 0.05
    yearly_error: float = 0.05
    runs_per_year: int = 52

    def alpha(self, models: int) -> float:
        """Error rate of one model in one run."""
        return self.yearly_error / self.runs_per_year / max(models, 1)


@dataclass(frozen=True, slots=True)
class Shrink:
    """What a run says of one model.

    Attributes:
        shrunk: worse than the baseline beyond noise.
        p_value: the smaller of the two tests', each divided by its share; compared with ``alpha``.
        from_tokens, to_tokens: the window in which losses stand out most; None without any loss.
        examples, right, lost, gained: there: all; right in the baseline; of these wrong now; wrong
            in the baseline and right now.
        n: examples compared; before, now: their mean scores.
    """

    shrunk: bool
    p_value: float
    alpha: float
    from_tokens: int | None
    to_tokens: int | None
    examples: int
    right: int
    lost: int
    gained: int
    n: int
    before: float
    now: float

    def to_dict(self) -> dict[str, Any]:
        """The fields, JSON-ready."""
        return asdict(self)


def find_shrink(pairs: Pairs, alpha: float, *, flip_rate: float = 0.05, seed: int = 0) -> Shrink:
    """Test paired records of one model, ``a`` the baseline and ``b`` the newest run.

    Args:
        alpha: error rate of this test (`RegressionSettings.alpha`).
    """
    rng = np.random.default_rng(seed)
    pieces = _pieces(pairs.a.n)
    lost_p, window, counts = _lost_answers(pairs, pieces, alpha * LOST_SHARE, flip_rate, rng)
    p = min(lost_p / LOST_SHARE, 1.0)
    if p > alpha:  # else the answer is there
        signed_p = _signed_changes(pairs, pieces, alpha * (1 - LOST_SHARE), flip_rate, rng)
        p = min(p, signed_p / (1 - LOST_SHARE))
    lengths = pairs.a.length_tokens
    ends: tuple[int | None, int | None] = (None, None)
    if window is not None:
        inside = np.flatnonzero((pieces >= window[0]) & (pieces < window[1]))
        ends = int(lengths[inside[0]]), int(lengths[inside[-1]])
    total = float(pairs.a.n.sum())
    return Shrink(
        p <= alpha,
        p,
        alpha,
        *ends,
        *counts,
        n=int(total),
        before=float(pairs.a.s.sum()) / total,
        now=float(pairs.b.s.sum()) / total,
    )


def find_sentinel_shrink(pairs: Pairs, alpha: float, *, flip_rate: float = 0.05) -> Shrink:
    """The same question put to a few examples around the cap, as one window: an exact test.

    Lost answers against Binomial(examples, ``flip_rate``); as above, losses have to outnumber gains
    (sign test at 5%) and fall on three documents.
    """
    from scipy.stats import binom

    change = pairs.examples_b - pairs.examples_a
    was_right = pairs.examples_a >= 0.5
    is_lost = was_right & (change <= -0.5)
    lost, gained = int(is_lost.sum()), int((~was_right & (change >= 0.5)).sum())
    n = len(change)
    p = float(binom.sf(lost - 1, n, flip_rate))
    apart = len(np.unique(pairs.example_document[is_lost])) >= _LEAST_DOCUMENTS
    one_sided = float(binom.sf(lost - 1, lost + gained, 0.5)) <= 0.05
    lengths = pairs.a.length_tokens
    return Shrink(
        p <= alpha and apart and one_sided,
        p,
        alpha,
        int(lengths[0]),
        int(lengths[-1]),
        n,
        int(was_right.sum()),
        lost,
        gained,
        n,
        float(pairs.examples_a.mean()),
        float(pairs.examples_b.mean()),
    )


def _pieces(n: Floats) -> Ints:
    """Piece of each document, by rank of its examples (D)."""
    middle = np.cumsum(n) - 0.5 * n
    out: Ints = np.minimum((middle / n.sum() * _PIECES).astype(np.int64), _PIECES - 1)
    return out


@lru_cache(maxsize=1)
def _windows() -> tuple[Ints, Ints]:
    starts = [np.arange(_PIECES - width + 1) for width in _WIDTHS]
    start = np.concatenate(starts)
    width = np.repeat(_WIDTHS, [len(some) for some in starts])
    return start.astype(np.int64), (start + width).astype(np.int64)


def _over_windows(per_piece: Floats) -> Floats:
    """Sums over every window of sums per piece (..., pieces) -> (..., windows)."""
    start, end = _windows()
    zero = np.zeros((*per_piece.shape[:-1], 1))
    running = np.concatenate([zero, np.cumsum(per_piece, axis=-1)], axis=-1)
    out: Floats = running[..., end] - running[..., start]
    return out


def _lost_answers(
    pairs: Pairs, pieces: Ints, alpha: float, flip_rate: float, rng: np.random.Generator
) -> tuple[float, tuple[int, int] | None, tuple[int, int, int, int]]:
    """p-value, the window that stands out (pieces), and examples, right, lost, gained in it."""
    from scipy.stats import binom

    change = pairs.examples_b - pairs.examples_a
    was_right = pairs.examples_a >= 0.5
    lost, gained = was_right & (change <= -0.5), ~was_right & (change >= 0.5)
    place = pieces[pairs.example_document]

    def count(which: NDArray[np.bool_], by: Ints = place) -> Ints:
        return np.bincount(by[which], minlength=_PIECES).astype(np.int64)

    in_window = {
        name: _over_windows(count(which).astype(np.float64)).astype(np.int64)
        for name, which in (
            ("all", np.ones(len(place), bool)),
            ("right", was_right),
            ("lost", lost),
            ("gained", gained),
        )
    }
    documents = np.unique(pairs.example_document[lost])
    apart = np.bincount(pieces[documents], minlength=_PIECES).astype(np.float64)
    every, losses, gains = in_window["all"], in_window["lost"], in_window["gained"]
    # P(Binomial(examples, rate) >= k) per window and k.
    counted = np.arange(int(every.max()) + 1)
    tails = np.asarray(binom.sf(counted[None, :] - 1, every[:, None], flip_rate))
    here = np.arange(len(every))
    tail = tails[here, losses]
    best = int(np.argmin(tail))
    if not losses[best]:
        return 1.0, None, (len(place), int(was_right.sum()), 0, int(gained.sum()))
    start, end = _windows()
    window = int(start[best]), int(end[best])
    shown = _at(in_window, best)
    balanced = binom.sf(losses - 1, losses + gains, 0.5) > 0.05
    barred = balanced | (_over_windows(apart) < _LEAST_DOCUMENTS)
    noisy = binom.sf(int(gained.sum()) - 1, len(place), flip_rate) < 0.01
    if noisy or barred.all():
        return 1.0, window, shown
    best = int(np.argmin(np.where(barred, 1.0, tail)))
    window = int(start[best]), int(end[best])
    shown = _at(in_window, best)
    observed = float(tail[best]) * (1 + 1e-9)
    in_piece = np.bincount(place, minlength=_PIECES)

    def reached(draws: int) -> int:
        drawn = rng.binomial(in_piece, flip_rate, size=(draws, _PIECES)).astype(np.float64)
        counts = _over_windows(drawn).astype(np.int64)
        return int((tails[here[None, :], counts].min(axis=1) <= observed).sum())

    return _monte_carlo(reached, alpha, len(every)), window, shown


def _at(in_window: dict[str, Ints], place: int) -> tuple[int, int, int, int]:
    every, right, lost, gained = (int(counts[place]) for counts in in_window.values())
    return every, right, lost, gained


def _signed_changes(
    pairs: Pairs, pieces: Ints, alpha: float, flip_rate: float, rng: np.random.Generator
) -> float:
    """p-value of the largest standardised loss over all windows, by flipped signs."""
    # A flip turns a score s into 1 - s: what an unchanged model may be expected to lose. Expected
    # gains are not counted: an answer that stayed wrong is no loss.
    expected = np.minimum(flip_rate * (pairs.a.n - 2.0 * pairs.a.s), 0.0)
    change = pairs.b.s - pairs.a.s - expected
    member = (pieces[:, None] == np.arange(_PIECES)[None, :]).astype(np.float64)
    squares = _over_windows(change**2 @ member)
    scale: Floats = np.sqrt(np.where(squares > 0, squares, np.inf)).astype(np.float64)
    weighted = -change[:, None] * member
    observed = float((_over_windows(weighted.sum(axis=0)) / scale).max()) - 1e-9
    if observed <= 0:
        return 1.0

    def reached(draws: int) -> int:
        signs = 2.0 * rng.integers(0, 2, size=(draws, len(change)), dtype=np.int8) - 1.0
        return int(((_over_windows(signs @ weighted) / scale).max(axis=1) >= observed).sum())

    return _monte_carlo(reached, alpha, max(len(change), len(scale)))


def _monte_carlo(reached: Callable[[int], int], alpha: float, width: int) -> float:
    """(1 + draws that reach the observed) / (1 + draws): few draws where it is plainly noise."""
    # Stopped at a number of hits it is as valid (Besag and Clifford 1991, Biometrika 78, 301-304).
    draws = _FIRST_DRAWS
    hits: int = reached(draws)
    wanted = int(min(max(4.0 / alpha, 20_000), _MOST_DRAWS))
    step = max(1, _AT_ONCE // max(width, 1))
    while draws < wanted and hits < _ENOUGH_HITS:
        more = min(step, wanted - draws)
        hits, draws = hits + reached(more), draws + more
    return (1.0 + hits) / (1.0 + draws)
