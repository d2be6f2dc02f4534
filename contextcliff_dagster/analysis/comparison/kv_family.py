"""All KV policies of one model: each against what keeps everything, and against the control.

The policy `random` keeps entries by lot. One that scores no better than it, at the same budget and
on the same examples, does not choose.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from contextcliff_dagster.analysis.comparison.comparison import (
    PERMUTATIONS,
    Measured,
    compare,
)
from contextcliff_dagster.analysis.comparison.difference_tests import (
    adjusted_p_values,
    difference_interval,
)
from contextcliff_dagster.analysis.comparison.length_shifts import LOSS_RESAMPLES, tokens_of
from contextcliff_dagster.analysis.comparison.pairing import pair_records
from contextcliff_dagster.analysis.statistics.length_at_loss import loss_lengths, resample_weights
from contextcliff_dagster.analysis.statistics.sign_flips import holm
from contextcliff_dagster.contracts.results.kv import KvPolicy

if TYPE_CHECKING:
    from contextcliff_dagster.analysis.comparison.pairing import Side
    from contextcliff_dagster.analysis.records.settings import AnalysisSettings
    from contextcliff_dagster.contracts import LengthBin
    from contextcliff_dagster.contracts.results import Comparison

CONTROL = "random"


@dataclass(frozen=True, slots=True)
class LossAt:
    """The length at which the tolerance is lost, which the cap stays below.

    None: not within the measured lengths, for an end of the interval as well.
    """

    tokens: int | None
    low: int | None
    high: int | None


@dataclass(frozen=True, slots=True)
class AgainstRandom:
    """A policy's mean score less that of `random` at the same budget; p over all policies."""

    difference: float
    ci_low: float
    ci_high: float
    p_value: float
    better: bool


@dataclass(frozen=True, slots=True)
class KvMember:
    """One policy at one budget. ``comparison``: with the model that it is compared with, as B.

    ``starts_low``: its own baseline has lost the tolerance against that model's. A cap, which is
    about a drop from the own baseline, would promise what is lost already: there is none.
    """

    model: str
    kv: KvPolicy
    verdict: str
    cap_tokens: int | None
    baseline: float | None
    loss: LossAt
    n: int
    starts_low: bool = False
    comparison: Comparison | None = None
    against_random: AgainstRandom | None = None


@dataclass(frozen=True, slots=True)
class KvFamily:
    """The policies of one model on the same examples; those that keep everything come first."""

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
    """Return the comparison of all policies of one base.

    Args:
        measured: the models of one base, each with its result and ``kv``.
        baselines: model -> the one that it is compared with; none of those that keep everything.
    """
    by_name = {one.name: one for one in measured}
    random = _against_random(measured, bins, settings)
    members = []
    for one in measured:
        assert one.kv is not None
        baseline = by_name.get(baselines.get(one.name, ""))
        side = pair_records(one.records, one.records, bins).a
        low = starts_low(_baseline(one), _baseline(baseline), settings.tolerance)
        members.append(
            KvMember(
                model=one.name,
                kv=one.kv,
                verdict=one.cliffs.verdict.value if one.cliffs else "",
                cap_tokens=one.cliffs.safe_cap_tokens if one.cliffs and not low else None,
                baseline=_baseline(one),
                loss=loss_at(side, settings),
                n=int(side.n.sum()),
                starts_low=low,
                comparison=compare(baseline, one, bins, settings) if baseline else None,
                against_random=random.get(one.name),
            )
        )
    members.sort(key=lambda member: _rank(member.kv))
    first = measured[0]
    assert first.kv is not None
    longest = max(int(one.records["length_tokens"].max()) for one in measured)
    return KvFamily(first.kv.base, members, longest, settings.tolerance, settings.confidence)


def starts_low(own: float | None, whole: float | None, tolerance: float) -> bool:
    """Return whether a baseline is below what the tolerance allows of the whole cache's."""
    return own is not None and whole is not None and own < (1.0 - tolerance) * whole


def _baseline(one: Measured | None) -> float | None:
    return one.cliffs.baseline.mean if one and one.cliffs else None


def _rank(kv: KvPolicy) -> tuple[bool, bool, str, float]:
    return not kv.keeps_all, kv.policy == CONTROL, kv.policy, -kv.budget


def loss_at(side: Side, settings: AnalysisSettings) -> LossAt:
    """Return where one model has lost the tolerance, by percentile bootstrap over documents."""
    rng = np.random.default_rng(settings.seed)
    weights = resample_weights(len(side.n), LOSS_RESAMPLES, rng)
    at = loss_lengths(side.length_tokens, side.n, side.s, weights, settings.tolerance)
    tail = 0.5 * (1.0 - settings.confidence)
    ends = np.quantile(at[1:], (tail, 1.0 - tail), method="inverted_cdf")
    return LossAt(*(tokens_of(float(place)) for place in (at[0], *ends)))


def _against_random(
    measured: Sequence[Measured], bins: Sequence[LengthBin], settings: AnalysisSettings
) -> dict[str, AgainstRandom]:
    """Each policy with a budget at which `random` was measured, too; p-values by Holm (1979)."""
    controls = {one.kv.budget: one for one in measured if one.kv and one.kv.policy == CONTROL}
    found: dict[str, tuple[float, float, float, float]] = {}
    for one in measured:
        if one.kv is None or one.kv.policy == CONTROL or one.kv.keeps_all:
            continue
        control = controls.get(one.kv.budget)
        if control is None or one.kv.budget == 1:
            continue
        pairs = pair_records(control.records, one.records, bins)
        if not pairs.paired:
            continue
        rng = np.random.default_rng(settings.seed)
        p_value = float(adjusted_p_values(pairs, PERMUTATIONS, rng)[0])
        weights = resample_weights(len(pairs.a.n), 1_000, rng)
        control_sums, own = (np.array([side.n, side.s]) for side in (pairs.a, pairs.b))
        low, high = difference_interval(control_sums, own, (weights, weights), settings.confidence)
        mean = float(pairs.b.s.sum() / pairs.b.n.sum() - pairs.a.s.sum() / pairs.a.n.sum())
        found[one.name] = mean, low, high, p_value
    adjusted = holm([row[3] for row in found.values()])
    alpha = 1.0 - settings.confidence
    return {
        name: AgainstRandom(mean, low, high, p or 0.0, mean > 0 and (p or 0.0) <= alpha)
        for (name, (mean, low, high, _)), p in zip(found.items(), adjusted, strict=True)
    }
