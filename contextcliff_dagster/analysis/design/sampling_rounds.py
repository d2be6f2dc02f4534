"""Pilot, then targeted: which bins give how many more examples, and why.

A study asks whole bins, each in the order of its manifest, so a round is a number of examples for
every bin. The first is the pilot, the same for each; the others follow `allocation.weigh`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from contextcliff_dagster.analysis.cliff.cap import DEPTH, chance_allowed, tail_confidence
from contextcliff_dagster.analysis.curves.falling_curve import fit_falling_curve
from contextcliff_dagster.analysis.design.allocation import (
    Stop,
    apportion,
    bins_of,
    take_aim,
    weigh,
)
from contextcliff_dagster.analysis.design.loss_window import locate_loss, rank_cells
from contextcliff_dagster.contracts import StudyError

if TYPE_CHECKING:
    from contextcliff_dagster.analysis.design.loss_window import Window
    from contextcliff_dagster.analysis.records.samples import Documents
    from contextcliff_dagster.analysis.records.settings import AnalysisSettings
    from contextcliff_dagster.contracts.arrays import Ints

UNTIL = (0.01, 0.25)
"""Least and largest half-width: a window is no narrower than a cell, and wider ones say nothing."""


@dataclass(frozen=True, slots=True)
class Target:
    """When to stop, and in which steps.

    Attributes:
        pilot: examples of each bin before anything is aimed at.
        half_width: of the window that is to hold the place of the loss, share of the examples.
        batch: examples of a round.

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
    """What to ask next.

    Attributes:
        more: examples to add, by bin; empty when ``done``.
        asked: examples asked so far, by bin.
        window: where the drop most likely is reached; ``None`` before the pilot.
        none: probability that it never is.
        done: why nothing more is asked; ``None`` while sampling goes on.
        drop: the one looked for, relative; where it may be reached, the cap ends.
    """

    more: Mapping[str, int]
    asked: Mapping[str, int]
    window: Window | None
    none: float
    done: Stop | None
    drop: float

    @property
    def samples(self) -> dict[str, int]:
        """Examples each bin of the round is to have in the end."""
        return {bin: self.asked.get(bin, 0) + more for bin, more in self.more.items()}

    @property
    def belief(self) -> str:
        """What is known so far, as half a sentence."""
        if self.window is None:
            return "nothing is known yet"
        where = (
            f"a drop of {self.drop:.0%} is reached between {self.window.from_tokens:,} and "
            f"{self.window.to_tokens:,} tokens with probability {int(100 * self.window.mass)}%"
        )
        return where if self.none < 0.005 else f"{where}, and nowhere with {self.none:.0%}"

    def number(self, target: Target) -> int:
        """Which round this is, the pilot being the first, as its examples tell."""
        later = sum(self.asked.values()) - target.pilot * len(self.asked)
        return 1 if self.window is None else 2 + max(later, 0) // target.batch

    def sentence(self, number: int) -> str:
        """Why this is asked, or why nothing is; ``number`` counts rounds, the pilot is 1."""
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
        """JSON-ready."""
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
    """The next round after ``documents`` were scored.

    Args:
        candidates: bin -> lengths (tokens) of all examples it can give, those asked included.
        asked: bin -> examples asked already, answered or not.
    """
    drop = DEPTH * settings.tolerance
    there = {bin: len(lengths) for bin, lengths in candidates.items() if len(lengths)}
    so_far = {bin: min(asked.get(bin, 0), most) for bin, most in there.items()}
    cells = rank_cells(np.concatenate([candidates[bin] for bin in there]))
    # With one length there is nothing to aim at.
    pilot = target.pilot if len(cells.share) > 1 else max(there.values())
    short = {bin: min(pilot, most) - so_far[bin] for bin, most in there.items()}
    if first := {bin: more for bin, more in short.items() if more > 0}:
        return Round(first, so_far, None, 0.0, None, drop)
    if len(cells.share) == 1:
        return Round({}, so_far, None, 0.0, "exhausted", drop)
    posterior = locate_loss(documents, cells, drop, settings.baseline_share)
    safe = 1.0 - chance_allowed(settings.tolerance, settings.confidence, float(documents.n.sum()))
    aim = take_aim(posterior, target.half_width, settings.confidence, safe)
    left = np.array([there[bin] - so_far[bin] for bin in there])
    done: Stop | None = aim.done
    if done == "no_loss" and (unseen := _unseen(documents, candidates, target, settings)):
        longest = np.array([there[bin] - so_far[bin] if bin in unseen else 0 for bin in there])
        if longest.any():
            left, done = longest, None
    if done is None and not left.any():
        done = "exhausted"
    more: dict[str, int] = {}
    if done is None:
        edges = {bin: (int(candidates[bin].min()), int(candidates[bin].max())) for bin in there}
        group, names = bins_of(cells, edges)
        weight = weigh(posterior, aim.window, group, len(names))
        given = apportion(weight, left, target.batch)
        more = {bin: int(n) for bin, n in zip(names, given, strict=True) if n}
    return Round(more, so_far, aim.window, aim.none, done, drop)


def _unseen(
    documents: Documents,
    candidates: Mapping[str, Ints],
    target: Target,
    settings: AnalysisSettings,
) -> set[str]:
    """The bins of the longest examples, as long as the answers on them do not refute a loss alone.

    Empty where what is left of the range is no wider than the window that is looked for.
    """
    curve = fit_falling_curve(documents, settings.baseline_share)
    supported = curve.supported(settings.tolerance, tail_confidence(settings.confidence))
    if supported is None:
        return set()
    lengths = np.concatenate([*candidates.values()])
    if (lengths > supported).mean() <= 2.0 * target.half_width:
        return set()
    return {bin for bin, of_bin in candidates.items() if len(of_bin) and of_bin.max() > supported}
