"""Which curves a calibration plants: random steps, ramps, dips, logistic declines, and none."""

from __future__ import annotations

import numpy as np

from contextcliff_dagster.analysis.design.true_curves import Curve

FLAT, STEP, STEPS, RAMP, DIP, LOGISTIC = "flat", "step", "steps", "ramp", "dip", "logistic"
ORDER = (
    FLAT, STEP, STEPS, FLAT, RAMP, STEP, FLAT, DIP, STEP, LOGISTIC,
    FLAT, STEP, STEPS, FLAT, RAMP, FLAT, STEP, DIP, STEPS, LOGISTIC,
)  # fmt: skip
"""What is planted, in turn: any number of simulations is mixed alike, and begins the larger."""
KINDS = (FLAT, STEP, STEPS, RAMP, DIP, LOGISTIC)
FOUND_DROP = 1.5
"""The drop that power is stated for, in tolerances: 45% at a tolerance of 30%."""
_DEEP, _MOST = (7 / 6, 8 / 3), 0.9
"""Least and largest other drops in tolerances, and the largest at all: 35 to 80% at 30%."""


def drops(kind: str, tolerance: float) -> tuple[float, float]:
    """Least and largest drop planted."""
    if kind == FLAT:
        return 0.0, 0.0
    if kind == STEP:
        return FOUND_DROP * tolerance, FOUND_DROP * tolerance
    if kind == LOGISTIC:
        return 0.8, 0.98
    return _DEEP[0] * tolerance, min(_DEEP[1] * tolerance, _MOST)


def draw_curve(kind: str, baseline: float, tolerance: float, rng: np.random.Generator) -> Curve:
    """A random curve: steps at 20-85% of the samples, ramps and dips from 20-60%."""
    drop = float(rng.uniform(*drops(kind, tolerance)))
    place = float(rng.uniform(0.20, 0.85 if kind in (STEP, STEPS) else 0.60))
    if kind == FLAT:
        return Curve("flat", baseline)
    if kind in (STEP, STEPS):
        return Curve("step", baseline, drop, place)
    if kind == LOGISTIC:  # as real models: nearly everything within a factor of two or so
        width = float(rng.uniform(0.08, 0.25))
        # Its slow beginning loses small tolerances early: not while the baseline is measured.
        early = width * np.log(drop / tolerance - 1.0) / np.log(9.0)
        place = max(place + 0.1, 0.2 + float(early))
        return Curve("logistic", baseline, drop, place, min(place + width, 0.97))
    if kind == RAMP:
        return Curve("ramp", baseline, drop, place, place + float(rng.uniform(0.10, 0.40)))
    return Curve("dip", baseline, drop, place, place + float(rng.uniform(0.15, 0.30)))
