"""Arms compared on the same passages: means over sizes, each size, and how much more one declines.

Sign flips are two-sided and of whole passages. Holm's adjustment of means over sizes and of extra
declines is over all arms and both endpoints; that of single sizes is over the sizes of one arm and
endpoint, which say where a difference lies and not whether there is one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, get_args

import numpy as np

from contextcliff_dagster.analysis.statistics.rank_tests import holm, sign_flip_p_value
from contextcliff_dagster.extensions.continuation.analysis.arm import (
    PERMUTATIONS,
    ClusterBootstrap,
    intact_upper,
)
from contextcliff_dagster.extensions.continuation.analysis.outcomes import mean_known
from contextcliff_dagster.extensions.continuation.analysis.wording import arm_sentence
from contextcliff_dagster.extensions.continuation.results import (
    ArmComparison,
    ArmDifference,
    ArmVerdict,
    EndpointName,
)

if TYPE_CHECKING:
    from contextcliff_dagster.analysis.records import AnalysisSettings
    from contextcliff_dagster.contracts.arrays import Floats
    from contextcliff_dagster.extensions.continuation.analysis.outcomes import ArmOutcomes

ENDPOINTS: tuple[EndpointName, ...] = get_args(EndpointName)


def compare_arms(
    arms: Sequence[ArmOutcomes], margin: float, settings: AnalysisSettings
) -> list[ArmComparison]:
    """Each arm but the first against the first; empty with a single one."""
    reference = arms[0]
    families = [_overall(arm, reference, i, settings) for i, arm in enumerate(arms[1:])]
    adjusted = iter(holm([row.p_value for rows in families for row in rows]))
    found = []
    for place, (arm, rows) in enumerate(zip(arms[1:], families, strict=True)):
        overall = [replace(row, p_holm=next(adjusted)) for row in rows]
        sizes = _by_size(arm, reference, place, settings)
        alike = _alike(arm, reference, sizes, margin, settings.confidence)
        verdict = _verdict(overall, alike=alike, alpha=1.0 - settings.confidence)
        found.append(
            ArmComparison(
                arm=arm.arm,
                reference=reference.arm,
                verdict=verdict,
                sentence=arm_sentence(verdict, (arm.arm, reference.arm), overall, margin),
                overall=overall,
                sizes=sizes,
            )
        )
    return found


def _overall(
    arm: ArmOutcomes, reference: ArmOutcomes, place: int, settings: AnalysisSettings
) -> list[ArmDifference]:
    drawn = ClusterBootstrap(reference.clusters(), settings, 1)
    rows = []
    for endpoint in ENDPOINTS:
        apart = arm.means(endpoint) - reference.means(endpoint)
        rows.append(_difference(mean_known(apart), endpoint, drawn, settings, place))
        both = np.flatnonzero((~np.isnan(apart)).any(axis=0))
        if len(both) > 1:
            # Passages without an outcome at either end have no extra decline.
            extra = apart[:, both[0]] - apart[:, both[-1]]
            row = _difference(extra, endpoint, drawn, settings, place, 1)
            largest = int(arm.sizes[both[-1]])
            rows.append(replace(row, context_tokens=largest, extra_decline=True))
    return rows


def _by_size(
    arm: ArmOutcomes, reference: ArmOutcomes, place: int, settings: AnalysisSettings
) -> list[ArmDifference]:
    drawn = ClusterBootstrap(reference.clusters(), settings, 1)
    found = []
    for endpoint in ENDPOINTS:
        apart = arm.means(endpoint) - reference.means(endpoint)
        rows = [
            replace(
                _difference(apart[:, size], endpoint, drawn, settings, place, 2 + size),
                context_tokens=int(tokens),
            )
            for size, tokens in enumerate(arm.sizes)
        ]
        adjusted = holm([row.p_value for row in rows])
        found += [replace(row, p_holm=p) for row, p in zip(rows, adjusted, strict=True)]
    return found


def _difference(
    apart: Floats,
    endpoint: EndpointName,
    drawn: ClusterBootstrap,
    settings: AnalysisSettings,
    *key: int,
) -> ArmDifference:
    apart = np.where(np.abs(apart) < 1e-12, 0.0, apart)
    known = apart[~np.isnan(apart)]
    p_value = None
    if len(known):
        rng = np.random.default_rng((settings.seed, 22, int(endpoint == "intact"), *key))
        p_value = sign_flip_p_value(known, PERMUTATIONS, rng)[0]
    low, high = drawn.interval(apart)
    return ArmDifference(
        endpoint=endpoint,
        context_tokens=None,
        extra_decline=False,
        n_passages=len(known),
        difference=float(known.mean()) if len(known) else None,
        ci_low=low,
        ci_high=high,
        p_value=p_value,
        p_holm=None,
    )


def _verdict(overall: Sequence[ArmDifference], *, alike: bool, alpha: float) -> ArmVerdict:
    """A significant mean or extra decline decides, else whether the arms are alike."""
    ways = {
        -1 if ((row.difference or 0.0) < 0.0) != row.extra_decline else 1
        for row in overall
        if row.p_holm is not None and row.p_holm <= alpha and row.difference
    }
    if len(ways) == 2:
        return "mixed"
    if ways:
        return "better" if ways == {1} else "worse"
    return "alike" if alike else "undecided"


def _alike(
    arm: ArmOutcomes,
    reference: ArmOutcomes,
    sizes: Sequence[ArmDifference],
    margin: float,
    confidence: float,
) -> bool:
    """Whether at every size the score's interval and the share's limits lie within the margin.

    Where a greater share of either arm's generations has no score, the scores cannot show it.
    """
    if max(arm.unscored.max(initial=0.0), reference.unscored.max(initial=0.0)) > margin:
        return False
    ends = [
        end
        for row in sizes
        if row.endpoint == "score" and row.n_passages
        for end in (row.ci_low, row.ci_high)
    ]
    for size in range(len(arm.sizes)):
        pair = arm.intact[:, size], reference.intact[:, size]
        if not all((~np.isnan(side)).any() for side in pair):
            continue
        ends += [intact_upper(*pair, confidence), intact_upper(*pair[::-1], confidence)]
    return bool(ends) and all(end is not None and abs(end) <= margin for end in ends)
