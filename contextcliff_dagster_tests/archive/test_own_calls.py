"""What is exported of a study is its own: not what others of the ledger asked or paid."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from contextcliff_dagster_tests.support.archives import packed, with_table, without_origin
from contextcliff_dagster_tests.support.measured_stores import copy_of_made
from contextcliff_dagster_tests.support.postgres import PostgresServer
from contextcliff_dagster_tests.support.terminal import assert_one_sentence, call, run

BASE = (
    "corpus: {kind: reference, task: lookup, documents: 60, max_tokens: 200}\n"
    "tokenizer: reference\nbins: {count: 2}\nmodels: [reference-short]\n"
)
FEW = "sampling: {samples_per_bin: 2, pilot_per_bin: 1}\n"
STUDIES = {
    "first": f"name: first\n{BASE}{FEW}",
    # The same questions over the same documents, with more room to answer: other calls.
    "wordy": f"name: wordy\n{BASE}{FEW}prompt: {{max_output_tokens: 40}}\n",
    # Asks what `first` asked, and more.
    "wider": f"name: wider\n{BASE}sampling: {{samples_per_bin: 3, pilot_per_bin: 1}}\n",
}


def _measured(folder: Path) -> None:
    for name, text in STUDIES.items():
        (folder / f"{name}.yaml").write_text(text)
        store = ("--store", str(folder / "store"))
        begun = call("campaign", "new", str(folder / f"{name}.yaml"), "--name", "c1", *store)
        assert begun.code == 0, begun.err
        ended = call("profile", str(folder / f"{name}.yaml"), *store)
        assert ended.code == 0, ended.err


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three studies in one ledger."""
    return copy_of_made(tmp_path_factory, "three-studies", _measured)


def _exported(folder: Path, study: str, target: Path) -> dict[str, list[dict[str, Any]]]:
    file = target / f"{study}.zip"
    ended = call("export", str(folder / f"{study}.yaml"), str(file), "--store", f"{folder}/store")
    assert ended.code == 0, ended.err
    with zipfile.ZipFile(file) as archive:
        return {
            Path(name).stem: pq.read_table(io.BytesIO(archive.read(name))).to_pylist()
            for name in archive.namelist()
            if name.startswith("ledger/")
        }


def test_another_studys_calls_over_the_same_documents_stay(folder: Path, tmp_path: Path) -> None:
    first, wordy = (_exported(folder, name, tmp_path) for name in ("first", "wordy"))
    for name, tables in {"first": first, "wordy": wordy}.items():
        assert {row["study"] for row in tables["calls"]} == {name}
        assert len(tables["calls"]) == len(tables["results"]) == len(tables["attempts"]) == 4
        assert len(tables["recipes"]) == 1
    keys = [{row["call_key"] for row in tables["results"]} for tables in (first, wordy)]
    assert not keys[0] & keys[1]


def test_answers_that_another_study_paid_go_along_without_its_costs(
    folder: Path, tmp_path: Path
) -> None:
    first, wider = (_exported(folder, name, tmp_path) for name in ("first", "wider"))
    shared = {row["call_key"] for row in first["calls"]}
    asked = {row["call_key"] for row in wider["calls"]}
    assert shared < asked
    assert asked == {row["call_key"] for row in wider["results"]}
    assert {row["study"] for row in wider["calls"]} == {"wider"}
    assert {row["call_key"] for row in wider["attempts"]} == asked - shared
    assert {row["study"] for row in wider["attempts"]} == {"wider"}


def test_it_reports_the_same_in_another_store_and_folder(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _exported(folder, "wider", tmp_path)
    here = call("report", "wider", "--json", "--store", f"{folder}/store")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    taken = run("import", "../wider.zip", "--adopt", "--store", "store", "--json")
    assert json.loads(taken.out)["new_answers"] == 6, taken.err
    there = call("report", "wider", "--json", "--store", "store")
    curves = [json.loads(ended.out)["cliffs"][0]["curve"] for ended in (here, there)]
    assert curves[0] == curves[1]
    resumed = call("profile", "wider", "--json", "--store", "store")
    assert json.loads(resumed.out)["calls"]["reference-short"]["sent"] == 0
    verified = call("ledger", "verify", "--store", "store")
    assert (verified.code, verified.err) == (0, "")


@pytest.mark.postgres
def test_through_postgresql_it_is_the_same_archive(
    folder: Path, tmp_path: Path, postgres: PostgresServer
) -> None:
    _exported(folder, "wider", tmp_path)
    env, store = {"CONTEXTCLIFF_LEDGER": postgres.url}, ("--store", str(tmp_path / "other"))
    taken = call("import", str(tmp_path / "wider.zip"), *store, "--json", env=env)
    assert json.loads(taken.out)["new_answers"] == 6, taken.err
    again = tmp_path / "again.zip"
    assert call("export", "wider", str(again), *store, env=env).code == 0
    whole, copy = without_origin(tmp_path / "wider.zip"), without_origin(again)
    attempts = {"archive.json", "ledger/attempts.parquet"}  # they are numbered anew
    assert {n: d for n, d in whole.items() if n not in attempts} == {
        n: d for n, d in copy.items() if n not in attempts
    }
    evil = "study) VALUES ('x'); DROP TABLE results --"
    spoiled = with_table(whole, "calls", lambda table: table.rename_columns({"study": evil}))
    ended = call("import", str(packed(spoiled, tmp_path / "spoiled.zip")), *store, env=env)
    assert_one_sentence(ended, "column")
    assert postgres.execute("SELECT count(*) FROM contextcliff.answers") == [(6,)]
