"""The plateau of a curve of given shape: the m0 that fits the scores best, many shapes at once.

A shape says which share of the loss has happened in every cell, 0 to 1; with a depth d the curve is
m0 (1 - d share). The likelihood is quasi-binomial, l = sum S log mu + (N - S) log(1 - mu). Shapes
of two levels have a closed form. For all others, with t = 1 / m0 and F failures in cells that
retain h, l is stationary where G(t) = sum F h / (t - h) is the number of successes S; Newton's
steps are taken on 1 / G(t) = 1 / S, which is a straight line for a single h and nearly one
otherwise, so that they do not creep away from the poles.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from contextcliff_dagster.contracts.arrays import Floats, Ints

MU_FLOOR = 1e-3
"""No curve comes closer to 0 or 1."""
_NEWTON_STEPS = 10
_SETTLED = 2e-3
"""The step after one this small is a millionth: squared at every Newton step."""
_BLOCK = 65_536
"""Numbers at once: what is worked on stays in the processor's cache."""
_PADDED = 1.2
"""How much wider than the narrowest the widest of the shapes worked on at once may be."""


def two_levels(
    n: Floats, s: Floats, total_n: float, total_s: float, depths: Floats
) -> tuple[Floats, Floats]:
    """m0 and likelihood where cells of ``n`` trials and ``s`` successes (P) have lost each depth.

    Both (P, depths). With r = 1 - d, S successes in all and F1, F0 failures inside and outside, the
    likelihood is stationary where r (S + F0 + F1) m^2 - (S (1 + r) + F0 + F1 r) m + S = 0, at the
    smaller root.
    """
    inside_s = s[:, None]
    inside_f = (n - s)[:, None]
    outside_f = total_n - total_s - inside_f
    r = 1.0 - depths[None, :]
    b = total_s * (1.0 + r) + outside_f + inside_f * r
    root = np.sqrt(np.maximum(b**2 - 4.0 * r * total_n * total_s, 0.0))
    m = np.clip(2.0 * total_s / (b + root), MU_FLOOR, 1.0 - MU_FLOOR)
    inside = np.maximum(m * r, MU_FLOOR)
    outside_s = total_s - inside_s
    q = outside_s * np.log(m) + outside_f * np.log1p(-m)
    q += inside_s * np.log(inside) + inside_f * np.log1p(-inside)
    return m, q


def profiled(
    share: Floats,
    depths: Floats,
    n: Floats,
    s: Floats,
    stretch: tuple[Ints, Ints] | None = None,
) -> tuple[Floats, Floats]:
    """m0 and likelihood of every shape, ``share`` (P, G), at every depth: both (P, depths).

    ``n`` trials and ``s`` successes of the cells (G). ``stretch``: cells (P) from which on shares
    are above 0, and from which on they are 1; what lies outside counts by its sums, which saves
    most of the work.
    """
    count, cells = share.shape
    first, last = stretch or (np.zeros(count, np.int64), np.full(count, cells))
    plateau, q = (np.empty((count, len(depths))) for _ in range(2))
    by_width = np.argsort(last - first, kind="stable")
    widths = (last - first)[by_width]
    done = 0
    while done < count:
        widest = max(int(_PADDED * widths[done]), 1)
        alike = int(np.searchsorted(widths, widest, side="right"))
        many = max(_BLOCK // (widest * len(depths)), 1)
        at = by_width[done : min(done + many, max(alike, done + 1))]
        some = _Stretches(share[at], first[at], last[at], depths, n, s)
        plateau[at], q[at] = some.profiled()
        done += len(at)
    return plateau, q


class _Stretches:
    """Some shapes (B) on the W cells of the longest; shorter ones are padded by empty cells."""

    def __init__(
        self, share: Floats, first: Ints, last: Ints, depths: Floats, n: Floats, s: Floats
    ) -> None:
        cells = first[:, None] + np.arange(int((last - first).max(initial=0)))
        inside = cells < last[:, None]
        cells = np.where(inside, cells, 0)
        lost = np.where(inside, np.take_along_axis(share, cells, axis=1), 1.0)
        self._s = np.where(inside, s[cells], 0.0)[:, :, None]  # (B, W, 1)
        self._f = np.where(inside, (n - s)[cells], 0.0)[:, :, None]
        self._retained = 1.0 - depths[None, :, None] * lost[:, None, :]  # (B, depths, W)
        self._r = 1.0 - depths[None, :]
        cum_s, cum_f = (np.concatenate([[0.0], np.cumsum(of)]) for of in (s, n - s))
        self._s0, self._f0 = cum_s[first][:, None], cum_f[first][:, None]
        self._s1, self._f1 = (cum_s[-1] - cum_s[last])[:, None], (cum_f[-1] - cum_f[last])[:, None]
        self._total_s, self._total_f = float(cum_s[-1]), float(cum_f[-1])
        least_lost = np.where(first > 0, 0.0, lost.min(axis=1, initial=1.0))
        self._highest = 1.0 - depths[None, :] * least_lost[:, None]

    def profiled(self) -> tuple[Floats, Floats]:
        """m0 and likelihood (B, depths)."""
        least, most = self._highest / (1.0 - MU_FLOOR), 1.0 / MU_FLOOR
        successes = max(self._total_s, 1e-12)
        expected = self._s0 + self._f0 + self._r * (self._s1 + self._f1)
        expected = expected + _summed(self._retained, self._s + self._f)
        t = np.clip(expected / successes, least, most)
        if self._total_f <= 0.0:
            t = least
        work = np.empty_like(self._retained)
        for _ in range(_NEWTON_STEPS):
            np.subtract(t[:, :, None], self._retained, out=work)
            np.divide(1.0, work, out=work)
            before, after = 1.0 / (t - 1.0), 1.0 / (t - self._r)
            near = self._f0 * before + self._f1 * after + _summed(work, self._f)
            np.square(work, out=work)
            near_2 = self._f0 * before**2 + self._f1 * after**2 + _summed(work, self._f)
            g = t * near - self._total_f  # sum F h / (t - h), since h / (t - h) = t / (t - h) - 1
            fall = np.maximum(t * near_2 - near, 1e-300)
            moved = np.clip(t + g * (g / successes - 1.0) / fall, least, most)
            settled = bool(np.abs(1.0 / moved - 1.0 / t).max(initial=0.0) < _SETTLED)
            t = moved
            if settled:
                break
        return 1.0 / t, self._likelihood(1.0 / t, work)

    def _likelihood(self, m: Floats, work: Floats) -> Floats:
        np.multiply(self._retained, m[:, :, None], out=work)
        np.maximum(work, MU_FLOOR, out=work)
        after = np.maximum(self._r * m, MU_FLOOR)
        q: Floats = self._s1 * np.log(after) + self._f1 * np.log(1.0 - after)
        q += _summed(np.log(work), self._s)
        np.subtract(1.0, work, out=work)
        q += _summed(np.log(work, out=work), self._f)
        # Where nothing lies before the stretch, m0 itself is no cell's mean and may exceed 1.
        m = np.minimum(m, 1.0 - MU_FLOOR)
        q += self._s0 * np.log(m) + self._f0 * np.log(1.0 - m)
        return q


def _summed(values: Floats, weights: Floats) -> Floats:
    """Over the cells: (B, depths, W) times (B, W, 1) to (B, depths)."""
    out: Floats = np.matmul(values, weights)[:, :, 0]
    return out
