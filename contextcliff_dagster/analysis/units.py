"""Eval records as statistical units: replicates to examples, examples to documents.

The three kinds of call without an answer are set apart here, once, so that nothing downstream can
score them: they are neither right nor wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from contextcliff_dagster.contracts import UNSCORED_TAGS, ContextCliffError, LengthBin

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

DEFAULT_BINS = 10


@dataclass(frozen=True)
class Documents:
    """Documents, the exchangeable unit, shortest first; arrays of length D.

    ``n`` examples and ``s``, the sum of their scores; ``binary`` says that every score is 0 or 1.
    """

    length_tokens: Ints
    n: Floats
    s: Floats
    binary: bool


@dataclass(frozen=True)
class Sample:
    """The records of one model, cleaned.

    Attributes:
        calls: every planned call, sorted, with ``answered`` and ``bin_index`` (-1: in no bin).
        examples: one row per example with an answer: ``document``, ``length_tokens``, ``score``
            (mean of its replicates), ``replicates``, ``score_sd`` (between replicates, null for
            one), ``failed`` (share of replicates, null where unknown), ``bin_index``.
        bins: the bins that hold examples of their own, in order of length.
        documents_known: the records name their documents.
        warnings: sentences about records that had to be set aside.
    """

    calls: pd.DataFrame
    examples: pd.DataFrame
    bins: list[LengthBin]
    documents_known: bool
    warnings: list[str] = field(default_factory=list)

    @property
    def missing(self) -> dict[str, int]:
        """Calls without an answer, by tag."""
        tags = self.calls.loc[~self.calls["answered"], "failure"]
        return {tag.value: int((tags == tag.value).sum()) for tag in sorted(UNSCORED_TAGS)}

    def documents(self) -> Documents:
        """Examples summed to their documents."""
        grouped = self.examples.groupby("document", sort=False)
        frame = grouped.agg(
            length=("length_tokens", "min"), n=("score", "size"), s=("score", "sum")
        )
        frame = frame.reset_index().sort_values(["length", "document"])
        scores = self.examples["score"].to_numpy()
        return Documents(
            frame["length"].to_numpy(np.int64),
            frame["n"].to_numpy(np.float64),
            frame["s"].to_numpy(np.float64),
            bool(np.isin(scores, (0.0, 1.0)).all()),
        )


def clean_records(records: pd.DataFrame, bins: Sequence[LengthBin]) -> Sample:
    """Sort ``records``, set calls without an answer apart, and average replicates.

    ``records`` needs ``length_tokens`` and ``score``; ``document_id``, ``example_id``,
    ``replicate``, ``bin``, ``failure``, ``failed`` and the telemetry columns are used where they
    are there. Without ``bins``, deciles of the answered lengths are taken.

    Raises:
        ContextCliffError: a needed column is missing, a score is outside 0..1 or a length is
            negative.
    """
    calls, warnings = _sorted_calls(records)
    answered = calls[calls["answered"]]
    kept = [b for b in bins if b.merged_into is None]
    warnings += [
        f"Bin {b.bin} was starved and merged into {b.merged_into}." for b in bins if b.merged_into
    ]
    if not kept and len(answered):
        kept = decile_bins(answered["length_tokens"].to_numpy(np.int64))
    kept.sort(key=lambda b: (b.edge_low, b.edge_high, b.bin))
    calls["bin_index"] = _bin_index(calls, kept)
    if stray := int((calls["bin_index"] < 0).sum()):
        warnings.append(f"{stray} records lie in no bin: they count for the curve, not for a bin.")
    examples = _average_replicates(calls[calls["answered"]])
    return Sample(calls, examples, kept, bool(calls["document_id"].ne("").any()), warnings)


def decile_bins(lengths: Ints, count: int = DEFAULT_BINS) -> list[LengthBin]:
    """Quantile bins over ``lengths``, for records without any; fewer where lengths tie."""
    cuts = np.unique(np.quantile(lengths, np.linspace(0, 1, count + 1)[1:-1], method="higher"))
    low, high = int(lengths.min()), int(lengths.max())
    edges = [low, *(int(c) for c in cuts if low < c <= high), high + 1]
    return [
        LengthBin(f"b{i:02d}", a, b, None, None, None, 0, 0)
        for i, (a, b) in enumerate(pairwise(edges))
    ]


def _sorted_calls(records: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """The columns the analysis uses, typed and in an order that does not depend on the file's."""
    import pandas as pd

    for needed in ("length_tokens", "score"):
        if needed not in records.columns:
            found = ", ".join(map(str, records.columns)) or "none"
            raise ContextCliffError(
                f"The records have no column {needed!r}; columns found: {found}."
            )

    def text(name: str) -> Any:
        if name not in records.columns:
            return ""
        column = records[name]
        return column.astype(object).where(column.notna(), "").astype(str).to_numpy()

    def number(name: str) -> Any:
        if name not in records.columns:
            return np.nan
        values = pd.to_numeric(records[name], errors="coerce").astype(np.float64).to_numpy()
        return np.where(np.isfinite(values), values, np.nan)

    calls = pd.DataFrame(index=pd.RangeIndex(len(records)))
    for name in ("document_id", "example_id", "bin", "failure"):
        calls[name] = text(name)
    for name in _NUMBERS:
        calls[name] = number(name)
    warnings = []
    if unusable := int(calls["length_tokens"].isna().sum()):
        warnings.append(f"{unusable} records have no length and are left out.")
        calls = calls[calls["length_tokens"].notna()]
    if (calls["length_tokens"] < 0).any():
        raise ContextCliffError(
            "A record has a negative length_tokens; lengths count tokens from 0."
        )
    unscored = calls["failure"].isin([tag.value for tag in UNSCORED_TAGS])
    calls["answered"] = ~unscored & calls["score"].notna()
    if silent := int((~unscored & calls["score"].isna()).sum()):
        warnings.append(
            f"{silent} records have no score and no reason for it: left out of every mean."
        )
    scores = calls.loc[calls["answered"], "score"]
    outside = scores[(scores < 0) | (scores > 1)]
    if len(outside):
        raise ContextCliffError(
            f"{len(outside)} of {len(scores)} scores lie outside 0..1 (the first is "
            f"{outside.iloc[0]:g}): state the scale or rescale them."
        )
    # An empty document has no log length; one token is the nearest that has.
    calls["length_tokens"] = calls["length_tokens"].clip(lower=1).round().astype(np.int64)
    order = [
        "length_tokens",
        "document_id",
        "example_id",
        "replicate",
        "score",
        "failure",
        "ttft_ms",
    ]
    return calls.sort_values([*order, "duration_ms"], kind="stable", ignore_index=True), warnings


_NUMBERS = (
    "length_tokens", "score", "replicate", "failed", "em", "f1", "contained", "ttft_ms",
    "duration_ms", "queue_ms", "loop_lag_ms", "prompt_tokens", "cached_tokens",
    "completion_tokens", "reasoning_tokens", "cost_usd",
)  # fmt: skip


def _bin_index(calls: pd.DataFrame, bins: Sequence[LengthBin]) -> Ints:
    """Position in ``bins`` by the record's own key, else by its length; -1 where neither fits."""
    import pandas as pd

    if not bins:
        return np.full(len(calls), -1, dtype=np.int64)
    index = pd.Series(range(len(bins)), index=[b.bin for b in bins])
    named = calls["bin"].map(index).fillna(-1).to_numpy(np.int64)
    lengths = calls["length_tokens"].to_numpy(np.int64)
    lows = np.array([b.edge_low for b in bins])
    highs = np.array([b.edge_high for b in bins])
    place = np.maximum(np.searchsorted(lows, lengths, side="right") - 1, 0)
    last = len(bins) - 1
    below = (lengths < highs[place]) | ((place == last) & (lengths <= highs[place]))
    by_length = np.where((lengths >= lows[place]) & below, place, -1)
    return np.where(named >= 0, named, by_length)


def _average_replicates(answered: pd.DataFrame) -> pd.DataFrame:
    """One row per example: replicates averaged; a record without an id stands for itself."""
    rows = answered.reset_index(drop=True)
    alone = rows["example_id"].eq("")
    own = "row " + rows.index.to_series().astype(str).str.zfill(12)  # sorts as it counts
    rows["example"] = rows["example_id"].where(~alone, own)
    nameless = rows["document_id"].eq("")
    rows["document"] = ("d:" + rows["document_id"]).where(~nameless, "e:" + rows["example"])
    grouped = rows.groupby(["document", "example"], sort=False)
    examples = grouped.agg(
        length_tokens=("length_tokens", "min"),
        score=("score", "mean"),
        replicates=("score", "size"),
        score_sd=("score", "std"),
        failed=("failed", "mean"),
        em=("em", "mean"),
        f1=("f1", "mean"),
        contained=("contained", "mean"),
        bin_index=("bin_index", "min"),
    ).reset_index()
    return examples.sort_values(["length_tokens", "document", "example"], ignore_index=True)
