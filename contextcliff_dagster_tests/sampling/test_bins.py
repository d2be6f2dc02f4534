"""Bins partition the axis of lengths, whatever the lengths, and starved ones are never filled."""

from __future__ import annotations

from itertools import pairwise
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextcliff_dagster.contracts import CorpusError, LengthBin
from contextcliff_dagster.sampling.bins import BinSpec, active_bins, assign_bin, cut_bins, make_bins

# Documents with their length and number of questions; few distinct lengths make many ties.
corpora = st.lists(
    st.tuples(st.one_of(st.integers(1, 12), st.integers(1, 200_000)), st.integers(1, 4)),
    min_size=1,
    max_size=80,
)


def columns(corpus: list[tuple[int, int]]) -> tuple[list[int], list[str]]:
    lengths = [length for length, questions in corpus for _ in range(questions)]
    ids = [f"d{n}" for n, (_, questions) in enumerate(corpus) for _ in range(questions)]
    return lengths, ids


def claim_partition(bins: list[LengthBin], lengths: list[int], ids: list[str]) -> None:
    """Every length lies in exactly one bin's range, and the bins' counts say so."""
    active = active_bins(bins)
    assert all(a.edge_high == b.edge_low for a, b in pairwise(active))
    for length in range(min(lengths), min(max(lengths), min(lengths) + 300) + 1):
        holders = [
            b.bin
            for b in active
            if b.edge_low <= length < b.edge_high or (b is active[-1] and length == b.edge_high)
        ]
        # An empty bin between tied edges has no range at all.
        assert holders == [assign_bin(length, bins)]
    for b in bins:
        inside = sorted(
            x for x in lengths if b.merged_into is None and assign_bin(x, bins) == b.bin
        )
        assert b.n == len(inside)
        assert (b.min_tokens, b.max_tokens) == ((inside[0], inside[-1]) if inside else (None, None))
        assert b.median_tokens is None or b.median_tokens in inside
        held = {d for x, d in zip(lengths, ids, strict=True) if x in set(inside)}
        assert b.n_documents == len(held)
    assert sum(b.n for b in bins) == len(lengths)
    assert sum(b.n_documents for b in bins) == len(set(ids))


@given(corpora, st.integers(1, 12), st.sampled_from(["quantile", "fixed"]), st.integers(1, 50_000))
def test_cut_bins_partition_the_axis(
    corpus: list[tuple[int, int]], count: int, kind: Literal["quantile", "fixed"], width: int
) -> None:
    lengths, ids = columns(corpus)
    for spec in (BinSpec(kind, count), BinSpec("fixed", count, width)):
        bins = cut_bins(lengths, ids, spec)
        assert [b.bin for b in bins] == [f"b{n:02d}" for n in range(count)]
        claim_partition(bins, lengths, ids)


@given(corpora, st.integers(1, 12), st.integers(1, 6), st.sampled_from([None, 7, 9_000]))
def test_merged_bins_partition_the_axis_and_none_is_starved(
    corpus: list[tuple[int, int]], count: int, starved_below: int, width: int | None
) -> None:
    lengths, ids = columns(corpus)
    spec = BinSpec("fixed" if width else "quantile", count, width, starved_below, "merge")
    if len(corpus) < starved_below:
        with pytest.raises(CorpusError, match="fewer than one bin needs"):
            make_bins(lengths, ids, spec)
        return
    bins = make_bins(lengths, ids, spec)
    assert [b.bin for b in bins] == [f"b{n:02d}" for n in range(count)]
    claim_partition(bins, lengths, ids)
    keys = {b.bin for b in active_bins(bins)}
    for b in bins:
        if b.merged_into is None:
            assert b.n_documents >= starved_below
            assert b.edge_low < b.edge_high or b.min_tokens == b.max_tokens
        else:
            assert b.n == b.n_documents == 0
            assert b.merged_into in keys


@given(st.lists(st.integers(1, 10**6), min_size=50, max_size=300, unique=True))
def test_quantile_bins_of_distinct_lengths_are_equally_full(lengths: list[int]) -> None:
    bins = cut_bins(lengths, [str(n) for n in lengths], BinSpec(count=10))
    assert max(b.n for b in bins) - min(b.n for b in bins) <= 1


def test_many_equal_lengths_share_one_bin() -> None:
    lengths = [*range(10, 40), *([100] * 60), *range(200, 210)]
    bins = make_bins(lengths, [str(n) for n in range(100)], BinSpec(count=10, starved_below=3))
    holders = [b for b in active_bins(bins) if b.edge_low <= 100 < b.edge_high]
    assert len(holders) == 1
    assert holders[0].n >= 60
    assert all(b.merged_into is not None for b in bins if b.n == 0)


def test_fixed_bins_have_round_edges_and_the_last_reaches_the_longest() -> None:
    lengths = [100, 7_999, 8_000, 15_999, 16_000, 90_000]
    bins = cut_bins(lengths, list("abcdef"), BinSpec("fixed", 3, 8_000))
    assert [(b.edge_low, b.edge_high, b.n) for b in bins] == [
        (0, 8_000, 2),
        (8_000, 16_000, 2),
        (16_000, 90_000, 2),
    ]


def test_a_bin_of_one_document_is_starved_however_many_questions_it_has() -> None:
    lengths = [*range(100), *([5_000] * 40)]
    ids = [*(f"d{n}" for n in range(100)), *(["long"] * 40)]
    spec = BinSpec("fixed", 5, 1_000, starved_below=2)
    bins = {b.bin: b for b in make_bins(lengths, ids, spec)}
    assert {b.merged_into for b in bins.values() if b.bin != "b00"} == {"b00"}
    with pytest.raises(CorpusError, match=r"Bin b01 .* holds 0 documents"):
        make_bins(lengths, ids, BinSpec("fixed", 5, 1_000, starved_below=2, starved="refuse"))


def test_the_bin_with_one_example_is_refused_or_merged_as_the_study_says() -> None:
    lengths = [*range(100, 200), 9_000]
    ids = [str(n) for n in range(101)]
    merged = make_bins(lengths, ids, BinSpec("fixed", 2, 5_000, 5, "merge"))
    assert [(b.n, b.merged_into) for b in merged] == [(101, None), (0, "b00")]
    assert merged[0].edge_high == 10_000
    assert assign_bin(9_000, merged) == "b00"
    with pytest.raises(CorpusError, match=r"Bin b01 .*holds 1 document, fewer than .*merge"):
        make_bins(lengths, ids, BinSpec("fixed", 2, 5_000, 5, "refuse"))


def test_a_length_outside_the_bins_is_an_error() -> None:
    bins = make_bins([10, 20, 30], list("abc"), BinSpec(count=1, starved_below=1))
    assert assign_bin(30, bins) == "b00"
    for length in (9, 31):
        with pytest.raises(CorpusError, match="outside the bins"):
            assign_bin(length, bins)


def test_an_empty_corpus_has_no_bins() -> None:
    with pytest.raises(CorpusError, match="no example to bin"):
        make_bins([], [], BinSpec())
