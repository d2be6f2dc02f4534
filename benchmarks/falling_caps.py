"""Caps from the fitted falling curve next to today's, on curves that only fall.

    python benchmarks/falling_caps.py [--runs 150] [--per-bin 20] [--only flat,step] [--jobs 2]

The classes of accept.py, and those that today's family does not hold: flat at other levels, exact
and nearly exact drops, stairs, smooth decay, five distinct lengths, scores that are calm on short
documents and 0 or 1 on long ones, dips. Per class and method: median share of the truly safe
examples that the cap covers (flat: of all), share of unsafe caps (at or beyond the first length
that has lost 30% of the true mean of the shortest 15%), share without a cap. 0/1 scores, one
question a document, unless the class says otherwise; 200 examples. Exact drops and dips are no
part of the sum in the last line.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial

import accept  # first: it says that NumPy is to use one thread
import numpy as np

from contextcliff_dagster.analysis.cliff.cap import certified_cap
from contextcliff_dagster.analysis.cliff.falling_cap import falling_cap
from contextcliff_dagster.analysis.curves.falling_curve import fit_falling_curve
from contextcliff_dagster.analysis.curves.loss_family import fit_losses
from contextcliff_dagster.analysis.design.simulation import (
    Design,
    Drawn,
    simulate,
    simulate_sample,
)
from contextcliff_dagster.analysis.design.true_curves import Curve
from contextcliff_dagster.analysis.records.samples import Documents
from contextcliff_dagster.contracts.arrays import Floats

Rng = np.random.Generator
TOLERANCE, CONFIDENCE, BASELINE = 0.3, 0.95, 0.15
LEFT_OUT = ("step .9 by 30%", "dip")


@dataclass(frozen=True, slots=True)
class Shape:
    """A true mean over the share of shorter examples; `Curve` with a function for its shape."""

    mean_at: Callable[[Floats], Floats]
    lengths: int | None = None
    calm_to: float = 0.0

    def first_loss(self, drawn: Drawn) -> float | None:
        mean = self.mean_at(drawn.share)
        first = max(int(np.searchsorted(drawn.share, BASELINE)), 1)
        lost = np.flatnonzero(mean <= (1.0 - TOLERANCE) * mean[:first].mean() + 1e-12)
        return float(drawn.share[lost[0]]) if len(lost) else None


def stairs(levels: list[float], cuts: list[float], lengths: int | None = None) -> Shape:
    def mean(share: Floats) -> Floats:
        out: Floats = np.array(levels)[np.searchsorted(cuts, share + 1e-9, side="right")]
        return out

    return Shape(mean, lengths)


def five(*levels: float) -> Shape:
    return stairs(list(levels), [0.2, 0.4, 0.6, 0.8], lengths=5)


def flat(level: float, calm_to: float = 0.0) -> Shape:
    return Shape(lambda share: np.full(len(share), level), calm_to=calm_to)


def step(level: float, drop: float, at: float, calm_to: float = 0.0) -> Shape:
    one = Curve("step", level, drop, at)
    return Shape(one.mean, calm_to=calm_to)


def decay(level: float, rest: float, rate: float) -> Shape:
    return Shape(lambda share: level * (rest + (1.0 - rest) * np.exp(-rate * share)))


def random_stairs(rng: Rng) -> Shape:
    level = accept.uniform(rng, 0.6, 0.95)
    return stairs([level * kept for kept in (1.0, 0.82, 0.6, 0.35)],
                  np.sort(rng.uniform(0.2, 0.9, 3)).tolist())  # fmt: skip


def dip(rng: Rng, width: float) -> Shape:
    start = accept.uniform(rng, 0.2, 0.6)
    return Shape(Curve("dip", 0.9, 0.5, start, start + width).mean)


SHAPES: dict[str, Callable[[Rng], Shape]] = {
    **{f"flat {level}": partial(lambda _, level: flat(level), level=level)
       for level in (0.5, 0.55, 0.7, 0.8, 0.95)},
    "step .9 by 30% at .5": lambda _: step(0.9, 0.30, 0.5),
    "step .9 by 33% at .5": lambda _: step(0.9, 0.33, 0.5),
    "step .9 by 35% at .5": lambda _: step(0.9, 0.35, 0.5),
    "step .8 by 35% at .6": lambda _: step(0.8, 0.35, 0.6),
    "step .9 by 50% at .3": lambda _: step(0.9, 0.50, 0.3),
    "stairs .9 .72 .5 .27": lambda _: stairs([0.9, 0.72, 0.5, 0.27], [0.25, 0.5, 0.75]),
    "stairs, random": random_stairs,
    "decay .2 + .7 exp(-6u)": lambda _: decay(0.9, 2 / 9, 6.0),
    "decay, random": lambda rng: decay(
        accept.uniform(rng, 0.6, 0.95), 0.15, accept.uniform(rng, 1.0, 8.0)
    ),
    "five lengths .9 .54 .54 .3 .1": lambda _: five(0.9, 0.54, 0.54, 0.3, 0.1),
    "five lengths .9 .62 .6 .3 .1": lambda _: five(0.9, 0.62, 0.6, 0.3, 0.1),
    "five lengths .9 .9 .58 .3 .1": lambda _: five(0.9, 0.9, 0.58, 0.3, 0.1),
    "calm, then 0/1: flat .7": lambda _: flat(0.7, calm_to=0.4),
    "calm, then 0/1: step .7 by 35%": lambda _: step(0.7, 0.35, 0.5, calm_to=0.4),
    "dip over 10%": lambda rng: dip(rng, 0.10),
    "dip over 25%": lambda rng: dip(rng, 0.25),
}  # fmt: skip
CLASSES = (*accept.CLASSES, *SHAPES)


def draw(name: str, per_bin: int, rng: Rng) -> tuple[Drawn, float | None]:
    """A data set of the class, and the share at which it has lost the tolerance."""
    if name in accept.CLASSES:
        draw_curve, draw_design = accept.CLASSES[name]
        curve = draw_curve(rng)
        drawn = simulate(draw_design(rng, per_bin), curve, rng)
        return drawn, curve.first_loss(TOLERANCE, drawn.share, drawn.log_length)
    shape, count = SHAPES[name](rng), 10 * per_bin
    lengths = np.sort(np.exp(rng.normal(9.0, 1.0, count)).astype(np.int64)) + 1
    if shape.lengths:
        lengths = np.repeat(1_000 * 2 ** np.arange(shape.lengths), count // shape.lengths)
    ones = np.ones(count, np.int64)
    plain = simulate_sample(lengths, ones, Design(binary=True), Curve("flat", 1.0), rng)
    mean = shape.mean_at(plain.share)
    scores = (rng.random(count) < mean).astype(np.float64)
    calm = np.clip(mean + rng.normal(0.0, 0.05, count), 0.0, 1.0)
    scores = np.where(plain.share < shape.calm_to, calm, scores)
    documents = Documents(lengths, ones.astype(np.float64), scores, shape.calm_to == 0)
    drawn = Drawn(documents, plain.share, plain.log_length)
    return drawn, shape.first_loss(drawn)


def one(seed: int, name: str, per_bin: int) -> tuple[float | None, float, float]:
    """Where the tolerance is lost, and both caps, as shares of the examples; 0: no cap."""
    rng = np.random.default_rng((seed, per_bin, CLASSES.index(name)))
    drawn, lost = draw(name, per_bin, rng)
    curve = fit_falling_curve(drawn.documents, BASELINE)
    losses = fit_losses(drawn.documents, TOLERANCE)
    caps = (
        falling_cap(curve, TOLERANCE, CONFIDENCE),
        certified_cap(losses, TOLERANCE, CONFIDENCE).tokens,
    )
    new, old = (drawn.share_up_to(cap) if cap else 0.0 for cap in caps)
    return lost, new, old


def cells(lost: list[float | None], caps: list[float]) -> tuple[str, list[bool]]:
    """Columns of one method, and which caps are unsafe."""
    safe = [cap / of for cap, of in zip(caps, lost, strict=True) if of]
    unsafe = [cap > of + 1e-9 for cap, of in zip(caps, lost, strict=True) if of is not None]
    covered = f"{np.median(safe):.2f}" if safe else f"({np.median(caps):.2f})"
    none = sum(cap == 0 for cap in caps) / len(caps)
    return f"{covered} | {accept.share(sum(unsafe), len(unsafe))} | {none:.2f}", unsafe


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=150, help="data sets a class")
    parser.add_argument("--per-bin", type=int, default=20)
    parser.add_argument("--only", default="", help="beginnings of class names, by comma")
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    columns = "cap / truth (flat: of the range) | unsafe caps | no cap"
    print(f"| class | falling curve: {columns} | today: {columns} |\n|{'---|' * 7}")
    totals: tuple[list[bool], list[bool]] = ([], [])
    with ProcessPoolExecutor(given.jobs) as pool:
        for name in CLASSES:
            if not name.startswith(tuple(given.only.split(","))):
                continue
            work = partial(one, name=name, per_bin=given.per_bin)
            results = list(pool.map(work, range(given.runs), chunksize=5))
            lost = [row[0] for row in results]
            line = f"| {name} |"
            for total, caps in zip(totals, zip(*(row[1:] for row in results), strict=True),
                                   strict=True):  # fmt: skip
                text, unsafe = cells(lost, list(caps))
                line += f" {text} |"
                if not name.startswith(LEFT_OUT):
                    total += unsafe
            print(line, flush=True)
    new, old = (accept.share(sum(total), len(total)) for total in totals)
    print(f"\nUnsafe over all: {new}; today {old}")


if __name__ == "__main__":
    main()
