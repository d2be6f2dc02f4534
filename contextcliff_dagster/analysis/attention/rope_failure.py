"""Where entropy departs from its trend with length, and whether the score drops there too.

Entropy drifts smoothly with length in any model. The trend is a parabola in the logarithm of the
length; a change is a jump and a bend added to it at one length. The statistic is the largest share
of the residual variance that a change at any length explains; its p-value comes from residuals
permuted over the documents (Freedman and Lane 1983, Journal of Business & Economic Statistics 1,
292-298), and the maximum over lengths makes it one test. The interval has the lengths whose
deviance n log(SSE / least SSE) is within 7.35 of the best, as for the score's change points.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from contextcliff_dagster.analysis.curves.permutation_scan import SPLIT_LIMIT
from contextcliff_dagster.contracts import Verdict
from contextcliff_dagster.contracts.results.attention import EntropyChange, RopeFailure

if TYPE_CHECKING:
    from contextcliff_dagster.analysis.attention.matched import MatchedAttention
    from contextcliff_dagster.analysis.cliff.verdict import Drop, Finding
    from contextcliff_dagster.analysis.records.settings import AnalysisSettings
    from contextcliff_dagster.contracts.arrays import Floats, Ints

APPROACHED = 0.9
"""Share of the trained length from which prompts come near it."""
_LEAST_DOCUMENTS, _LEAST_SIDE, _SIDE_SHARE = 30, 6, 0.08
_MOST_UNITS, _MOST_PLACES = 400, 60


@dataclass(frozen=True, slots=True)
class _Scan:
    """Orthonormal columns of the trend (n, 3) and of each change beyond it (n, 2 K)."""

    trend: Floats
    changes: Floats

    def explained(self, rows: Floats) -> tuple[Floats, Floats]:
        """Squares that each change explains (B, K), and those beyond the trend (B); rows (B, n)."""
        parts = (rows @ self.changes) ** 2
        total = (rows**2).sum(axis=1) - ((rows @ self.trend) ** 2).sum(axis=1)
        return parts.reshape(len(rows), -1, 2).sum(axis=2), total


def find_entropy_change(
    matched: MatchedAttention, settings: AnalysisSettings
) -> EntropyChange | None:
    """The change, None where there is none at the level of ``settings`` or too few documents."""
    lengths, entropy = _units(matched)
    count = len(lengths)
    side = max(_LEAST_SIDE, int(np.ceil(_SIDE_SHARE * count)))
    cuts = np.flatnonzero(np.diff(lengths) > 0) + 1
    cuts = cuts[(cuts >= side) & (cuts <= count - side)]
    if count < _LEAST_DOCUMENTS or not len(cuts):
        return None
    cuts = cuts[np.unique(np.linspace(0, len(cuts) - 1, _MOST_PLACES).round().astype(np.int64))]
    scan = _scan(np.log(lengths), cuts)
    rest = entropy - scan.trend @ (scan.trend.T @ entropy)
    explained, total = scan.explained(rest[None, :])
    if total[0] <= 1e-12 * max(float(entropy @ entropy), 1e-12):
        return None  # the trend is all there is
    rng = np.random.default_rng((settings.seed, 10))
    drawn = rng.permuted(np.tile(rest, (settings.permutations, 1)), axis=1)
    shares, totals = scan.explained(drawn)
    largest = (shares.max(axis=1) / np.maximum(totals, 1e-300)) >= (
        explained.max() / total[0] - 1e-12
    )
    p_value = float((1 + largest.sum()) / (1 + len(largest)))
    if p_value > 1.0 - settings.confidence:
        return None
    left = np.maximum(total[0] - explained[0], 1e-12 * total[0])
    near = np.flatnonzero(count * np.log(left / left.min()) <= SPLIT_LIMIT)
    best = int(np.argmin(left))
    # The change lies after the last length before it; places that were not tried lie between.
    low = lengths[cuts[near[0] - 1]] if near[0] else lengths[cuts[near[0]] - 1]
    high = lengths[cuts[min(near[-1] + 1, len(cuts) - 1)]]
    return EntropyChange(
        location_tokens=int(lengths[cuts[best]]),
        ci_low=int(min(low, lengths[cuts[best]])),
        ci_high=int(np.ceil(high)),
        p_value=p_value,
    )


def predict_rope_failure(
    matched: MatchedAttention,
    change: EntropyChange | None,
    finding: Finding,
    trained_tokens: int | None,
    window_tokens: int | None,
) -> RopeFailure | None:
    """The drop as a share of the window; None unless all of this holds:

    - the trained length and the window are known, and prompts of 90% of the trained length or more
      were measured;
    - the score drops and does not recover, and entropy changes;
    - the midpoint of the drop lies in the interval of the entropy's change, and that change in the
      interval of the midpoint;
    - the interval of the midpoint reaches 90% of the trained length.
    """
    drop = finding.cliff
    if trained_tokens is None or not window_tokens or change is None or drop is None:
        return None
    if matched.prompt_tokens.max() < APPROACHED * trained_tokens:
        return None
    if finding.verdict is Verdict.DIP or not _agree(drop, change):
        return None
    slope, constant = np.polyfit(matched.length_tokens, matched.prompt_tokens, 1)
    place, low, high = (float(constant + slope * one) for one in drop.location.tokens)
    if slope <= 0 or high < APPROACHED * trained_tokens:
        return None
    return RopeFailure(
        prompt_tokens=round(place),
        share=place / window_tokens,
        ci_low=max(low, 0.0) / window_tokens,
        ci_high=high / window_tokens,
    )


def _agree(drop: Drop, change: EntropyChange) -> bool:
    place, low, high = drop.location.tokens
    return change.ci_low <= place <= change.ci_high and low <= change.location_tokens <= high


def _units(matched: MatchedAttention) -> tuple[Floats, Floats]:
    """Length and mean entropy of each document, shortest first; neighbours merged above 400."""
    _, first, own, count = np.unique(
        matched.document, return_index=True, return_inverse=True, return_counts=True
    )
    entropy = np.bincount(own, weights=matched.examples["entropy"].to_numpy(np.float64)) / count
    lengths = matched.length_tokens[first].astype(np.float64)
    order = np.argsort(lengths, kind="stable")
    lengths, entropy = lengths[order], entropy[order]
    if len(lengths) <= _MOST_UNITS:
        return lengths, entropy
    group = np.arange(len(lengths)) * _MOST_UNITS // len(lengths)
    size = np.bincount(group)
    return np.bincount(group, lengths) / size, np.bincount(group, entropy) / size


def _scan(x: Floats, cuts: Ints) -> _Scan:
    scaled = (x - x.mean()) / max(float(x.std()), 1e-9)
    trend, _ = np.linalg.qr(np.column_stack([np.ones(len(x)), scaled, scaled**2]))
    place = np.arange(len(x))[:, None]
    after = (place >= cuts[None, :]).astype(np.float64)
    bend = after * (scaled[:, None] - scaled[cuts][None, :])
    columns = []
    for jump, slope in zip(after.T, bend.T, strict=True):
        both = np.column_stack([jump, slope])
        both -= trend @ (trend.T @ both)
        columns.append(np.linalg.qr(both)[0])
    return _Scan(trend, np.concatenate(columns, axis=1))
