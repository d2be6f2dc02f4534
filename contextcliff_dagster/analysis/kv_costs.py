"""Memory and time that a KV policy saves by length, and the range over which scores stay equal.

The safe cap of a KV policy is relative to the whole cache's score on short documents.

A cap limits the drop from a baseline. A policy that already scores low on the shortest documents
has a low baseline with little room for a drop, so its own cap may be long although no length is
safe for users who switch from the whole cache.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from contextcliff_dagster.analysis.cliff import DEPTH, chance_allowed, tail_confidence
from contextcliff_dagster.analysis.records import AnalysisSettings, Documents
from contextcliff_dagster.analysis.statistics.falling_curve import FallingCurve, fit_falling_curve
from contextcliff_dagster.analysis.statistics.intervals import binomial_quantile, rank_groups
from contextcliff_dagster.contracts import LengthBin
from contextcliff_dagster.contracts.results.comparison import (
    EqualScore,
    EqualWindow,
    KvCap,
    KvComparison,
    KvCost,
    KvPolicy,
    Median,
    Quantity,
)

if TYPE_CHECKING:
    import pandas as pd

    from contextcliff_dagster.analysis.contrast import Pairs, Side
    from contextcliff_dagster.contracts.arrays import Floats


@dataclass(frozen=True, eq=False)
class LossAgainst:
    """Losses of ``curve`` relative to the baseline of ``other``.

    The two curves are assumed independent. Curves on the same documents are correlated, so the true
    uncertainty of the loss is smaller.
    """

    curve: FallingCurve
    other: FallingCurve

    def chance_lost(self, share: float) -> Floats:
        """Return P(mean is at most 1 - ``share`` of the baseline) in each cell (G)."""
        of_baseline = self.other.posterior
        guessing = self.curve.documents.chance
        least = guessing + (self.curve.posterior.mean - guessing) / max(1.0 - share, 1e-9)
        chance = of_baseline.baseline_chance
        reached = np.cumsum(chance) - 0.5 * chance
        below = np.interp(least, of_baseline.baseline, reached, left=0.0, right=1.0)
        lost: Floats = self.curve.posterior.chance @ (1.0 - below)
        return np.maximum.accumulate(lost)

    def longest_safe(self, share: float, chance: float) -> int:
        """Return the longest length (tokens) with at most ``chance`` of losing ``share``.

        Returns 0 if the chance is already larger at the shortest length.
        """
        likely = np.flatnonzero(self.chance_lost(share) > chance)
        last = int(likely[0]) if len(likely) else len(self.curve.cells.n)
        return int(self.curve.cells.high[last - 1]) if last else 0

    def lost_at(self, share: float, confidence: float) -> tuple[int | None, int | None, int | None]:
        """Return the length (tokens) at which the loss reaches ``share``, with its interval.

        None: not within the measured lengths. The shortest length means that length or less.
        """
        cells, tail = self.curve.cells, 0.5 * (1.0 - confidence)
        starts = np.exp(np.concatenate([np.log(cells.low[:1]), cells.edges]))
        lost = self.chance_lost(share)

        def first(chance: float) -> int | None:
            likely = np.flatnonzero(lost > chance)
            return round(float(starts[likely[0]])) if len(likely) else None

        return first(0.5), first(tail), first(1.0 - tail)


def kv_cap(pairs: Pairs, own_cap: int | None, settings: AnalysisSettings) -> KvCap:
    """Return B's cap relative to A's baseline.

    It is never longer than B's own cap, so everything that prevents or shortens that cap (too few
    examples, a floor, a dip, missing answers, several looks) applies here too.

    Args:
        pairs: paired documents of A and B.
        own_cap: of B, against its own baseline, tokens.
    """
    whole, pressed = (_curve(side, settings) for side in (pairs.a, pairs.b))
    baseline = _baseline(whole)
    if not pressed.beyond_baseline:
        return KvCap(None, baseline, None, None, None)
    loss = LossAgainst(pressed, whole)
    chance = chance_allowed(settings.tolerance, settings.confidence, float(pressed.cells.n.sum()))
    safe = loss.longest_safe(DEPTH * settings.tolerance, chance)
    certain = tail_confidence(settings.confidence)
    if (supported := pressed.supported(settings.tolerance, certain, baseline)) is not None:
        safe = min(safe, supported)
    end = int(pressed.cells.high[pressed.cells.baseline_cells - 1])
    tokens = min(safe, own_cap) if own_cap is not None and safe > end else None
    return KvCap(tokens, baseline, *loss.lost_at(settings.tolerance, settings.confidence))


def own_loss(side: Side, settings: AnalysisSettings) -> tuple[int | None, int | None, int | None]:
    """Return the length (tokens) at which a side's loss from its own baseline reaches the
    tolerance, with its interval; None: not within the measured lengths.
    """
    curve = _curve(side, settings)
    if not curve.beyond_baseline:
        return None, None, None
    at = curve.lost_at(settings.tolerance, settings.confidence)
    value, low, high = (
        round(end) if np.isfinite(end) else None for end in (at.value, at.low, at.high)
    )
    return value, low, high


def _curve(side: Side, settings: AnalysisSettings) -> FallingCurve:
    documents = Documents(side.length_tokens, side.n, side.s, side.binary, settings.chance)
    return fit_falling_curve(documents, settings.baseline_share)


def _baseline(curve: FallingCurve) -> float:
    cells = curve.cells
    region = slice(cells.baseline_cells)
    return float(cells.s[region].sum() / cells.n[region].sum())


QUANTITIES: tuple[Quantity, ...] = get_args(Quantity)


def kv_comparison(
    pairs: Pairs,
    records: tuple[pd.DataFrame, pd.DataFrame],
    kv: tuple[KvPolicy, KvPolicy],
    own_cap: int | None,
    settings: AnalysisSettings,
) -> KvComparison:
    """Return the savings of B's policy compared with A's.

    Args:
        pairs: paired documents of ``records``, the EVAL_RECORDS of A and of B with ``extra``.
        kv: the policies of A and B, with the same base model.
        own_cap: of B, against its own baseline, tokens.
    """
    a, b = kv
    measured = tuple(document_costs(frame) for frame in records)
    equal = equal_score(pairs, min(EQUAL_MARGIN, settings.tolerance), settings.confidence)
    saved = saved_share(measured[0], measured[1], equal.tokens)
    return KvComparison(
        base=b.base,
        policy=b.policy,
        budget=b.budget,
        policy_a=a.policy,
        budget_a=a.budget,
        saved_share=saved,
        equal=equal,
        costs=costs_by_bin(measured[0], measured[1], pairs.bins, settings.confidence),
        sentence=saving_sentence(b, equal, saved),
        cap=kv_cap(pairs, own_cap, settings),
    )


def document_costs(records: pd.DataFrame) -> pd.DataFrame:
    """Return one row per document id: length_tokens and the median of each quantity, or NaN.

    Questions on one document share its prefill, so they are not independent measurements.
    """
    import pandas as pd

    texts = records["extra"] if "extra" in records else [None] * len(records)
    extra = [_numbers(text) for text in texts]
    columns: dict[str, Any] = {
        name: [entry.get(name, np.nan) for entry in extra] for name in QUANTITIES
    }
    frame = pd.DataFrame(
        {
            "document_id": records["document_id"].astype(str).to_numpy(),
            "length_tokens": records["length_tokens"].to_numpy(np.float64),
            **columns,
        }
    )
    return frame.groupby("document_id").median()


def _numbers(extra: Any) -> dict[str, float]:
    known = json.loads(extra) if isinstance(extra, str) else extra
    if not isinstance(known, dict):
        return {}
    return {
        name: float(value)
        for name in QUANTITIES
        if isinstance(value := known.get(name), int | float) and not isinstance(value, bool)
    }


def saved_share(a: pd.DataFrame, b: pd.DataFrame, longest: int | None) -> float | None:
    """Return the median fraction of A's bytes that B saves, over documents up to ``longest``.

    None if no document has both values; ``longest`` None: all documents.
    """
    pair = a.join(b.add_suffix("_b"), how="inner").dropna(subset=["kv_bytes", "kv_bytes_b"])
    pair = pair[pair["kv_bytes"] > 0]
    if longest is not None:
        pair = pair[pair["length_tokens"] <= longest]
    return float((1.0 - pair["kv_bytes_b"] / pair["kv_bytes"]).median()) if len(pair) else None


def costs_by_bin(
    a: pd.DataFrame, b: pd.DataFrame, bins: Sequence[LengthBin], confidence: float
) -> list[KvCost]:
    """Return each quantity measured on a side, by bin, for documents that both sides have."""
    shared = a.index.intersection(b.index)
    a, b = a.loc[shared], b.loc[shared]
    lengths = a["length_tokens"]
    rows = []
    for quantity in QUANTITIES:
        if a[quantity].isna().all() and b[quantity].isna().all():
            continue
        for place, bin in enumerate(bins):
            last = place == len(bins) - 1
            in_bin = (lengths >= bin.edge_low) & (
                (lengths <= bin.edge_high) if last else (lengths < bin.edge_high)
            )
            one, other = (
                median_of(side.loc[in_bin, quantity].dropna().to_numpy(np.float64), confidence)
                for side in (a, b)
            )
            rows.append(
                KvCost(
                    quantity=quantity,
                    bin=bin.bin,
                    edge_low=bin.edge_low,
                    edge_high=bin.edge_high,
                    a=one,
                    b=other,
                )
            )
    return rows


def median_of(values: Floats, confidence: float) -> Median | None:
    """Return the median and the order statistics that enclose it with ``confidence``.

    Distribution-free (David and Nagaraja 2003, Order Statistics, 7.1). There are no limits if the
    values are so few that even the smallest and the largest do not enclose it.
    """
    if not len(values):
        return None
    values = np.sort(values)
    tail = 0.5 * (1.0 - confidence)
    low = high = None
    if 0.5 ** len(values) <= tail:
        below = max(binomial_quantile(tail, len(values), 0.5), 1)  # P(X < below) <= tail
        low, high = float(values[below - 1]), float(values[-below])
    return Median(len(values), float(np.median(values)), low, high)


def saving_sentence(kv: KvPolicy, equal: EqualScore, saved: float | None) -> str:
    """Return a sentence on the savings at equal score and the length up to which they hold."""
    meaning = f"mean drop below {equal.margin:g} in every length window"
    sure = f"({meaning}, {equal.confidence:.0%} confidence)"
    if equal.tokens is None:
        memory = "" if saved is None else f"; it {_saves(saved)} of the cache"
        return f"{kv.label} is not shown to score as well at any length {sure}{memory}."
    if saved is None:
        return (
            f"{kv.label} has an equal score {sure} up to {equal.tokens:,} tokens; its memory was "
            "not measured."
        )
    to = f"up to {equal.tokens:,} tokens"
    return f"At equal score {sure}, {kv.label} {_saves(saved)} of the cache {to}."


def _saves(saved: float) -> str:
    return f"saves {saved:.0%}" if saved >= 0.005 else "saves none"


EQUAL_MARGIN = 0.1
LEAST_DOCUMENTS = 50
"""Below 39 documents, a drop of 0.1 cannot be ruled out even if no answer changed."""
MOST_WINDOWS = 5
"""With more documents the windows grow instead, to resolve smaller drops below the margin."""
_BETA = 0.005
_GRID = 21


def equal_score(pairs: Pairs, margin: float, confidence: float) -> EqualScore:
    """Return windows of paired documents and the length up to which all of them score equally.

    The documents are cut into windows of at least `LEAST_DOCUMENTS`, in order of length. In each,
    the null hypothesis is that the mean drop A minus B reaches the margin. The windows are tested
    from the shortest on, at the same level, until one is not rejected: as a fixed sequence, the
    level holds for all of them together (Maurer, Hothorn and Lehmacher 1995, in:
    Vollmar (ed.), Biometrie in der chemisch-pharmazeutischen Industrie 6). A window in which A
    itself scores no more than the margin also ends the claim, because its score cannot drop by the
    margin.

    Args:
        margin: a smaller mean drop counts as equal, in units of the score; above 0, below 1.
        confidence: one-sided confidence of the statement over all windows.
    """
    drops = (pairs.a.s - pairs.b.s) / pairs.a.n
    windows: list[EqualWindow] = []
    equal_to: int | None = None
    begun = True
    for rows in _windows(pairs):
        p_value = drop_p_value(drops[rows], margin)
        can_drop = float((pairs.a.s / pairs.a.n)[rows].mean()) > margin
        begun = begun and can_drop and p_value <= 1.0 - confidence
        lengths = pairs.a.length_tokens[rows]
        if begun:
            equal_to = int(lengths.max())
        windows.append(
            EqualWindow(
                from_tokens=int(lengths.min()),
                to_tokens=int(lengths.max()),
                n_documents=int(rows.sum()),
                drop=float(drops[rows].mean()),
                p_value=p_value,
                equal=begun,
            )
        )
    return EqualScore(margin=margin, confidence=confidence, tokens=equal_to, windows=windows)


def _windows(pairs: Pairs) -> list[np.ndarray]:
    """Return a document mask (D) per window; documents of one length share a window."""
    documents = len(pairs.a.n)
    count = min(max(documents // LEAST_DOCUMENTS, 1), MOST_WINDOWS)
    place = rank_groups(np.ones(documents), count)
    first = np.searchsorted(pairs.a.length_tokens, pairs.a.length_tokens)
    place = place[first]
    return [place == window for window in range(count) if (place == window).any()]


def drop_p_value(drops: Floats, margin: float, beta: float = _BETA) -> float:
    """Return the p-value of the hypothesis that the mean drop is at least ``margin``.

    Exact for drops of -1, 0 or 1: the probability of a sum at most as large under a trinomial
    distribution with mean ``margin``, at the least favourable fraction of gains. This is searched
    below a limit of confidence 1 - ``beta`` on the fraction of changed documents; ``beta`` is added
    (Berger and Boos 1994, JASA 89, 1012-1016). For all drops in [-1, 1] with the same mean and the
    same mean size, these three values have the largest variance, so the test is conservative.

    Args:
        drops: A minus B of each document, in [-1, 1] (D).
    """
    from scipy.special import betaincinv

    count = len(drops)
    changes = float(np.abs(drops).sum())
    most = 1.0 if changes >= count else float(betaincinv(changes + 1, count - changes, 1.0 - beta))
    gains = np.linspace(0.0, max(0.5 * (most - margin), 0.0), _GRID)
    gains = gains[margin + 2.0 * gains <= 1.0]
    if not len(gains) or most < margin:  # as many changes as the margin requires are ruled out
        return beta
    reached = int(np.ceil(float(drops.sum()) - 1e-9))
    worst = max(_below(count, margin + gain, gain, reached) for gain in gains)
    return min(worst + beta, 1.0)


def _below(count: int, loss: float, gain: float, reached: int) -> float:
    """Return P(losses - gains <= ``reached``) for ``count`` documents with these probabilities."""
    size = 2 * count + 1
    step = np.zeros(size)
    step[[0, 1, -1]] = 1.0 - loss - gain, loss, gain
    of_sum = np.fft.irfft(np.fft.rfft(step) ** count, n=size)  # sums -count..count, modulo size
    sums = np.concatenate([np.arange(count + 1), np.arange(-count, 0)])
    return float(np.clip(of_sum[sums <= reached].sum(), 0.0, 1.0))
