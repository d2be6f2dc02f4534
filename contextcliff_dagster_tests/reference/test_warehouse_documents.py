"""Ledgers are whole documents whose length, evidence and answers are known exactly."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextcliff_dagster.reference.warehouse_documents import (
    HEADER_TOKENS,
    MAX_RECORDS,
    MIN_RECORDS,
    TOKENS_PER_RECORD,
    Ledger,
    generate_ledger,
    iter_ledgers,
    ledger_tokens,
    records_for_tokens,
)

RECORD = re.compile(r" SKU-(\d{3}) (?:qty=(\d{6})|sub=(\d{3});)")

seeds = st.integers(0, 2**32)
record_counts = st.integers(MIN_RECORDS, 200)


def records_of(ledger: Ledger) -> dict[str, tuple[str | None, str | None]]:
    """Key -> (quantity, substitute), read back from the text alone."""
    header, *lines = ledger.text.splitlines()
    assert re.fullmatch(r"Ledger of day \d{3}", header)
    matches = [RECORD.fullmatch(line) for line in lines]
    assert all(matches)
    return {m[1]: (m[2], m[3]) for m in matches if m}


@given(seeds, record_counts)
def test_keys_are_unique_and_the_length_is_an_outcome_of_the_records(
    seed: int, records: int
) -> None:
    ledger = generate_ledger(seed, records)
    assert len(records_of(ledger)) == records
    assert ledger.length_tokens == ledger_tokens(records)
    assert ledger.text.endswith("\n")


@given(seeds, record_counts)
def test_the_answer_stands_in_the_document_where_the_evidence_position_says(
    seed: int, records: int
) -> None:
    ledger = generate_ledger(seed, records, questions_per_level=3)
    by_key = records_of(ledger)
    order = list(by_key)
    assert {q.level for q in ledger.questions} == {1, 2}
    for question in ledger.questions:
        match = re.fullmatch(r"Find SKU-(\d{3})\?", question.question)
        assert match
        quantity, substitute = by_key[match[1]]
        if question.task == "lookup":
            holder = match[1]
            assert question.answers == (quantity,)
            assert question.inter_evidence_tokens is None
        else:
            assert substitute is not None
            holder, quantity = substitute, by_key[substitute][0]
            assert question.answers == (f"{holder}; qty={quantity}", f"qty={quantity}", quantity)
            hops = abs(order.index(holder) - order.index(match[1]))
            assert question.inter_evidence_tokens == TOKENS_PER_RECORD * hops
        start = HEADER_TOKENS + TOKENS_PER_RECORD * order.index(holder)
        assert question.evidence_position == start / ledger.length_tokens
        assert 0 <= question.evidence_position < 1


@given(seeds)
def test_same_seed_same_bytes(seed: int) -> None:
    assert generate_ledger(seed) == generate_ledger(seed)
    assert list(iter_ledgers(seed, 5)) == list(iter_ledgers(seed, 8))[:5]


def test_lengths_span_the_range_evenly_in_log_length() -> None:
    lengths = [ledger.length_tokens for ledger in iter_ledgers(7, 2_000)]
    assert min(lengths) < 45
    assert max(lengths) > 5_500
    share_below_the_geometric_middle = np.mean(np.log(lengths) < np.log(39 * 5_901) / 2)
    assert share_below_the_geometric_middle == pytest.approx(0.5, abs=0.05)


def test_asked_for_lengths_are_kept_and_never_made_by_cutting() -> None:
    ledgers = list(iter_ledgers(3, 200, min_tokens=100, max_tokens=400))
    assert all(100 <= ledger.length_tokens <= 400 for ledger in ledgers)
    assert all(len(records_of(ledger)) == len(ledger.text.splitlines()) - 1 for ledger in ledgers)
    assert len({ledger.text for ledger in ledgers}) == 200


def test_a_length_that_no_ledger_has_is_refused() -> None:
    with pytest.raises(ValueError, match="No ledger has between 40 and 44 tokens"):
        next(iter_ledgers(0, 1, min_tokens=40, max_tokens=44))
    with pytest.raises(ValueError, match=f"between 6 and {MAX_RECORDS} records"):
        generate_ledger(0, 5)


@given(st.integers(MIN_RECORDS, MAX_RECORDS))
def test_records_for_tokens_inverts_ledger_tokens(records: int) -> None:
    assert records_for_tokens(ledger_tokens(records)) == records
