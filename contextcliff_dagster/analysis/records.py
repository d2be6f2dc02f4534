"""Analysis input: the settings, and the scored records of one model as a clean sample.

Evaluation records become statistical units: replicates are averaged to examples, and examples
belong to documents. An example carries its question's categories and evidence position.

Calls without an answer are set aside here, in one place, so that no later step can score them:
they are neither right nor wrong.

A million records are a normal input, so names are first converted to ranks, which sort like the
names in a tenth of the time and memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from contextcliff_dagster.contracts import UNSCORED_TAGS, ContextCliffError, LengthBin, StudyError
from contextcliff_dagster.contracts.arrays import Bools, Floats, Ints
from contextcliff_dagster.contracts.results.json_form import Missing
from contextcliff_dagster.contracts.results.questions import Category

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True)
class AnalysisSettings:
    """Settings of the analysis; everything else is fixed by the method.

    Attributes:
        tolerance: largest loss relative to the baseline that counts as safe, 0.05..0.5.
        confidence: confidence of every interval and of the cap, 0.5..0.999.
        resamples: bootstrap resamples of documents, per bin.
        seed: seed of every resampling; the same records and seed give the same result.
        rolling: bins in the trailing window of ``rolling_variance``.
        permutations: minimum number of permutations of documents for the scan's p-value; more are
            drawn if the confidence needs smaller p-values.
        baseline_share: fraction of the examples, shortest first, that form the baseline, 0.05..0.5;
            published error rates are for 0.15.
        chance: mean score of guessing, 0..0.9; losses are measured above it.
        assumption: what the cap assumes about a model that fails at some length: ``falling``: it
            does not recover at longer ones; ``any``: it may.
        min_score: least mean score with which a cap is of use, 0..1; None: any.
        ttft_limit_ms: the user's limit on the 95th percentile of the time to the first token.
        second_opinions: whether `profile_model` also computes the cap's sensitivity and the gain
            from more data, which take most of the time and do not affect the verdict.

    Raises:
        StudyError: a value is outside its range.
    """

    tolerance: float = 0.30
    confidence: float = 0.95
    resamples: int = 2_000
    seed: int = 0
    rolling: int = 3
    permutations: int = 999
    baseline_share: float = 0.15
    chance: float = 0.0
    assumption: Literal["falling", "any"] = "falling"
    min_score: float | None = None
    ttft_limit_ms: float | None = None
    second_opinions: bool = True

    def __post_init__(self) -> None:
        for name, low, high in (
            ("tolerance", 0.05, 0.5),
            ("confidence", 0.5, 0.999),
            ("resamples", 100, 100_000),
            ("rolling", 1, 100),
            ("permutations", 99, 100_000),
            ("baseline_share", 0.05, 0.5),
            ("chance", 0.0, 0.9),
        ):
            value = getattr(self, name)
            if not low <= value <= high:
                raise StudyError(
                    f"Analysis setting {name!r} is {value}; choose {low:g} to {high:g}."
                )
        if self.assumption not in {"falling", "any"}:
            raise StudyError(
                f"Analysis setting 'assumption' is {self.assumption!r}; choose 'falling' or 'any'."
            )


CATEGORIES: tuple[Category, ...] = ("task", "kind", "level", "domain", "source")
"""Columns that may contain a category of the question."""
MOST_VALUES = 50
"""Maximum number of values in a category; with more, a column identifies items such as files."""
EVIDENCE = ("evidence_position", "inter_evidence_tokens")
"""Columns with the position of a question's evidence and the distance between two pieces."""


def categories_of(records: pd.DataFrame) -> dict[str, pd.Categorical[Any]]:
    """Return the `CATEGORIES` columns with 2 to 50 values, sorted; a missing value is ""."""
    import pandas as pd

    categories: dict[str, pd.Categorical[Any]] = {}
    for name in CATEGORIES:
        if name not in records.columns:
            continue
        try:
            codes, unique = pd.factorize(records[name], use_na_sentinel=False)
        except TypeError:  # unhashable values such as lists are not categories
            continue
        if not 2 <= len(unique) <= MOST_VALUES:
            continue
        words = ["" if pd.isna(value) else _word(value) for value in unique]
        values = sorted(set(words))
        rank = np.array([values.index(word) for word in words], np.int8)
        categories[name] = pd.Categorical.from_codes(rank[codes], categories=pd.Index(values))
    return categories


def _word(value: Any) -> str:
    """Return ``value`` as text; 2.0 becomes "2", as pandas reads integers with gaps as floats."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def average_replicates(calls: pd.DataFrame, answered: Bools) -> pd.DataFrame:
    """Return one row per example, averaging replicates; records without an id are never merged."""
    columns: list[str] = [name for name in CATEGORIES if name in calls.columns]
    columns += [name for name in EVIDENCE if calls[name].notna().any()]
    rows = calls.loc[answered, [*_OF_EXAMPLE, *columns]].reset_index(drop=True)
    # A row without an example id is its own example, a row without a document id its own document;
    # rows without an id come last.
    example = ranks_of(rows["example_id"], np.arange(len(rows)))
    document = rows["document"] = ranks_of(rows["document_id"], example)
    width = int(example.max()) + 1 if len(example) else 1
    key = document * width + example
    if (np.diff(np.sort(key)) > 0).all():
        examples = rows.assign(replicates=1, score_sd=np.nan)
    else:
        first_columns = ("document", "document_id", "example_id", *columns)
        examples = rows.groupby(key, sort=False).agg(
            **{name: (name, "first") for name in first_columns},
            **{name: (name, "min") for name in ("length_tokens", "bin_index")},
            **{name: (name, "mean") for name in ("score", "failed", "em", "f1", "contained")},
            replicates=("score", "size"),
            score_sd=("score", "std"),
        )
        key = examples.index.to_numpy(np.int64)
    order = np.lexsort((key, examples["length_tokens"].to_numpy(np.int64)))
    return examples.take(order).reset_index(drop=True)


_OF_EXAMPLE = (
    "document_id", "example_id", "length_tokens", "score", "failed", "em", "f1", "contained",
    "bin_index",
)  # fmt: skip


def ranks_of(column: pd.Series[Any], otherwise: Ints) -> Ints:
    """Return the rank of each name in ``column``; rows without one rank last, by ``otherwise``."""
    names, codes = column.cat.categories, column.cat.codes.to_numpy(np.int64)
    return np.where((names == "")[codes], len(names) + otherwise, codes)


DEFAULT_BINS = 10


@dataclass(frozen=True)
class Documents:
    """The documents, which are the exchangeable units, shortest first; arrays of length D.

    ``n``: number of examples; ``s``: sum of their scores; ``binary``: every score is 0 or 1;
    ``chance``: mean score of guessing.
    """

    length_tokens: Ints
    n: Floats
    s: Floats
    binary: bool
    chance: float = 0.0


def documents_of(
    document: Ints, length_tokens: Ints, scores: Floats, chance: float = 0.0
) -> Documents:
    """Return the documents of examples in order of length (N), with their scores summed."""
    numbers, first, unit = np.unique(document, return_index=True, return_inverse=True)
    lengths = length_tokens[first]  # a document's first example is its shortest
    order = np.argsort(lengths, kind="stable")
    n, s = (np.bincount(unit, of, len(numbers))[order] for of in (None, scores))
    binary = bool(((scores == 0.0) | (scores == 1.0)).all())
    return Documents(lengths[order], n.astype(np.float64), s.astype(np.float64), binary, chance)


@dataclass(frozen=True)
class Sample:
    """The cleaned records of one model.

    Attributes:
        calls: every planned call, sorted, with ``answered`` and ``bin_index`` (-1: in no bin);
            ``document_id``, ``example_id``, ``bin`` and ``failure`` are categories, "" if the
            records have none.
        examples: one row per example with an answer: ``document`` (a number, in the order of the
            names), ``document_id``, ``example_id``, ``length_tokens``, ``score`` (mean of its
            replicates), ``replicates``, ``score_sd`` (between replicates, null for a single one),
            ``failed`` (share of replicates, null if unknown), ``bin_index``; the `CATEGORIES` that
            the records have with 2 to 50 values, and the `EVIDENCE` columns that they have.
        bins: bins in order of length, without those merged into another.
        documents_known: whether the records name their documents.
        warnings: sentences about records that were set aside.
        chance: mean score of guessing.
    """

    calls: pd.DataFrame
    examples: pd.DataFrame
    bins: list[LengthBin]
    documents_known: bool
    warnings: list[str] = field(default_factory=list)
    chance: float = 0.0

    @property
    def missing(self) -> Missing:
        """Return the counts of calls without an answer, by tag."""
        tags = self.calls.loc[~self.calls["answered"], "failure"]
        return Missing.of(tags)

    def document_of_calls(self) -> Ints:
        """Return each call's document number; a call without a document gets its own number."""
        return ranks_of(self.calls["document_id"], np.arange(len(self.calls)))

    def documents(self) -> Documents:
        """Return the documents, with the scores of their examples summed."""
        document, lengths = (
            self.examples[name].to_numpy(np.int64) for name in ("document", "length_tokens")
        )
        scores = self.examples["score"].to_numpy(np.float64)
        return documents_of(document, lengths, scores, self.chance)


def clean_records(records: pd.DataFrame, bins: Sequence[LengthBin], chance: float = 0.0) -> Sample:
    """Sort ``records``, set aside calls without an answer, and average replicates.

    ``records`` needs ``length_tokens`` and ``score``; ``document_id``, ``example_id``,
    ``replicate``, ``bin``, ``failure``, ``failed`` and the telemetry columns are used if present.
    Without ``bins``, the deciles of the answered lengths are used.

    Raises:
        ContextCliffError: a needed column is missing, a score is outside 0..1 or a length is
            negative.
    """
    calls, warnings = _sorted_calls(records)
    answered = calls["answered"].to_numpy()
    kept_bins = [b for b in bins if b.merged_into is None]
    warnings += [
        f"Bin {b.bin} had too few documents and was merged into {b.merged_into}."
        for b in bins
        if b.merged_into
    ]
    if not kept_bins and answered.any():
        kept_bins = decile_bins(calls["length_tokens"].to_numpy(np.int64)[answered])
    kept_bins.sort(key=lambda b: (b.edge_low, b.edge_high, b.bin))
    calls["bin_index"] = _bin_index(calls, kept_bins)
    if stray := int(((calls["bin_index"] < 0) & answered).sum()):
        warnings.append(f"{stray} records lie in no bin: they count for the curve only.")
    examples = average_replicates(calls, answered)
    documents_known = bool(calls["document_id"].ne("").any())
    return Sample(calls, examples, kept_bins, documents_known, warnings, chance)


def decile_bins(lengths: Ints, count: int = DEFAULT_BINS) -> list[LengthBin]:
    """Return quantile bins of ``lengths``, for records without bins; ties may give fewer bins."""
    cuts = np.unique(np.quantile(lengths, np.linspace(0, 1, count + 1)[1:-1], method="higher"))
    low, high = int(lengths.min()), int(lengths.max())
    edges = [low, *(int(c) for c in cuts if low < c <= high), high + 1]
    return [
        LengthBin(f"b{i:02d}", a, b, None, None, None, 0, 0)
        for i, (a, b) in enumerate(pairwise(edges))
    ]


def _sorted_calls(records: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """Return the columns used by the analysis, typed and sorted regardless of the file's order."""
    import pandas as pd

    for required in ("length_tokens", "score"):
        if required not in records.columns:
            present = ", ".join(map(str, records.columns)) or "none"
            raise ContextCliffError(
                f"The records have no column {required!r}; columns found: {present}."
            )
    texts = {name: _ranked(records, name) for name in _TEXTS}
    texts |= categories_of(records)
    numbers = {name: _number(records[name]) for name in _NUMBERS if name in records.columns}
    if "finished_at" in records.columns:
        numbers["finished_s"] = _seconds(records["finished_at"])
    warnings = []
    if unusable := int(np.isnan(numbers["length_tokens"]).sum()):
        warnings.append(f"{unusable} records have no length and are left out.")
        has_length = ~np.isnan(numbers["length_tokens"])
        numbers = {name: values[has_length] for name, values in numbers.items()}
        texts = {name: column[has_length] for name, column in texts.items()}
    lengths, scores = numbers["length_tokens"], numbers["score"]
    if (lengths < 0).any():
        raise ContextCliffError(
            "A record has a negative length_tokens; a length must be 0 tokens or more."
        )
    failure = texts["failure"]
    unscored = failure.categories.isin([tag.value for tag in UNSCORED_TAGS])[failure.codes]
    answered = ~unscored & ~np.isnan(scores)
    if silent := int((~unscored & np.isnan(scores)).sum()):
        warnings.append(
            f"{silent} records have neither a score nor a failure tag: left out of every mean."
        )
    out_of_range = answered & ((scores < 0) | (scores > 1))
    if out_of_range.any():
        raise ContextCliffError(
            f"{out_of_range.sum()} of {answered.sum()} scores lie outside 0..1 (the first is "
            f"{scores[out_of_range][0]:g}): give the scale or rescale them."
        )
    # An empty document has no log length; count it as one token.
    numbers["length_tokens"] = np.maximum(lengths, 1).round().astype(np.int64)
    order = _order(texts, numbers, answered)
    columns: dict[str, Any] = {name: column[order] for name, column in texts.items()}
    # A column that no record has takes no memory: it is a broadcast NaN.
    nulls = np.broadcast_to(np.nan, len(order))
    for name in _NUMBERS:
        columns[name] = numbers[name][order] if name in numbers else nulls
    columns["answered"] = answered[order]
    tagged = np.asarray(columns["failure"] != "")
    if "failed" not in numbers and (tagged & columns["answered"]).any():
        columns["failed"] = tagged.astype(np.float64)
    return pd.DataFrame(columns, copy=False), warnings


_TEXTS = ("document_id", "example_id", "bin", "failure")
_NUMBERS = (
    "length_tokens", "score", "replicate", "failed", "em", "f1", "contained", "ttft_ms",
    "duration_ms", "queue_ms", "loop_lag_ms", "prompt_tokens", "scaffold_tokens",
    "cached_tokens", "completion_tokens", "reasoning_tokens", "cost_usd", "finished_s", *EVIDENCE,
)  # fmt: skip
_ORDER = (
    "length_tokens", "document_id", "example_id", "replicate", "score", "failure", "ttft_ms",
    "duration_ms",
)  # fmt: skip


def _number(column: pd.Series[Any]) -> Floats:
    import pandas as pd

    values: Floats = pd.to_numeric(column, errors="coerce").to_numpy(np.float64, na_value=np.nan)
    return values if np.isfinite(values).all() else np.where(np.isfinite(values), values, np.nan)


def _seconds(column: pd.Series[Any]) -> Floats:
    """Return timestamps as seconds since 1970; NaN if missing."""
    import pandas as pd

    moments = pd.to_datetime(column, utc=True, errors="coerce")
    seconds = (moments - pd.Timestamp(0, tz="UTC")).dt.total_seconds()
    return np.asarray(seconds, dtype=np.float64)


def _ranked(records: pd.DataFrame, name: str) -> pd.Categorical[Any]:
    """Return a column of names as categories sorted by name; missing values become ""."""
    import pandas as pd

    if name not in records.columns:
        nowhere = np.zeros(len(records), np.int8)
        return pd.Categorical.from_codes(nowhere, categories=pd.Index([""]))
    column = records[name]
    if not isinstance(column.dtype, pd.StringDtype):
        column = column.astype(object).where(column.notna(), "").astype(str)
    codes, unique = pd.factorize(column.fillna(""), sort=False)
    names = pd.Index(unique)
    order = names.argsort()
    rank = np.empty(len(order), np.int32)
    rank[order] = np.arange(len(order), dtype=np.int32)
    return pd.Categorical.from_codes(rank[codes], categories=names[order])


def _order(texts: dict[str, pd.Categorical[Any]], numbers: dict[str, Any], answered: Bools) -> Ints:
    """Return the row order by length and further columns, independent of the file's order."""
    keys = []
    for name in _ORDER:
        key = texts[name].codes if name in texts else numbers.get(name)
        if key is not None and len(key) and not (key[0] == key).all():
            keys.append(key)
        if name == "example_id" and len(texts[name].categories) == len(texts[name].codes):
            break  # every row has a different example
    if not keys:
        return np.arange(len(numbers["score"]))
    order: Ints = np.lexsort(keys[::-1])
    nameless = (texts["example_id"].categories == "")[texts["example_id"].codes][order]
    if not nameless.any():
        return order
    # Only their scores distinguish rows without a name. Sorted by score, neighbours of one length
    # would be alike, and sums over neighbours would scatter far too much. So answered rows without
    # a name are shuffled among themselves; unanswered rows do not affect the shuffle.
    place = np.arange(len(order))
    shuffled = np.flatnonzero(nameless & answered[order])
    place[shuffled] = np.random.default_rng(0).permutation(len(shuffled)) - len(order)
    lengths = numbers["length_tokens"][order]
    return order[np.lexsort((place, texts["document_id"].codes[order], lengths))]


def _bin_index(calls: pd.DataFrame, bins: Sequence[LengthBin]) -> Ints:
    """Return each record's bin number, by bin key or else by length; -1 if no bin fits."""
    if not bins:
        return np.full(len(calls), -1, dtype=np.int64)
    place_of = {b.bin: i for i, b in enumerate(bins)}
    keys = calls["bin"].cat.categories
    by_key = np.array([place_of.get(key, -1) for key in keys])[calls["bin"].cat.codes.to_numpy()]
    lengths = calls["length_tokens"].to_numpy(np.int64)
    lows = np.array([b.edge_low for b in bins])
    highs = np.array([b.edge_high for b in bins])
    place = np.maximum(np.searchsorted(lows, lengths, side="right") - 1, 0)
    last_bin = len(bins) - 1
    below = (lengths < highs[place]) | ((place == last_bin) & (lengths <= highs[place]))
    by_length = np.where((lengths >= lows[place]) & below, place, -1)
    return np.where(by_key >= 0, by_key, by_length)
