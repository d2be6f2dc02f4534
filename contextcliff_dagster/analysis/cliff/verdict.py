"""The verdict on the scores over length, and what it rests on.

Both sides of a loss, and whether what remains of it, all else equal, is still one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from contextcliff_dagster.analysis.curves.falling_curve import Estimate, fit_falling_curve
from contextcliff_dagster.analysis.curves.permutation_scan import SPLIT_LIMIT, scan_at
from contextcliff_dagster.analysis.statistics.intervals import chi_square_quantile, ratio_interval
from contextcliff_dagster.contracts import Verdict

if TYPE_CHECKING:
    from contextcliff_dagster.analysis.curves.falling_curve import Estimate, FallingCurve
    from contextcliff_dagster.analysis.curves.permutation_scan import Dip, Scan, Split
    from contextcliff_dagster.analysis.records.samples import Documents
    from contextcliff_dagster.analysis.records.settings import AnalysisSettings
    from contextcliff_dagster.contracts.arrays import Bools, Floats, Ints
    from contextcliff_dagster.contracts.results.cliffs import Baseline


LEAST_EXAMPLES = 30
LEAST_DOCUMENTS = 20
FLOOR = 0.10
ALARM_SHARE = 5 / 6
"""A drop is an alarm from this share of the tolerance on: .25 at 30%."""
STEP_SHARE = 0.9
"""Share of the error rate spent on steps; the rest on dips."""
SMALL_SHARE, SURE_CHANCE = 2 / 3, 0.95
"""A drop no larger than its split may feign is an alarm if 2/3 of the tolerance is surely lost."""
SURELY = 3.84
"""Deviance (over the dispersion) by which a dip must explain the scores better than a step."""
CHOSEN_SHARE, CHOSEN_EXCESS = 1 / 2, 1.2
"""A split is chosen where the drop looks largest, and there it looks larger than it is, the more so
the fewer examples (n0, n1) its sides have: an alarm needs a drop of half the tolerance plus
1.2 sqrt(1 / n0 + 1 / n1)."""


@dataclass(frozen=True, slots=True)
class Drop:
    """Where (tokens), how much (relative to the baseline), and the chance of it by accident.

    ``placed``: it lies beyond the baseline region, within which no drop can be placed.
    """

    location: Estimate
    drop: Estimate
    p_value: float
    placed: bool = True

    @property
    def tokens(self) -> tuple[int, int | None, int | None]:
        """The location and its interval; no interval where the drop is not placed."""
        at, low, high = self.location.tokens
        return (at, low, high) if self.placed else (at, None, None)


@dataclass(frozen=True, slots=True)
class Finding:
    """The verdict and what led to it.

    Attributes:
        reason: a sentence, for the verdicts that allow no cap; else empty.
        note: a sentence that qualifies the verdict; or empty.
        cliff: the drop, for the verdicts that have one.
        degraded: first length of the degraded region and the first after it, tokens.
        scan, curve: what the scores say; ``None`` where the data support nothing.
        visible: the scan found a drop, alarm or not.
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
        """``degraded`` where the verdict is a dip."""
        return self.degraded if self.verdict is Verdict.DIP else None

    @property
    def dip_start(self) -> int | None:
        """The shortest length (tokens) at which a dip may begin; ``None`` without one."""
        return int(self.cliff.location.low) if self.dip_window and self.cliff else None


def find_verdict(documents: Documents, settings: AnalysisSettings, baseline: Baseline) -> Finding:
    """Decide, in this order:

    1. ``insufficient_data``: fewer than 30 examples or 20 documents, or no place to split them;
    2. ``floor``: the baseline's mean is below .10, or its interval reaches what guessing scores;
    3. ``dip``: the scan's window has p <= .1 alpha and a large drop, and explains the scores better
       than the best step (quasi-deviance by more than 3.84);
    4. ``cliff``, ``gradual_decline`` or ``decline``: the scan's step has p <= .9 alpha, and the
       drop at its split is large, or 2/3 of the tolerance is lost with a chance of .95. Which of
       the three `kind_of_drop` says, however deep the drop is;
    5. ``stable``.

    Large is a drop of at least 5/6 of the tolerance and of what the choice of its place may feign
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
    """Why nothing can be lost from this baseline; empty where something can."""
    mean, low, high = baseline.mean or 0.0, baseline.ci_low or 0.0, baseline.ci_high or 1.0
    if guessing and low <= guessing:
        return (
            f"The baseline score is {mean:.2f} [{low:.2f}, {high:.2f}], not better than guessing "
            f"({guessing:.2f}): short documents already fail, so no length is safe."
        )
    if mean < FLOOR:
        return (
            f"The baseline score is {mean:.2f}, below {FLOOR:.2f}: short "
            "documents already fail, so no length is safe."
        )
    return ""


def judge(scan: Scan, curve: FallingCurve, settings: AnalysisSettings) -> Finding:
    """The verdict on fitted scores at the tolerance and confidence of ``settings``."""
    confidence, tolerance = settings.confidence, settings.tolerance
    alpha, least = 1.0 - confidence, ALARM_SHARE * tolerance
    if (dip := scan.dip) is not None and _is_dip(dip, scan, curve, alpha, tolerance):
        return _dip(dip, scan, curve, confidence)
    significant = scan.step.p_value <= STEP_SHARE * alpha + 1e-9
    drop = curve.drop(confidence)
    size = f"{drop.value:.0%} [{drop.low:.0%}, {drop.high:.0%}]"
    surely = curve.chance_lost(SMALL_SHARE * tolerance)[-1] >= SURE_CHANCE
    if significant and (surely or _large(scan.step, tolerance)):
        location = curve.drop_place(confidence)
        certain = f"A drop of {tolerance:.0%} is not certain: the score drops by {size}."
        most = curve.lost_at(0.9 * drop.value, confidence).value
        start = max(min(most, float(curve.cells.high[-1])), location.high)
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
        large = f"a drop of {least:.0%} or more counts as large"
        note = f"A drop with length is visible, {size}. " + (
            f"It is not large: {large}."
            if drop.high < least
            else f"More examples would show whether it is large: {large}."
        )
    elif scan.rise_p_value <= alpha:
        note = "The score rises with length: questions on short documents may be harder."
    return Finding(Verdict.STABLE, note=note, scan=scan, curve=curve, visible=significant)


def _is_dip(dip: Dip, scan: Scan, curve: FallingCurve, alpha: float, tolerance: float) -> bool:
    better = dip.deviance - scan.step.deviance > SURELY * float(curve.dispersion.mean())
    likely = dip.p_value <= (1.0 - STEP_SHARE) * alpha + 1e-9
    return likely and better and _large(dip, tolerance)


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
    short = ["examples"] * (examples < LEAST_EXAMPLES) + ["documents"] * (
        documents < LEAST_DOCUMENTS
    )
    return (
        f"Too few {' and '.join(short)} for a verdict: {examples} examples on {documents} "
        f"documents are scored, and it needs {LEAST_EXAMPLES} on {LEAST_DOCUMENTS} (add documents, "
        "or raise samples_per_bin of the study)."
    )


def _insufficient(reason: str) -> Finding:
    return Finding(Verdict.INSUFFICIENT_DATA, reason)


SUDDEN, GRADUAL = 1.0, 0.0
"""Twice the log evidence of a step over a slope: a cliff from the first on, a gradual decline up to
the second; chosen by benchmarks/suddenness.py."""
_LEAST_AFTER = 0.04
_LEAST, _MOST = 0.05, 0.95
"""Means in the variance of a score, so that a flawless cell does not decide alone."""


def kind_of_drop(curve: FallingCurve) -> Verdict:
    """``cliff``, ``gradual_decline``, or ``decline`` where neither explains the scores better."""
    evidence = step_over_slope(curve)
    if evidence >= SUDDEN:
        return Verdict.CLIFF
    return Verdict.GRADUAL_DECLINE if evidence <= GRADUAL else Verdict.DECLINE


def step_over_slope(curve: FallingCurve) -> float:
    """Twice the log evidence of a step over that of a slope over all lengths.

    Each shape has the mean before and the mean after it free, and is fitted by weighted least
    squares, which leaves for each what it explains. A step may lie anywhere beyond the baseline
    region, a slope be straight in the logarithm of length, in the rank of length, or in length. The
    evidence of either kind is the mean of exp(explained / 2) over its shapes, so that many places
    to choose from are no advantage.
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
        most = float(explained.max())
        return most + 2.0 * float(np.log(np.exp(0.5 * (explained - most)).mean()))

    return evidence(steps.astype(np.float64)) - evidence(slopes)


_UNSEEN = 1 / 3
"""Of the examples, the longest, that are compared at least where no drop is seen."""
LEAST_REMAINING = 0.5
"""Share of the loss as measured that must remain, all else equal."""
CHOSEN = (SPLIT_LIMIT / 3.84) ** 0.5
"""Times its interval's reach that what remains must lie above 0: the place was chosen where the
loss looks largest, also by the luck of the examples within a category."""


@dataclass(frozen=True, slots=True)
class DropWindow:
    """Where the loss lies, tokens, half-open; ``to_tokens`` is ``None``: to the end."""

    from_tokens: int
    to_tokens: int | None

    def of(self, lengths: Ints) -> Bools:
        """Which of the lengths lie in it."""
        end = np.inf if self.to_tokens is None else self.to_tokens
        return (lengths >= self.from_tokens) & (lengths < end)

    @property
    def words(self) -> str:
        if self.to_tokens is None:
            return f"from {self.from_tokens:,} tokens on"
        return f"between {self.from_tokens:,} and {self.to_tokens:,} tokens"


def drop_window(finding: Finding, lengths: Ints) -> DropWindow | None:
    """Return where the loss found lies, else where one is likeliest and both sides are large."""
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
    """The drop all else equal, and as measured.

    ``strength``: how many times its interval's reach ``drop`` lies above 0. ``other``: the cause of
    the drop if it is not length; ``hidden``: what would hide one.
    """

    drop: Estimate
    strength: float
    measured: float
    other: str
    hidden: str


def judge_adjusted_drop(
    head: str, adjusted: AdjustedDrop, finding: Finding, settings: AnalysisSettings
) -> tuple[Literal["yes", "no"], str]:
    """Whether the drop is due to length, and the reason as a sentence that begins with ``head``."""
    drop, measured = adjusted.drop.value, adjusted.measured
    if not finding.visible:
        if abs(drop - measured) >= ALARM_SHARE * settings.tolerance:
            return "no", f"{head}: {adjusted.hidden} hides the effect of length."
    elif drop < LEAST_REMAINING * measured:
        return "no", f"{head}: most of the drop comes from {adjusted.other}."
    elif adjusted.strength <= CHOSEN:
        return "no", f"{head}: too few examples to attribute any of the drop to length."
    return "yes", f"{head}."


def percent(share: float) -> str:
    return f"{share:.0%}".replace("-0%", "0%")
