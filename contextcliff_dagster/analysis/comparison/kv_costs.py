"""What a KV policy saves in memory and time over length, and up to where its score is equal."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from contextcliff_dagster.analysis.comparison.equal_score import EQUAL_MARGIN, equal_score
from contextcliff_dagster.analysis.comparison.kv_cap import kv_cap
from contextcliff_dagster.analysis.statistics.intervals import binomial_quantile
from contextcliff_dagster.contracts.results.kv import (
    EqualScore,
    KvComparison,
    KvCost,
    KvPolicy,
    Median,
    Quantity,
)

if TYPE_CHECKING:
    import pandas as pd

    from contextcliff_dagster.analysis.comparison.pairing import Pairs
    from contextcliff_dagster.analysis.records.settings import AnalysisSettings
    from contextcliff_dagster.contracts import LengthBin
    from contextcliff_dagster.contracts.arrays import Floats

QUANTITIES: tuple[Quantity, ...] = get_args(Quantity)


def kv_comparison(
    pairs: Pairs,
    records: tuple[pd.DataFrame, pd.DataFrame],
    kv: tuple[KvPolicy, KvPolicy],
    own_cap: int | None,
    settings: AnalysisSettings,
) -> KvComparison:
    """Return what B's policy saves against A's.

    Args:
        pairs: paired documents of ``records``, which are EVAL_RECORDS of A and of B with ``extra``.
        kv: the policies of A and B, of one base.
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
    """Return one row a document, by id: length_tokens and the median of each quantity, or NaN.

    Questions on one document share its reading, so that they are no further measurements of it.
    """
    import pandas as pd

    texts = records["extra"] if "extra" in records else [None] * len(records)
    extra = [_numbers(text) for text in texts]
    columns: dict[str, Any] = {
        name: [one.get(name, np.nan) for one in extra] for name in QUANTITIES
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
    """Return the median share of A's bytes that B does without, of documents up to ``longest``.

    None where no document has both; ``longest`` None: of all documents.
    """
    both = a.join(b.add_suffix("_b"), how="inner").dropna(subset=["kv_bytes", "kv_bytes_b"])
    both = both[both["kv_bytes"] > 0]
    if longest is not None:
        both = both[both["length_tokens"] <= longest]
    return float((1.0 - both["kv_bytes_b"] / both["kv_bytes"]).median()) if len(both) else None


def costs_by_bin(
    a: pd.DataFrame, b: pd.DataFrame, bins: Sequence[LengthBin], confidence: float
) -> list[KvCost]:
    """Return each quantity that a side has measured, in each bin; documents that both have."""
    shared = a.index.intersection(b.index)
    a, b = a.loc[shared], b.loc[shared]
    lengths = a["length_tokens"]
    rows = []
    for quantity in QUANTITIES:
        if a[quantity].isna().all() and b[quantity].isna().all():
            continue
        for place, bin in enumerate(bins):
            last = place == len(bins) - 1
            inside = (lengths >= bin.edge_low) & (
                (lengths <= bin.edge_high) if last else (lengths < bin.edge_high)
            )
            one, other = (
                median_of(side.loc[inside, quantity].dropna().to_numpy(np.float64), confidence)
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
    """Return the median with the order statistics that enclose it with ``confidence``.

    Without an assumption on the distribution (David and Nagaraja 2003, Order Statistics, 7.1). Of
    so few values that the smallest and the largest do not, there are no limits.
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
    """Return what is saved at equal score, and up to which length, or that none is shown equal."""
    meaning = f"mean drop below {equal.margin:g} in every length window"
    if equal.tokens is None:
        memory = "" if saved is None else f"; it {_saves(saved)} of the cache"
        return (
            f"{kv.label} is not shown to score as well at any length ({meaning}, "
            f"{equal.confidence:.0%} confidence){memory}."
        )
    if saved is None:
        return (
            f"{kv.label} has an equal score ({meaning}, {equal.confidence:.0%} confidence) up to "
            f"{equal.tokens:,} tokens; its memory was not measured."
        )
    return (
        f"At equal score ({meaning}, {equal.confidence:.0%} confidence), {kv.label} "
        f"{_saves(saved)} of the cache up to {equal.tokens:,} tokens."
    )


def _saves(saved: float) -> str:
    return f"saves {saved:.0%}" if saved >= 0.005 else "saves none"
