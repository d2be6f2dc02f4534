"""Records of runs whose outcomes are given, without a model or a training."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from contextcliff_dagster.extensions.visibility.section import (
    PlannedRun,
    VisibilitySection,
    runs_of,
)

Regret = Callable[[PlannedRun], Sequence[float]]
"""Regret after each step of a run, the start first."""


def planted_section(**given: Any) -> VisibilitySection:
    """A study of `toy` and `digits`, two axes of two levels, two steps, four seeds."""
    usual = {"benchmarks": ["toy", "digits"], "metric": "hidden", "history": 0}
    return VisibilitySection.model_validate(usual | {"seeds": 4, "steps": 2} | given)


def planted_records(section: VisibilitySection, regret: Regret) -> pd.DataFrame:
    """One row a step; each step doubles C, as the model wished."""
    return pd.DataFrame(
        [row for run in runs_of(section) for row in _rows(run, regret(run), section.steps)]
    )


def noisy(effect: Callable[[PlannedRun], float], seed: int = 0, spread: float = 0.1) -> Regret:
    """Regret .5 plus an effect plus noise of its own at each step of each run, within 0 and 1."""

    def regret(run: PlannedRun) -> Sequence[float]:
        key = [seed, *run.key.encode()]
        drawn = np.random.default_rng(key).normal(0.5 + effect(run), spread, 3)
        return [float(one) for one in np.clip(drawn, 0.0, 1.0)]

    return regret


def _rows(run: PlannedRun, curve: Sequence[float], steps: int) -> list[dict[str, Any]]:
    other = "gamma" if run.benchmark == "digits" else "max_iter"
    configs = [json.dumps({"C": 0.01 * 2**k, other: 0.01 if other == "gamma" else 100})
               for k in range(steps + 1)]  # fmt: skip
    return [
        {
            "run": run.key,
            "step": step,
            "failure": None,
            "chosen_by": "model",
            "unparsable": False,
            "proposed": json.dumps({"C": 0.01 * 2**step}),
            "events": "[]",
            "base_config": configs[step - 1],
            "config": configs[step],
            "regret": curve[step],
            "start_config": configs[0],
            "start_regret": curve[0],
        }
        for step in range(1, steps + 1)
    ]
