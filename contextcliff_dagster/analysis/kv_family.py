"""Comparison of all KV policies of one model with the whole cache and with the control.

The control is policy `random`, which keeps random entries. A policy that scores no better on the
same examples at the same budget does not select useful entries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from contextcliff_dagster.analysis.comparison import PERMUTATIONS, Measured, compare
from contextcliff_dagster.analysis.contrast import (
    Side,
    adjusted_p_values,
    difference_interval,
    pair_records,
)
from contextcliff_dagster.analysis.kv_costs import own_loss
from contextcliff_dagster.analysis.records import AnalysisSettings
from contextcliff_dagster.analysis.statistics.intervals import Crossing, resample_weights
from contextcliff_dagster.analysis.statistics.rank_tests import holm
from contextcliff_dagster.contracts import LengthBin
from contextcliff_dagster.contracts.results import Comparison
from contextcliff_dagster.contracts.results.comparison import KvPolicy

CONTROL = "random"


@dataclass(frozen=True, slots=True)
class AgainstRandom:
    """A policy's mean score minus that of `random` at the same budget; p-values are adjusted."""

    difference: float
    ci_low: float
    ci_high: float
    p_value: float
    better: bool


@dataclass(frozen=True, slots=True)
class KvMember:
    """One policy at one budget. ``comparison``: the reference model (A) against this policy (B).

    ``cap_tokens`` and ``loss``, the longer length at which the tolerance is lost, refer to the
    reference's baseline; ``baseline`` is the policy's own.
    ``shortest_tokens``: length of the shortest document that both answered.
    """

    model: str
    kv: KvPolicy
    verdict: str
    cap_tokens: int | None
    baseline: float | None
    loss: Crossing
    shortest_tokens: int
    n: int
    comparison: Comparison | None = None
    against_random: AgainstRandom | None = None


@dataclass(frozen=True, slots=True)
class KvFamily:
    """Policies of one model on the same examples; those with the whole cache come first."""

    base: str
    members: Sequence[KvMember]
    longest_tokens: int
    tolerance: float
    confidence: float


def kv_family(
    measured: Sequence[Measured],
    baselines: Mapping[str, str],
    bins: Sequence[LengthBin],
    settings: AnalysisSettings,
) -> KvFamily:
    """Compare all policies of one base model.

    Args:
        measured: the models with this base, each with its result and ``kv``.
        baselines: model -> its reference model; models that keep the whole cache have none.
    """
    by_name = {model.name: model for model in measured}
    random = _against_random(measured, bins, settings)
    members: list[KvMember] = []
    longest = []
    for model in measured:
        assert model.kv is not None
        baseline = by_name.get(baselines.get(model.name, ""))
        side = pair_records(model.records, model.records, bins).a
        comparison = compare(baseline, model, bins, settings) if baseline else None
        longest.append(int(side.length_tokens.max()))
        shared = pair_records(baseline.records, model.records, bins) if baseline else None
        lengths = (shared.a if shared and shared.paired else side).length_tokens
        cap, loss = _cap_and_loss(model, side, comparison, settings)
        members.append(
            KvMember(
                model=model.name,
                kv=model.kv,
                verdict=model.cliffs.verdict.value if model.cliffs else "",
                cap_tokens=cap,
                baseline=model.cliffs.baseline.mean if model.cliffs else None,
                loss=loss,
                shortest_tokens=int(lengths.min()),
                n=int(side.n.sum()),
                comparison=comparison,
                against_random=random.get(model.name),
            )
        )
    members.sort(key=lambda member: _rank(member.kv))
    head = measured[0]
    assert head.kv is not None
    return KvFamily(head.kv.base, members, max(longest), settings.tolerance, settings.confidence)


def _cap_and_loss(
    one: Measured, side: Side, comparison: Comparison | None, settings: AnalysisSettings
) -> tuple[int | None, Crossing]:
    if comparison is not None and comparison.kv is not None and comparison.kv.cap is not None:
        cap = comparison.kv.cap
        return cap.tokens, Crossing(cap.lost_tokens, cap.lost_low, cap.lost_high)
    own_cap = one.cliffs.safe_cap_tokens if one.cliffs else None
    return own_cap, Crossing(*own_loss(side, settings))


def _rank(kv: KvPolicy) -> tuple[bool, bool, str, float]:
    return not kv.keeps_all, kv.policy == CONTROL, kv.policy, -kv.budget


def _against_random(
    measured: Sequence[Measured], bins: Sequence[LengthBin], settings: AnalysisSettings
) -> dict[str, AgainstRandom]:
    """Compare each policy with `random` at the same budget, with Holm-adjusted p-values (1979)."""
    controls = {m.kv.budget: m for m in measured if m.kv and m.kv.policy == CONTROL}
    differences: dict[str, tuple[float, float, float, float]] = {}
    for model in measured:
        if model.kv is None or model.kv.policy == CONTROL or model.kv.keeps_all:
            continue
        control = controls.get(model.kv.budget)
        if control is None or model.kv.budget == 1:
            continue
        pairs = pair_records(control.records, model.records, bins)
        if not pairs.paired:
            continue
        rng = np.random.default_rng(settings.seed)
        overall = replace(pairs, bins=[])
        p_value = float(adjusted_p_values(overall, PERMUTATIONS, rng)[0])
        weights = resample_weights(len(pairs.a.n), 1_000, rng)
        control_sums, sums = (np.array([side.n, side.s]) for side in (pairs.a, pairs.b))
        low, high = difference_interval(control_sums, sums, (weights, weights), settings.confidence)
        mean = float(pairs.b.s.sum() / pairs.b.n.sum() - pairs.a.s.sum() / pairs.a.n.sum())
        differences[model.name] = mean, low, high, p_value
    adjusted = holm([row[3] for row in differences.values()])
    alpha = 1.0 - settings.confidence
    return {
        name: AgainstRandom(mean, low, high, p or 0.0, mean > 0 and (p or 0.0) <= alpha)
        for (name, (mean, low, high, _)), p in zip(differences.items(), adjusted, strict=True)
    }
