"""What documents of known length and score allow to conclude: the verdict and the certified cap.

The one door to both, for the profile of a model, for simulations of a design, and for anything else
that asks the same question of other data.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from contextcliff_dagster.analysis.cliff.cap import Cap, certified_cap
from contextcliff_dagster.analysis.cliff.dips import SHARE, least_excluded_dip
from contextcliff_dagster.analysis.cliff.verdict import Finding, find_verdict, judge
from contextcliff_dagster.contracts import Verdict
from contextcliff_dagster.contracts.results.caps import Recovery

if TYPE_CHECKING:
    from contextcliff_dagster.analysis.records.samples import Documents
    from contextcliff_dagster.analysis.records.settings import AnalysisSettings
    from contextcliff_dagster.contracts.results.cliffs import Baseline


@dataclass(frozen=True, slots=True)
class Conclusion:
    """``finding`` is the verdict and what led to it, ``cap`` the certified cap."""

    finding: Finding
    cap: Cap


def conclude(documents: Documents, settings: AnalysisSettings, baseline: Baseline) -> Conclusion:
    """Verdict and certified cap of ``documents``, at the tolerance and confidence of ``settings``.

    Args:
        baseline: of these documents (`baseline.baseline_of`).
    """
    finding = find_verdict(documents, settings, baseline)
    return Conclusion(finding, cap_of(finding, settings))


def conclude_again(conclusion: Conclusion, settings: AnalysisSettings) -> Conclusion:
    """The conclusion from the same documents at another tolerance, without a new fit."""
    finding = conclusion.finding
    if finding.scan and finding.curve and finding.verdict is not Verdict.FLOOR:
        finding = judge(finding.scan, finding.curve, settings)
    return Conclusion(finding, cap_of(finding, settings))


def cap_of(finding: Finding, settings: AnalysisSettings, share: float = 1.0) -> Cap:
    """The cap at the tolerance of ``settings``; ``None`` tokens where the verdict bars one.

    ``share``: of the chance of loss that a cap may have.
    """
    if finding.curve is None or finding.verdict is Verdict.FLOOR:
        return Cap(None, finding.reason)
    return certified_cap(
        finding.curve,
        settings.tolerance,
        settings.confidence,
        finding.dip_start,
        may_recover=settings.assumption == "any",
        share=share,
    )


def drops_that_recover(conclusion: Conclusion, settings: AnalysisSettings) -> Recovery | None:
    """What the cap assumes of them, and what holds without; ``None`` where no fit bears a cap."""
    finding, tokens = conclusion.finding, conclusion.cap.tokens
    if finding.curve is None or finding.verdict is Verdict.FLOOR:
        return None
    excluded = None
    if tokens is not None:
        excluded = least_excluded_dip(finding.curve, tokens, settings.confidence)
    robust = cap_of(finding, replace(settings, assumption="any")).tokens
    if robust is not None and tokens is not None:
        robust = min(robust, tokens)
    return Recovery(settings.assumption, robust if tokens else None, SHARE, excluded)
