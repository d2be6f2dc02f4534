"""The plain threshold rules of practice, exactly as people write them.

They compare each bin with the first one and know nothing of sampling noise: they are shown next to
the verdict, never as it. A score in [0, 1] has an SD of at most 0.5, so some of them cannot fire on
some data; each rule says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from contextcliff_dagster.contracts.results.cliffs import Rule
from contextcliff_dagster.contracts.results.fields import BinResult, nulls

_MOST_SD, _MOST_VARIANCE = 0.5, 0.25
_ROUNDING = 1e-9
"""1 - 0.7 is 0.30000000000000004: a value on its threshold counts as on it, not above."""


def threshold_rules(bins: Sequence[BinResult], window_tokens: int | None) -> list[Rule]:
    """The ``rules`` of ``cliffs.json`` from its ``bins``; the first with a mean is the baseline.

    ``value`` is that of the firing bin, else the most extreme after the baseline. With a baseline
    SD of 0 every spread at all is more than a multiple of it: the SD and variance rules then fire
    at the first bin whose scores are not all equal.
    """
    scored = [row for row in bins if row.mean is not None]
    base = scored[0] if scored else nulls(BinResult)
    later, mean, rate = scored[1:], base.mean or 0.0, base.failure_rate

    def drop(row: BinResult) -> float:
        return 1.0 - (row.mean or 0.0) / mean if mean > 0 else 0.0

    double_sd = None if base.sd is None else 2.0 * base.sd
    double_variance = None if base.variance is None else 2.0 * base.variance
    spike = None if rate is None else max(2.0 * rate, rate + 0.10)
    rules = [
        _rule(
            "transition_sd", later, lambda r: r.sd, double_sd,
            lambda v, t: _at_least(v, t) and v > 0, double_sd is not None and double_sd <= _MOST_SD,
        ),
        _rule(
            "variance", later, lambda r: r.variance, double_variance,
            _above, double_variance is not None and double_variance < _MOST_VARIANCE,
        ),
        _rule("mean_drop", later, drop, 0.30, _above, mean > 0),
        _rule(
            "failure_rate_spike", later, lambda r: r.failure_rate, spike,
            _at_least, spike is not None and spike <= 1.0,
        ),
    ]  # fmt: skip
    keys = [row.bin for row in bins]
    failing = [keys.index(r.at_bin) for r in rules if r.at_bin is not None and r.name in _FAILING]
    first = bins[min(failing)] if failing else None
    edge = first.edge_low if first else None
    share = edge / window_tokens if edge is not None and window_tokens else None
    able = any(r.reachable for r in rules if r.name in _FAILING)
    for name, value, reachable in (
        ("first_failing_edge", edge, able),
        ("critical_threshold", share, able and bool(window_tokens)),
    ):
        rules.append(
            Rule(
                name=name,
                fired=value is not None,
                at_bin=None if first is None or value is None else first.bin,
                reachable=bool(reachable),
                value=value,
                threshold=None,
            )
        )
    return rules


_FAILING = ("transition_sd", "mean_drop")
"""A bin fails where its SD or its mean does; the cap is the lower token edge of the first."""


def _above(value: float, threshold: float) -> bool:
    return value > threshold + _ROUNDING


def _at_least(value: float, threshold: float) -> bool:
    return value >= threshold - _ROUNDING


def _rule(
    name: str,
    later: Sequence[BinResult],
    value_of: Callable[[BinResult], float | None],
    threshold: float | None,
    fires: Callable[[float, float], bool],
    reachable: bool,
) -> Rule:
    seen = [(row.bin, value) for row in later if (value := value_of(row)) is not None]
    hit = None
    if threshold is not None and reachable:
        hit = next(((key, v) for key, v in seen if fires(v, threshold)), None)
    value = hit[1] if hit else max((v for _, v in seen), default=None)
    return Rule(
        name=name,
        fired=hit is not None,
        at_bin=hit[0] if hit else None,
        reachable=bool(reachable and seen),
        value=value,
        threshold=threshold,
    )
