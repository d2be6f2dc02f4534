"""Planted classes of accept.py: curves of known truth, and samples from them.

`CURVES` come by the design of a study: 200 questions of a pool of 2,000, graded unless named
otherwise. `SHAPES` are 0/1 scores, one question a document: flat at other levels, exact and nearly
exact drops, stairs, smooth decay, five distinct lengths, scores that are calm on short documents
and 0 or 1 on long ones, narrow dips.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from contextcliff_dagster.analysis.design.error_rates import (
    Design,
    Drawn,
    simulate,
    simulate_sample,
)
from contextcliff_dagster.analysis.design.true_curves import Curve
from contextcliff_dagster.analysis.records import Documents
from contextcliff_dagster.contracts.arrays import Floats

Rng = np.random.Generator


def uniform(rng: Rng, low: float, high: float) -> float:
    return float(rng.uniform(low, high))


def mixed(rng: Rng, per_bin: int) -> Design:
    return Design(per_bin=per_bin, questions=(1, 8), correlation=uniform(rng, 0.02, 0.30))


def single(rng: Rng, per_bin: int) -> Design:
    return replace(mixed(rng, per_bin), questions=(1, 1))


def binary(rng: Rng, per_bin: int) -> Design:
    return replace(mixed(rng, per_bin), binary=True)


def repeated(rng: Rng, per_bin: int) -> Design:
    return replace(mixed(rng, per_bin), replicates=3)


def clustered(rng: Rng, per_bin: int) -> Design:
    return Design(per_bin=per_bin, questions=(8, 8), correlation=0.3)


def clustered_sample(rng: Rng, per_bin: int) -> Design:
    return replace(clustered(rng, per_bin), pool=None)


def flat(rng: Rng, baseline: float) -> Curve:
    return Curve("flat", baseline)


def step(rng: Rng, baseline: float | None = None) -> Curve:
    level = uniform(rng, 0.45, 0.75) if baseline is None else baseline
    return Curve("step", level, uniform(rng, 0.35, 0.80), uniform(rng, 0.20, 0.85))


def power_step(rng: Rng) -> Curve:
    return replace(step(rng, 0.55), drop=0.45)


def zone(rng: Rng) -> Curve:
    curve = step(rng)
    return replace(curve, noisy_from=max(curve.place - 0.2, 0.0))


def dip(rng: Rng) -> Curve:
    curve = replace(step(rng), shape="dip", place=uniform(rng, 0.20, 0.60))
    return replace(curve, end=curve.place + uniform(rng, 0.15, 0.30))


def ramp(rng: Rng) -> Curve:
    curve = replace(step(rng), shape="ramp", place=uniform(rng, 0.20, 0.60))
    return replace(curve, end=min(curve.place + uniform(rng, 0.10, 0.40), 1.0))


def deep(rng: Rng) -> Curve:
    """Draw a decline over the whole range, from the first length on."""
    return Curve("ramp", uniform(rng, 0.45, 0.75), uniform(rng, 0.50, 0.80), 0.0, 1.0)


def logistic(rng: Rng) -> Curve:
    """Draw a curve like the reference models': flat, then a steep fall within a factor of two."""
    place = uniform(rng, 0.30, 0.70)
    end = min(place + uniform(rng, 0.08, 0.25), 0.97)
    return Curve("logistic", uniform(rng, 0.60, 0.98), uniform(rng, 0.80, 0.98), place, end)


def mild(rng: Rng) -> Curve:
    curve = replace(step(rng), drop=uniform(rng, 0.05, 0.20))
    if rng.random() < 0.5:
        return curve
    return replace(curve, shape="ramp", place=uniform(rng, 0.1, 0.5), end=uniform(rng, 0.6, 1.0))


CURVES: dict[str, tuple[Callable[[Rng], Curve], Callable[[Rng, int], Design]]] = {
    "flat .55": (partial(flat, baseline=0.55), mixed),
    "flat .95": (partial(flat, baseline=0.95), mixed),
    "flat .50, 0/1": (partial(flat, baseline=0.50), binary),
    "flat .55, clustered": (partial(flat, baseline=0.55), clustered),
    "flat .55, 8 a document in the sample": (partial(flat, baseline=0.55), clustered_sample),
    "mild decline": (mild, mixed),
    "step, one question": (step, single),
    "step": (step, mixed),
    "step, 0/1": (step, binary),
    "step, three repeats": (step, repeated),
    "step from .95": (partial(step, baseline=0.95), mixed),
    "step, clustered": (step, clustered),
    "step, 8 a document in the sample": (step, clustered_sample),
    "step after a noisy zone": (zone, mixed),
    "dip": (dip, mixed),
    "dip, 0/1": (dip, binary),
    "ramp": (ramp, mixed),
    "ramp, 0/1": (ramp, binary),
    "logistic, 0/1": (logistic, binary),
    "decline from the start": (deep, mixed),
    "45% of .55, one question": (power_step, single),
    "45% of .55": (power_step, mixed),
    "45% of .55, 0/1": (power_step, binary),
    "45% of .55, clustered": (power_step, clustered),
}


@dataclass(frozen=True, slots=True)
class Shape:
    """A true mean over the share of shorter examples: a `Curve` with a function as its shape."""

    mean_at: Callable[[Floats], Floats]
    lengths: int | None = None
    calm_to: float = 0.0
    outliers: tuple[int, float] = (0, 1.0)
    shape: str = "any"
    place: float = 1.0

    def first_loss(
        self, tolerance: float, share: Floats, log_length: Floats, baseline_share: float = 0.15
    ) -> float | None:
        """Return the first loss, like `Curve.first_loss`."""
        mean = self.mean_at(share)
        first = max(int(np.searchsorted(share, baseline_share)), 1)
        lost = np.flatnonzero(mean <= (1.0 - tolerance) * mean[:first].mean() + 1e-12)
        return float(share[lost[0]]) if len(lost) else None


def stairs(levels: list[float], cuts: list[float], lengths: int | None = None) -> Shape:
    def mean(share: Floats) -> Floats:
        out: Floats = np.array(levels)[np.searchsorted(cuts, share + 1e-9, side="right")]
        return out

    return Shape(mean, lengths)


def five(*levels: float) -> Shape:
    return stairs(list(levels), [0.2, 0.4, 0.6, 0.8], lengths=5)


def flat_at(level: float, calm_to: float = 0.0) -> Shape:
    return Shape(lambda share: np.full(len(share), level), calm_to=calm_to)


def step_at(level: float, drop: float, at: float, calm_to: float = 0.0) -> Shape:
    one = Curve("step", level, drop, at)
    return Shape(one.mean, calm_to=calm_to, shape="step", place=at)


def decay(level: float, rest: float, rate: float) -> Shape:
    return Shape(lambda share: level * (rest + (1.0 - rest) * np.exp(-rate * share)))


def late(rng: Rng) -> Shape:
    return step_at(uniform(rng, 0.5, 0.95), uniform(rng, 0.4, 0.9), uniform(rng, 0.85, 0.99))


def late_curve(rng: Rng) -> Curve:
    return Curve("step", uniform(rng, 0.5, 0.95), uniform(rng, 0.4, 0.9), uniform(rng, 0.85, 0.99))


def few(rng: Rng, per_bin: int, questions: int, correlation: float) -> Design:
    """Draw all questions of a few documents, as a small team would have."""
    return Design(
        per_bin=per_bin, questions=(questions, questions), correlation=correlation, pool=None,
        binary=True,
    )  # fmt: skip


def outlying(rng: Rng, count: int, kept: float) -> Shape:
    """Draw a sample whose ``count`` longest documents are 4 to 100 times as long."""
    shape = Shape(
        lambda share: np.where(np.arange(len(share)) < len(share) - count, 0.9, 0.9 * kept)
    )
    return replace(shape, outliers=(count, float(np.exp(uniform(rng, np.log(4.0), np.log(100.0))))))


def random_stairs(rng: Rng) -> Shape:
    level = uniform(rng, 0.6, 0.95)
    return stairs([level * kept for kept in (1.0, 0.82, 0.6, 0.35)],
                  np.sort(rng.uniform(0.2, 0.9, 3)).tolist())  # fmt: skip


def dip_over(rng: Rng, width: float) -> Shape:
    start = uniform(rng, 0.2, 0.6)
    return Shape(Curve("dip", 0.9, 0.5, start, start + width).mean)


SHAPES: dict[str, Callable[[Rng], Shape]] = {
    **{f"flat {level}, 0/1, one question": partial(lambda _, level: flat_at(level), level=level)
       for level in (0.5, 0.55, 0.7, 0.8, 0.95)},
    "step .9 by 30% at .5": lambda _: step_at(0.9, 0.30, 0.5),
    "step .9 by 33% at .5": lambda _: step_at(0.9, 0.33, 0.5),
    "step .9 by 35% at .5": lambda _: step_at(0.9, 0.35, 0.5),
    "step .8 by 35% at .6": lambda _: step_at(0.8, 0.35, 0.6),
    "step .9 by 50% at .3": lambda _: step_at(0.9, 0.50, 0.3),
    "stairs .9 .72 .5 .27": lambda _: stairs([0.9, 0.72, 0.5, 0.27], [0.25, 0.5, 0.75]),
    "stairs, random": random_stairs,
    "decay .2 + .7 exp(-6u)": lambda _: decay(0.9, 2 / 9, 6.0),
    "decay, random": lambda rng: decay(
        uniform(rng, 0.6, 0.95), 0.15, uniform(rng, 1.0, 8.0)
    ),
    "five lengths .9 .54 .54 .3 .1": lambda _: five(0.9, 0.54, 0.54, 0.3, 0.1),
    "five lengths .9 .62 .6 .3 .1": lambda _: five(0.9, 0.62, 0.6, 0.3, 0.1),
    "five lengths .9 .9 .58 .3 .1": lambda _: five(0.9, 0.9, 0.58, 0.3, 0.1),
    "calm, then 0/1: flat .7": lambda _: flat_at(0.7, calm_to=0.4),
    "calm, then 0/1: step .7 by 35%": lambda _: step_at(0.7, 0.35, 0.5, calm_to=0.4),
    "dip over 10%": lambda rng: dip_over(rng, 0.10),
    "dip over 25%": lambda rng: dip_over(rng, 0.25),
}  # fmt: skip

LATE: dict[str, Callable[[Rng], Shape]] = {
    "late step, random": late,
    "late step, .9 by 50% at .97": lambda _: step_at(0.9, 0.5, 0.97),
    "late step, .9 by 50% at .95": lambda _: step_at(0.9, 0.5, 0.95),
    "late step, .9 by 40% at .95": lambda _: step_at(0.9, 0.4, 0.95),
    "late step, .9 by 50% at .99": lambda _: step_at(0.9, 0.5, 0.99),
    "outlier, always wrong": partial(outlying, count=1, kept=0.0),
    **{f"{count} outliers, half right": partial(outlying, count=count, kept=0.5)
       for count in (2, 4, 8, 12)},
    "ten long answers, two thirds right": partial(outlying, count=10, kept=2 / 3),
}  # fmt: skip
SHAPES |= LATE
CURVES |= {
    f"late step, {questions} a document, correlation {rho}": (
        late_curve, partial(few, questions=questions, correlation=rho)
    )
    for questions, rho in ((6, 0.3), (6, 0.6), (5, 0.3), (5, 0.6))
}  # fmt: skip

CLASSES = (*CURVES, *SHAPES)


def draw(name: str, per_bin: int, rng: Rng) -> tuple[Drawn, Curve | Shape]:
    """Draw a data set of the class; return it with its truth."""
    if name in CURVES:
        draw_curve, draw_design = CURVES[name]
        curve = draw_curve(rng)
        return simulate(draw_design(rng, per_bin), curve, rng), curve
    shape, count = SHAPES[name](rng), 10 * per_bin
    lengths = np.sort(np.exp(rng.normal(9.0, 1.0, count)).astype(np.int64)) + 1
    if shape.lengths:
        lengths = np.repeat(1_000 * 2 ** np.arange(shape.lengths), count // shape.lengths)
    far, factor = shape.outliers
    lengths[count - far :] = lengths[-1] * factor * (1.0 + 0.1 * np.arange(far))
    ones = np.ones(count, np.int64)
    plain = simulate_sample(lengths, ones, Design(binary=True), Curve("flat", 1.0), rng)
    mean = shape.mean_at(plain.share)
    scores = (rng.random(count) < mean).astype(np.float64)
    calm = np.clip(mean + rng.normal(0.0, 0.05, count), 0.0, 1.0)
    scores = np.where(plain.share < shape.calm_to, calm, scores)
    documents = Documents(lengths, ones.astype(np.float64), scores, shape.calm_to == 0)
    return Drawn(documents, plain.share, plain.log_length), shape
