"""Calls without an answer that become more with length: they end a cap like wrong answers would.

Scores are means over the calls that were answered. Where long documents time out or overflow the
window, those means say nothing of what a user gets. So the scan that looks for a drop of scores
tests whether the share of calls without an answer rises with length; if it does, the cap is no
longer than that of the scores with 0 for every missing answer.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from contextcliff_dagster.analysis.cliff.baseline import baseline_of
from contextcliff_dagster.analysis.cliff.cap import Cap
from contextcliff_dagster.analysis.cliff.conclusion import conclude
from contextcliff_dagster.analysis.curves.falling_curve import fit_falling_curve
from contextcliff_dagster.analysis.curves.permutation_scan import scan_at
from contextcliff_dagster.analysis.records.examples import average_replicates
from contextcliff_dagster.contracts import level
from contextcliff_dagster.contracts.results.caps import MissingByLength

if TYPE_CHECKING:
    import pandas as pd

    from contextcliff_dagster.analysis.records.samples import Documents, Sample
    from contextcliff_dagster.analysis.records.settings import AnalysisSettings

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
