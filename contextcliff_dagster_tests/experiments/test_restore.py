"""A ledger that lost its answers: nothing is paid for again, and the store gives them back."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from contextcliff_dagster.inference.ledger.ledger import Ledger
from contextcliff_dagster.inference.ledger.schema import columns
from contextcliff_dagster.inference.ledger.verify import verify
from contextcliff_dagster.store import DatabaseUrl, Store
from contextcliff_dagster_tests.support.ledgers import postgres as postgres
from contextcliff_dagster_tests.support.ledgers import postgres_server as postgres_server
from contextcliff_dagster_tests.support.measured_stores import FEW, FEW_CALLS, copy_of_few
from contextcliff_dagster_tests.support.postgres import PostgresServer
from contextcliff_dagster_tests.support.terminal import Ended, call

PROFILE = ("profile", "quick", *FEW, "--yes")
TABLES = ("calls", "results", "campaigns", "campaign_models", "documents", "recipes", "identities")


@pytest.fixture
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_of_few(tmp_path_factory)


def command(store: Path, *args: str) -> Ended:
    return call(*args, "--store", str(store))


def lose(store: Path) -> None:
    """As a disk or a careless `rm` does it: the ledger is gone, the tables are there."""
    for path in store.glob("state.db*"):
        if path.is_file():
            path.unlink()


def rows_of(where: Path | DatabaseUrl) -> dict[str, Any]:
    """What the ledger holds, times and owners of answers aside, and what it has spent."""
    aside = {"created_at", "recorded_at", "checksum", "zstd", "reasoning"}
    with Ledger.open(where) as ledger:
        assert verify(ledger).faults == ()
        held: dict[str, Any] = {}
        for table in TABLES:
            mine = {"owner"} if table == "results" else set()
            names = [name for name in columns(table) if name not in aside | mine]
            held[table] = sorted(ledger.read(f"SELECT {', '.join(names)} FROM {table}"), key=repr)
        held["spend"] = ledger.read("SELECT study, campaign, usd, tokens, calls FROM spend")
        held["days"] = ledger.read("SELECT * FROM spend_days")
    return held


def predictions(store: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in store.rglob("predictions/**/*.parquet")}


def test_an_emptied_ledger_pays_nothing_again_and_is_restored_whole(store: Path) -> None:
    before, files = rows_of(store / "state.db"), predictions(store)
    lose(store)
    for refused in (PROFILE, (*PROFILE, "--campaign", campaign_of(files))):
        ended = command(store, *refused)
        assert ended.code == 2
        assert len(ended.sentences) == 1
        assert f"The store holds {FEW_CALLS} answers of study 'quick" in ended.err
        assert "`contextcliff ledger restore quick" in ended.err
    with Ledger.open(store / "state.db") as ledger:
        assert ledger.stats()["attempts"] == 0, "nothing was sent"
    assert predictions(store) == files
    ended = command(store, "ledger", "restore")
    assert (ended.code, ended.err) == (0, "")
    assert f"{FEW_CALLS} answers" in ended.out
    assert rows_of(store / "state.db") == before
    again = command(store, *PROFILE, "--json")
    assert again.code == 0, again.err
    assert json.loads(again.out)["calls"]["reference-short"]["sent"] == 0
    assert command(store, "ledger", "restore").out == "The ledger has lost no answer.\n"


def campaign_of(files: dict[Path, bytes]) -> str:
    return next(iter(files)).parts[-4].removeprefix("campaign=")


def test_lost_answers_may_be_measured_again(store: Path) -> None:
    lose(store)
    ended = command(store, *PROFILE, "--pay-again", "--json")
    assert ended.code == 0, ended.err
    assert json.loads(ended.out)["calls"]["reference-short"]["sent"] == FEW_CALLS
    assert command(store, *PROFILE).code == 0, "from then on nothing is asked"


def test_a_ledger_that_lost_some_answers_never_overwrites_the_last_copy(store: Path) -> None:
    before, files = rows_of(store / "state.db"), predictions(store)
    with Ledger.open(store / "state.db") as ledger:
        for sql in (
            "DELETE FROM results WHERE call_key IN (SELECT call_key FROM calls LIMIT 5)",
            "DELETE FROM attempts WHERE call_key NOT IN (SELECT call_key FROM results)",
            "UPDATE spend SET calls = calls - 5, tokens = (SELECT sum(charged_tokens) FROM"
            " attempts)",
        ):
            ledger.write(lambda db, sql=sql: db.execute(sql))
        study = ledger.read("SELECT study FROM campaigns")[0][0]
    for refused in (("report", study), PROFILE):
        ended = command(store, *refused)
        assert ended.code == 2
        assert "The store holds 5 answers of study" in ended.err
    assert predictions(store) == files
    assert command(store, "ledger", "restore", study).code == 0
    assert rows_of(store / "state.db") == before


OPEN_AGAIN = (
    "UPDATE attempts SET ended_at = NULL, charged_usd = NULL, charged_tokens = NULL WHERE call_key"
    " NOT IN (SELECT call_key FROM results)",
    "UPDATE spend SET tokens = (SELECT sum(coalesce(charged_tokens, reserved_tokens)) FROM"
    " attempts)",
)


@pytest.mark.parametrize("as_well", [(), OPEN_AGAIN], ids=["ended", "open"])
def test_requests_that_the_ledger_has_kept_are_not_counted_twice(
    store: Path, as_well: tuple[str, ...]
) -> None:
    """An answer without its request, and one that was lost before its request ended."""
    before = rows_of(store / "state.db")
    with Ledger.open(store / "state.db") as ledger:
        sql = "DELETE FROM results WHERE call_key IN (SELECT call_key FROM results LIMIT 7)"
        for step in (sql, *as_well):
            ledger.write(lambda db, sql=step: db.execute(sql))
        missing = [fault for fault in verify(ledger).faults if "is missing" in fault]
        assert len(missing) == (0 if as_well else 7)
    ended = command(store, "ledger", "restore")
    assert (ended.code, "7 answers" in ended.out) == (0, True)
    assert rows_of(store / "state.db") == before


def test_rounds_are_not_planned_over_lost_answers(store: Path) -> None:
    lose(store)
    ended = command(store, *PROFILE, "--pilot", "3", "--until", "8%")
    assert (ended.code, "Round" in ended.err) == (2, False)
    assert f"The store holds {FEW_CALLS} answers of study 'quick" in ended.err


def test_every_campaign_comes_back_as_old_as_it_was(store: Path) -> None:
    study = rows_of(store / "state.db")["campaigns"][0][0]
    assert command(store, "campaign", "new", study, "--name", "second").code == 0
    assert command(store, *PROFILE).code == 0
    names = campaigns(store)
    assert names[-1] == "second"
    lose(store)
    ended = command(store, *PROFILE)
    assert f"The store holds {2 * FEW_CALLS} answers" in ended.err
    assert command(store, "ledger", "restore").code == 0
    assert campaigns(store) == names


def campaigns(store: Path) -> list[str]:
    from contextcliff_dagster.inference.ledger.campaigns import list_campaigns

    with Ledger.open(store / "state.db") as ledger:
        return [one.name for one in list_campaigns(ledger)]


def test_without_a_profile_the_next_run_notes_what_serves_the_model(store: Path) -> None:
    for path in store.rglob("cliffs.json"):
        path.unlink()
    lose(store)
    ended = command(store, "ledger", "restore")
    assert ended.code == 0
    assert "What serves reference-short is noted again by the next" in ended.out
    again = command(store, *PROFILE, "--json")
    assert json.loads(again.out)["calls"]["reference-short"]["sent"] == 0


@pytest.mark.parametrize(
    ("column", "value", "restored"),
    [
        ("prompt_hash", "0" * 64, 0),
        ("call_key", "another", 0),
        ("cost_usd", float("-inf"), FEW_CALLS),
        ("cost_usd", -5.0, FEW_CALLS),
    ],
)
def test_what_is_no_answer_to_the_studys_calls_is_left_and_no_charge_is_negative(
    store: Path, column: str, value: Any, restored: int
) -> None:
    for path in predictions(store):
        with pq.ParquetFile(path) as file:
            table = file.read()
        number = table.column_names.index(column)
        values = pa.array([value] * table.num_rows, table.schema.field(number).type)
        pq.write_table(table.set_column(number, table.schema.field(number), values), path)
    lose(store)
    ended = command(store, "ledger", "restore")
    assert ended.code == (0 if restored else 2)
    assert f"{restored} answers, $0.0000" in ended.out
    assert ("because the sample or prompt has changed since" in ended.err) == (not restored)
    held = rows_of(store / "state.db")
    assert [usd for _, _, usd, _, _ in held["spend"]] == [0.0] * bool(restored)
    assert {usd for _, usd in held["days"]} <= {0.0}


@pytest.mark.postgres
def test_answers_go_into_another_ledger_too(
    store: Path, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = rows_of(store / "state.db")
    monkeypatch.setenv("CONTEXTCLIFF_LEDGER", postgres.url)
    ended = command(store, *PROFILE)
    assert (ended.code, f"holds {FEW_CALLS} answers" in ended.err) == (2, True)
    assert postgres.password not in ended.err
    assert command(store, "ledger", "restore").code == 0
    assert rows_of(Store(store).ledger) == before


def test_the_check_reads_three_columns_and_no_text(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from contextcliff_dagster.experiments.common.measurement import lost_keys

    read: list[list[str]] = []
    whole: Callable[..., pa.Table] = pq.ParquetFile.read

    def noted(self: pq.ParquetFile, columns: list[str]) -> pa.Table:
        read.append(columns)
        return whole(self, columns=columns)

    monkeypatch.setattr(pq.ParquetFile, "read", noted)
    files = list(predictions(store))
    with Ledger.open(store / "state.db") as ledger:
        assert lost_keys(ledger, "quick", files) == set()
    assert read == [["call_key", "no_answer", "extra"]] * len(files)
