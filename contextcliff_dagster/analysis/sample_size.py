"""Sample size: the cap to expect from more of the same data.

Data sets with m times the examples, over the same lengths, are simulated from a curve mu: sums over
neighbouring documents are binomial, with the number of trials divided by the dispersion. mu is a
new draw from the posterior for each data set (the fitted curve blurs a step), or a flat curve if no
drop is visible, because a random slope of the fit would require far too many examples. Each data
set gets its cap like the real data. The expected cap is the median; the n needed is the smallest
on a grid of doublings at which at least four of five data sets are certified.

There are eleven draws per n, about a second in all, so n may be off by one doubling. A loss that
the data do not show yet is not predicted: if a flat curve replaces a slow decline, less will be
certified than expected. docs/method.md reports the accuracy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from operator import itemgetter
from typing import TYPE_CHECKING, Literal

import numpy as np

from contextcliff_dagster.analysis.cliff import (
    LEAST_DOCUMENTS,
    LEAST_EXAMPLES,
    LOOK_SHARE,
    Finding,
    cap_after_looks,
    certified_cap,
)
from contextcliff_dagster.analysis.records import AnalysisSettings, Documents, Sample
from contextcliff_dagster.analysis.statistics.falling_curve import (
    Cells,
    FallingCurve,
    draw_curves,
    falling_posterior,
    fitted_mean,
    kept_of,
)
from contextcliff_dagster.contracts import Verdict
from contextcliff_dagster.contracts.results.cliffs import Certify, FurtherData, Look, MoreData

if TYPE_CHECKING:
    import pandas as pd

    from contextcliff_dagster.contracts.arrays import Floats, Ints

CHANCE = 0.80
"""Probability of certification at the sample size that is reported as needed."""
P90 = 0.9
"""Fraction of the examples, by length, that the cap must cover."""
_DOUBLINGS = 10
_DRAWS = 11
_FINE_SHARE, _FINE_UNITS, _COARSE_UNITS = 0.10, 20, 45
"""The last tenth is simulated in the units of the real data's cells, because certifying the longest
length requires refuting a loss in the last cell; shorter lengths use coarser units for speed."""
TOKENS_MORE, USD_MORE = 1_000_000, 10.0


def required_sample_size(
    sample: Sample,
    documents: Documents,
    finding: Finding,
    settings: AnalysisSettings,
    limit: int | None = None,
    looks: Sequence[Look] | None = None,
) -> Certify:
    """Return the sample size that would certify a cap: ``certify`` of ``cliffs.json``.

    ``assumes``: whether the true curve is assumed to be the ``fitted`` or a ``flat`` one.
    ``further``: further examples for a cap at the 90th percentile of the lengths, with probability
    80%, or for a verdict if there is none; ``reason``: why no number of examples suffices.
    ``n_for_a_cap``: examples per bin for any cap, if there is none. ``more``: expected cap after
    another million tokens, and after another 10 USD if the calls have a price.

    Args:
        sample: ``prompt_tokens`` and ``cost_usd`` of its calls give the cost of an example.
        documents: documents of the sample.
        limit: cap that missing answers allow, tokens; ``None`` if they do not limit it.
        looks: earlier caps, after which longer caps need more certainty; ``None`` ignores them.
    """
    calls, in_bins = sample.calls, sample.examples["bin_index"]
    bins = int(in_bins[in_bins >= 0].nunique())
    if finding.verdict is Verdict.INSUFFICIENT_DATA:
        return Certify(further=_for_a_verdict(documents, calls))
    if not settings.second_opinions or finding.curve is None or not bins:
        return Certify()
    if finding.verdict is Verdict.FLOOR:
        return Certify(
            reason="Even short documents fail; look at the wrong answers before measuring more."
        )
    expected = _Expected(documents, finding, settings, 1.0 if looks is None else LOOK_SHARE)
    measured = int(documents.n.sum())
    cap = cap_after_looks(finding, settings, looks or ()).tokens
    p90 = int(documents.length_tokens[np.searchsorted(np.cumsum(documents.n), P90 * measured)])
    times, reason = _times_needed(expected, cap, p90, limit)
    examples = None if times is None else round((times - 1) * measured)
    further = _further("p90_cap", p90, examples, documents, calls, reason)
    for_a_cap = None
    if cap is None and (times := _doublings(expected, 1)) is not None:
        for_a_cap = int(np.ceil(times * measured / bins))
    budgets = [] if limit is not None else sorted(_budgets(calls, measured), key=itemgetter(2))
    # More data cannot certify less, but eleven draws vary: take the largest median up to each n.
    medians = [expected.median_cap(1.0 + more / measured) or 0 for _, _, more in budgets]
    return Certify(
        n_for_a_cap=for_a_cap,
        assumes="flat" if expected.flat else "fitted",
        reason=reason,
        further=further,
        more=[
            MoreData(*budget, budget[2] // bins, int(median) or None)
            for budget, median in zip(budgets, np.maximum.accumulate(medians), strict=True)
        ],
    )


class _Expected:
    """Caps to expect of data sets that are simulated from the curve.

    ``flat``: whether the curve is assumed to be flat.

    ``later``: factor of the usual chance of loss for caps of larger data sets.
    """

    def __init__(
        self, documents: Documents, finding: Finding, settings: AnalysisSettings, later: float = 1.0
    ) -> None:
        self._documents, self._finding, self._settings = documents, finding, settings
        assert finding.curve is not None
        self._curve: FallingCurve = finding.curve
        self.lost_at = finding.lost_at(settings)
        self.flat, self._tolerance, self._later = not finding.visible, settings.tolerance, later
        self._units = _units_of(documents)
        self._caps: dict[float, Ints] = {}
        rng = np.random.default_rng((settings.seed, 6))
        self._drawn = draw_curves(self._curve.posterior, _DRAWS, rng)

    def _mean(self, lengths: Ints, draw: int | None = None) -> Floats:
        if self.flat:
            return np.full(len(lengths), self._documents.s.sum() / self._documents.n.sum())
        if draw is None or self._finding.dip_window:
            return fitted_mean(self._curve, lengths, self._finding.dip_window)
        level, kept = (of[draw] for of in self._drawn)
        beyond = np.searchsorted(self._curve.cells.high, lengths) - self._curve.cells.baseline_cells
        share = np.append(1.0, kept)[np.maximum(beyond + 1, 0)]
        return kept_of(level, share, self._documents.chance)

    def caps(self, times: float) -> Ints:
        """Return the caps of data sets with ``times`` as many examples; 0 stands for no cap."""
        if times not in self._caps:
            self._caps[times] = np.array([self._cap(times, draw) for draw in range(_DRAWS)])
        return self._caps[times]

    def median_cap(self, times: float) -> int | None:
        """Return the cap that half of the data sets reach; None if there is none."""
        return int(np.sort(self.caps(times))[_DRAWS // 2]) or None

    def _cap(self, times: float, draw: int) -> int:
        settings = self._settings
        lengths, share = self._units
        mean = self._mean(lengths, draw).clip(0.0, 1.0)
        n = times * float(self._documents.n.sum()) * share
        phi = np.interp(np.log(lengths), self._curve.cells.x, self._curve.dispersion)
        trials = np.maximum((n / phi).round().astype(np.int64), 1)
        # The same seed at every n reduces the noise in differences between two n.
        rng = np.random.default_rng((settings.seed, 5, draw))
        s = n * rng.binomial(trials, mean) / trials
        cells = Cells(np.log(lengths), lengths, lengths, n, s, settings.baseline_share)
        posterior = falling_posterior(
            n, s, phi, cells.baseline_cells, guessing=self._documents.chance
        )
        documents = replace(self._documents, length_tokens=lengths, n=n, s=s)
        drawn = FallingCurve(documents, cells, phi, posterior)
        cap = certified_cap(
            drawn,
            settings.tolerance,
            settings.confidence,
            self._finding.dip_start,
            may_recover=settings.assumption == "any",
            share=self._later,
        )
        return cap.tokens or 0

    def why_no_number(self, lost: int) -> str:
        """Return why no sample size certifies ``lost``, the length of the loss in tokens."""
        cannot = "More data cannot lift the cap past"
        if (dip := self._finding.dip_window) is not None:
            return f"{cannot} the dip at {dip[0]:,} tokens."
        if self._finding.cliff is None or self._finding.note:
            return self.open_at(lost)
        down = f"the score itself is {self._tolerance:.0%} down there"
        return f"{cannot} {lost:,} tokens: {down}."

    def open_at(self, length: int) -> str:
        """Return a sentence for a length at which it is uncertain whether the tolerance is lost."""
        down = f"{self._tolerance:.0%} down at {length:,} tokens"
        return f"The score may be {down}; more data would show it."


def _units_of(documents: Documents) -> tuple[Ints, Floats]:
    """Return the length of each simulated unit and its fraction of the examples, shortest first."""
    coarse = np.linspace(0.0, 1.0 - _FINE_SHARE, _COARSE_UNITS + 1)
    edges = np.append(coarse, np.linspace(1.0 - _FINE_SHARE, 1.0, _FINE_UNITS + 1)[1:])
    reached = (np.cumsum(documents.n) - 0.5 * documents.n) / documents.n.sum()
    log = np.interp(0.5 * (edges[:-1] + edges[1:]), reached, np.log(documents.length_tokens))
    lengths = np.exp(log).round().astype(np.int64)
    lengths[0], lengths[-1] = documents.length_tokens[0], documents.length_tokens[-1]
    same, index = np.unique(lengths, return_inverse=True)
    return same, np.bincount(index, weights=np.diff(edges)).astype(np.float64)


def _times_needed(
    expected: _Expected, cap: int | None, length: int, limit: int | None
) -> tuple[float | None, str | None]:
    """Return by what factor the examples must grow to certify ``length``, or why none suffices."""
    if limit is not None and limit < length:
        return None, "Missing answers limit the cap: what more examples would add is unknown."
    if cap is not None and cap >= length:
        return 1.0, None
    if (lost := expected.lost_at) is not None and lost <= length:
        return None, expected.why_no_number(lost)
    times = _doublings(expected, length)
    if times is not None:
        return times, None
    return None, expected.open_at(length)


def _doublings(expected: _Expected, cap: int) -> float | None:
    """Return the smallest factor, found by doubling, at which enough data sets reach ``cap``."""
    low, high = 0, _DOUBLINGS + 1  # factor 1 is the present data, which did not reach it
    while high - low > 1:
        middle = (low + high) // 2
        if (expected.caps(2.0**middle) >= cap).mean() >= CHANCE:
            high = middle
        else:
            low = middle
    return 2.0**high if high <= _DOUBLINGS else None


def _for_a_verdict(documents: Documents, calls: pd.DataFrame) -> FurtherData | None:
    """Return the data needed for a verdict; None if a lack of data is not what prevents one."""
    short = max(LEAST_DOCUMENTS - len(documents.n), 0)
    examples = max(LEAST_EXAMPLES - int(documents.n.sum()), short)
    needed = _further("verdict", None, examples, documents, calls, None)
    known = None if needed.documents is None else short
    return replace(needed, documents=known) if examples else None


def _further(
    goal: Literal["p90_cap", "verdict"],
    goal_tokens: int | None,
    examples: int | None,
    documents: Documents,
    calls: pd.DataFrame,
    reason: str | None,
) -> FurtherData:
    """Return ``examples`` together with the documents, tokens and USD that they require."""

    def of_all(each: float | None) -> float | None:
        return None if examples is None or each is None else examples * each

    measured = int(documents.n.sum())
    known = measured and calls["document_id"].ne("").any()
    tokens, price = _cost(calls, measured)
    others, tokens = of_all(len(documents.n) / measured if known else None), of_all(tokens)
    return FurtherData(
        goal=goal,
        goal_tokens=goal_tokens,
        examples=examples,
        documents=None if others is None else round(others),
        tokens=None if tokens is None else round(tokens),
        usd=of_all(price or None),
        reason=reason,
    )


def _cost(calls: pd.DataFrame, examples: int) -> tuple[float | None, float]:
    """Return tokens and USD per measured example; USD is 0 if calls have no price."""
    answered = calls[calls["answered"]]
    if not len(answered):
        return None, 0.0
    known = answered["prompt_tokens"].dropna()
    tokens = known if len(known) else answered["length_tokens"]
    per_call = len(answered) / max(examples, 1)
    prices = answered["cost_usd"].dropna()
    price = float(prices.mean()) * per_call if len(prices) else 0.0
    return max(float(tokens.mean()), 1.0) * per_call, price


def _budgets(calls: pd.DataFrame, examples: int) -> list[tuple[int, float | None, int]]:
    """Return (tokens, USD, examples) for another million tokens and for another 10 USD."""
    mean, price = _cost(calls, examples)
    mean = mean or 1.0
    more = int(TOKENS_MORE / mean)
    if price <= 0:
        return [(TOKENS_MORE, None, more)]
    count = int(USD_MORE / price)
    return [(TOKENS_MORE, more * price, more), (round(count * mean), USD_MORE, count)]
