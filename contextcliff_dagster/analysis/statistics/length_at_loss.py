"""The length at which the mean has fallen by a tolerance, for many resamples at once.

The point that a certified cap stays below: a cap is a confidence bound and moves with n, this is
what it bounds, and what two models can be compared by. The curve is one of

    mu(x) = m0 (1 - d s((x - c) / w)),   x = log length, s the logistic function or a step,

on a grid of centres c, widths w, depths d and plateaus m0, by quasi-binomial likelihood. On a grid
the likelihood of all members for all resamples is one matrix product, which is what makes a
bootstrap of it a matter of a second.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from contextcliff_dagster.contracts.arrays import Floats, Ints

BASELINE_SHARE = 0.15
"""Of the examples, the shortest: what a loss is relative to."""
_CELLS = 40
_CENTRES = 32
_WIDTHS = (0.0, 0.05, 0.12, 0.28)
"""Of the range of log length."""
_DEPTHS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
_PLATEAUS = 9
_LEAST, _MOST = 1e-3, 1.0 - 1e-3


def loss_lengths(
    length_tokens: Ints, n: Floats, s: Floats, weights: Floats, tolerance: float, chance: float
) -> Floats:
    """Log length at which each resample's best curve has lost ``tolerance`` of its baseline.

    Args:
        length_tokens: of the documents, ascending (D).
        n, s: examples and summed scores per document (D).
        weights: how often each document is in each resample (D, B).
        chance: mean score of guessing; what is lost is lost above it.

    Returns:
        (B,), ``inf`` where the curve does not lose as much within the measured lengths.
    """
    return _fitted_places(length_tokens, n, s, weights, tolerance, chance)


def half_drop_lengths(
    length_tokens: Ints, n: Floats, s: Floats, weights: Floats, chance: float
) -> Floats:
    """Log length at which each resample's best curve has half of its own drop: its centre c.

    Returns:
        (B,), ``inf`` where the curve does not drop, or its centre lies beyond the longest document.
    """
    return _fitted_places(length_tokens, n, s, weights, None, chance)


def _fitted_places(
    length_tokens: Ints,
    n: Floats,
    s: Floats,
    weights: Floats,
    tolerance: float | None,
    chance: float,
) -> Floats:
    """The place of the likeliest member of the family for each resample (B,); see `_family`."""
    cell = _cells(length_tokens, n)
    count = int(cell[-1]) + 1
    first = np.searchsorted(cell, np.arange(count))
    total = np.add.reduceat(n, first)
    x = np.add.reduceat(n * np.log(length_tokens), first) / total
    drawn_n = np.add.reduceat(weights * n[:, None], first, axis=0)
    drawn_s = np.add.reduceat(weights * s[:, None], first, axis=0)
    shape, place = _family(x, total, tolerance)
    k = _baseline(total)
    level = float((s @ weights.mean(axis=1)) / max(float(n @ weights.mean(axis=1)), 1e-9))
    base = drawn_s[:k].sum(axis=0) / np.maximum(drawn_n[:k].sum(axis=0), 1e-9)
    plateaus = np.unique(
        np.linspace(min(float(base.min()), level), min(float(base.max()) + 0.02, 1.0), _PLATEAUS)
    ).clip(chance + 0.02, _MOST)
    best = np.full(weights.shape[1], -np.inf)
    lengths = np.full(weights.shape[1], np.inf)
    failed = drawn_n - drawn_s
    for plateau in plateaus:
        mean = np.clip(chance + (plateau - chance) * shape, _LEAST, _MOST)
        likelihood = np.log(mean) @ drawn_s + np.log1p(-mean) @ failed
        top = np.argmax(likelihood, axis=0)
        value = likelihood[top, np.arange(likelihood.shape[1])]
        better = value > best
        best, lengths = np.where(better, value, best), np.where(better, place[top], lengths)
    return lengths


def resample_weights(documents: int, resamples: int, rng: np.random.Generator) -> Floats:
    """How often each document is drawn (D, B + 1); the first resample is the sample itself."""
    drawn = rng.multinomial(documents, np.full(documents, 1.0 / documents), size=resamples)
    return np.concatenate([np.ones((1, documents)), drawn.astype(np.float64)]).T


def rank_groups(n: NDArray[Any], count: int) -> Ints:
    """Which of ``count`` groups of neighbours, of similar sums of ``n``, each is in (D)."""
    middle = np.cumsum(n) - 0.5 * n
    out: Ints = np.minimum((middle / n.sum() * count).astype(np.int64), count - 1)
    return out


def _cells(length_tokens: Ints, n: Floats) -> Ints:
    """A cell per document: at most 40 of similar n, equal lengths together."""
    cell = rank_groups(n, _CELLS)
    _, same = np.unique(length_tokens, return_inverse=True)
    first = np.searchsorted(same, np.arange(int(same[-1]) + 1))
    _, dense = np.unique(cell[first][same], return_inverse=True)
    return np.asarray(dense, dtype=np.int64)


def _baseline(total: Floats) -> int:
    reached = np.cumsum(total) >= BASELINE_SHARE * total.sum() - 1e-9
    return min(int(np.argmax(reached)) + 1, len(total))


def _family(x: Floats, total: Floats, tolerance: float | None) -> tuple[Floats, Floats]:
    """Shape (J, G) of every member and the log length at which it has lost ``tolerance`` (J).

    Without a tolerance: its centre.
    """
    k = _baseline(total)
    span = max(float(x[-1] - x[0]), 1e-6)
    edges = 0.5 * (x[:-1] + x[1:])[max(k - 1, 0) :]
    smooth = np.linspace(float(x[0]), float(x[-1]) + 0.25 * span, _CENTRES)
    shapes, places = [np.ones((1, len(x)))], [np.array([np.inf])]
    for width in _WIDTHS:
        centres = edges if width == 0.0 else smooth
        if not len(centres):
            continue
        c, d = (g.ravel() for g in np.meshgrid(centres, np.array(_DEPTHS[1:]), indexing="ij"))
        w = max(width * span, 1e-9)
        lost = 1.0 / (1.0 + np.exp(-np.clip((x[None, :] - c[:, None]) / w, -35.0, 35.0)))
        shape = 1.0 - d[:, None] * lost
        place = c
        if tolerance is not None:
            base = shape[:, :k] @ (total[:k] / total[:k].sum())
            share = (1.0 - (1.0 - tolerance) * base) / d
            with np.errstate(divide="ignore", invalid="ignore"):
                place = np.where(share < 1.0 - 1e-9, c + w * np.log(share / (1.0 - share)), np.inf)
        shapes.append(shape)
        places.append(np.where(place <= x[-1], np.maximum(place, x[0]), np.inf))
    return np.concatenate(shapes), np.concatenate(places)
