"""Where the next tokens teach most about where a loss lies, and when enough is known.

The question is which window of the wanted width holds the place of the loss. A score from cell g
tells the more of it the more its chance differs between the answers "before the window", "inside"
and "after it, or nowhere" (c, with posterior weights w_c):

    I_g = H(p_g) - sum_c w_c H(p_gc),   H(p) = -p log p - (1 - p) log(1 - p),

p_gc the predicted score in g under c and p_g = sum_c w_c p_gc: the mutual information of score and
answer, the expected information of a Bayesian experimental design (Lindley 1956, Ann. Math. Stat.
27, 986-1005; Chaloner and Verdinelli 1995, Statistical Science 10, 273-304), for a 0/1 score with
that mean. A graded score tells more, by a like factor everywhere. Examples are drawn with weight
(I_g / cost_g)^3, cost_g the mean tokens of an example there: per token, since long ones are dear,
and cubed, since the best cell alone would stake everything on a posterior that may be wrong.

Sampling stops when the window holds 95%, when the cap is the longest length, or when nothing is
left to ask. What is drawn depends on scores only through lengths, and within a cell, or a bin,
documents come in an order that was fixed beforehand. So given the lengths the likelihood of all
scores is what it would be had the lengths been chosen at the start (Berger and Wolpert 1988, The
Likelihood Principle, chapter 4), and so is the posterior; tail probabilities of a verdict reached
this way are not covered by that argument, so benchmarks/sequential.py measures them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    from contextcliff_dagster.analysis.design.loss_window import LossPlace, RankCells, Window
    from contextcliff_dagster.contracts.arrays import Floats, Ints


SHARPNESS = 3.0
_EXPLORE = 0.02
"""Least share of the best group's weight that a group keeps: a posterior may be wrong."""

Stop = Literal["located", "no_loss", "exhausted"]


@dataclass(frozen=True)
class Aim:
    """What the posterior says to do next.

    ``window``: where the loss most likely lies. ``none``: probability that there is none.
    ``done``: why sampling ends, ``None`` while it goes on.
    """

    window: Window
    none: float
    done: Literal["located", "no_loss"] | None


def take_aim(posterior: LossPlace, half_width: float, enough: float, safe: float) -> Aim:
    """The likeliest window of ± ``half_width`` (share of the examples), and whether to go on.

    Args:
        enough: probability at which a window is taken as found.
        safe: that of no loss at which the cap is the longest length.
    """
    window = posterior.window(half_width)
    if window.mass >= enough:
        return Aim(window, posterior.none, "located")
    return Aim(window, posterior.none, "no_loss" if posterior.none >= safe else None)


def information(posterior: LossPlace, window: Window) -> Floats:
    """Nats that one score in each cell is expected to give about the window (G)."""
    answer = np.searchsorted((window.first, window.last + 1), posterior.first, side="right")
    weights = np.bincount(answer, minlength=3) / len(answer)
    p = np.stack(
        [
            posterior.mean[answer == c].mean(axis=0) if weights[c] else posterior.mean[0]
            for c in range(3)
        ]
    )
    w = weights[:, None]
    out: Floats = np.maximum(_entropy((w * p).sum(axis=0)) - (w * _entropy(p)).sum(axis=0), 0.0)
    return out


def weigh(posterior: LossPlace, window: Window, group: Ints, count: int) -> Floats:
    """Weight of each of ``count`` groups of cells in the next batch, summing to 1.

    ``group``: of each cell (G), a bin's number; -1 for none. Within a group examples come in an
    order of their own, so that its information and its cost are those of an average cell.
    """
    inside = group >= 0
    share = posterior.cells.share * inside

    def mean(of: Floats) -> Floats:
        summed = np.bincount(group[inside], weights=(share * of)[inside], minlength=count)
        total = np.bincount(group[inside], weights=share[inside], minlength=count)
        return summed / np.maximum(total, 1e-300)

    cost = mean(posterior.cells.cost)
    rate = np.divide(
        mean(information(posterior, window)), cost, out=np.zeros(count), where=cost > 0
    )
    if rate.max() <= 0:
        rate = (cost > 0).astype(np.float64)
    weight = (rate / rate.max()) ** SHARPNESS
    weight = np.where(cost > 0, np.maximum(weight, _EXPLORE / count), 0.0)
    out: Floats = weight / weight.sum()
    return out


def apportion(weight: Floats, left: Ints, batch: int) -> Ints:
    """Whole numbers near ``batch`` x ``weight``, none above ``left``; they sum to what there is.

    By largest remainders; what a group cannot give goes to the others by their weight.
    """
    given = np.zeros(len(weight), dtype=np.int64)
    while (wanted := min(batch, int(left.sum())) - int(given.sum())) > 0:
        open_ = np.where(given < left, weight, 0.0)
        if open_.sum() <= 0:
            open_ = (given < left).astype(np.float64)
        exact = wanted * open_ / open_.sum()
        whole = np.floor(exact + 1e-9).astype(np.int64)
        order = np.argsort(-(exact - whole), kind="stable")
        whole[order[: wanted - int(whole.sum())]] += 1
        given = np.minimum(given + whole, left)
    return given


def bins_of(cells: RankCells, edges: Mapping[str, tuple[int, int]]) -> tuple[Ints, list[str]]:
    """The bin that holds the middle of each cell, as a number (G; -1: none), and the bins' keys.

    ``edges``: bin -> lowest and highest length in tokens, both inclusive.
    """
    names = list(edges)
    middle = 0.5 * (cells.low + cells.high)
    group = np.full(len(middle), -1, dtype=np.int64)
    for number, (low, high) in enumerate(edges.values()):
        group[(middle >= low) & (middle < high + 1)] = number
    return group, names


def _entropy(p: Floats) -> Floats:
    q = np.clip(p, 1e-12, 1.0 - 1e-12)
    return -q * np.log(q) - (1.0 - q) * np.log1p(-q)
