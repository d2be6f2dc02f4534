"""A renamed study is whole under its new name, and nothing of it is measured again."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path

import dagster as dg
import duckdb
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from contextcliff_dagster.archive.rename import plan_rename, rename_study
from contextcliff_dagster.contracts import EVAL_RECORDS, ContextCliffError, StoreError, StudyError
from contextcliff_dagster.definitions import defs
from contextcliff_dagster.experiments.common.study_run import StudyRun
from contextcliff_dagster.experiments.lookup import experiment_tables
from contextcliff_dagster.experiments.sql_tables import result_rows, view_sql
from contextcliff_dagster.inference.ledger.ledger import Ledger
from contextcliff_dagster.inference.ledger.prune import ledger_rows
from contextcliff_dagster.run.study import profile_study
from contextcliff_dagster.sampling.manifest import stored_sha256
from contextcliff_dagster.store import Store
from contextcliff_dagster.studies import Study, find_study, kept_in, load_study
from contextcliff_dagster.studies.files import renamed_text, retire, retired_studies
from contextcliff_dagster.studies.study import (
    Leave,
    imported_mark,
    leave_record,
    renaming_note,
    study_alone,
    study_used,
)
from contextcliff_dagster_tests.support.read_only import read_only
from contextcliff_dagster_tests.support.renaming_process import renamed_until
from contextcliff_dagster_tests.support.terminal import call

pytestmark = pytest.mark.usefixtures("unrecorded")


@pytest.fixture(autouse=True)
def _tiny_is_ones_own(study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONTEXTCLIFF_STUDIES", str(study.folder))


def renamed(store: Store, old: str = "tiny", new: str = "small") -> Study:
    rename_study(store, old, new, tables=experiment_tables())
    return find_study(new)


def rows_of(store: Store, study: str) -> dict[str, int]:
    with Ledger.open(store.ledger) as ledger:
        return ledger_rows(ledger, study)


def shown(store: Store) -> set[tuple[str, str]]:
    """Which studies each of the database's tables and views shows."""
    with duckdb.connect() as connection:
        connection.execute(view_sql(EVAL_RECORDS, store.root))
        found = connection.execute("SELECT DISTINCT study FROM eval_records").fetchall()
    tables = result_rows(store.root)
    return {("records", row[0]) for row in found} | {
        (table.name, row["study"]) for table, rows in tables.items() for row in rows
    }


def test_nothing_is_measured_again_and_all_shows_the_new_name(
    measured: Study, store: Store
) -> None:
    before, sample = rows_of(store, "tiny"), stored_sha256(store.manifest_dir("tiny"))
    assert (before["calls"], before["attempts"], before["campaign_models"]) == (24, 24, 2)
    study = renamed(store)
    assert rows_of(store, "tiny") == {}
    assert rows_of(store, "small") == before
    assert shown(store) == {(name, "small") for name in ("records", "cliffs", "bins", "bin_ranges")}
    assert {path.name for path in store.root.glob("*/manifest")} == {"manifest"}
    assert not store.study_dir("tiny").exists()
    # The sample is the same one: nothing downstream is stale because of it.
    assert stored_sha256(store.manifest_dir("small")) == sample
    done = profile_study(study, store=store)
    assert [summary.sent for summary in done.calls.values()] == [0, 0]
    assert rows_of(store, "small") == before
    assert {path.name for path in study.folder.iterdir()} == {"small.yaml"}


def test_a_study_that_shares_answers_keeps_them(measured: Study, store: Store) -> None:
    other = measured.changed(name="other")
    assert [s.sent for s in profile_study(other, store=store).calls.values()] == [0, 0]
    renamed(store)
    assert [s.sent for s in profile_study(other, store=store).calls.values()] == [0, 0]


def test_dagster_shows_the_new_keys(measured: Study, store: Store) -> None:
    renamed(store)
    made: dg.Definitions = defs()  # type: ignore[call-arg]
    keys = {key.path[0] for key in made.resolve_asset_graph().get_all_asset_keys()}
    assert "small" in keys
    assert "tiny" not in keys


def test_retired_stays_retired(measured: Study, store: Store) -> None:
    retire(store, "tiny")
    renamed(store)
    assert retired_studies(store) == ["small"]
    assert shown(store) == set()


def killed_and_finished(study: Study, store: Store, change: int) -> None:
    """Kill the renaming of ``tiny`` before ``change``, look, and finish it."""
    before = rows_of(store, "tiny")
    assert renamed_until("tiny", "small", change)[0] == -signal.SIGKILL
    # All under one name, and no run mixes them up meanwhile.
    assert [rows_of(store, "tiny"), rows_of(store, "small")] in ([before, {}], [{}, before])
    assert store.study_dir("tiny").is_dir() != store.study_dir("small").is_dir()
    assert {load_study(path).name for path in study.folder.glob("*.yaml")} <= {"tiny", "small"}
    if renaming_note(store).is_file():
        for name in ("tiny", "small"):
            with (
                pytest.raises(
                    StoreError, match="run `contextcliff studies rename tiny small` to finish"
                ),
                StudyRun.open(study.changed(name=name), store),
            ):
                pass
        with pytest.raises(StoreError, match="run `contextcliff studies rename tiny small`"):
            plan_rename(store, "tiny", "another")
    renamed(store)
    assert not renaming_note(store).exists()
    assert (rows_of(store, "tiny"), rows_of(store, "small")) == ({}, before)
    assert shown(store) == {(name, "small") for name in ("records", "cliffs", "bins", "bin_ranges")}
    assert [path.name for path in study.folder.glob("*.yaml")] == ["small.yaml"]


def test_killed_after_its_ledger_was_renamed_it_is_finished(measured: Study, store: Store) -> None:
    killed_and_finished(measured, store, 4)


def test_killed_anywhere_it_is_whole_and_the_same_command_finishes_it(
    measured: Study, store: Store, tmp_path: Path
) -> None:
    copies = {
        folder: Path(shutil.copytree(folder, tmp_path / f"copy-of-{folder.name}"))
        for folder in (store.root, measured.folder)
    }
    code, changes = renamed_until("tiny", "small", 0)
    assert code == 0, changes
    assert int(changes) > 15
    for change in range(1, int(changes) + 1):
        for folder, copy in copies.items():
            shutil.rmtree(folder)
            shutil.copytree(copy, folder)
        killed_and_finished(measured, store, change)


def test_a_study_in_use_is_not_renamed(measured: Study, store: Store) -> None:
    with study_used(store, "tiny"), pytest.raises(StoreError, match="'tiny' has a run in progress"):
        renamed(store)
    with study_alone(store, "tiny"), pytest.raises(StoreError, match="is being renamed"):
        profile_study(measured, store=store)
    with study_used(store, "tiny"), study_used(store, "tiny"):
        pass
    # One that its first run still prepares has no folder.
    with study_used(store, "fresh"), pytest.raises(StoreError, match="has a run in progress"):
        rename_study(store, "fresh", "small", tables=())
    assert not renaming_note(store).exists()
    renamed(store)


def test_a_file_that_cannot_be_written_refuses_before_anything_is_changed(
    measured: Study, store: Store
) -> None:
    with read_only(measured.folder):
        with pytest.raises(StudyError, match="read-only here"):
            plan_rename(store, "tiny", "small")
        with pytest.raises(StudyError, match="read-only here"):
            renamed(store)
    assert not renaming_note(store).exists()
    assert rows_of(store, "tiny")
    renamed(store)


@pytest.mark.parametrize("place", [10, -10], ids=["page", "footer"])
def test_a_damaged_table_stays_what_it_is(measured: Study, store: Store, place: int) -> None:
    table = next(store.study_dir("tiny").glob("eval_records/campaign=*/model=*/bin=*/*.parquet"))
    content = bytearray(table.read_bytes())
    content[place : place + 6 if place > 0 else None] = b"\xff" * len(content[place:][:6])
    table.write_bytes(content)
    renamed(store)
    moved = store.study_dir("small") / table.relative_to(store.study_dir("tiny"))
    assert moved.read_bytes() == content
    assert not renaming_note(store).exists()


def test_a_call_in_flight_elsewhere_refuses_and_changes_nothing(
    measured: Study, store: Store
) -> None:
    with Ledger.open(store.ledger) as other:
        (key,) = other.read("SELECT min(call_key) FROM calls")[0]
        other.write(
            lambda db: db.execute(
                "INSERT INTO claims VALUES (?, ?, '')", (key, other.backend.owner)
            )
        )
        with pytest.raises(StoreError, match="being measured"):
            renamed(store)
    assert not renaming_note(store).exists()
    assert store.study_dir("tiny").is_dir()
    assert rows_of(store, "tiny")
    renamed(store)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("tiny", "quick", "There is a study 'quick' already"),
        ("tiny", "Tiny", "not a valid study name"),
        ("tiny", "../tiny", "not a valid study name"),
        ("tiny", "a" * 61, "not a valid study name"),
        ("tiny", "tiny", "already has this name"),
        ("quick", "mine", "comes with the package"),
        ("nosuch", "mine", "There is no study 'nosuch'"),
        ("tiny", "there", "There is a study 'there' already"),
        ("tiny", "asked", "There is a study 'asked' already"),
    ],
)
def test_what_is_refused_changes_nothing(
    study: Study, store: Store, old: str, new: str, words: str
) -> None:
    store.study_dir("there").mkdir()
    with StudyRun.open(study.changed(name="asked"), store) as run:
        run.ledger.write(lambda db: db.execute("INSERT INTO campaigns VALUES ('asked', 'c', '')"))
    with pytest.raises(ContextCliffError, match=words):
        rename_study(store, old, new, tables=())
    assert not renaming_note(store).exists()
    assert [path.name for path in study.folder.iterdir()] == ["tiny.yaml"]


def test_the_command_says_what_it_does(measured: Study, store: Store) -> None:
    before = {path for path in store.root.rglob("*") if path.is_file()}
    dry = call("studies", "rename", "tiny", "small", "--dry-run")
    assert "Nothing is changed" in dry.out
    assert "1 campaign with 24 calls" in dry.out
    assert before <= {path for path in store.root.rglob("*") if path.is_file()}
    assert json.loads(call("studies", "rename", "tiny", "small", "--json").out) == {
        "old": "tiny", "new": "small", "files": [str(measured.folder / "tiny.yaml")],
        "folder": True, "campaigns": 1, "calls": 24, "resumed": False, "dry_run": False,
    }  # fmt: skip
    back = call("studies", "rename", "small", "tiny")
    assert "Dagster keeps the history of small/... under those keys" in back.out
    again = call("studies", "rename", "small", "tiny")
    assert again.code == 2
    assert "There is a study 'tiny' already" in again.err


def test_a_run_that_dagster_has_not_ended_refuses(
    measured: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "dagster"
    home.mkdir()
    monkeypatch.setenv("DAGSTER_HOME", str(home))

    def started(cause: str) -> None:
        tags = {"contextcliff/study": "tiny", "contextcliff/cause": cause}
        with dg.DagsterInstance.get() as instance:
            job = dg.job(name="profile_tiny")(lambda: None)
            instance.create_run_for_job(job, status=dg.DagsterRunStatus.STARTED, tags=tags)

    # A killed command's run is never over there; a living one holds a lock.
    started("command line")
    assert call("studies", "rename", "tiny", "small", "--dry-run", recorded=True).code == 0
    started("schedule")
    refused = call("studies", "rename", "tiny", "small", recorded=True)
    assert refused.code == 2
    assert "is still active in Dagster" in refused.err


NAMES = st.from_regex(r"[a-z0-9][a-z0-9-]{0,59}", fullmatch=True)


@given(old=NAMES, new=NAMES, quote=st.sampled_from(['"', "'"]), comment=st.booleans())
def test_only_the_name_in_a_file_changes(
    tmp_path: Path, old: str, new: str, quote: str, comment: bool
) -> None:
    rest = "  # name: old\ndescription: {0}\nmodels: [a, b]  # of {0}\ncorpus: {{name: x}}\n"
    path = tmp_path / "s.yaml"
    tail = rest.format(old) if comment else "\n"
    path.write_text(f"# {old}\nname: {quote}{old}{quote}{tail}")
    text = renamed_text(path, old, new)
    assert yaml.safe_load(text)["name"] == new
    assert text.endswith(tail)
    assert text.startswith(f"# {old}\n")


def test_a_name_that_others_refer_to_is_left_to_a_person(study: Study) -> None:
    path = study.folder / "tiny.yaml"
    path.write_text(path.read_text().replace("name: tiny", "name: &n tiny\ndescription2: *n"))
    with pytest.raises(StudyError, match="by hand"):
        renamed_text(path, "tiny", "small")


def test_an_imported_study_keeps_its_leave_and_its_prompt(store: Store, tmp_path: Path) -> None:
    folder = kept_in(store.root)
    folder.mkdir()
    prompt = folder / "theirs.template.txt"
    prompt.write_text("{document} {question}")
    path = folder / "theirs.yaml"
    path.write_text(
        "name: theirs\ncorpus: {kind: file, path: /elsewhere/a.csv}\ntokenizer: reference\n"
        f"models: [reference-short]\nprompt: {{template: {prompt}}}\n"
    )
    allowed = Leave(folder, frozenset({"corpus.path /elsewhere/a.csv"}))
    imported_mark(path).write_bytes(leave_record(load_study(path).with_leave(allowed)))
    assert find_study("theirs").leave == allowed
    study = renamed(store, "theirs", "ours")
    assert study.leave == allowed
    assert study.recipe().template == "{document} {question}"
    assert {one.name for one in folder.iterdir()} == {
        "ours.yaml", "ours.imported", "ours.template.txt",
    }  # fmt: skip
