"""What more of the same data would buy: the cap to expect at a larger n.

If a curve mu is the truth, m times the examples, spread over the same lengths, are expected to score
n x mu(x) at every length. mu is the fitted curve; a flat one where the data do not refute it at the
stated confidence (the slope that chance gave the fit would ask for far too many examples). The cap of those expected scores (no noise, the dispersion as it
was fitted) stands for the median cap of data sets of that size: a test's statistic at expected data
is the median of its distribution (the "Asimov" data set of Cowan, Cranmer, Gross and Vitells 2011,
European Physical Journal C 71, 1554). For a chance of 80% in place of one half the limit that
refutes is raised from q to (sqrt(q) + 0.84)^2, since the root of the statistic scatters by about 1.

A loss that the data do not show yet is not foreseen: where a flat curve stands in for a slow
decline, less will be certified than expected. How near it comes: docs/method.md.
"""

from __future__ import annotations

from dataclasses import replace
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np

from contextcliff_dagster.analysis.conclusion import cap_at
from contextcliff_dagster.analysis.curve import fitted_mean
from contextcliff_dagster.analysis.decline import merge_cells
from contextcliff_dagster.analysis.intervals import chi_square_quantile
from contextcliff_dagster.analysis.units import Documents
from contextcliff_dagster.contracts import Verdict

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from contextcliff_dagster.analysis.settings import AnalysisSettings
    from contextcliff_dagster.analysis.verdict import Finding

CHANCE = 0.80
"""Of certifying, at the n that is called needed."""
MOST_TIMES = 1_000.0
_STEP = 1.25
_MOST_DOCUMENTS = 4_000
_PARAMETERS = 3
TOKENS_MORE, USD_MORE = 1_000_000, 10.0


def certify(
    documents: Documents,
    finding: Finding,
    settings: AnalysisSettings,
    calls: pd.DataFrame,
    bins: int,
) -> dict[str, Any]:
    """The ``certify`` of ``cliffs.json``.

    ``assumes``: whether the ``fitted`` curve or a ``flat`` one is taken for the truth.
    ``n_needed``: examples a bin, over as many bins as there are, at which the longest measured
    length is certified with a chance of 80%; null with ``reason`` where no n does. ``n_for_a_cap``:
    the same for any cap at all, where the data support none. ``more``: the cap to expect after
    another million tokens, and another 10 USD where the calls have a price.

    Args:
        calls: of the sample; ``prompt_tokens`` and ``cost_usd`` tell what an example costs.
        bins: that hold examples.
    """
    nothing: dict[str, Any] = {
        "n_needed": None,
        "n_for_a_cap": None,
        "assumes": None,
        "reason": None,
    }
    nothing["more"] = []
    if finding.fit is None or finding.refined is None or not bins:
        return {**nothing, "reason": "The data support no curve to reckon with."}
    if finding.verdict is Verdict.FLOOR:
        return {**nothing, "reason": "The score is at the floor: no n makes a length safe."}
    expected = _Expected(documents, finding, settings)
    longest = int(documents.length_tokens[-1])
    now = expected.cap(1.0)
    found = {**nothing, "assumes": "flat" if expected.flat else "fitted"}
    per_bin = float(documents.n.sum()) / bins
    if (lost := expected.lost_at()) is not None:
        found["reason"] = (
            f"The fitted curve itself has lost {settings.tolerance:.0%} at {lost:,} tokens: "
            "no n certifies a longer length."
        )
    else:
        times = _least_times(lambda m: (expected.cap(m, CHANCE) or 0) >= longest)
        found["n_needed"] = None if times is None else int(np.ceil(times * per_bin))
        if times is None:
            found["reason"] = (
                f"Even {MOST_TIMES:,.0f} times as many examples would not certify the longest "
                "measured length."
            )
    if cap_at(finding, settings.tolerance, settings.confidence).tokens is None:
        times = _least_times(lambda m: expected.cap(m, CHANCE) is not None)
        found["n_for_a_cap"] = None if times is None else int(np.ceil(times * per_bin))
    found["more"] = [
        {
            **budget,
            "per_bin": int(budget["examples"] // bins),
            "expected_cap_now": now,
            "expected_cap_tokens": expected.cap(1.0 + budget["examples"] / documents.n.sum()),
        }
        for budget in _budgets(calls, int(documents.n.sum()))
    ]
    return found


class _Expected:
    """Caps of the scores that the curve leads one to expect; ``flat`` says which curve."""

    def __init__(self, documents: Documents, finding: Finding, settings: AnalysisSettings) -> None:
        self._documents, self._finding, self._settings = documents, finding, settings
        self._dip = finding.degraded if finding.verdict is Verdict.DIP else None
        refined = finding.refined
        assert refined is not None
        flat = float(refined.deviance[refined.depth == 0.0].min(initial=np.inf))
        self.flat = finding.cliff is None and flat <= refined.limit(settings.confidence)

    def _mean(self, lengths: NDArray[np.int64]) -> NDArray[np.float64]:
        if self.flat:
            return np.full(len(lengths), self._documents.s.sum() / self._documents.n.sum())
        assert self._finding.refined is not None
        return fitted_mean(self._finding.refined, lengths, self._dip)

    def cap(self, times: float, chance: float = 0.5) -> int | None:
        """The cap of ``times`` as many examples, reached with this chance."""
        documents = self._documents_at(times)
        fit = self._finding.fit
        assert fit is not None
        degrees = None
        if fit.degrees is not None:
            degrees = max(round(times * len(self._documents.n)) - _PARAMETERS, 1)
        cells = merge_cells(documents, baseline_share=self._settings.baseline_share)
        finding = replace(self._finding, fit=replace(fit, cells=cells, degrees=degrees))
        confidence = _raised(self._settings.confidence, chance)
        return cap_at(finding, self._settings.tolerance, confidence).tokens

    def lost_at(self) -> int | None:
        """Length at which the fitted curve has lost the tolerance, ``None`` where it never does."""
        lengths = self._documents.length_tokens
        mean = self._mean(lengths)
        inside = np.cumsum(self._documents.n) <= (
            self._settings.baseline_share * self._documents.n.sum()
        )
        inside[0] = True
        below = mean <= (1.0 - self._settings.tolerance) * float(mean[inside].mean())
        return int(lengths[np.argmax(below)]) if below.any() else None

    def _documents_at(self, times: float) -> Documents:
        """Expected sums of ``times`` as many examples at the same quantiles of length."""
        now = self._documents
        count = len(now.n)
        many = int(min(max(round(times * count), count), _MOST_DOCUMENTS))
        place = (np.arange(many) + 0.5) / many * count - 0.5
        log = np.interp(place, np.arange(count), np.log(now.length_tokens))
        lengths = np.exp(log).round().astype(np.int64)
        lengths[0], lengths[-1] = now.length_tokens[0], now.length_tokens[-1]
        n = np.full(many, times * float(now.n.sum()) / many)
        return Documents(lengths, n, n * self._mean(lengths), False)


def _raised(confidence: float, chance: float) -> float:
    """The confidence whose quantile q' is (sqrt(q) + z)^2, z the normal quantile of ``chance``."""
    normal = NormalDist()
    root = float(np.sqrt(chi_square_quantile(confidence))) + normal.inv_cdf(chance)
    return min(2.0 * normal.cdf(root) - 1.0, 1.0 - 1e-9)


def _least_times(reached: Any) -> float | None:
    """Smallest multiple on a grid of factors 1.25 at which ``reached`` holds, by bisection."""
    grid = _STEP ** np.arange(0, int(np.ceil(np.log(MOST_TIMES) / np.log(_STEP))) + 1)
    low, high = -1, len(grid)
    while high - low > 1:
        middle = (low + high) // 2
        if reached(float(grid[middle])):
            high = middle
        else:
            low = middle
    return float(grid[high]) if high < len(grid) else None


def _budgets(calls: pd.DataFrame, examples: int) -> list[dict[str, Any]]:
    """What another million tokens and another 10 USD come to, in examples like those measured."""
    answered = calls[calls["answered"]]
    known = answered["prompt_tokens"].dropna()
    tokens = known if len(known) else answered["length_tokens"]
    per_call = len(answered) / max(examples, 1)
    mean = max(float(tokens.mean()), 1.0) * per_call
    prices = answered["cost_usd"].dropna()
    price = float(prices.mean()) * per_call if len(prices) else 0.0
    more = int(TOKENS_MORE / mean)
    budgets: list[dict[str, Any]] = [
        {"tokens": TOKENS_MORE, "usd": more * price if price > 0 else None, "examples": more}
    ]
    if price > 0:
        count = int(USD_MORE / price)
        budgets.append({"tokens": round(count * mean), "usd": USD_MORE, "examples": count})
    return budgets
