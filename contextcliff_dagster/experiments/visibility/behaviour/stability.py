"""The stability metrics of context-eval, so that its figures stay comparable.

Their definitions as its code has them, known faults included: docs/visibility.md names them, and
what `measures` does instead.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, TypedDict

_TINY = 1e-9


class Stability(TypedDict):
    """Stability of one trace, under the names of context-eval."""

    instability_score: float
    average_churn: float
    total_churn: float
    total_steps: int
    churn_steps: int


class StabilityMetric:
    """Churn and instability of the configurations of a run; keeps nothing between calls.

    >>> metric = StabilityMetric()
    >>> metric.calculate_config_distance({"depth": 4, "loss": "l1"}, {"depth": 4, "loss": "l2"})
    (1.0, ['loss'])
    >>> metric.evaluate_trace([{"config": {"x": x}} for x in "aab"])["total_churn"]
    1.0
    """

    def calculate_config_distance(
        self, config_a: Mapping[str, Any], config_b: Mapping[str, Any]
    ) -> tuple[float, list[str]]:
        """Return the distance of two configurations, and the keys that differ, sorted.

        The sum over all keys of |a - b| / (max(|a|, |b|) + 1e-9) for two numbers, booleans
        included, else 1; equal values count 0. A missing key is None.
        """
        distance = 0.0
        changed = []
        for key in sorted(config_a.keys() | config_b.keys(), key=str):
            a, b = config_a.get(key), config_b.get(key)
            if a == b:
                continue
            changed.append(key)
            if isinstance(a, int | float) and isinstance(b, int | float):
                distance += abs(a - b) / (max(abs(a), abs(b)) + _TINY)
            else:
                distance += 1.0
        return distance, changed

    def evaluate_trace(self, trace_history: Sequence[Mapping[str, Any]]) -> Stability:
        """Return the stability of a run's steps, each with its configuration under ``config``.

        Raises:
            TypeError: a configuration has a value that JSON cannot hold.
        """
        seen: set[str] = set()
        repeated = 0
        for step in trace_history:
            written = json.dumps(step.get("config", step), sort_keys=True)
            repeated += written in seen
            seen.add(written)
        steps = len(trace_history)
        configs = [step.get("config", {}) for step in trace_history]
        churn = sum(self.calculate_config_distance(a, b)[0] for a, b in pairwise(configs))
        pairs = max(0, steps - 1)
        return {
            "instability_score": repeated / steps if steps else 0.0,
            "average_churn": churn / pairs if pairs else 0.0,
            "total_churn": float(churn),
            "total_steps": steps,
            "churn_steps": pairs,
        }
