"""Verifying a ledger notices every kind of damage; pruning takes what it says and no more."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from contextcliff_dagster.contracts import StoreError, StudyError
from contextcliff_dagster.inference.ledger.ledger import Ledger
from contextcliff_dagster.inference.ledger.prune import plan_prune, prune
from contextcliff_dagster.inference.ledger.verify import verify
from contextcliff_dagster.inference.requests.call_plan import Failure
from contextcliff_dagster.inference.spending import Spend
from contextcliff_dagster.store import DatabaseUrl
from contextcliff_dagster_tests.inference.ledger.test_ledger import CALLS, begin
from contextcliff_dagster_tests.support.records.calls import (
    RECIPE,
    faulty_server,
    openai_entry,
    reference_entry,
)
from contextcliff_dagster_tests.support.records.measured import PRICE, SAMPLE, rows_of, run


def change(ledger: Ledger, sql: str) -> None:
    ledger.write(lambda db: db.execute(sql))


def test_a_sound_ledger_gives_every_prompt_back(ledger: Ledger) -> None:
    run(ledger)
    verified = verify(ledger)
    assert (verified.prompts, verified.documents, verified.faults) == (18, 18, ())


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("UPDATE calls SET question = question || '?'", "cannot be rebuilt"),
        ("UPDATE calls SET prompt_hash = 'x'", "cannot be rebuilt"),
        ("UPDATE documents SET bytes = bytes - 1", "document"),
        (
            "UPDATE documents SET zstd = (SELECT zstd FROM documents ORDER BY document_id LIMIT 1)",
            "does not match its hash",
        ),
        ("UPDATE recipes SET body = replace(body, '8', '9')", "recipe"),
        ("UPDATE spend SET calls = calls - 1", "its attempts"),
        ("UPDATE spend SET usd = usd + 1", "its attempts"),
        ("UPDATE results SET raw_output = raw_output || ' '", "does not match its checksum"),
        ("UPDATE results SET finish_reason = 'length'", "does not match its checksum"),
        ("UPDATE results SET ttft_ms = ttft_ms + 0.001", "does not match its checksum"),
        ("UPDATE results SET checksum = NULL", "does not match its checksum"),
    ],
)
def test_damage_is_found(sqlite_ledger: Ledger, sql: str, said: str) -> None:
    run(sqlite_ledger, n=2)
    change(sqlite_ledger, sql)
    verified = verify(sqlite_ledger)
    assert verified.fault_count >= 1
    assert any(said in fault for fault in verified.faults)


def test_each_altered_answer_is_named(sqlite_ledger: Ledger) -> None:
    run(sqlite_ledger)
    altered = [key for (key,) in sqlite_ledger.read("SELECT call_key FROM results LIMIT 17")]
    for key in altered:
        change(sqlite_ledger, f"UPDATE results SET raw_output = 'x' WHERE call_key = '{key}'")
    faults = verify(sqlite_ledger).faults
    assert [any(key[:12] in fault for fault in faults) for key in altered] == [True] * 17
    assert len(faults) == 17


@pytest.mark.parametrize("change_to", ["raw_output = 'x'", "checksum = NULL", "ttft_ms = 1.0"])
def test_no_altered_answer_is_read(ledger: Ledger, change_to: str) -> None:
    run(ledger, n=2)
    (key,), (other,) = ledger.read("SELECT call_key FROM results ORDER BY call_key LIMIT 2")
    change(ledger, f"UPDATE results SET {change_to} WHERE call_key = '{key}'")
    with pytest.raises(StoreError, match="1 of these answers were altered after they were stored"):
        ledger.outcomes([key, other])
    assert list(ledger.outcomes([other])) == [other]
    with pytest.raises(StoreError, match="verify` names them"):
        rows_of(ledger, n=2)


def test_answers_that_change_places_are_noticed(ledger: Ledger) -> None:
    """Each is an answer of this ledger, whole: under another call's key it is not vouched for."""
    run(ledger, n=2)
    (one, two), columns = (
        ledger.read("SELECT call_key FROM results LIMIT 2"),
        "raw_output, checksum",
    )
    for key, other in ((one, two), (two, one)):
        ledger.write(
            lambda db, key=key, other=other: db.execute(
                f"UPDATE results SET ({columns}) = (SELECT {columns} FROM results WHERE call_key ="
                " ?) WHERE call_key = ?",
                (*other, *key),
            )
        )
    assert verify(ledger).fault_count >= 1


def test_pruning_a_study_leaves_the_others_and_no_row_of_its_own(ledger: Ledger) -> None:
    run(ledger, study="kept", campaign="k", n=2)
    kept = rows_of(ledger, study="kept", campaign="k", n=2)
    run(ledger)
    plan = plan_prune(ledger, "s")
    assert (plan.calls, plan.answers, plan.documents, plan.shared_documents) == (18, 18, 12, 6)
    assert prune(ledger, "s") == plan
    stats = ledger.stats()
    assert (stats["calls"], stats["answers"], stats["documents"]) == (6, 6, 6)
    assert rows_of(ledger, study="kept", campaign="k", n=2) == kept
    assert verify(ledger).faults == ()
    assert run(ledger).sent == 18, "what was pruned is measured again"
    with pytest.raises(StudyError, match="no study 'gone'"):
        prune(ledger, "gone")


def test_pruning_a_campaign_leaves_the_other(ledger: Ledger) -> None:
    run(ledger, campaign="one", n=2)
    run(ledger, campaign="two", n=2)
    assert prune(ledger, "s", "one").campaigns == ("one",)
    assert run(ledger, campaign="two", n=2).sent == 0
    with pytest.raises(StudyError, match=r"no campaign 'one'.*the study has two"):
        prune(ledger, "s", "one")


def test_pruned_texts_are_gone_and_never_taken_for_empty_answers(
    ledger: Ledger, ledger_at: Path | DatabaseUrl
) -> None:
    from contextcliff_dagster.inference.ledger.campaigns import new_campaign

    run(ledger)
    paid = ledger.stats()
    said = ledger.read("SELECT raw_output FROM results")
    question = CALLS[0].example.question
    plan = prune(ledger, "s", texts=True)
    assert plan.documents == 18
    assert any("cannot be judged again" in sentence for sentence in plan.losses())
    assert {row[0] for row in ledger.read("SELECT raw_output FROM results")} == {None}
    if isinstance(ledger_at, Path):
        data = b"".join(
            file.read_bytes() for file in ledger_at.parent.glob("state.db*") if file.is_file()
        )
        assert question.encode() not in data
        assert not any(row[0].encode() in data for row in said if len(row[0]) > 7)
    now = ledger.stats()
    assert (now["answers"], now["attempts"], now["spent_tokens"]) == (
        paid["answers"], paid["attempts"], paid["spent_tokens"],
    )  # fmt: skip
    verified = verify(ledger)
    assert (verified.prompts, verified.pruned_prompts, verified.faults) == (0, 18, ())
    with pytest.raises(StoreError, match=r"removed by .*campaign new s"):
        rows_of(ledger)
    with pytest.raises(StoreError, match="were removed from the call ledger"):
        ledger.prompt(ledger.read("SELECT call_key FROM calls")[0][0])
    # The texts come back with the next campaign, and its own prompts can be rebuilt.
    again = new_campaign(ledger, "s")
    assert run(ledger, campaign=again).sent == 18
    assert len(rows_of(ledger, campaign=again)) == 18
    new = ledger.read("SELECT call_key FROM calls WHERE campaign = ?", (again,))[0][0]
    assert question.split()[0] in ledger.prompt(new).contents()[-1]
    verified = verify(ledger)
    assert (verified.prompts, verified.pruned_prompts, verified.faults) == (18, 18, ())


def test_texts_that_another_study_needs_stay(ledger: Ledger) -> None:
    run(ledger, study="kept", campaign="k", n=2)
    run(ledger)
    plan = prune(ledger, "s", texts=True)
    assert (plan.documents, plan.shared_documents) == (12, 6)
    assert len(rows_of(ledger, study="kept", campaign="k", n=2)) == 6
    assert run(ledger, study="kept", campaign="k", n=2).sent == 0


def test_studies_that_may_share_the_answers_are_named(ledger: Ledger) -> None:
    run(ledger)
    run(ledger, study="other")
    plan = plan_prune(ledger, "s")
    assert plan.leaning == ("other",)
    assert any("other" in sentence for sentence in plan.losses())


def test_what_is_being_measured_is_not_pruned(
    ledger: Ledger, ledger_at: Path | DatabaseUrl
) -> None:
    with Ledger.open(ledger_at) as other:
        begun = begin(other, CALLS[0])
        with pytest.raises(StoreError, match="being measured"):
            prune(ledger, "s")
        other.fail(
            begun.attempt_id, CALLS[0].call_key, Failure("drop", "x"), Spend(), release=True
        ).result()
    prune(ledger, "s")
    assert ledger.stats()["calls"] == 0


def test_stats_by_campaign_add_up(ledger: Ledger) -> None:
    run(ledger, n=2)
    run(ledger, campaign="d", n=3)
    rows = ledger.stats_by_campaign()
    assert [(r["campaign"], r["calls"], r["answers"], r["attempts"]) for r in rows] == [
        ("c", 6, 6, 6),
        ("d", 9, 9, 9),
    ]
    stats = ledger.stats()
    assert sum(r["attempts"] for r in rows) == stats["attempts"]
    assert stats["bytes"] == sum(stats["table_bytes"].values()) > 0


def test_a_changed_document_question_or_wording_is_another_call_and_nothing_else_is() -> None:
    from contextcliff_dagster.inference.requests.call_plan import call_key

    example = SAMPLE.planned(SAMPLE.bins[0], 1)[0].example
    key = call_key("identity", RECIPE, example, 0, "c")
    others = {
        call_key("another", RECIPE, example, 0, "c"),
        call_key("identity", replace(RECIPE, max_output_tokens=9), example, 0, "c"),
        call_key("identity", RECIPE, replace(example, document_id="0" * 64), 0, "c"),
        call_key("identity", RECIPE, replace(example, question="Another?"), 0, "c"),
        call_key("identity", RECIPE, example, 0, "d"),
    }
    assert len({key, *others}) == 6
    same = replace(example, example_id="renamed", answers=("other",), metadata={})
    assert call_key("identity", RECIPE, same, 0, "c") == key


def test_prices_are_no_part_of_the_key(sqlite_ledger: Ledger) -> None:
    run(sqlite_ledger, n=2)
    price = {"input_usd_per_mtok": 5, "output_usd_per_mtok": 5}
    assert run(sqlite_ledger, reference_entry(price=price), n=2).sent == 0


def test_an_answer_that_another_study_paid_for_stays_with_it(ledger: Ledger) -> None:
    with faulty_server(["500", "ok"]) as url:
        entry = openai_entry(url, concurrency=1, max_attempts=1, price=PRICE)
        where = {"n": 1, "bins": SAMPLE.bins[:1]}
        assert run(ledger, entry, **where).transport_errors == 1
        assert run(ledger, entry, study="other", **where).answered == 1
        rows = ledger.stats_by_campaign()
        assert sum(row["spent_usd"] for row in rows) == ledger.stats()["spent_usd"] > 0
        prune(ledger, "s")
        assert verify(ledger).faults == ()
        assert ledger.spent("other", "c").usd > 0
        assert run(ledger, entry, study="other", **where).cached == 1
    assert ledger.read("SELECT DISTINCT study FROM calls") == [("other",)]
    assert ledger.read("SELECT DISTINCT study FROM attempts") == [("other",)]
