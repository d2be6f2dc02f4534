"""Controls are ordinary calls: what takes the document's place, and what it costs."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextcliff_dagster.corpora.corpus import EVIDENCE_SPANS
from contextcliff_dagster.inference.execution.cost_estimate import estimate
from contextcliff_dagster.inference.execution.measure import measure
from contextcliff_dagster.inference.execution.prediction_rows import prediction_rows
from contextcliff_dagster.inference.ledger.ledger import Ledger
from contextcliff_dagster.inference.ledger.verify import verify
from contextcliff_dagster.sampling.draw_manifest import BETWEEN, ControlSource, evidence_of
from contextcliff_dagster_tests.support.records.calls import (
    LedgerSample,
    Sample,
    plan_of,
    reference_entry,
)

NOTHING = hashlib.sha256(b"").hexdigest()


class Evident(LedgerSample):
    """The ledgers' questions; every second one says on which line its answer is."""

    def planned(self, bin: str, n: int) -> list[Sample]:
        return [_evident(s, self) if s.rank % 2 == 0 else s for s in super().planned(bin, n)]


def _evident(sample: Sample, source: LedgerSample) -> Sample:
    text, amount = source.document_text(sample.example.document_id), sample.example.answers[0]
    at = text.index(amount)
    start, end = text.rindex("\n", 0, at) + 1, text.index("\n", at) + 1
    sample.example.metadata[EVIDENCE_SPANS] = [[start, end]]  # type: ignore[index]
    return sample


def test_without_the_document_every_question_can_be_asked_and_nothing_stands_before_it() -> None:
    source = ControlSource(LedgerSample(), "no_context")
    planned = source.planned("b00", 4)
    assert len(planned) == 4
    assert {p.example.document_id for p in planned} == {NOTHING}
    assert {p.length_tokens for p in planned} == {0}
    assert source.document_text(NOTHING) == ""


def test_the_oracle_asks_those_that_say_where_their_evidence_is_over_that_alone() -> None:
    sample = Evident()
    source = ControlSource(sample, "oracle")
    planned = source.planned("b02", 4)
    assert [p.rank for p in planned] == [0, 2]
    for p in planned:
        text = source.document_text(p.example.document_id)
        assert p.example.answers[0] in text
        assert text.count("\n") == 1
        whole = next(s for s in sample.planned("b02", 4) if s.rank == p.rank)
        assert 0 < p.length_tokens < whole.length_tokens / 3


@given(st.text(min_size=1, max_size=60), st.data())
def test_pieces_come_in_the_order_of_the_text_and_none_twice(
    text: str, data: st.DataObject
) -> None:
    place = st.integers(0, len(text))
    pairs = st.tuples(place, place).filter(lambda pair: pair[0] < pair[1])
    spans = data.draw(st.lists(pairs, min_size=1, max_size=5))
    pieces = evidence_of({EVIDENCE_SPANS: [list(span) for span in spans]}, text)
    covered = sorted({i for start, end in spans for i in range(start, end)})
    assert "".join(pieces) == "".join(text[i] for i in covered)
    assert evidence_of({EVIDENCE_SPANS: [list(s) for s in reversed(spans)]}, text) == pieces


@pytest.mark.parametrize(
    "told",
    [
        {},
        {EVIDENCE_SPANS: "3"},
        {EVIDENCE_SPANS: [[0]]},
        {EVIDENCE_SPANS: [[4, 2]]},
        {EVIDENCE_SPANS: [[0, 999]]},
        {EVIDENCE_SPANS: [[True, 2]]},
        {EVIDENCE_SPANS: [["0", "2"]]},
        {"evidence": "not there"},
        {"evidence": ["one", 7]},
        {"evidence": {"a": 1}},
        {"evidence": "  "},
    ],
)
def test_what_is_no_place_in_the_text_is_no_evidence(told: dict[str, object]) -> None:
    assert evidence_of(told, "one two three") == []


def test_evidence_may_be_named_by_its_words() -> None:
    text = "one two three"
    assert evidence_of({"evidence": "two"}, text) == ["two"]
    assert evidence_of({"evidence": ["three", "one"]}, text) == ["one", "three"]


def test_they_are_kept_and_paid_like_any_call_and_never_mixed_with_the_measured(
    tmp_path: Path,
) -> None:
    sample, entry = Evident(), reference_entry()
    plan = plan_of(sample, 4)
    plans = {c: replace(plan, source=ControlSource(sample, c)) for c in ("no_context", "oracle")}
    with Ledger.open(tmp_path / "state.db") as ledger:
        both = estimate([(None, plan), *plans.items()], [entry], ledger)
        assert [line.control for line in both.lines] == [None] * 3 + ["no_context"] * 3 + [
            "oracle"
        ] * 3
        main = measure(plan, entry, ledger)
        before = prediction_rows(plan, entry.name, ledger)
        sent = {}
        for control, controlled in plans.items():
            sent[control] = measure(controlled, entry, ledger)
            again = measure(controlled, entry, ledger)
            assert (again.sent, again.cached) == (0, sent[control].planned)
        assert (main.sent, sent["no_context"].sent, sent["oracle"].sent) == (12, 12, 6)
        assert both.calls == 30
        assert prediction_rows(plan, entry.name, ledger) == before
        rows = prediction_rows(plans["oracle"], entry.name, ledger)
        assert len(rows) == 6
        assert not {row["call_key"] for row in rows} & {row["call_key"] for row in before}
        assert estimate([(None, plan), *plans.items()], [entry], ledger).calls == 0
        checked = verify(ledger)
        assert (checked.prompts, checked.fault_count) == (30, 0)


def test_a_blank_line_stands_between_two_pieces() -> None:
    class Two(Evident):
        def planned(self, bin: str, n: int) -> list[Sample]:
            found = super().planned(bin, n)
            for one in found:
                one.example.metadata[EVIDENCE_SPANS] = [[0, 6], [10, 14]]  # type: ignore[index]
            return found

    source = ControlSource(sample := Two(), "oracle")
    planned = source.planned("b00", 1)[0]
    text = sample.document_text(sample.planned("b00", 1)[0].example.document_id)
    assert source.document_text(planned.example.document_id) == text[:6] + BETWEEN + text[10:14]
