"""`contextcliff ledger`: what it says of a measured study, and what is left when it has removed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from contextcliff_dagster.archive.results import JUDGED
from contextcliff_dagster.inference.ledger.ledger import Ledger
from contextcliff_dagster.store import Store
from contextcliff_dagster_tests.support.measured_stores import FEW, FEW_CALLS, copy_of_few
from contextcliff_dagster_tests.support.terminal import Ended, call

PROFILE = ("profile", "quick", *FEW)
CALLS = FEW_CALLS


@pytest.fixture
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of one's own with the measured study, copied without its links."""
    return copy_of_few(tmp_path_factory)


def study_of(store: Path) -> str:
    result = json.loads(call("ledger", "stats", "--json", "--store", str(store)).out)
    return str(result["by_campaign"][0]["study"])


def a_document(store: Path) -> str:
    """A line of one of the documents that the study asked about."""
    with Ledger.open(Store(store).ledger) as ledger:
        key = ledger.read("SELECT call_key FROM calls")[0][0]
        return max(ledger.prompt(key).contents()[0].splitlines(), key=len)


def cliffs_of(store: Path, study: str) -> dict[str, dict[str, Any]]:
    """What is recorded for each model of the study."""
    files = (store / study / "profiles").rglob("cliffs.json")
    return {found["model"]: found for found in (json.loads(f.read_text()) for f in files)}


def test_stats_count_what_was_measured(store: Path) -> None:
    result = json.loads(call("ledger", "stats", "--json", "--store", str(store)).out)
    assert (result["calls"], result["answers"], result["attempts"], result["orphans"]) == (
        CALLS,
        CALLS,
        CALLS,
        0,
    )
    assert result["documents"] == CALLS
    assert result["bytes"] >= sum(result["table_bytes"].values()) > 0
    shown = call("ledger", "stats", "--store", str(store))
    assert shown.code == 0
    assert "reference-short" in shown.out


def test_verify_rebuilds_every_prompt_and_finds_what_is_spoiled(store: Path) -> None:
    sound = call("ledger", "verify", "--store", str(store))
    assert (sound.code, sound.err) == (0, "")
    assert f"{CALLS} prompts over {CALLS} documents rebuilt byte for byte; 0 errors" in sound.out
    with Ledger.open(Store(store).ledger) as ledger:
        ledger.write(lambda db: db.execute("UPDATE calls SET question = question || '?'"))
    spoiled = call("ledger", "verify", "--store", str(store), "--json")
    assert spoiled.code == 2
    assert json.loads(spoiled.out)["sound"] is False
    assert spoiled.err


def test_answers_that_wait_are_named_by_verify_and_doctor_and_stay(store: Path) -> None:
    spool = store / "_spool" / "nobody.jsonl"
    spool.parent.mkdir(mode=0o700)
    spool.write_bytes(b'{"attempt_id": 1, "call_key": "of another ledger"}\n')
    said = f"1 line was altered in {spool.parent}, or of another ledger; it stays"
    verified = call("ledger", "verify", "--store", str(store), "--json")
    assert verified.code == 0
    assert said in verified.err
    assert said in json.loads(verified.out)["waiting"]
    assert said in call("doctor", "--store", str(store)).out
    assert spool.read_bytes().count(b"\n") == 1


def test_a_backup_is_a_ledger(store: Path, tmp_path: Path) -> None:
    file = tmp_path / "new" / "state.db"
    ended = call("ledger", "backup", str(file), "--store", str(store))
    assert ended.code == 0, ended.err
    sound = call("ledger", "verify", "--store", str(file.parent))
    assert (sound.code, sound.err) == (0, "")


def test_a_store_of_any_name_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "a?b%41c"
    monkeypatch.delenv("DAGSTER_HOME")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "user"))
    ended = call(*PROFILE, "--store", str(tmp_path / name), recorded=True)
    assert ended.code == 0, ended.err
    assert (tmp_path / name / "state.db").is_file()


def exported(store: Path, file: Path, *options: str) -> tuple[list[dict[str, Any]], Ended]:
    """Rows of an export, with objects where the form has JSON text."""
    line = ("ledger", "export", study_of(store), str(file), *options, "--store", str(store))
    ended = call(*line)
    assert ended.code == 0, ended.err
    if file.suffix == ".jsonl":
        return [json.loads(line) for line in file.read_text().splitlines()], ended
    rows = pq.read_table(file).to_pylist()
    for row in rows:
        row["prompt"] = row["prompt"] and json.loads(row["prompt"])
    return rows, ended


@pytest.mark.parametrize("name", ["calls.jsonl", "calls.parquet"])
def test_export_writes_a_row_for_each_call(
    name: str, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("contextcliff_dagster.archive.results._MOST_CHARS", 5_000)
    rows, ended = exported(store, tmp_path / name)
    assert ended.err == ""
    assert len(rows) == CALLS
    assert [row["call_key"] for row in rows] == sorted(row["call_key"] for row in rows)
    assert all(row["raw_output"] and row["model"] == "reference-short" for row in rows)
    with Ledger.open(Store(store).ledger) as ledger:
        for row in rows:
            assert row["prompt"] == ledger.prompt(row["call_key"]).as_dicts()
    answers = call("answers", study_of(store), "--format", "jsonl", "--store", str(store))
    listed = {(a["example_id"], a["model"]): a for a in map(json.loads, answers.out.splitlines())}
    for row in rows:
        answer = listed[row["example_id"], row["model"]]
        for column in JUDGED:
            assert row[column] == answer[column]
    if name.endswith("t"):
        groups = pq.ParquetFile(tmp_path / name).metadata.num_row_groups
        assert 1 < groups < CALLS, "prompts are written as they come"


@pytest.mark.parametrize("name", ["calls.jsonl", "calls.parquet"])
def test_an_export_without_prompts_holds_no_document(
    name: str, store: Path, tmp_path: Path
) -> None:
    rows, ended = exported(store, tmp_path / name, "--no-prompts")
    assert ended.err == ""
    assert {row["prompt"] for row in rows} == {None}
    assert a_document(store).encode() not in (tmp_path / name).read_bytes()


def test_an_export_says_what_it_does_not_have(store: Path, tmp_path: Path) -> None:
    study = study_of(store)
    for path in (store / study / "eval_records").rglob("bin=b00/*.parquet"):
        path.unlink()
    _, ended = exported(store, tmp_path / "calls.jsonl")
    assert ended.err == "Note: 3 calls have no score: without an answer, or not scored yet " + (
        "(`contextcliff report` scores them).\n"
    )
    assert call("ledger", "prune", study, "--texts", "--yes", "--store", str(store)).code == 0
    rows, ended = exported(store, tmp_path / "calls.jsonl", "--json")
    assert json.loads(ended.out)["prompts"] == json.loads(ended.out)["accepted"] == 0
    assert {(row["prompt"], row["accepted"]) for row in rows} == {(None, None)}
    assert sum(row["score"] is not None for row in rows) == CALLS - 3
    assert f"{CALLS} calls have no prompt" in ended.err
    assert f"{CALLS} calls have no accepted answers" in ended.err


def test_a_study_is_also_given_by_its_file(store: Path, tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(
        f"name: {study_of(store)}\ncorpus: {{kind: reference}}\ntokenizer: reference\n"
        "models: [reference-short]\n"
    )
    words = (str(tmp_path / "s.yaml"), str(tmp_path / "calls.jsonl"), "--store", str(store))
    ended = call("ledger", "export", *words)
    assert ended.code == 0, ended.err
    assert f"holds {CALLS} calls" in ended.out
    ended = call("ledger", "prune", words[0], *words[2:], "--yes")
    assert ended.code == 0, ended.err


def test_pruned_texts_are_nowhere_in_the_store_and_the_report_stands(store: Path) -> None:
    study, text = study_of(store), a_document(store).encode()
    reports = {p: p.read_bytes() for p in (store / study / "report").rglob("*") if p.is_file()}
    ended = call("ledger", "prune", study, "--texts", "--yes", "--store", str(store))
    assert f"Texts removed from study {study}, campaign 20" in ended.out
    assert ended.code == 0, ended.err
    assert "Archives made by `contextcliff export`" in ended.out
    for path in (p for p in store.rglob("*") if p.is_file()):
        assert text not in path.read_bytes(), path
    assert {p: p.read_bytes() for p in reports} == reports
    verified = call("ledger", "verify", "--store", str(store))
    assert verified.code == 0
    assert f"{CALLS} are pruned" in verified.out


def test_a_model_whose_texts_are_gone_keeps_its_result_beside_another(store: Path) -> None:
    study = study_of(store)
    before = cliffs_of(store, study)["reference-short"]
    assert before["n"] == CALLS
    assert call("ledger", "prune", study, "--texts", "--yes", "--store", str(store)).code == 0
    other = ("--model", "reference-long", "--store", str(store))
    ended = call(*PROFILE[:4], *other)
    assert ended.code == 0, ended.err
    after = cliffs_of(store, study)
    assert after["reference-long"]["n"] == CALLS
    for figure in ("n", "baseline", "safe_cap_tokens", "verdict"):
        assert after["reference-short"][figure] == before[figure]


def test_a_pruned_study_is_measured_anew(store: Path) -> None:
    study = study_of(store)
    assert call("ledger", "prune", study, "--yes", "--store", str(store)).code == 0
    again = call(*PROFILE, "--store", str(store), "--json")
    assert again.code == 0, again.err
    assert json.loads(again.out)["calls"]["reference-short"]["sent"] == CALLS


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (("prune", "quick-samples-2"), "add --yes"),
        (("prune", "nowhere", "--yes"), "nowhere"),
        (("export", "nowhere", "calls.jsonl"), "nowhere"),
    ],
)
def test_what_cannot_be_done_is_one_sentence_and_changes_nothing(
    command: tuple[str, ...], says: str, store: Path
) -> None:
    study = study_of(store)
    ended = call(
        "ledger", *(study if a == "quick-samples-2" else a for a in command), "--store", str(store)
    )
    assert ended.code == 2
    assert len(ended.sentences) == 1
    assert says in ended.err
    assert (
        json.loads(call("ledger", "stats", "--json", "--store", str(store)).out)["calls"] == CALLS
    )


def test_without_a_ledger_there_is_nothing_to_say(tmp_path: Path) -> None:
    ended = call("ledger", "stats", "--store", str(tmp_path / "empty"))
    assert ended.code == 2
    assert "it begins with a call" in ended.err
