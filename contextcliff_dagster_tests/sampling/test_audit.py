"""The audit says before any call whether the lengths support the study, and what to do if not."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextcliff_dagster.contracts import LENGTH_MAP, conform
from contextcliff_dagster.sampling.audit import DistributionAudit, Requirements, audit_lengths
from contextcliff_dagster.sampling.bins import BinSpec, cut_bins


def audit(
    lengths: Sequence[int],
    *,
    target: tuple[int, int] | None = None,
    window: int | None = None,
    starved_below: int = 5,
    count: int = 10,
    examples: Sequence[pa.RecordBatch] | None = None,
    questions: int = 1,
) -> DistributionAudit:
    rows = [
        {"example_id": f"e{n}-{q}", "document_id": f"d{n}", "length_tokens": length}
        for n, length in enumerate(lengths)
        for q in range(questions)
    ]
    table = conform(rows, LENGTH_MAP)
    bins = cut_bins(
        [r["length_tokens"] for r in rows], [r["document_id"] for r in rows], BinSpec(count=count)
    )
    report = audit_lengths(table, examples, bins, Requirements(starved_below, target, window))
    assert report.advice.endswith(".")
    assert "\n" not in report.advice
    json.dumps(asdict(report), allow_nan=False)
    return report


SPREAD = [round(100 * 1.03**n) for n in range(200)]


def test_a_corpus_that_spans_the_target_is_fine() -> None:
    report = audit(SPREAD, target=(100, 36_000), window=128_000)
    assert (report.verdict, report.coverage, report.starved_bins) == ("ok", 1.0, ())
    assert "support this study" in report.advice


@pytest.mark.parametrize("target", [None, (100, 5_000)])
@pytest.mark.parametrize(("length", "words"), [(700, "700 tokens"), (1, "1 token")])
def test_a_corpus_of_one_length_is_refused(
    length: int, words: str, target: tuple[int, int] | None
) -> None:
    report = audit([length] * 50, target=target)
    assert report.verdict == "refuse"
    assert f"all documents have the same length ({words})" in report.advice
    assert "add documents of other lengths" in report.advice


@pytest.mark.parametrize("target", [(100, 128_000), (1, 36_000), (10_000, 50_000)])
def test_a_corpus_that_does_not_span_the_target_is_refused(target: tuple[int, int]) -> None:
    lengths = [n for n in SPREAD if n > 2_500]
    report = audit(lengths, target=target)
    assert report.verdict == "refuse"
    assert "do not span the target range" in report.advice


def test_a_corpus_of_extremes_only_is_refused_for_its_gap() -> None:
    report = audit([*range(100, 150), *range(9_950, 10_000)], target=(100, 10_000))
    assert report.verdict == "refuse"
    assert report.coverage < 0.2
    # 5 % of the way from 100 to 10,000.
    assert report.uncovered[0][0] == 595
    assert "none at 595 to" in report.advice


def test_without_a_target_a_narrow_corpus_is_warned_about() -> None:
    assert audit(range(1_000, 2_000, 10)).verdict == "warn"
    assert audit(range(1_000, 1_100)).verdict == "refuse"


def test_starved_bins_are_named() -> None:
    report = audit([100, 5_000, 36_000], starved_below=2, count=3)
    assert report.starved_bins == ("b00", "b01", "b02")
    assert report.documents_per_bin == {"b00": 1, "b01": 1, "b02": 1}
    assert "3 of 3 bins hold fewer than 2 distinct documents (b00, b01, b02)" in report.advice
    assert audit([100, 200, 300], starved_below=5).verdict == "refuse"


def test_documents_longer_than_the_window_are_counted() -> None:
    report = audit(SPREAD, window=10_000)
    assert report.over_window == sum(n > 10_000 for n in SPREAD)
    assert report.verdict == "warn"
    assert "context_overflow" in report.advice
    assert audit(SPREAD, window=50).verdict == "refuse"
    assert audit(SPREAD).over_window is None


def test_repeated_questions_about_a_document_are_duplicates() -> None:
    examples = pa.table(
        {
            "document_id": ["d1", "d1", "d1", "d2"],
            "question": ["Who is it?", " who is\tit? ", "Why?", "Who is it?"],
        }
    )
    report = audit(SPREAD, examples=examples.to_batches(max_chunksize=2))
    assert report.duplicates == 1
    assert report.verdict == "warn"


@given(
    st.lists(st.one_of(st.integers(1, 20), st.integers(1, 300_000)), min_size=1, max_size=60),
    st.integers(1, 3),
)
def test_the_histogram_counts_every_document_and_example_once(
    lengths: list[int], questions: int
) -> None:
    report = audit(lengths, questions=questions)
    bars = report.histogram
    assert sum(bar.documents for bar in bars) == report.documents == len(lengths)
    assert sum(bar.examples for bar in bars) == report.examples == len(lengths) * questions
    assert all(bar.low < bar.high for bar in bars)
    assert all(a.high == b.low for a, b in pairwise(bars))
    assert bars[0].low == min(lengths)
    assert bars[-1].high == max(lengths) + 1
    assert 0 <= report.coverage <= 1
    assert report.min_tokens <= report.p05_tokens <= report.median_tokens <= report.p95_tokens
