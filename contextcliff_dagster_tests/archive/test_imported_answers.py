"""Answers of an archive are the imported study's alone, until a person adopts them."""

from __future__ import annotations

import json
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from contextcliff_dagster.analysis.design.allocation import Target
from contextcliff_dagster.archive.calls import result_checksum
from contextcliff_dagster.experiments.common.preparation import load_frozen
from contextcliff_dagster.experiments.length_profile.experiment import plan_rounds
from contextcliff_dagster.store import Store
from contextcliff_dagster.studies import load_studies
from contextcliff_dagster_tests.support.archives import members_of, packed, with_table
from contextcliff_dagster_tests.support.measured_stores import copy_of_made
from contextcliff_dagster_tests.support.postgres import PostgresServer
from contextcliff_dagster_tests.support.terminal import Ended, call

STUDY = (
    "name: {}\ncorpus: {{kind: reference, task: lookup, documents: 60, max_tokens: 200}}\n"
    "tokenizer: reference\nbins: {{count: 2}}\nmodels: [reference-short]\n"
    "sampling: {{samples_per_bin: 2, pilot_per_bin: 1}}\n"
)
CALLS = 4
ANSWERS = "SELECT study, origin, raw_output FROM {} ORDER BY 1, 3"


def _forged(table: pa.Table) -> pa.Table:
    rows = [{**row, "raw_output": "Forged."} for row in table.to_pylist()]
    for row in rows:
        row["checksum"] = result_checksum(row)
    return pa.Table.from_pylist(rows, schema=table.schema)


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another's study with the questions of `STUDY`, and answers that no model gave."""

    def make(folder: Path) -> None:
        study, store = folder / "theirs.yaml", ("--store", str(folder / "store"))
        study.write_text(STUDY.format("theirs"))
        assert call("campaign", "new", str(study), "--name", "c1", *store).code == 0
        assert call("profile", str(study), *store).code == 0
        assert call("export", str(study), str(folder / "honest.zip"), *store).code == 0
        packed(
            with_table(members_of(folder / "honest.zip"), "results", _forged),
            folder / "theirs.zip",
        )

    return copy_of_made(tmp_path_factory, "forged", make) / "theirs.zip"


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty store, next to a study of one's own that asks what the archive's does."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CONTEXTCLIFF_HOME", str(tmp_path / "store"))
    (tmp_path / "mine.yaml").write_text(STUDY.format("mine"))
    return tmp_path / "store"


def done(*arguments: str) -> Ended:
    ended = call(*arguments)
    assert ended.code == 0, ended.err
    return ended


def measured(study: str = "mine.yaml") -> dict[str, Any]:
    done("campaign", "new", study, "--name", "c1")
    return dict(json.loads(done("profile", study, "--json").out))


def origin_of(archive: Path) -> str:
    import hashlib

    return f"theirs.zip, sha256 {hashlib.sha256(archive.read_bytes()).hexdigest()}"


def kept(store: Path, table: str) -> list[tuple[Any, ...]]:
    with sqlite3.connect(store / "state.db") as db:
        return db.execute(ANSWERS.format(table)).fetchall()


def lose(store: Path) -> None:
    for name in ("state.db", "state.db-wal", "state.db-shm"):
        (store / name).unlink(missing_ok=True)


def test_one_s_own_study_is_measured_whatever_an_archive_says(archive: Path, store: Path) -> None:
    told = done("import", str(archive)).out
    assert "Only the study's reports read them; with --adopt, measurements reuse them too." in told
    mine = measured()
    assert mine["calls"]["reference-short"]["sent"] == CALLS
    assert not mine["notes"]
    assert "origins" not in mine["cliffs"][0]["provenance"]
    assert [row[:2] for row in kept(store, "results")] == [("mine", None)] * CALLS
    assert "Forged." not in {row[2] for row in kept(store, "results")}
    assert [row["origin"] for row in exported("mine")] == [None] * CALLS
    (row,) = json.loads(done("campaign", "list", "mine.yaml", "--json").out)
    assert row["answered"] == CALLS
    assert done("ledger", "verify").err == ""


def test_the_imported_study_says_where_its_answers_come_from(archive: Path, store: Path) -> None:
    done("import", str(archive))
    theirs = json.loads(done("report", "theirs", "--json").out)
    line = f"{CALLS} of {CALLS} answers come from {origin_of(archive)}."
    assert line in theirs["notes"]
    assert theirs["cliffs"][0]["provenance"]["origins"] == {origin_of(archive): CALLS}
    page = (store / "theirs" / "report" / "c1" / "report.md").read_text()
    assert line in page.replace("\\", "")
    stats = json.loads(done("ledger", "stats", "--json").out)
    assert (stats["answers"], stats["imported"]) == (0, CALLS)
    (row,) = json.loads(done("campaign", "list", "theirs", "--json").out)
    assert row["answered"] == CALLS
    assert done("ledger", "verify").err == ""
    estimated = done("profile", "theirs", "--dry-run", "--json").out
    assert (
        f"{CALLS} of the calls to measure have answers that were imported ({origin_of(archive)})"
        in estimated
    )
    again = json.loads(done("profile", "theirs", "--json").out)
    assert again["calls"]["reference-short"]["sent"] == CALLS
    assert not again["notes"]
    assert "Forged." not in done("answers", "theirs", "--json").out


def test_adopted_answers_are_not_bought_again_and_keep_their_origin(
    archive: Path, store: Path
) -> None:
    done("import", str(archive))
    assert json.loads(done("import", str(archive), "--adopt", "--json").out)["new_answers"] == CALLS
    assert kept(store, "imported_results") == []
    mine = measured()
    assert mine["calls"]["reference-short"]["sent"] == 0
    assert f"{CALLS} of {CALLS} answers come from {origin_of(archive)}." in mine["notes"]
    assert [row["origin"] for row in exported("theirs")] == [origin_of(archive)] * CALLS


def exported(study: str) -> list[dict[str, Any]]:
    done("ledger", "export", study, "rows.jsonl", "--no-prompts")
    return [json.loads(line) for line in Path("rows.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("foreign", [False, True], ids=["own store", "another ledger's store"])
def test_what_is_restored_of_an_archive_stays_imported(
    archive: Path, store: Path, foreign: bool
) -> None:
    done("import", str(archive))
    done("report", "theirs")
    if foreign:
        done("profile", "theirs")
    lose(store)
    if foreign:  # another ledger, which knows nothing of this study
        other = STUDY.format("other").replace("documents: 60", "documents: 60, seed: 9")
        (store / "other.yaml").write_text(other)
        measured(str(store / "other.yaml"))
    restored = done("ledger", "restore", "theirs").out
    assert f"{CALLS} answers" in restored
    origin = f"the store {store}" if foreign else origin_of(archive)
    assert [row[:2] for row in kept(store, "imported_results")] == [("theirs", origin)] * CALLS
    assert done("ledger", "verify").err == ""
    assert done("ledger", "restore", "theirs").out == "The ledger has lost no answer.\n"
    assert "come from" in str(json.loads(done("report", "theirs", "--json").out)["notes"])
    again = json.loads(done("profile", "theirs", "--json").out)
    assert again["calls"]["reference-short"]["sent"] == CALLS


def test_an_empty_ledger_takes_the_place_of_a_lost_one(store: Path) -> None:
    measured()
    note = store / "mine" / "ledger.json"
    name = json.loads(note.read_bytes())["ledger"]
    lose(store)
    assert f"{CALLS} answers" in done("ledger", "restore", "mine.yaml").out
    with sqlite3.connect(store / "state.db") as db:
        assert db.execute("SELECT id FROM ledgers").fetchall() == [(name,)]
    assert [row[:2] for row in kept(store, "results")] == [("mine", None)] * CALLS
    again = json.loads(done("profile", "mine.yaml", "--json").out)
    assert again["calls"]["reference-short"]["sent"] == 0


def test_answers_of_older_versions_have_no_origin_on_record(store: Path) -> None:
    measured()
    with sqlite3.connect(store / "state.db") as db:
        db.execute("UPDATE results SET owner = NULL, study = NULL")
    report = json.loads(done("report", "mine.yaml", "--json").out)
    assert report["cliffs"][0]["provenance"]["origins"] == {"not recorded": CALLS}
    assert f"{CALLS} of {CALLS} answers: origin not recorded." in report["notes"]


def test_an_archive_of_the_same_name_hides_no_answer_that_the_ledger_has_lost(
    store: Path, tmp_path: Path
) -> None:
    before = sorted(measured()["cliffs"][0]["bins"][0].items(), key=str)
    text = [row[2] for row in kept(store, "results")]
    done("export", "mine.yaml", "mine.zip")
    lose(store)
    forged = with_table(members_of(tmp_path / "mine.zip"), "results", _forged)
    done("import", str(packed(forged, tmp_path / "forged.zip")))
    ended = call("report", "mine.yaml")
    assert (ended.code, "`contextcliff ledger restore mine" in ended.err) == (2, True)
    assert f"{CALLS} answers" in done("ledger", "restore", "mine.yaml").out
    assert [row[2] for row in kept(store, "results")] == text
    report = json.loads(done("report", "mine.yaml", "--json").out)
    assert sorted(report["cliffs"][0]["bins"][0].items(), key=str) == before
    assert (
        json.loads(done("profile", "mine.yaml", "--json").out)["calls"]["reference-short"]["sent"]
        == 0
    )


def test_an_imported_study_outlives_the_texts_of_another_that_asked_the_same(
    archive: Path, store: Path
) -> None:
    done("import", str(archive))
    measured()
    done("ledger", "prune", "mine", "--texts", "--yes")
    (line,) = json.loads(done("report", "theirs", "--json").out)["notes"]
    assert line == f"{CALLS} of {CALLS} answers come from {origin_of(archive)}."
    assert done("ledger", "verify").err == ""


def test_measured_and_imported_answers_are_never_in_one_report(archive: Path, store: Path) -> None:
    done("import", str(archive), "--name", "mine")
    run = json.loads(done("profile", "mine.yaml", "--samples-per-bin", "1", "--json").out)
    assert run["calls"]["reference-short"]["sent"] == CALLS // 2
    assert sum(one["n"] for one in run["cliffs"][0]["bins"]) == CALLS // 2
    assert "origins" not in run["cliffs"][0]["provenance"]


def test_rounds_are_planned_from_what_was_measured_alone(archive: Path, store: Path) -> None:
    done("import", str(archive))
    done("report", "theirs")
    study, place = load_studies()["theirs"], Store(store)

    def rounds() -> object:
        manifest = load_frozen(study, place)
        return plan_rounds(study, place, manifest, "c1", Target(pilot=2))

    imported = rounds()
    shutil.rmtree(store / "theirs" / "eval_records")
    assert imported == rounds()


def test_an_origin_goes_along_from_archive_to_archive(
    archive: Path, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = tmp_path / "a\nb\x1b.zip"
    odd.write_bytes(archive.read_bytes())
    done("import", str(odd), "--adopt")
    done("export", "theirs", "again.zip")
    monkeypatch.setenv("CONTEXTCLIFF_HOME", str(tmp_path / "elsewhere"))
    done("import", "again.zip")
    (line,) = json.loads(done("report", "theirs", "--json").out)["notes"]
    assert line.startswith(f"{CALLS} of {CALLS} answers come from again.zip, sha256 ")
    assert line.endswith(f"(there from a?b?.zip, {origin_of(archive).partition(', ')[2]}).")


@pytest.mark.parametrize("study", ["theirs", "mine"])
def test_pruning_one_study_leaves_the_other_its_answers(
    archive: Path, store: Path, study: str
) -> None:
    done("import", str(archive))
    measured()
    assert len(kept(store, "results")) == len(kept(store, "imported_results")) == CALLS
    done("ledger", "prune", study, "--yes")
    assert len(kept(store, "imported_results")) == (0 if study == "theirs" else CALLS)
    assert len(kept(store, "results")) == (0 if study == "mine" else CALLS)
    assert done("ledger", "verify").err == ""
    other = "mine.yaml" if study == "theirs" else "theirs"
    (cliffs,) = json.loads(done("report", other, "--json").out)["cliffs"]
    assert sum(one["n"] for one in cliffs["bins"]) == CALLS


@pytest.mark.postgres
def test_postgresql_keeps_them_apart_and_says_whose_they_are(
    archive: Path, store: Path, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONTEXTCLIFF_LEDGER", postgres.url)
    done("import", str(archive))
    assert measured()["calls"]["reference-short"]["sent"] == CALLS
    whose = "SELECT study, length(owner), origin FROM contextcliff.results"
    assert set(postgres.execute(whose)) == {("mine", 32, None)}
    line = f"{CALLS} of {CALLS} answers come from {origin_of(archive)}."
    # Both studies ask the same: each has its own answers.
    assert line in json.loads(done("report", "theirs", "--json").out)["notes"]
    assert not json.loads(done("report", "mine.yaml", "--json").out)["notes"]
    assert done("ledger", "verify").err == ""
