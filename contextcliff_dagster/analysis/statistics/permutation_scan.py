"""One permutation test, over all places, for any loss along the length axis.

The statistic is the largest standardised difference between the shorter and the longer side of a
split (a step), or between a window and the side nearer to it in mean (a dip, which must recover).
Whole documents are permuted over the lengths, so that questions on one document stay together; the
maximum over all places makes it one test, for any number of places.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import numpy as np

from contextcliff_dagster.analysis.records import AnalysisSettings, Documents
from contextcliff_dagster.analysis.statistics.intervals import rank_groups, thinned
from contextcliff_dagster.contracts.arrays import Floats, Ints

_MAX_UNITS = 400
_KEEP_TIES_UP_TO = 100
_WINDOW_KNOTS = 40
_WINDOW_SHARE = (0.08, 0.60)
_LEAST = 6
_AT_ONCE = 1_000
_BEFORE, _AFTER, _RECOVERY = 0.15, 0.04, 0.08
SPLIT_LIMIT = 7.35
"""Deviance up to which a place belongs to the 95% confidence set. It exceeds chi-square's 3.84,
because the likelihood of a change point is not regular (calibrated by simulation)."""


@dataclass(frozen=True, slots=True)
class Split:
    """The best place of a step or a window, with its p-value.

    Attributes:
        p_value: fraction of permutations with a statistic at least as large (add-one).
        drop: 1 - mean on the lower side / mean on the upper side (for a dip, before it), both above
            the score of guessing.
        first_tokens, last_tokens: shortest and longest length on the lower side.
        deviance: twice the quasi log-likelihood of two means, not divided by a dispersion.
        counts: examples and summed scores of the lower side, then of the upper side.
        above: ratio of the upper side's mean to its part above guessing. It converts a share of
            the mean to a fraction of the part that can be lost; 1 if guessing scores 0.
    """

    p_value: float
    drop: float
    first_tokens: int
    last_tokens: int
    deviance: float
    counts: tuple[float, float, float, float]
    above: float


@dataclass(frozen=True, slots=True)
class Dip(Split):
    """A window of low scores; ``starts``: shortest and longest likely start (tokens)."""

    starts: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Scan:
    """The best step down, best dip (``None``: no admissible window), and best rise's p-value."""

    step: Split
    dip: Dip | None
    rise_p_value: float


@dataclass(frozen=True)
class _Units:
    n: Floats
    s: Floats
    first: Ints
    last: Ints


def scan_documents(documents: Documents, *, permutations: int, seed: int) -> Scan | None:
    """Scan for a step down, a dip and a rise; return ``None`` if no split is admissible.

    A split needs max(6, 15%) of the examples before it and max(6, 4%) after it, and never separates
    equal lengths; a window has 8-60% of them, with max(6, 15%) before it and max(6, 8%) after it.
    """
    units = _merge(documents)
    count = len(units.n)
    total_n, total_s = float(units.n.sum()), float(units.s.sum())
    cut = np.flatnonzero(units.last[:-1] < units.first[1:]) + 1
    before = np.cumsum(units.n)[cut - 1] if len(cut) else np.zeros(0)
    least_before, least_after = max(_LEAST, _BEFORE * total_n), max(_LEAST, _AFTER * total_n)
    cut = cut[(before >= least_before - 1e-9) & (total_n - before >= least_after - 1e-9)]
    if not len(cut):
        return None
    i, j = _windows(units, total_n, least_before)

    rng = np.random.default_rng((seed, 1))
    highest: list[tuple[Floats, Floats, Floats]] = []
    for first in range(0, permutations + 1, _AT_ONCE):
        rows = min(_AT_ONCE, permutations + 1 - first)
        order = rng.random((rows - (not first), count)).argsort(axis=1)
        if not first:
            order = np.vstack([np.arange(count), order])
        n, s = _reached(units.n, order), _reached(units.s, order)
        steps = _steps(n, s, cut)
        contrasts = _contrasts(n, s, i, j) if len(i) else np.zeros((rows, 1))
        if not first:
            k, w = cut[int(np.argmax(steps[0]))], int(np.argmax(contrasts[0]))
            below = (total_n - n[0, k], total_s - s[0, k], n[0, k], s[0, k])
            of_dip = partial(_dip, units, n[0], s[0], i, j, w, documents.chance)
        highest.append((steps.max(axis=1), contrasts.max(axis=1), -steps.min(axis=1)))
    p_step, p_dip, p_rise = (_chance(np.concatenate(of)) for of in zip(*highest, strict=True))
    step = Split(
        p_step,
        _drop(below, documents.chance),
        int(units.first[k]),
        int(units.last[-1]),
        float(_two_means(*below)),
        below,
        _above(below, documents.chance),
    )
    return Scan(step, of_dip(p_dip) if len(i) else None, p_rise)


def scan_at(documents: Documents, level: float, settings: AnalysisSettings) -> Scan | None:
    """Scan with the permutations of ``settings``, or more if a p-value of ``level`` needs them."""
    least_permutations = math.ceil(1.0 / level - 1e-6) - 1
    permutations = max(settings.permutations, least_permutations)
    return scan_documents(documents, permutations=permutations, seed=settings.seed)


def _reached(values: Floats, order: Ints) -> Floats:
    """Return the sums of ``values`` before each place, for each order (P, U): (P, U + 1)."""
    sums = np.zeros((len(order), order.shape[1] + 1))
    np.cumsum(values[order], axis=1, out=sums[:, 1:])
    return sums


def _steps(n: Floats, s: Floats, cut: Ints) -> Floats:
    """Return (mean of shorter side - mean of longer side) * sqrt(N0 N1 / N) at each cut."""
    total_n, total_s = n[:, -1:], s[:, -1:]
    before_n, before_s = n[:, cut], s[:, cut]
    after_n = total_n - before_n
    steps = before_s / before_n - (total_s - before_s) / after_n
    steps *= np.sqrt(before_n * after_n / total_n)
    return np.asarray(steps)


def _merge(documents: Documents) -> _Units:
    """Merge neighbouring documents into about 400 units; few distinct lengths stay apart."""
    lengths, n = documents.length_tokens, documents.n
    key = rank_groups(n, _MAX_UNITS) if len(n) > _MAX_UNITS else np.arange(len(n))
    change = np.diff(key) > 0
    if len(np.unique(lengths)) <= _KEEP_TIES_UP_TO:
        change |= np.diff(lengths) > 0
    first = np.concatenate([[0], np.flatnonzero(change) + 1])
    last = np.append(first[1:], len(n)) - 1
    return _Units(
        np.add.reduceat(n, first),
        np.add.reduceat(documents.s, first),
        lengths[first],
        lengths[last],
    )


def _windows(units: _Units, total: float, least_before: float) -> tuple[Ints, Ints]:
    """Return starts and ends (exclusive) of admissible windows on a grid of unit edges."""
    allowed = thinned(np.flatnonzero(units.last[:-1] < units.first[1:]) + 1, _WINDOW_KNOTS)
    i, j = (side.ravel() for side in np.meshgrid(allowed, allowed, indexing="ij"))
    n = np.concatenate([[0.0], np.cumsum(units.n)])
    inside, after = n[j] - n[i], total - n[j]
    good = (
        (i < j)
        & (inside >= max(_LEAST, _WINDOW_SHARE[0] * total))
        & (inside <= _WINDOW_SHARE[1] * total)
        & (n[i] >= least_before)
        & (after >= max(_LEAST, _RECOVERY * total))
    )
    return i[good], j[good]


def _contrasts(n: Floats, s: Floats, i: Ints, j: Ints) -> Floats:
    """Return the smaller of (before - inside) and (after - inside) per window, standardised."""
    within_n, before_n, after_n = n[:, j] - n[:, i], n[:, i], n[:, -1:] - n[:, j]
    mean = (s[:, j] - s[:, i]) / within_n
    before = (s[:, i] / before_n - mean) * np.sqrt(within_n * before_n / (within_n + before_n))
    after = (s[:, -1:] - s[:, j]) / after_n - mean
    after *= np.sqrt(within_n * after_n / (within_n + after_n))
    return np.minimum(before, after)


def _dip(
    units: _Units, n: Floats, s: Floats, i: Ints, j: Ints, w: int, guessing: float, p_value: float
) -> Dip:
    """Return window ``w`` as the dip; its start ranges over windows that fit nearly as well."""
    inside_n, inside_s = n[j] - n[i], s[j] - s[i]
    outside_n, outside_s = n[-1] - inside_n, s[-1] - inside_s
    deviance = _two_means(inside_n, inside_s, outside_n, outside_s)
    place = np.arange(len(units.n))
    low, high = inside_s[w] / inside_n[w], outside_s[w] / outside_n[w]
    fitted = np.where((place >= i[w]) & (place < j[w]), low, high).clip(0.01, 0.99)
    spread = float((units.n * fitted * (1 - fitted)).sum())
    dispersion = max(float(((units.s - units.n * fitted) ** 2).sum()) / spread, 0.1)
    near = deviance >= deviance.max() - SPLIT_LIMIT * dispersion
    first, last = min(int(i[near].min()), int(i[w])), int(i[near].max())
    counts = (inside_n[w], inside_s[w], n[i[w]], s[i[w]])
    return Dip(
        p_value,
        _drop(counts, guessing),
        int(units.first[i[w]]),
        int(units.last[j[w] - 1]),
        float(deviance[w]),
        counts,
        _above(counts, guessing),
        (int(units.last[first - 1]), int(units.first[last])),
    )


def _chance(statistic: Floats) -> float:
    """Return the add-one permutation p-value; the first entry is the observed statistic."""
    return float(np.mean(statistic >= statistic[0] - 1e-9))


def _drop(counts: tuple[float, float, float, float], guessing: float) -> float:
    low_n, low_s, high_n, high_s = counts
    low, high = low_s / low_n - guessing, high_s / high_n - guessing
    return float(1.0 - max(low, 0.0) / high) if high > 0 else 0.0


def _above(counts: tuple[float, float, float, float], guessing: float) -> float:
    high = counts[3] / counts[2]
    return float(high / (high - guessing)) if high > guessing else 1.0


def _two_means(n0: Floats, s0: Floats, n1: Floats, s1: Floats) -> Floats:
    """Return 2 (l(S0, N0) + l(S1, N1)), l(S, N) = S log(S / N) + (N - S) log(1 - S / N)."""

    def part(s: Floats, n: Floats) -> Floats:
        mean = np.clip(s / n, 1e-9, 1.0 - 1e-9)
        return s * np.log(mean) + (n - s) * np.log1p(-mean)

    return 2.0 * (part(s0, n0) + part(s1, n1))
