"""Adaptive allocation: which lengths to sample next, and the rounds of sampling.

The question is which window of the target width contains the loss. A score from cell g is more
informative the more its probability differs between the answers "before the window", "inside" and
"after it, or nowhere" (c, with posterior weights w_c):

    I_g = H(p_g) - sum_c w_c H(p_gc),   H(p) = -p log p - (1 - p) log(1 - p),

with p_gc the predicted score in g under c and p_g = sum_c w_c p_gc: the mutual information of score
and answer, the expected information of a Bayesian experimental design (Lindley 1956, Ann. Math.
Stat. 27, 986-1005; Chaloner and Verdinelli 1995, Statistical Science 10, 273-304), for a 0/1 score
with that mean. A graded score is more informative, by a similar factor everywhere. Examples are
drawn with weight (I_g / cost_g)^3, cost_g the mean tokens of an example in g: per token, because
long documents are expensive; cubed, not only the best cell, because the posterior may be wrong.

Sampling stops when the window has 95% probability, the cap is the longest length, or no examples
are left. The next draw depends on scores only through lengths, and within a cell or bin documents
come in a fixed order. So, given the lengths, the likelihood of all scores and the posterior are the
same as if the lengths had been chosen at the start (Berger and Wolpert 1988, The Likelihood
Principle, chapter 4). The argument does not cover tail probabilities of a verdict reached this way,
so benchmarks/sequential.py measures them.

A study samples each bin in the order of its manifest, so a round is a number of examples per bin.
The first round is the pilot, with equal numbers; later rounds follow `weigh`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from contextcliff_dagster.analysis.cliff import DEPTH, chance_allowed, tail_confidence
from contextcliff_dagster.analysis.design.true_curves import locate_loss, rank_cells
from contextcliff_dagster.analysis.statistics.falling_curve import fit_falling_curve
from contextcliff_dagster.contracts import StudyError

if TYPE_CHECKING:
    from contextcliff_dagster.analysis.design.true_curves import LossPlace, RankCells, Window
    from contextcliff_dagster.analysis.records import AnalysisSettings, Documents
    from contextcliff_dagster.contracts.arrays import Floats, Ints

SHARPNESS = 3.0
_EXPLORE = 0.02
"""Minimum weight of a group relative to the best one, because the posterior may be wrong."""

Stop = Literal["located", "no_loss", "exhausted"]


@dataclass(frozen=True)
class Aim:
    """The next step according to the posterior.

    ``window``: most probable window of the loss. ``none``: probability that there is no loss.
    ``done``: why sampling ends; ``None`` while it continues.
    """

    window: Window
    none: float
    done: Literal["located", "no_loss"] | None


def take_aim(posterior: LossPlace, half_width: float, enough: float, safe: float) -> Aim:
    """Return the most probable window, ± ``half_width`` (share of examples), and whether to stop.

    Args:
        enough: sampling ends when the window has this probability.
        safe: the cap is the longest length once P(no loss) reaches this value.
    """
    window = posterior.window(half_width)
    if window.mass >= enough:
        return Aim(window, posterior.none, "located")
    return Aim(window, posterior.none, "no_loss" if posterior.none >= safe else None)


def information(posterior: LossPlace, window: Window) -> Floats:
    """Return the expected information of one score per cell about the window, in nats (G)."""
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
    """Return the weight of each of ``count`` groups of cells in the next batch, summing to 1.

    ``group``: bin number of each cell (G); -1 for no bin. Examples within a group come in a fixed
    order, so its information and cost are averages over its cells.
    """
    in_group = group >= 0
    share = posterior.cells.share * in_group

    def mean(of: Floats) -> Floats:
        summed = np.bincount(group[in_group], weights=(share * of)[in_group], minlength=count)
        total = np.bincount(group[in_group], weights=share[in_group], minlength=count)
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
    """Return whole numbers near ``batch`` x ``weight``, at most ``left``, that sum to ``batch``.

    Uses the largest-remainder method; a group's shortfall goes to the others by weight.
    """
    counts = np.zeros(len(weight), dtype=np.int64)
    while (shortfall := min(batch, int(left.sum())) - int(counts.sum())) > 0:
        open_ = np.where(counts < left, weight, 0.0)
        if open_.sum() <= 0:
            open_ = (counts < left).astype(np.float64)
        exact = shortfall * open_ / open_.sum()
        whole = np.floor(exact + 1e-9).astype(np.int64)
        order = np.argsort(-(exact - whole), kind="stable")
        whole[order[: shortfall - int(whole.sum())]] += 1
        counts = np.minimum(counts + whole, left)
    return counts


def bins_of(cells: RankCells, edges: Mapping[str, tuple[int, int]]) -> tuple[Ints, list[str]]:
    """Return which bin contains each cell's middle (G; -1: none), and the bins' keys.

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


UNTIL = (0.01, 0.25)
"""Minimum and maximum half-width: cells limit the precision; wide windows say nothing."""


@dataclass(frozen=True, slots=True)
class Target:
    """Precision and batch sizes of adaptive sampling.

    Attributes:
        pilot: examples per bin in the first round.
        half_width: half-width of the window that must hold the loss, as a fraction of the examples.
        batch: examples per later round.

    Raises:
        StudyError: a value is outside its range.
    """

    pilot: int = 5
    half_width: float = 0.05
    batch: int = 20

    def __post_init__(self) -> None:
        low, high = UNTIL
        if not low <= self.half_width <= high:
            raise StudyError(
                f"The drop cannot be located to ±{self.half_width:.3%} of the examples: choose "
                f"{low:.0%} to {high:.0%}."
            )
        for name in ("pilot", "batch"):
            if getattr(self, name) < 1:
                raise StudyError(
                    f"A {name} of {getattr(self, name)} examples is too small: choose 1 or more."
                )


@dataclass(frozen=True)
class Round:
    """The next round of sampling.

    Attributes:
        more: examples to add, by bin; empty when ``done``.
        asked: examples asked so far, by bin.
        window: likeliest window of the drop; ``None`` before the pilot.
        none: probability that the score never falls by ``drop``.
        done: why sampling ends; ``None`` while it continues.
        drop: the relative drop to locate; the cap ends where it may be reached.
    """

    more: Mapping[str, int]
    asked: Mapping[str, int]
    window: Window | None
    none: float
    done: Stop | None
    drop: float

    @property
    def samples(self) -> dict[str, int]:
        """Return the number of examples of each bin after this round."""
        return {bin: self.asked.get(bin, 0) + more for bin, more in self.more.items()}

    @property
    def belief(self) -> str:
        """Return a clause on what is known about the loss so far."""
        if self.window is None:
            return "nothing is known yet"
        where = (
            f"a drop of {self.drop:.0%} is reached between {self.window.from_tokens:,} and "
            f"{self.window.to_tokens:,} tokens with probability {int(100 * self.window.mass)}%"
        )
        return where if self.none < 0.005 else f"{where}, and nowhere with {self.none:.0%}"

    def number(self, target: Target) -> int:
        """Return the number of this round, derived from the examples asked; the pilot is 1."""
        later = sum(self.asked.values()) - target.pilot * len(self.asked)
        return 1 if self.window is None else 2 + max(later, 0) // target.batch

    def sentence(self, number: int) -> str:
        """Return why this round is run or sampling stops; the pilot has ``number`` 1."""
        total = sum(self.asked.values())
        if self.done == "located":
            return f"Done after {total:,} examples: {self.belief}."
        if self.done == "no_loss":
            return (
                f"Done after {total:,} examples: no drop of {self.drop:.0%} over the range, with "
                f"probability {int(100 * self.none)}%."
            )
        if self.done == "exhausted":
            return f"All {total:,} examples are measured: {self.belief}."
        count = sum(self.more.values())
        bins = ", ".join(bin for bin, more in self.more.items() if more)
        if self.window is None:
            return f"Pilot: {count:,} examples in {bins}."
        return f"Round {number}: {count:,} more examples in {bins}: {self.belief}."

    def to_dict(self) -> dict[str, Any]:
        """Return the round as a JSON object."""
        w = self.window
        return {
            "more": dict(self.more),
            "samples": self.samples,
            "asked": sum(self.asked.values()),
            "from_tokens": w and w.from_tokens,
            "to_tokens": w and w.to_tokens,
            "probability": w and w.mass,
            "no_loss_probability": self.none,
            "done": self.done,
        }


def plan_round(
    documents: Documents,
    candidates: Mapping[str, Ints],
    asked: Mapping[str, int],
    target: Target,
    settings: AnalysisSettings,
) -> Round:
    """Return the next round, given the scored ``documents``.

    Args:
        candidates: bin -> lengths (tokens) of all its examples, including those already asked.
        asked: bin -> number of examples asked already, answered or not.
    """
    drop = DEPTH * settings.tolerance
    sizes = {bin: len(lengths) for bin, lengths in candidates.items() if len(lengths)}
    so_far = {bin: min(asked.get(bin, 0), most) for bin, most in sizes.items()}
    cells = rank_cells(np.concatenate([candidates[bin] for bin in sizes]))
    # With a single length there is nothing to locate.
    pilot = target.pilot if len(cells.share) > 1 else max(sizes.values())
    pilot_missing = {bin: min(pilot, most) - so_far[bin] for bin, most in sizes.items()}
    if first := {bin: more for bin, more in pilot_missing.items() if more > 0}:
        return Round(first, so_far, None, 0.0, None, drop)
    if len(cells.share) == 1:
        return Round({}, so_far, None, 0.0, "exhausted", drop)
    posterior = locate_loss(documents, cells, drop, settings.baseline_share)
    safe = 1.0 - chance_allowed(settings.tolerance, settings.confidence, float(documents.n.sum()))
    aim = take_aim(posterior, target.half_width, settings.confidence, safe)
    left = np.array([sizes[bin] - so_far[bin] for bin in sizes])
    done: Stop | None = aim.done
    if done == "no_loss" and (unseen := _unseen(documents, candidates, target, settings)):
        longest = np.array([sizes[bin] - so_far[bin] if bin in unseen else 0 for bin in sizes])
        if longest.any():
            left, done = longest, None
    if done is None and not left.any():
        done = "exhausted"
    more: dict[str, int] = {}
    if done is None:
        edges = {bin: (int(candidates[bin].min()), int(candidates[bin].max())) for bin in sizes}
        group, names = bins_of(cells, edges)
        weight = weigh(posterior, aim.window, group, len(names))
        batch_by_bin = apportion(weight, left, target.batch)
        more = {bin: int(n) for bin, n in zip(names, batch_by_bin, strict=True) if n}
    return Round(more, so_far, aim.window, aim.none, done, drop)


def _unseen(
    documents: Documents,
    candidates: Mapping[str, Ints],
    target: Target,
    settings: AnalysisSettings,
) -> set[str]:
    """Return the longest bins whose answers alone cannot rule out a loss.

    Empty if the remaining range is no wider than the target window.
    """
    curve = fit_falling_curve(documents, settings.baseline_share)
    supported = curve.supported(settings.tolerance, tail_confidence(settings.confidence))
    if supported is None:
        return set()
    lengths = np.concatenate([*candidates.values()])
    if (lengths > supported).mean() <= 2.0 * target.half_width:
        return set()
    return {bin for bin, of_bin in candidates.items() if len(of_bin) and of_bin.max() > supported}
