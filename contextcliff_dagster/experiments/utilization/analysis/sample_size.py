"""How many documents a scale show a difference."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import TYPE_CHECKING

from contextcliff_dagster.experiments.utilization.results import SeedsNeeded

if TYPE_CHECKING:
    from contextcliff_dagster.experiments.utilization.analysis.matching import Matched
    from contextcliff_dagster.experiments.utilization.analysis.score_intervals import Likeness

POWER = 0.8
DIFFERENCES = (0.1, 0.2)


def seeds_needed(
    matched: Matched, likeness: Likeness, noise: float, members: int, confidence: float
) -> list[SeedsNeeded]:
    """Documents a scale that show each of `DIFFERENCES` with power .8, two-sided.

    D = phi / m * [z_a sqrt(v0) + z_b sqrt(v1)]^2 / d^2, with m questions a document and design
    effect phi = 1 + (m - 1) rho. Paired, v0 is the share of discordant pairs, ``noise`` + d, and
    v1 = v0 - d^2 (Connor 1987, Biometrics 43, 207-211); unpaired, v0 = v1 is the sum of both
    sides' variances.

    Args:
        noise: share of pairs that differ apart from a difference of the formats, which adds to it.
        members: of the simultaneous band, whose z_a is Bonferroni's.
    """
    a, b = matched.a, matched.b
    rows = []
    for difference in DIFFERENCES:
        if not len(a.score) or not len(b.score):
            rows.append(SeedsNeeded(
                difference=difference, one_scale=None, all_scales=None, discordance=None,
                correlation=None, questions=None,
            ))  # fmt: skip
            continue
        questions = len(a.score) / (int(a.document.max()) + 1)
        discordance = None
        variance = float(a.score.var() + b.score.var())
        variances = variance, variance
        if matched.paired:
            discordance = min(noise + difference, 1.0)
            variances = discordance, discordance - difference**2
        worth = 1.0 + (questions - 1.0) * likeness.difference
        rows.append(
            SeedsNeeded(
                difference=difference,
                one_scale=_documents(worth / questions, variances, difference, confidence, 1),
                all_scales=_documents(
                    worth / questions, variances, difference, confidence, members
                ),
                discordance=discordance,
                correlation=likeness.difference,
                questions=questions,
            )
        )
    return rows


def _documents(
    worth: float,
    variances: tuple[float, float],
    difference: float,
    confidence: float,
    members: int,
) -> int:
    normal = NormalDist()
    z_a = normal.inv_cdf(1.0 - 0.5 * (1.0 - confidence) / members)
    reach = z_a * math.sqrt(variances[0]) + normal.inv_cdf(POWER) * math.sqrt(variances[1])
    return max(math.ceil(worth * (reach / difference) ** 2), 2)
