"""What documents of known length and score allow to conclude: the verdict and the certified cap.

The one door to both, for the profile of a model, for simulations of a design, and for anything else
that asks the same question of other data.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from contextcliff_dagster.analysis.cliff.cap import Cap, certified_cap
from contextcliff_dagster.analysis.cliff.verdict import Finding, find_verdict, judge_again
from contextcliff_dagster.contracts import Verdict

if TYPE_CHECKING:
    from contextcliff_dagster.analysis.records.samples import Documents
    from contextcliff_dagster.analysis.records.settings import AnalysisSettings


@dataclass(frozen=True, slots=True)
class Conclusion:
    """``finding`` is the verdict and what led to it, ``cap`` the certified cap."""

    finding: Finding
    cap: Cap


def conclude(
    documents: Documents, settings: AnalysisSettings, baseline_mean: float | None
) -> Conclusion:
    """Verdict and certified cap of ``documents``, at the tolerance and confidence of ``settings``.

    Args:
        baseline_mean: mean score of the baseline region (`baseline.baseline_of`), ``None`` without
            any score.
    """
    finding = find_verdict(documents, settings, baseline_mean)
    return Conclusion(finding, cap_at(finding, settings.tolerance, settings.confidence))


def conclude_again(
    conclusion: Conclusion, tolerance: float, settings: AnalysisSettings
) -> Conclusion:
    """The conclusion from the same documents at another ``tolerance``, without a new scan."""
    finding = judge_again(conclusion.finding, tolerance, settings)
    return Conclusion(finding, cap_at(finding, tolerance, settings.confidence))


def cap_at(finding: Finding, tolerance: float, confidence: float) -> Cap:
    """The cap of the same data at another tolerance; ``None`` tokens where the verdict bars one."""
    if finding.evidence is None or finding.verdict is Verdict.FLOOR:
        return Cap(None, finding.reason)
    before = finding.dip_window[0] if finding.dip_window else None
    return certified_cap(finding.evidence.losses_at(tolerance), tolerance, confidence, before)
