"""What documents of known length and score allow to conclude: the verdict and the certified cap.

The one door to both, for the profile of a model, for simulations of a design, and for anything else
that asks the same question of other data.

The region everything else is compared with.

The cap of more data, where caps of fewer were read before.

A cap errs rarely, the longest of several that were read one after another errs more often: of 5,
10, 20 and 50 examples a bin .09 of the longest were unsafe, and .02 of the last. So what goes
beyond every earlier cap takes a chance of loss of a quarter only; up to them the usual one counts.
benchmarks/looks.py has the rates, cliff/cap.py what the chance is of.

Calls without an answer that become more with length: they end a cap like wrong answers would.

Scores are means over the calls that were answered. Where long documents time out or overflow the
window, those means say nothing of what a user gets. So the scan that looks for a drop of scores
tests whether the share of calls without an answer rises with length; if it does, the cap is no
longer than that of the scores with 0 for every missing answer.

The length axis cut into stable, transition and degraded regions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from contextcliff_dagster.analysis.cliff.cap import SHARE, Cap, certified_cap, least_excluded_dip
from contextcliff_dagster.analysis.cliff.verdict import Finding, find_verdict, judge
from contextcliff_dagster.analysis.curves.falling_curve import fit_falling_curve, merge_cells
from contextcliff_dagster.analysis.curves.permutation_scan import scan_at
from contextcliff_dagster.analysis.records.samples import average_replicates
from contextcliff_dagster.analysis.statistics.intervals import document_interval
from contextcliff_dagster.contracts import Verdict, level
from contextcliff_dagster.contracts.results.caps import MissingByLength, Recovery
from contextcliff_dagster.contracts.results.cliffs import Baseline, Zone, ZoneName

if TYPE_CHECKING:
    import pandas as pd

    from contextcliff_dagster.analysis.cliff.verdict import Finding
    from contextcliff_dagster.analysis.records.samples import Documents, Sample
    from contextcliff_dagster.analysis.records.settings import AnalysisSettings
    from contextcliff_dagster.contracts.results.caps import Look
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


def baseline_of(documents: Documents, settings: AnalysisSettings) -> Baseline:
    """The ``baseline`` of ``cliffs.json``: the shortest 15% of the examples (or the share
    of ``settings``), whole documents.

    The interval resamples documents; ``n`` counts examples, ``to_tokens`` is the longest length in
    the region.
    """
    if not len(documents.n):
        return Baseline(None, None, None, 0, None)
    cells = merge_cells(documents, baseline_share=settings.baseline_share)
    to_tokens = int(cells.high[cells.baseline_cells - 1])
    inside = documents.length_tokens <= to_tokens
    n, s = documents.n[inside], documents.s[inside]
    low, high = document_interval(n, s, settings, 0, 1)
    return Baseline(float(s.sum() / n.sum()), low, high, int(n.sum()), to_tokens)


LOOK_SHARE = 0.25
"""Of the usual chance, for what goes beyond every earlier cap."""


def cap_after_looks(finding: Finding, settings: AnalysisSettings, looks: Sequence[Look]) -> Cap:
    """The cap at the tolerance of ``settings``; ``looks``: the earlier ones, at fewer examples."""
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
    drop, sure = level(settings.tolerance), level(settings.confidence)
    if tokens <= (baseline_end := int(cells.high[cells.baseline_cells - 1])):
        return Cap(
            None,
            f"Nothing longer than the baseline's own {baseline_end:,} tokens is shown to be safe, "
            f"since {before}; these examples alone would show {cap.tokens:,} tokens. Measure more.",
            baseline_end,
        )
    return Cap(
        tokens,
        f"The score stays within {drop} of its baseline up to {tokens:,} tokens ({sure} "
        f"confidence); {before}, and these examples alone would show {cap.tokens:,} tokens.",
    )


def caps_at(
    finding: Finding,
    tolerances: Sequence[float],
    settings: AnalysisSettings,
    looks: Sequence[Look],
) -> Iterator[tuple[float, Cap]]:
    """The caps of the same fit at other tolerances, the larger the longer."""
    own = cap_after_looks(finding, settings, looks)
    for tolerance in tolerances:
        other = replace(settings, tolerance=tolerance)
        if abs(tolerance - settings.tolerance) < 1e-9:
            yield tolerance, own
            continue
        cap = cap_of(finding, other, LOOK_SHARE if looks else 1.0)
        longer = tolerance > settings.tolerance and (own.tokens or 0) > (cap.tokens or 0)
        yield tolerance, own if longer else cap


_ENDS = 0.15
"""Share of the calls at either end whose missing share is quoted."""


def missing_by_length(sample: Sample, settings: AnalysisSettings) -> MissingByLength | None:
    """Where calls begin to lack an answer, and the cap that counts them; ``None``: nowhere."""
    calls = sample.calls
    # A cap never exceeds the longest answered length: what is missing beyond it limits nothing.
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
    """``cap``, no longer than missing answers allow, and why."""
    if missing is None:
        return cap
    if cap.tokens is None:
        return cap if (cap.baseline_tokens or 0) < missing.ci_low else Cap(None, cap.reason)
    if missing.cap_tokens is not None and missing.cap_tokens >= cap.tokens:
        return cap
    drop, tokens = level(settings.tolerance), missing.cap_tokens
    kept = (
        "no length is safe"
        if tokens is None
        else f"the score stays within {drop} of its baseline up to {tokens:,} tokens"
    )
    return Cap(
        missing.cap_tokens,
        f"Missing answers limit the cap: {missing.share_short:.0%} of the shortest {_ENDS:.0%} of "
        f"the calls lack one, {missing.share_long:.0%} of the longest. The share rises at "
        f"{missing.rises_at_tokens:,} tokens [{missing.ci_low:,} to {missing.ci_high:,}]. If they "
        f"score 0, {kept}.",
    )


def _documents(sample: Sample, calls: pd.DataFrame) -> Documents:
    """The documents of these calls, each as if it had an answer."""
    examples = average_replicates(calls, np.ones(len(calls), bool))
    return replace(sample, examples=examples).documents()


def zones_of(finding: Finding, cap: int | None, sample: Sample) -> list[Zone]:
    """The ``zones`` of ``cliffs.json``: half-open, gap-free from the shortest scored length to the
    longest + 1: nothing is said of lengths that were not measured.

    Stable up to the cap. With a loss: degraded from where 90% of the fall has happened and its half
    lies behind with confidence (a dip: inside its window), transition between. What else lies
    beyond the cap is not shown. None at all where the data support no verdict.
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
    for name, to in cuts:
        to = min(to, end)
        if to <= position:
            continue
        inside = scores[(lengths >= position) & (lengths < to)]
        mean = float(inside.mean()) if len(inside) else None
        zones.append(Zone(name, position, to, mean, len(inside)))
        position = to
    return zones
