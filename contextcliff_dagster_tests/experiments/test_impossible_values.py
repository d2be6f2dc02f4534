"""What a ledger cannot have measured makes no result, and the sentence says what it is."""

from __future__ import annotations

import pytest

from contextcliff_dagster.inference.engines.base import Timing
from contextcliff_dagster.inference.execution.single_request import Answer
from contextcliff_dagster.inference.ledger.backend import Database
from contextcliff_dagster.inference.ledger.ledger import Ledger
from contextcliff_dagster_tests.support.measured_stores import copy_of_few
from contextcliff_dagster_tests.support.terminal import assert_one_sentence, call


def test_an_impossible_time_is_named_and_the_last_profile_stays(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    store = copy_of_few(tmp_path_factory)
    before = {path: path.read_bytes() for path in store.glob("*/profiles/**/*.json")}
    with Ledger.open(store / "state.db") as ledger:
        ledger.write(lambda db: vouch_for(db, "ttft_ms", -5.0))
        (study,) = {study for (study,) in ledger.read("SELECT study FROM campaigns")}
    ended = call("report", study, "--store", str(store))
    assert_one_sentence(
        ended, "is -5.0, beyond what a ms can be", "no measurement gives such a value"
    )
    assert before == {path: path.read_bytes() for path in before}


def vouch_for(db: Database, column: str, value: float) -> None:
    """Set a column of all answers, with checksums that fit."""
    from contextcliff_dagster.inference.ledger.schema import computed_checksums

    db.execute(f"UPDATE results SET {column} = ?", (value,))
    rows = list(computed_checksums(lambda sql, values: db.execute(sql, values).fetchall()))
    for key, _, fits in rows:
        db.execute("UPDATE results SET checksum = ? WHERE call_key = ?", (fits, key))


def test_no_clock_of_an_engine_makes_a_time_negative() -> None:
    answer = Answer(started=1.0, ended=1.5, timing=Timing(queue_ms=900.0, ttft_ms=-1.0))
    assert (answer.queue_ms, answer.ttft_ms, answer.duration_ms) == (900.0, 0.0, 0.0)
    answer = Answer(started=1.0, ended=1.5, timing=Timing(queue_ms=-1e-9, ttft_ms=2.0))
    assert (answer.queue_ms, answer.duration_ms) == (0.0, 500.0)
