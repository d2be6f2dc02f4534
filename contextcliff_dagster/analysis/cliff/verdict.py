"""The verdict on the scores over length, and the loss that it rests on."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from contextcliff_dagster.analysis.curves.fitted_curve import Estimate, fall_of
from contextcliff_dagster.analysis.curves.logistic_family import fit_declines, refine, shape_of
from contextcliff_dagster.analysis.curves.loss_family import fit_losses
from contextcliff_dagster.analysis.curves.loss_onset import half_drop_places
from contextcliff_dagster.analysis.curves.permutation_scan import scan_documents
from contextcliff_dagster.analysis.statistics.intervals import ratio_interval
from contextcliff_dagster.contracts import Verdict

if TYPE_CHECKING:
    from contextcliff_dagster.analysis.curves.fitted_curve import Fall
    from contextcliff_dagster.analysis.curves.logistic_family import DeclineFit
    from contextcliff_dagster.analysis.curves.loss_family import Losses
    from contextcliff_dagster.analysis.curves.permutation_scan import Scan, Split
    from contextcliff_dagster.analysis.records.samples import Documents
    from contextcliff_dagster.analysis.records.settings import AnalysisSettings

LEAST_EXAMPLES = 30
LEAST_DOCUMENTS = 20
FLOOR = 0.10
ALARM_SHARE = 5 / 6
"""A loss is an alarm from this share of the tolerance on: .25 at 30%."""
STEP_SHARE = 0.9
"""Share of the error rate spent on steps; the rest on dips."""
CHOSEN_SHARE, CHOSEN_EXCESS = 1 / 2, 1.2
"""A split is chosen where the drop looks largest, and there it looks larger than it is, the more so
the fewer examples (n0, n1) its sides have: an alarm needs a drop of half the tolerance plus
1.2 sqrt(1 / n0 + 1 / n1), by which declines of 5 to 20% alarm in at most a tenth of the samples
whatever n is (benchmarks/accept.py)."""
SMALL_SHARE, SURELY = 2 / 3, 1.6
"""Or that a loss of at most 2/3 of the tolerance is refuted, at 1.6 times the usual quantile."""


@dataclass(frozen=True, slots=True)
class Loss:
    """Where (tokens), how much (relative to the baseline), and the chance of it by accident."""

    location: Estimate
    drop: Estimate
    p_value: float


@dataclass(frozen=True)
class Curves:
    """The family of smooth curves on ``documents``, fitted when first asked for."""

    documents: Documents
    baseline_share: float

    @cached_property
    def fit(self) -> DeclineFit:
        """Every member, for the shape."""
        return fit_declines(self.documents, self.baseline_share)

    @cached_property
    def refined(self) -> DeclineFit:
        """The likely members with the depth resolved, for the drawn curve and the drop."""
        return refine(self.fit, self.documents)

    @cached_property
    def losses(self) -> dict[float, Losses]:
        """Steps, ramps and dips by the tolerance that their depths are laid around."""
        return {}


@dataclass(frozen=True, slots=True)
class Evidence:
    """What was found in the scores: ``scan`` at any tolerance, the rest at ``tolerance``."""

    scan: Scan
    curves: Curves
    tolerance: float

    @property
    def losses(self) -> Losses:
        """Steps, ramps and dips, for caps and places."""
        return self.losses_at(self.tolerance)

    def losses_at(self, tolerance: float) -> Losses:
        """The same with their depths laid around another ``tolerance``."""
        fitted = self.curves.losses
        if tolerance not in fitted:
            share = self.curves.baseline_share
            fitted[tolerance] = fit_losses(self.curves.documents, tolerance, share)
        return fitted[tolerance]


@dataclass(frozen=True, slots=True)
class Finding:
    """The verdict and what led to it.

    Attributes:
        reason: a sentence, for the verdicts that allow no cap; else empty.
        cliff: the loss, for the verdicts that have one.
        degraded: first length of the degraded region and the first after it, tokens.
        evidence: what was fitted to the scores, ``None`` where the data support nothing.
        warnings: sentences.
        visible: the scan found a loss, alarm or not.
    """

    verdict: Verdict
    reason: str = ""
    cliff: Loss | None = None
    degraded: tuple[int, int] = (0, 0)
    evidence: Evidence | None = None
    warnings: list[str] = field(default_factory=list)
    visible: bool = False

    @property
    def refined(self) -> DeclineFit | None:
        """The fitted smooth curves; ``None`` where the data support none."""
        return self.evidence.curves.refined if self.evidence else None

    @property
    def dip_window(self) -> tuple[int, int] | None:
        """``degraded`` where the verdict is a dip."""
        return self.degraded if self.verdict is Verdict.DIP else None


def find_verdict(
    documents: Documents, settings: AnalysisSettings, baseline_mean: float | None
) -> Finding:
    """Decide, in this order:

    1. ``insufficient_data``: fewer than 30 examples or 20 documents, or no place to split them;
    2. ``floor``: the baseline's mean is below .10;
    3. ``dip``: the scan's window has p <= .1 alpha and a large drop, and explains the scores better
       than the best step (quasi-deviance by more than 3.84);
    4. ``cliff`` or ``gradual_decline``: the scan's step has p <= .9 alpha and the drop at its split
       is large, or the lower limit of the fitted fall is at least 5/6 of the tolerance; gradual
       where a straight line in log length beats the best step by a deviance of 2;
    5. ``stable``.

    Large is a drop of at least 5/6 of the tolerance and of what the choice of its place may feign
    (`CHOSEN_EXCESS`), unless `loss_family` refutes that at most 2/3 of the tolerance is lost.
    """
    count = len(documents.n)
    examples = int(documents.n.sum())
    if examples < LEAST_EXAMPLES or count < LEAST_DOCUMENTS or baseline_mean is None:
        return _insufficient(
            f"Only {examples} scored examples on {count} documents: a verdict needs "
            f"{LEAST_EXAMPLES} on {LEAST_DOCUMENTS}; measure more documents (in a study: raise "
            "samples_per_bin)."
        )
    scan = scan_documents(documents, permutations=settings.permutations, seed=settings.seed)
    if scan is None:
        return _insufficient(
            "Nearly all examples have one length: no length has 15% of them before it and 4% "
            "after; measure more at other lengths."
            if len(np.unique(documents.length_tokens)) > 1
            else "All scored documents have the same length, so its effect is unknown; measure "
            "documents of different lengths."
        )
    curves = Curves(documents, settings.baseline_share)
    evidence = Evidence(scan, curves, settings.tolerance)
    if baseline_mean < FLOOR:
        return Finding(
            Verdict.FLOOR,
            f"The baseline score is {baseline_mean:.2f}, below {FLOOR:.2f}: the model fails the "
            "task at every length, so no length is safe.",
            evidence=evidence,
        )
    return _judge(evidence, settings)


def judge_again(finding: Finding, tolerance: float, settings: AnalysisSettings) -> Finding:
    """The verdict on the same scores at another ``tolerance``; ``settings`` are otherwise its."""
    if finding.evidence is None or finding.verdict is Verdict.FLOOR:
        return finding
    evidence = replace(finding.evidence, tolerance=tolerance)
    return _judge(evidence, replace(settings, tolerance=tolerance))


def _insufficient(reason: str) -> Finding:
    return Finding(Verdict.INSUFFICIENT_DATA, reason)


def _judge(evidence: Evidence, settings: AnalysisSettings) -> Finding:
    scan, curves = evidence.scan, evidence.curves
    alpha = 1.0 - settings.confidence
    least = ALARM_SHARE * settings.tolerance
    losses = evidence.losses
    dip, step = scan.dip, scan.step
    refuted = losses.least_deviance(SMALL_SHARE * settings.tolerance)
    small_refuted = refuted >= SURELY * losses.quantile(settings.confidence)

    def large(split: Split) -> bool:
        low_n, _, high_n, _ = split.counts
        feigned = CHOSEN_EXCESS * math.sqrt(1.0 / low_n + 1.0 / high_n)
        enough = split.drop >= CHOSEN_SHARE * settings.tolerance + feigned
        return split.drop >= least and (small_refuted or enough)

    if (
        dip is not None
        and dip.p_value <= (1 - STEP_SHARE) * alpha + 1e-9
        and large(dip)
        and dip.deviance - step.deviance > 3.84 * curves.fit.dispersion
    ):
        fit = curves.fit
        low, high = (float(t) for t in dip.starts)
        least_drop, most_drop = ratio_interval(
            *dip.counts, fit.dispersion, fit.limit(settings.confidence)
        )
        drop = Estimate(dip.drop, min(least_drop, dip.drop), max(most_drop, dip.drop))
        loss = Loss(Estimate(float(dip.first_tokens), low, high), drop, dip.p_value)
        degraded = (dip.first_tokens, dip.last_tokens + 1)
        return Finding(Verdict.DIP, "", loss, degraded, evidence, visible=True)
    significant = step.p_value <= STEP_SHARE * alpha + 1e-9
    fall = fall_of(curves.refined, settings.confidence) if significant else None
    if significant and fall and (large(step) or fall.drop.low >= least):
        shape = shape_of(curves.fit)
        warnings = []
        if shape == "unclear":
            warnings.append("These data do not show whether the drop is sudden or gradual.")
        location = half_drop(losses, fall, settings.confidence)
        start = max(fall.complete_tokens, location.high)
        longest = int(losses.cells.high[-1]) + 1
        verdict = Verdict.GRADUAL_DECLINE if shape == "slope" else Verdict.CLIFF
        loss = Loss(location, fall.drop, step.p_value)
        return Finding(verdict, "", loss, (round(start), longest), evidence, warnings, visible=True)
    warnings = []
    if significant and fall:
        why = "too few examples to confirm" if fall.drop.value >= least else "below"
        warnings.append(
            f"A drop with length is visible ({fall.drop.value:.0%}): {why} the size that counts as "
            f"an alarm ({least:.0%})."
        )
    elif scan.rise_p_value <= alpha:
        warnings.append("The score rises with length: questions on short documents may be harder.")
    return Finding(Verdict.STABLE, "", None, (0, 0), evidence, warnings, visible=significant)


def half_drop(losses: Losses, fall: Fall, confidence: float) -> Estimate:
    """Where half of the drop is reached, tokens; the interval holds whatever shape the fall has."""
    low, high = half_drop_places(losses, confidence, fall.drop.low, fall.drop.high)
    place = fall.location.value
    return Estimate(place, min(low, place), max(high, place))
