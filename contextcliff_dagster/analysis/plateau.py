"""The plateau of a curve of given shape: the m0 that fits the scores best, many shapes at once.

A shape says which share of the loss has happened in every cell, 0 to 1; with a depth d the curve is
m0 (1 - d share). The likelihood is quasi-binomial, l = sum S log mu + (N - S) log(1 - mu). Shapes
of two levels have a closed form, all others take guarded Newton steps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

MU_FLOOR = 1e-3
"""No curve comes closer to 0 or 1."""
_START = 0.9
_NEWTON_STEPS = 10
_SETTLED = 2e-3
"""The step after one this small is a millionth: squared at every Newton step."""
_BLOCK = 512
"""Shapes at once: what they work on stays in the processor's cache."""


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


def profiled(share: Floats, depths: Floats, n: Floats, s: Floats) -> tuple[Floats, Floats]:
    """m0 and likelihood of every shape, ``share`` (P, G), at every depth: both (P, depths).

    ``n`` trials and ``s`` successes of the cells (G).
    """
    starts = range(0, max(len(share), 1), _BLOCK)
    parts = [_block(share[i : i + _BLOCK], depths, n, s) for i in starts]
    plateau, q = (np.concatenate(side) for side in zip(*parts, strict=True))
    return plateau, q


def _block(share: Floats, depths: Floats, n: Floats, s: Floats) -> tuple[Floats, Floats]:
    failures, total = n - s, float(s.sum())
    plateau, q = (np.empty((len(share), len(depths))) for _ in range(2))
    inverse, work = np.empty_like(share), np.empty_like(share)
    for column, depth in enumerate(depths):
        np.multiply(share, -depth, out=work)
        work += 1.0
        ceiling = (1.0 - MU_FLOOR) / work.max(axis=1)
        # From a wall of the logarithm Newton's steps only double the distance: not from there.
        m = np.clip(total / (work @ n), MU_FLOOR, _START * ceiling)
        np.divide(1.0, work, out=inverse)
        for _ in range(_NEWTON_STEPS):
            np.subtract(inverse, m[:, None], out=work)
            np.divide(1.0, work, out=work)
            slope = total / m - work @ failures
            curvature = total / m**2 + np.square(work, out=work) @ failures
            moved = m + slope / np.maximum(curvature, 1e-12)
            moved = np.clip(moved, np.maximum(MU_FLOOR, 0.3 * m), ceiling)
            settled = bool(np.abs(moved - m).max(initial=0.0) < _SETTLED)
            m = moved
            if settled:
                break
        np.divide(m[:, None], inverse, out=work)
        np.maximum(work, MU_FLOOR, out=work)
        plateau[:, column] = m
        q[:, column] = np.log(work, out=inverse) @ s
        np.subtract(1.0, work, out=work)
        q[:, column] += np.log(work, out=work) @ failures
    return plateau, q
