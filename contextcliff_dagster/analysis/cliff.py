"""The verdict, the safe context cap, the baseline and the zones of one model.
Decisions follow from fitted curves; the fits are in `analysis.statistics`.

The verdict says how the scores change with length. `drop_window` returns the lengths of a loss;
`judge_adjusted_drop` decides whether the loss remains after adjustment for other causes.

The safe context cap is the longest length before the score may fall by the tolerance. A fitted
curve never rises: if a model may fail over a range of lengths and recover beyond it, only the
scores within that range can rule out the dip.

`conclude` returns verdict and certified cap for documents with known lengths and scores. The
profile of a model, simulations of a design, and every other analysis use this function.

The baseline is the region of short documents with which all others are compared.

Repeated looks: a single cap is rarely too long, but the longest of several successive caps is more
often. With 5, 10, 20 and 50 examples per bin, the longest cap was unsafe in .09 of simulations, the
last in .02. So a length beyond every earlier cap is allowed only a quarter of the usual chance of
loss; up to the earlier caps the usual chance applies. benchmarks/looks.py measures the rates;
`chance_allowed` gives the chance.

Missing answers limit a cap, like wrong answers, if their share rises with length. Scores are means
over answered calls: if long documents time out or overflow the window, those means do not show
what a user gets. So the scan for a drop also tests whether the fraction of calls without an answer
rises with length; if it does, the cap is at most the cap with a score of 0 for every missing
answer.

Zones cut the length axis into stable, transition and degraded regions.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from contextcliff_dagster.analysis.records import average_replicates
from contextcliff_dagster.analysis.statistics.falling_curve import (
    Estimate,
    fit_falling_curve,
    kept_of,
    merge_cells,
)
from contextcliff_dagster.analysis.statistics.intervals import (
    chi_square_quantile,
    document_interval,
    ratio_interval,
)
from contextcliff_dagster.analysis.statistics.permutation_scan import SPLIT_LIMIT, scan_at
from contextcliff_dagster.contracts import Verdict, level
from contextcliff_dagster.contracts.results.cliffs import Baseline, MissingByLength, Recovery, Zone

if TYPE_CHECKING:
    import pandas as pd

    from contextcliff_dagster.analysis.records import AnalysisSettings, Documents, Sample
    from contextcliff_dagster.analysis.statistics.falling_curve import FallingCurve
    from contextcliff_dagster.analysis.statistics.permutation_scan import Dip, Scan, Split
    from contextcliff_dagster.contracts.arrays import Bools, Floats, Ints
    from contextcliff_dagster.contracts.results.cliffs import Look, ZoneName

LEAST_EXAMPLES = 30
LEAST_DOCUMENTS = 20
FLOOR = 0.10
ALARM_SHARE = 5 / 6
"""Smallest drop that is an alarm, as a fraction of the tolerance: .25 at 30%."""
STEP_SHARE = 0.9
"""Fraction of the error rate allotted to steps; dips get the remainder."""
SMALL_SHARE, SURE_CHANCE = 2 / 3, 0.95
"""A drop that selection could explain is an alarm if it surely exceeds 2/3 of the tolerance."""
SURELY = 3.84
"""Deviance (over the dispersion) by which a dip must fit the scores better than a step."""
CHOSEN_SHARE, CHOSEN_EXCESS = 1 / 2, 1.2
"""A split is placed where the drop looks largest, so the drop is overestimated, and more so the
fewer examples (n0, n1) its sides have: an alarm needs a drop of half the tolerance plus
1.2 sqrt(1 / n0 + 1 / n1)."""


@dataclass(frozen=True, slots=True)
class Drop:
    """Location (tokens) and size (relative to the baseline) of a drop, and its p-value.

    ``placed``: whether it lies beyond the baseline region; a drop within it cannot be located.
    """

    location: Estimate
    drop: Estimate
    p_value: float
    placed: bool = True

    @property
    def tokens(self) -> tuple[int, int | None, int | None]:
        """Return the location and its interval, whose ends are None if the drop is not placed."""
        at, low, high = self.location.tokens
        return (at, low, high) if self.placed else (at, None, None)


@dataclass(frozen=True, slots=True)
class Finding:
    """The verdict and its evidence.

    Attributes:
        reason: a sentence for verdicts that allow no cap; empty otherwise.
        note: a sentence that qualifies the verdict, or empty.
        cliff: the drop, for verdicts with a drop.
        degraded: first length of the degraded region and first length after it, tokens.
        scan, curve: fits to the scores; ``None`` if the data do not support a fit.
        visible: whether the scan found a drop, even one too small for an alarm.
    """

    verdict: Verdict
    reason: str = ""
    note: str = ""
    cliff: Drop | None = None
    degraded: tuple[int, int] = (0, 0)
    scan: Scan | None = None
    curve: FallingCurve | None = None
    visible: bool = False

    @property
    def dip_window(self) -> tuple[int, int] | None:
        """Return ``degraded`` if the verdict is a dip, else ``None``."""
        return self.degraded if self.verdict is Verdict.DIP else None

    @property
    def dip_start(self) -> int | None:
        """Return the shortest length (tokens) at which the dip may begin; None without a dip."""
        return int(self.cliff.location.low) if self.dip_window and self.cliff else None

    def lost_at(self, settings: AnalysisSettings) -> int | None:
        """Return the length (tokens) at which the fitted curve loses the tolerance, or None."""
        if self.curve is None or not self.visible:
            return None
        if (start := self.dip_start) and self.cliff:
            return start if self.cliff.drop.value >= settings.tolerance else None
        lost = self.curve.lost_at(settings.tolerance, settings.confidence).value
        return int(lost) if np.isfinite(lost) else None


def find_verdict(documents: Documents, settings: AnalysisSettings, baseline: Baseline) -> Finding:
    """Return the first verdict that applies, in this order:

    1. ``insufficient_data``: fewer than 30 examples or 20 documents, or no place to split them;
    2. ``floor``: the baseline's mean is below .10, or its interval reaches the score of guessing;
    3. ``dip``: the scan's window has p <= .1 alpha and a large drop, and fits the scores better
       than the best step (quasi-deviance larger by more than 3.84);
    4. ``cliff``, ``gradual_decline`` or ``decline``: the scan's step has p <= .9 alpha, and the
       drop at its split is large, or 2/3 of the tolerance is lost with probability .95.
       `kind_of_drop` chooses among the three, however deep the drop is;
    5. ``stable``.

    A large drop is at least 5/6 of the tolerance, and larger than choosing its place can explain
    (`CHOSEN_EXCESS`).
    """
    examples, count = int(documents.n.sum()), len(documents.n)
    if examples < LEAST_EXAMPLES or count < LEAST_DOCUMENTS or baseline.mean is None:
        return _insufficient(_too_few(examples, count))
    scan = scan_at(documents, (1.0 - STEP_SHARE) * (1.0 - settings.confidence), settings)
    if scan is None:
        return _insufficient(
            "Nearly all examples have one length: no length has 15% of them before it and 4% "
            "after; measure more at other lengths."
            if len(np.unique(documents.length_tokens)) > 1
            else "All scored documents have the same length, so its effect is unknown; measure "
            "documents of different lengths."
        )
    curve = fit_falling_curve(documents, settings.baseline_share)
    if not curve.beyond_baseline:
        return _insufficient(
            f"The shortest {settings.baseline_share:.0%} of the examples, the baseline, reach the "
            "longest length: nothing is left to compare; measure more long documents."
        )
    if why := _floor(baseline, documents.chance):
        return Finding(Verdict.FLOOR, why, scan=scan, curve=curve)
    return judge(scan, curve, settings)


def _floor(baseline: Baseline, guessing: float) -> str:
    """Return a sentence on why the baseline leaves no room for a drop; empty if it leaves room."""
    mean, low, high = baseline.mean or 0.0, baseline.ci_low or 0.0, baseline.ci_high or 1.0
    fail = "short documents already fail, so no length is safe"
    if guessing and low <= guessing:
        return (
            f"The baseline score is {mean:.2f} [{low:.2f}, {high:.2f}], not better than guessing "
            f"({guessing:.2f}): {fail}."
        )
    return f"The baseline score is {mean:.2f}, below {FLOOR:.2f}: {fail}." if mean < FLOOR else ""


def judge(scan: Scan, curve: FallingCurve, settings: AnalysisSettings) -> Finding:
    """Return the verdict from the fits, at the tolerance and confidence of ``settings``."""
    confidence, tolerance = settings.confidence, settings.tolerance
    alpha, least_drop = 1.0 - confidence, ALARM_SHARE * tolerance
    if (dip := scan.dip) is not None and _is_dip(dip, scan, curve, alpha, tolerance):
        return _dip(dip, scan, curve, confidence)
    significant = scan.step.p_value <= STEP_SHARE * alpha + 1e-9
    drop = curve.drop(confidence)
    size = f"{drop.value:.0%} [{drop.low:.0%}, {drop.high:.0%}]"
    surely = curve.posterior.chance_lost(SMALL_SHARE * tolerance)[-1] >= SURE_CHANCE
    if significant and (surely or _large(scan.step, tolerance)):
        location = curve.drop_place(confidence)
        certain = f"A drop of {tolerance:.0%} is not certain: the score drops by {size}."
        end_of_drop = curve.lost_at(0.9 * drop.value, confidence).value
        start = max(min(end_of_drop, float(curve.cells.high[-1])), location.high)
        return Finding(
            kind_of_drop(curve),
            note=certain if drop.low < tolerance else "",
            cliff=Drop(location, drop, scan.step.p_value, not curve.drop_may_be_in_baseline),
            degraded=(round(start), int(curve.cells.high[-1]) + 1),
            scan=scan,
            curve=curve,
            visible=True,
        )
    note = ""
    if significant:
        large = f"a drop of {least_drop:.0%} or more counts as large"
        outcome = "It is not large"
        if drop.high >= least_drop:
            outcome = "More examples would show whether it is large"
        note = f"A drop with length is visible, {size}. {outcome}: {large}."
    elif scan.rise_p_value <= alpha:
        note = "The score rises with length: questions on short documents may be harder."
    return Finding(Verdict.STABLE, note=note, scan=scan, curve=curve, visible=significant)


def _is_dip(dip: Dip, scan: Scan, curve: FallingCurve, alpha: float, tolerance: float) -> bool:
    better = dip.deviance - scan.step.deviance > SURELY * float(curve.dispersion.mean())
    significant = dip.p_value <= (1.0 - STEP_SHARE) * alpha + 1e-9
    return significant and better and _large(dip, tolerance)


def _large(split: Split, tolerance: float) -> bool:
    low_n, _, high_n, _ = split.counts
    feigned = CHOSEN_EXCESS * split.above * math.sqrt(1.0 / low_n + 1.0 / high_n)
    return split.drop >= max(ALARM_SHARE * tolerance, CHOSEN_SHARE * tolerance + feigned)


def _dip(dip: Dip, scan: Scan, curve: FallingCurve, confidence: float) -> Finding:
    low, high = (float(tokens) for tokens in dip.starts)
    phi = float(curve.dispersion.mean())
    least, most = ratio_interval(*dip.counts, phi, chi_square_quantile(confidence))
    least, most = least * dip.above, min(most * dip.above, 1.0)
    drop = Estimate(dip.drop, min(least, dip.drop), max(most, dip.drop))
    return Finding(
        Verdict.DIP,
        cliff=Drop(Estimate(float(dip.first_tokens), low, high), drop, dip.p_value),
        degraded=(dip.first_tokens, dip.last_tokens + 1),
        scan=scan,
        curve=curve,
        visible=True,
    )


def _too_few(examples: int, documents: int) -> str:
    shortages = ["examples"] * (examples < LEAST_EXAMPLES) + ["documents"] * (
        documents < LEAST_DOCUMENTS
    )
    return (
        f"Too few {' and '.join(shortages)} for a verdict: {examples} examples on {documents} "
        f"documents are scored, and it needs {LEAST_EXAMPLES} on {LEAST_DOCUMENTS} (add documents, "
        "or raise samples_per_bin of the study)."
    )


def _insufficient(reason: str) -> Finding:
    return Finding(Verdict.INSUFFICIENT_DATA, reason)


SUDDEN, GRADUAL = 1.0, 0.0
"""Limits on twice the log evidence of a step over a slope: a cliff is at or above the first, a
gradual decline at or below the second; chosen by benchmarks/suddenness.py."""
_LEAST_AFTER = 0.04
_LEAST, _MOST = 0.05, 0.95
"""Limits on the mean when computing a score's variance, lest one perfect cell decide alone."""


def kind_of_drop(curve: FallingCurve) -> Verdict:
    """Return ``cliff`` or ``gradual_decline``, or ``decline`` if neither clearly fits better."""
    evidence = step_over_slope(curve)
    if evidence >= SUDDEN:
        return Verdict.CLIFF
    return Verdict.GRADUAL_DECLINE if evidence <= GRADUAL else Verdict.DECLINE


def step_over_slope(curve: FallingCurve) -> float:
    """Return twice the log evidence of a step relative to a slope over all lengths.

    Each shape has a free mean before it and after it, and is fitted by weighted least squares; its
    evidence is the sum of squares it explains. A step may lie anywhere beyond the baseline region;
    a slope is straight in log length, in the rank of length, or in length. The evidence of a kind
    is the mean of exp(explained / 2) over its shapes, so that a kind with many shapes has no
    advantage.
    """
    cells = curve.cells
    reached = np.cumsum(cells.n) / cells.n.sum()
    cut = np.arange(cells.baseline_cells, len(cells.n))
    cut = cut[(1.0 - reached[cut - 1] >= _LEAST_AFTER - 1e-9) | (cut == cut[0])]
    steps = np.arange(len(cells.n)) >= cut[:, None]
    slopes = np.array([cells.x, reached - 0.5 * cells.n / cells.n.sum(), np.exp(cells.x)])
    mean = curve.mean().clip(_LEAST, _MOST)
    weight = cells.n / (curve.dispersion * mean * (1.0 - mean))
    score = cells.s / cells.n

    def evidence(shapes: Floats) -> float:
        centred = shapes - (shapes @ weight)[:, None] / weight.sum()
        spread = np.maximum(np.square(centred) @ weight, 1e-12)
        fall = np.maximum(-centred @ (weight * score), 0.0)
        explained = np.square(fall) / spread
        largest = float(explained.max())
        return largest + 2.0 * float(np.log(np.exp(0.5 * (explained - largest)).mean()))

    return evidence(steps.astype(np.float64)) - evidence(slopes)


_UNSEEN = 1 / 3
"""If no drop is seen, at least this fraction of the examples, longest first, is compared."""
LEAST_REMAINING = 0.5
"""Minimum fraction of the measured loss that must remain after adjustment."""
CHOSEN = (SPLIT_LIMIT / 3.84) ** 0.5
"""Factor of the interval's half-width by which the adjusted loss must exceed 0: the place was
chosen where the loss looks largest, partly by chance within a category."""


@dataclass(frozen=True, slots=True)
class DropWindow:
    """Half-open range of lengths with a loss, in tokens; ``to_tokens`` None: to the longest."""

    from_tokens: int
    to_tokens: int | None

    def of(self, lengths: Ints) -> Bools:
        """Return which of the lengths lie in the window."""
        end = np.inf if self.to_tokens is None else self.to_tokens
        return (lengths >= self.from_tokens) & (lengths < end)

    @property
    def words(self) -> str:
        if self.to_tokens is None:
            return f"from {self.from_tokens:,} tokens on"
        return f"between {self.from_tokens:,} and {self.to_tokens:,} tokens"


def drop_window(finding: Finding, lengths: Ints) -> DropWindow | None:
    """Return the range of the loss; without a loss, the likeliest range that is large enough."""
    if finding.scan is None or finding.verdict is Verdict.FLOOR:
        return None
    if finding.verdict is Verdict.DIP:
        return DropWindow(*finding.degraded)
    start = finding.scan.step.first_tokens
    if finding.cliff is not None:
        start = round(finding.cliff.location.value)
    elif not finding.visible:
        start = min(start, int(np.quantile(lengths, 1.0 - _UNSEEN)))
    window = DropWindow(start, None)
    return window if 0 < window.of(lengths).sum() < len(lengths) else None


@dataclass(frozen=True, slots=True)
class AdjustedDrop:
    """The drop after adjustment, and the drop as measured.

    ``strength``: ``drop`` divided by the half-width of its interval. ``other``: the cause of the
    drop if it is not length; ``hidden``: a cause that would hide a drop.
    """

    drop: Estimate
    strength: float
    measured: float
    other: str
    hidden: str


def judge_adjusted_drop(
    head: str, adjusted: AdjustedDrop, finding: Finding, settings: AnalysisSettings
) -> tuple[Literal["yes", "no"], str]:
    """Return whether length causes the drop, and why: a sentence that starts with ``head``."""
    drop, measured_drop = adjusted.drop.value, adjusted.measured
    low, high = _percent(adjusted.drop.low), _percent(adjusted.drop.high)
    head += f" {_percent(drop)} [{low}, {high}], and {_percent(measured_drop)} as measured"
    if not finding.visible:
        if abs(drop - measured_drop) >= ALARM_SHARE * settings.tolerance:
            return "no", f"{head}: {adjusted.hidden} hides the effect of length."
    elif drop < LEAST_REMAINING * measured_drop:
        return "no", f"{head}: most of the drop comes from {adjusted.other}."
    elif adjusted.strength <= CHOSEN:
        return "no", f"{head}: too little data to separate length from {adjusted.other}."
    return "yes", f"{head}."


def _percent(share: float) -> str:
    return f"{share:.0%}".replace("-0%", "0%")


LEAST, SHARE = 6, 0.10
"""Minimum number and fraction of the examples in a dip; no data can refute a shorter one."""
_ABOVE = 0.7
"""Factor of the normal quantile by which a window's mean must exceed the mean in a dip. Less than 1
suffices, because overlapping windows and the falling curve detect a dip as well (chosen by
benchmarks/accept.py)."""
_DEPTHS = np.arange(0.05, 0.96, 0.05)


def first_possible_dip(
    curve: FallingCurve, drop: float, confidence: float, above: float = _ABOVE
) -> int:
    """Return the first cell at which a dip by ``drop`` may begin; the number of cells if none.

    Compares every window of max(6, 10%) of the examples beyond the baseline region with all
    examples before it, by their means m_w and m_b and the error of m_w - (1 - drop) m_b given a
    dip. A longer dip contains such a window. ``above``: factor of the normal quantile.
    """
    cells, share_kept, guessing = curve.cells, 1.0 - drop, curve.documents.chance
    n = np.concatenate([[0.0], np.cumsum(cells.n)])
    s = np.concatenate([[0.0], np.cumsum(cells.s)])
    phi = np.concatenate([[0.0], np.cumsum(cells.n * curve.dispersion)])
    start = np.arange(cells.baseline_cells, len(cells.n))
    end = np.searchsorted(n, n[start] + max(float(LEAST), SHARE * float(n[-1])) - 1e-9)
    start, end = start[end <= len(cells.n)], end[end <= len(cells.n)]
    n_b, s_b, n_w, s_w = n[start], s[start], n[end] - n[start], s[end] - s[start]
    # The mean before the dip, estimated from both sides of it.
    mean = np.clip((s_b + s_w - drop * guessing * n_w) / (n_b + share_kept * n_w), 1e-3, 1.0 - 1e-3)
    dip_mean = np.maximum(kept_of(mean, share_kept, guessing), 1e-4)
    variance = dip_mean * (1.0 - dip_mean) * (phi[end] - phi[start]) / n_w**2
    variance += share_kept**2 * mean * (1.0 - mean) * phi[start] / n_b**2
    z = (s_w / n_w - kept_of(s_b / n_b, share_kept, guessing)) / np.sqrt(variance)
    possible = np.flatnonzero(z < above * np.sqrt(chi_square_quantile(confidence)))
    return int(start[possible[0]]) if len(possible) else len(cells.n)


def least_excluded_dip(curve: FallingCurve, tokens: int, confidence: float) -> float | None:
    """Return the smallest dip, in steps of 5%, ruled out up to ``tokens``; ``None`` if none is.

    Only the dip's own window counts. ``None`` also if no dip fits between baseline and ``tokens``.
    """
    cell = int(np.searchsorted(curve.cells.low, tokens, side="right"))
    size = max(float(LEAST), SHARE * float(curve.cells.n.sum()))
    # A dip that lies wholly below the length begins at least ``size`` examples before it.
    reached = np.cumsum(curve.cells.n[:cell])
    last_start = int(np.searchsorted(reached, reached[-1] - size, side="right")) + 1
    if last_start <= curve.cells.baseline_cells:
        return None
    for depth in _DEPTHS:
        if first_possible_dip(curve, float(depth), confidence, above=1.0) >= last_start:
            return float(depth)
    return None


DEPTH, CHANCE = 0.85, 0.60
"""A cap ends where a drop by `DEPTH` times the tolerance has a chance above `CHANCE` times the
error rate: at a tolerance of 30% and 95% confidence, a drop of .255 with a chance of .03. Both are
chosen by simulation, so that caps hold for all falling curves of benchmarks/accept.py."""
_FEW = 100
"""Below this, the chance shrinks in proportion; 50 would err in .05 (benchmarks/looks.py)."""


_SMALL = 0.25
"""The chance shrinks with smaller tolerances, or a drop of 15% would pass in .14 at 10%."""


def chance_allowed(tolerance: float, confidence: float, examples: float) -> float:
    """Return the largest chance of a drop by `DEPTH` times the tolerance that a cap may have."""
    return CHANCE * (1.0 - confidence) * min(examples / _FEW, 1.0) * min(tolerance / _SMALL, 1.0)


def tail_confidence(confidence: float, share: float = 1.0) -> float:
    """Return the confidence with which the longest answers alone must refute a loss (`Tail`).

    It allows twice the error rate: for the late drops and outlying documents of
    benchmarks/accept.py at most .05 of the caps were unsafe, and caps on flat curves reached as far
    as possible.
    """
    return 1.0 - 2.0 * share * (1.0 - confidence)


@dataclass(frozen=True, slots=True)
class Cap:
    """The safe context cap and the reason for it; ``tokens`` is ``None`` if no length is safe.

    ``baseline_tokens``: end of the baseline region, if no longer length is shown to be safe.
    """

    tokens: int | None
    reason: str
    baseline_tokens: int | None = None


def certified_cap(
    curve: FallingCurve,
    tolerance: float,
    confidence: float,
    before: int | None = None,
    *,
    may_recover: bool = False,
    share: float = 1.0,
) -> Cap:
    """Return the longest length before the score may fall by ``tolerance``.

    The cap never exceeds the longest scored length, and is None if it would not lie beyond the
    baseline region. A larger tolerance or a lower confidence gives a longer cap.

    Args:
        before: another exclusive bound (the start of a dip), tokens.
        may_recover: whether the cap must also hold for a model that fails at a length and recovers.
        share: factor of the allowed chance of loss (`CHANCE`).
    """
    cells = curve.cells
    baseline_end, longest = int(cells.high[cells.baseline_cells - 1]), int(cells.high[-1])
    drop, confidence_text = level(tolerance), level(confidence)
    chance = share * chance_allowed(tolerance, confidence, float(cells.n.sum()))
    first = curve.first_cell(DEPTH * tolerance, chance)
    if may_recover:
        first = min(first, first_possible_dip(curve, tolerance, confidence))
    tokens = int(cells.high[first - 1])
    if before is not None:
        tokens = min(tokens, before - 1)
    supported = curve.supported(tolerance, tail_confidence(confidence, share))
    alone = supported is not None and supported < tokens
    if supported is not None:
        tokens = min(tokens, supported)
    if tokens <= baseline_end:
        return Cap(
            None,
            f"Nothing longer than the baseline's own {baseline_end:,} tokens is shown to be safe: "
            f"right after them the score may drop by {drop}. Measure more, and shorter documents.",
            baseline_end,
        )
    if tokens >= longest:
        return Cap(
            longest,
            f"The score stays within {drop} of its baseline up to {longest:,} tokens, the longest "
            f"length scored ({confidence_text} confidence).",
        )
    remark = "beyond that there are too few answers to tell" if alone else "it may drop right after"
    return Cap(
        tokens,
        f"The score stays within {drop} of its baseline up to {tokens:,} tokens ({confidence_text} "
        f"confidence); {remark}.",
    )


@dataclass(frozen=True, slots=True)
class Conclusion:
    """The verdict with its evidence (``finding``), and the certified cap (``cap``)."""

    finding: Finding
    cap: Cap


def conclude(documents: Documents, settings: AnalysisSettings, baseline: Baseline) -> Conclusion:
    """Return verdict and certified cap at the tolerance and confidence of ``settings``.

    Args:
        baseline: baseline of these documents (`baseline_of`).
    """
    finding = find_verdict(documents, settings, baseline)
    return Conclusion(finding, cap_of(finding, settings))


def conclude_again(conclusion: Conclusion, settings: AnalysisSettings) -> Conclusion:
    """Conclude from the same documents at the tolerance of ``settings``, without a new fit."""
    finding = conclusion.finding
    if finding.scan and finding.curve and finding.verdict is not Verdict.FLOOR:
        finding = judge(finding.scan, finding.curve, settings)
    return Conclusion(finding, cap_of(finding, settings))


def cap_of(finding: Finding, settings: AnalysisSettings, share: float = 1.0) -> Cap:
    """Return the cap at the tolerance of ``settings``; its tokens are None if no cap is allowed.

    ``share``: factor of the usual chance of loss.
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
    """Return what the cap assumes about recovery, and the cap without it; None without a fit."""
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


def baseline_of(documents: Documents, settings: AnalysisSettings) -> Baseline:
    """Return the ``baseline`` of ``cliffs.json``: the shortest 15% of the examples (or the share
    in ``settings``), in whole documents.

    The interval resamples documents; ``n`` counts examples, ``to_tokens`` is the longest length in
    the region.
    """
    if not len(documents.n):
        return Baseline(None, None, None, 0, None)
    cells = merge_cells(documents, baseline_share=settings.baseline_share)
    to_tokens = int(cells.high[cells.baseline_cells - 1])
    in_baseline = documents.length_tokens <= to_tokens
    n, s = documents.n[in_baseline], documents.s[in_baseline]
    low, high = document_interval(n, s, settings, 0, 1)
    return Baseline(float(s.sum() / n.sum()), low, high, int(n.sum()), to_tokens)


LOOK_SHARE = 0.25
"""Factor applied to the usual chance of loss for caps longer than every earlier one."""


def cap_after_looks(finding: Finding, settings: AnalysisSettings, looks: Sequence[Look]) -> Cap:
    """Return the cap, given earlier ``looks`` at caps from fewer examples."""
    cap = cap_of(finding, settings)
    if not looks or cap.tokens is None or finding.curve is None:
        return cap
    cells = finding.curve.cells
    strict = cap_of(finding, settings, LOOK_SHARE).tokens or 0
    tokens = max(strict, min(cap.tokens, max(look.safe_cap_tokens or 0 for look in looks)))
    if tokens == cap.tokens:
        return cap
    times = "once" if len(looks) == 1 else f"{len(looks)} times"
    before = f"the cap was read {times} before, at fewer examples"
    drop, confidence_text = level(settings.tolerance), level(settings.confidence)
    if tokens <= (baseline_end := int(cells.high[cells.baseline_cells - 1])):
        return Cap(
            None,
            f"Nothing longer than the baseline's own {baseline_end:,} tokens is shown to be safe, "
            f"since {before}; these examples alone would show {cap.tokens:,} tokens. Measure more.",
            baseline_end,
        )
    return Cap(
        tokens,
        f"The score stays within {drop} of its baseline up to {tokens:,} tokens ({confidence_text} "
        f"confidence); {before}, and these examples alone would show {cap.tokens:,} tokens.",
    )


def caps_at(
    finding: Finding,
    tolerances: Sequence[float],
    settings: AnalysisSettings,
    looks: Sequence[Look],
) -> Iterator[tuple[float, Cap]]:
    """Yield (tolerance, cap) from the same fit; a larger tolerance never gives a shorter cap."""
    usual = cap_after_looks(finding, settings, looks)
    for tolerance in tolerances:
        other_settings = replace(settings, tolerance=tolerance)
        if abs(tolerance - settings.tolerance) < 1e-9:
            yield tolerance, usual
            continue
        cap = cap_of(finding, other_settings, LOOK_SHARE if looks else 1.0)
        longer = tolerance > settings.tolerance and (usual.tokens or 0) > (cap.tokens or 0)
        yield tolerance, usual if longer else cap


_ENDS = 0.15
"""Fraction of the calls, shortest and longest, for which missing answers are reported."""


def missing_by_length(sample: Sample, settings: AnalysisSettings) -> MissingByLength | None:
    """Return where missing answers rise with length and the resulting cap; None if they do not."""
    calls = sample.calls
    # A cap never exceeds the longest answered length: missing answers beyond it limit nothing.
    reach = calls.loc[calls["answered"], "length_tokens"].max()
    calls = calls[calls["length_tokens"] <= reach]
    answered = calls["answered"].to_numpy()
    if answered.all():
        return None
    there = _documents(replace(sample, chance=0.0), calls.assign(score=answered.astype(np.float64)))
    alpha = 1.0 - settings.confidence
    scan = scan_at(there, alpha, settings)
    if scan is None or scan.step.p_value > alpha:
        return None
    curve = fit_falling_curve(there, settings.baseline_share)
    if not curve.beyond_baseline:
        return None
    place = curve.drop_place(settings.confidence)
    delivered = _documents(sample, calls.assign(score=calls["score"].where(answered, 0.0)))
    baseline = baseline_of(delivered, settings)
    location, low, high = place.tokens
    ends = max(round(_ENDS * len(answered)), 1)
    return MissingByLength(
        rises_at_tokens=location,
        ci_low=low,
        ci_high=high,
        share_short=float(1.0 - answered[:ends].mean()),
        share_long=float(1.0 - answered[-ends:].mean()),
        cap_tokens=conclude(delivered, settings, baseline).cap.tokens,
    )


def limited_cap(cap: Cap, missing: MissingByLength | None, settings: AnalysisSettings) -> Cap:
    """Return ``cap``, lowered with a stated reason if missing answers require it."""
    if missing is None:
        return cap
    if cap.tokens is None:
        return cap if (cap.baseline_tokens or 0) < missing.ci_low else Cap(None, cap.reason)
    if missing.cap_tokens is not None and missing.cap_tokens >= cap.tokens:
        return cap
    drop, tokens = level(settings.tolerance), missing.cap_tokens
    consequence = "no length is safe"
    if tokens is not None:
        consequence = f"the score stays within {drop} of its baseline up to {tokens:,} tokens"
    return Cap(
        missing.cap_tokens,
        f"Missing answers limit the cap: {missing.share_short:.0%} of the shortest {_ENDS:.0%} of "
        f"the calls lack one, {missing.share_long:.0%} of the longest. The share rises at "
        f"{missing.rises_at_tokens:,} tokens [{missing.ci_low:,} to {missing.ci_high:,}]. If they "
        f"score 0, {consequence}.",
    )


def _documents(sample: Sample, calls: pd.DataFrame) -> Documents:
    """Return the documents of the calls, treating each call as answered."""
    examples = average_replicates(calls, np.ones(len(calls), bool))
    return replace(sample, examples=examples).documents()


def zones_of(finding: Finding, cap: int | None, sample: Sample) -> list[Zone]:
    """Return the ``zones`` of ``cliffs.json``: half-open, without gaps, from the shortest scored
    length to the longest + 1. Unmeasured lengths are in no zone.

    Lengths up to the cap are stable. After a loss, lengths are degraded once 90% of the drop has
    happened and its midpoint has certainly passed (for a dip, inside its window); the transition
    lies between. Other lengths beyond the cap are `not_shown`. Empty without a verdict.
    """
    if finding.verdict is Verdict.INSUFFICIENT_DATA or not len(sample.examples):
        return []
    lengths = sample.examples["length_tokens"].to_numpy(np.int64)
    scores = sample.examples["score"].to_numpy(np.float64)
    end = int(lengths.max()) + 1
    cuts: list[tuple[ZoneName, int]]
    safe = 0 if cap is None else cap + 1
    if finding.cliff is None:
        floor = finding.verdict is Verdict.FLOOR
        cuts = [("stable", safe), ("degraded" if floor else "not_shown", end)]
    elif finding.verdict is Verdict.DIP:
        start, stop = finding.degraded
        cuts = [
            ("stable", min(safe, start)),
            ("transition", start),
            ("degraded", stop),
            ("not_shown", end),
        ]
    else:
        cuts = [("stable", safe), ("transition", max(finding.degraded[0], safe)), ("degraded", end)]
    zones: list[Zone] = []
    position = int(lengths.min())
    for name, zone_end in cuts:
        zone_end = min(zone_end, end)
        if zone_end <= position:
            continue
        zone_scores = scores[(lengths >= position) & (lengths < zone_end)]
        mean = float(zone_scores.mean()) if len(zone_scores) else None
        zones.append(Zone(name, position, zone_end, mean, len(zone_scores)))
        position = zone_end
    return zones
