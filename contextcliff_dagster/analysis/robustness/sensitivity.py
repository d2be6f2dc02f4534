"""How cap and verdict move when one choice of the analysis is changed.

Each variant is concluded like the result itself (``conclusion``), from the same calls, with one
choice changed and, where the scan has to be repeated, with fewer permutations (99); nothing is
averaged or corrected, and no variant is a better answer. What is varied:

- ``tolerance``: 10 to 50%;
- ``bins``: every document at the median length of its bin, for 5, 10 and 20 quantile bins: what a
  table by bins would tell (the result itself knows every length and uses no bins);
- ``baseline``: the shortest 10 and 25% of the examples instead of 15%;
- ``tokenizer``: lengths by the model's own count of its prompts, where nearly all calls carry one;
  caps are brought back to document tokens by the line that gives ``cap_prompt_tokens``;
- ``score``: exact match, token F1, containment, where nearly all records carry them;
- ``replicates``: the first or the worst of an example's instead of their mean;
- ``missing``: calls without an answer as wrong or as right. Documents beyond the window
  (``context_overflow``) are not imputed: that they have no answer follows from their length, and
  no cap exceeds the longest scored one.

More than 2,000 documents are first summed with their neighbours.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from contextcliff_dagster.analysis.cliff.conclusion import (
    baseline_of,
    cap_of,
    conclude,
    conclude_again,
)
from contextcliff_dagster.analysis.records.samples import Documents, clean_records
from contextcliff_dagster.analysis.robustness.token_ratio import prompt_line
from contextcliff_dagster.contracts.results.cliffs import Factor, SensitivityRow

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd

    from contextcliff_dagster.analysis.cliff.conclusion import Conclusion
    from contextcliff_dagster.analysis.records.samples import Sample
    from contextcliff_dagster.analysis.records.settings import AnalysisSettings


TOLERANCES = (0.10, 0.20, 0.30, 0.40, 0.50)
BIN_COUNTS = (5, 10, 20)
BASELINES = (0.10, 0.15, 0.25)
SCORES = {"em": "exact match", "f1": "token F1", "contained": "containment"}
_PERMUTATIONS, _RESAMPLES = 99, 100
_MOST_DOCUMENTS = 2_000
_MOST_CALLS = 50_000
"""Beyond, variants that have to clean the records again (tokenizer, replicates, missing) are left
out: they would take longer than everything else."""
_NEARLY_ALL = 0.95


def sensitivity(
    sample: Sample,
    documents: Documents,
    conclusion: Conclusion,
    settings: AnalysisSettings,
    primary: str | None,
    share: float = 1.0,
    limit: int | None = None,
) -> list[SensitivityRow]:
    """The ``sensitivity`` of ``cliffs.json``; the first row is the result as reported.

    Empty where the result has no fit to vary.

    Args:
        documents: of ``sample``.
        primary: which of ``em``, ``f1``, ``contained`` the score is, if any.
        share: of the usual chance of loss, as for what goes beyond earlier caps (`cliff.looks`).
        limit: the cap that missing answers allow, tokens; ``None`` where they do not limit it.
    """
    if conclusion.finding.curve is None:
        return []
    longest = int(documents.length_tokens[-1])
    quick = replace(
        settings,
        permutations=min(settings.permutations, _PERMUTATIONS),
        resamples=min(settings.resamples, _RESAMPLES),
    )
    result = _row(conclusion, documents)
    rows = [result]
    for factor, value, changed, chosen in _variants(sample, documents, quick, primary):
        line = prompt_line(sample.calls) if factor == "tokenizer" else None
        if chosen is None:
            row = result
        elif factor == "tolerance":
            row = _row(_stricter(conclude_again(conclusion, chosen), chosen, share), documents)
        else:
            baseline = baseline_of(changed, chosen)
            # Without a name: one fit goes before the next comes.
            row = _row(_stricter(conclude(changed, chosen, baseline), chosen, share), changed)
        most = longest if limit is None or factor == "missing" else limit
        cap = _document_tokens(row.safe_cap_tokens, line, most) or None
        location = _document_tokens(row.location_tokens, line, longest)
        row = replace(row, factor=factor, value=value, reported=chosen is None)
        rows.append(replace(row, safe_cap_tokens=cap, location_tokens=location))
    return rows


def _row(conclusion: Conclusion, documents: Documents) -> SensitivityRow:
    cliff = conclusion.finding.cliff
    return SensitivityRow(
        factor="as reported",
        value="",
        reported=True,
        n=int(documents.n.sum()),
        verdict=conclusion.finding.verdict,
        safe_cap_tokens=conclusion.cap.tokens,
        location_tokens=None if cliff is None else cliff.location.tokens[0],
    )


def _stricter(conclusion: Conclusion, settings: AnalysisSettings, share: float) -> Conclusion:
    return replace(conclusion, cap=cap_of(conclusion.finding, settings, share))


def _document_tokens(
    tokens: float | None, line: tuple[float, float] | None, longest: int
) -> int | None:
    """Within the measured lengths; prompt tokens are brought back by their ``line``."""
    if tokens is not None and line is not None:
        tokens = max((tokens - line[1]) / line[0], 1.0)
    return None if tokens is None else min(int(tokens), longest)


Variant = tuple[Factor, str, Documents, "AnalysisSettings | None"]
"""Factor, value in words, documents, and settings; no settings: this is the result itself."""


def _variants(
    sample: Sample, documents: Documents, quick: AnalysisSettings, primary: str | None
) -> Iterator[Variant]:
    few = _summed(documents)
    for tolerance in TOLERANCES:
        same = abs(tolerance - quick.tolerance) < 1e-9
        chosen = None if same else replace(quick, tolerance=tolerance)
        yield "tolerance", f"{tolerance:.0%}", documents, chosen
    for share in BASELINES:
        same = abs(share - quick.baseline_share) < 1e-9
        chosen = None if same else replace(quick, baseline_share=share)
        yield "baseline", f"shortest {share:.0%}", few, chosen
    for count in BIN_COUNTS:
        yield "bins", f"lengths known to {count} bins only", _binned(few, count), quick
    for name, words in SCORES.items():
        column = sample.examples[name]
        if name == primary:
            yield "score", words, few, None
        elif len(column) and column.notna().mean() >= _NEARLY_ALL:
            scored = sample.examples[column.notna()].assign(score=column[column.notna()])
            changed = replace(sample, examples=scored).documents()
            yield "score", words, _summed(changed), quick
    if len(sample.calls) <= _MOST_CALLS:
        yield from _by_records(sample, quick)


def _by_records(sample: Sample, quick: AnalysisSettings) -> Iterator[Variant]:
    """Variants whose calls differ, so that they are cleaned and summed anew."""
    calls = sample.calls
    answered = calls[calls["answered"]]
    counted = answered[answered["prompt_tokens"].notna()]
    if len(counted) >= _NEARLY_ALL * len(answered) and prompt_line(calls) is not None:
        changed = counted.assign(length_tokens=counted["prompt_tokens"])
        yield "tokenizer", "the model's own count", _documents(changed, sample), quick
    if len(sample.examples) and (sample.examples["replicates"] > 1).any():
        keys = ["document_id", "example_id"]
        for value, by in (("the first", "replicate"), ("the worst", "score")):
            kept = answered.sort_values(by, kind="stable").drop_duplicates(keys)
            yield "replicates", value, _documents(kept, sample), quick
    missing = ~calls["answered"] & calls["failure"].ne("context_overflow")
    if missing.any():
        for value, score in (("wrong", 0.0), ("right", 1.0)):
            filled = calls[calls["answered"] | missing].copy()
            unanswered = ~filled["answered"]
            filled["failure"] = ""
            filled.loc[unanswered, "score"] = score
            words = f"{int(unanswered.sum())} missing calls as {value}"
            yield "missing", words, _documents(filled, sample), quick


def _documents(records: pd.DataFrame, sample: Sample) -> Documents:
    return _summed(clean_records(records, [], sample.chance).documents())


def _summed(documents: Documents) -> Documents:
    """At most 2,000 documents: neighbours summed, at their middle length."""
    count = len(documents.n)
    if count <= _MOST_DOCUMENTS:
        return documents
    group = np.arange(count) * _MOST_DOCUMENTS // count
    first = np.flatnonzero(np.diff(group, prepend=-1))
    last = np.append(first[1:], count) - 1
    lengths = documents.length_tokens[(first + last) // 2]
    lengths[0], lengths[-1] = documents.length_tokens[0], documents.length_tokens[-1]
    n, s = np.add.reduceat(documents.n, first), np.add.reduceat(documents.s, first)
    return replace(documents, length_tokens=lengths, n=n, s=s)


def _binned(documents: Documents, count: int) -> Documents:
    """Every document at the median length of its quantile bin."""
    lengths = documents.length_tokens
    cuts = np.unique(np.quantile(lengths, np.linspace(0, 1, count + 1)[1:-1], method="higher"))
    bins = np.searchsorted(cuts, lengths, side="right")
    inside, index = np.unique(bins, return_inverse=True)
    medians = np.array([np.median(lengths[bins == b]) for b in inside]).astype(np.int64)
    return replace(documents, length_tokens=medians[index])
