"""One file reproduces a study elsewhere, and says so when it cannot."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from contextcliff_dagster_tests.support.archives import (
    Members,
    members_of,
    packed,
    sealed,
    with_table,
    without_origin,
)
from contextcliff_dagster_tests.support.measured_stores import (
    FEW,
    FEW_CALLS,
    copy_of_few,
    copy_of_made,
)
from contextcliff_dagster_tests.support.terminal import Ended, assert_one_sentence, call, run

MEASURE = ("profile", "quick", *FEW, "--json")


def results(ended: Ended) -> list[dict[str, Any]]:
    """The cliffs that a command printed, without the time they were computed at."""
    assert ended.code == 0, ended.err
    result = json.loads(ended.out)["cliffs"]
    for cliffs in result:
        cliffs.pop("created_at")
        cliffs.pop("provenance")
    return list(result)


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a finished study; tests copy nothing into it."""
    return copy_of_few(tmp_path_factory)


def test_what_is_exported_and_imported_reports_the_same_without_a_call(
    measured: Path, tmp_path: Path
) -> None:
    file, other = tmp_path / "study.zip", tmp_path / "other"
    assert call("export", "quick", str(file), "--store", str(measured)).code == 0
    taken = run("import", str(file), "--adopt", "--store", str(other), "--json")  # as a user does
    assert json.loads(taken.out)["new_answers"] == FEW_CALLS
    report = ("report", "quick", "--model", "reference-short", "--json", "--store")
    assert results(call(*report, str(other))) == results(call(*report, str(measured)))
    resumed = call(*MEASURE, "--store", str(other))
    assert json.loads(resumed.out)["calls"]["reference-short"]["sent"] == 0
    twice = call("import", str(file), "--store", str(other), "--json")
    assert json.loads(twice.out)["new_answers"] == 0
    again = tmp_path / "again.zip"
    assert call("export", "quick", str(again), "--store", str(other)).code == 0
    here, there = ({**without_origin(one), "archive.json": b""} for one in (file, again))
    assert there == here


def test_an_import_names_the_command_that_shows_models_of_one_s_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = tmp_path / "models.yaml"
    models.write_text("models: {mine: {engine: reference, model_id: reference-short}}\n")
    monkeypatch.setenv("CONTEXTCLIFF_MODELS", str(models))
    file, here, there = (str(tmp_path / name) for name in ("study.zip", "here", "there"))
    measure = "profile quick --model mine --samples-per-bin 1 --store"
    assert call(*measure.split(), here).code == 0
    assert call("export", "quick", file, "--store", here).code == 0
    command = call("import", file, "--store", there).out.strip().partition("`contextcliff ")[2]
    command = command.rstrip("`.")
    assert command == "report quick --model mine"
    assert call(*command.split(), "--store", there).code == 0


def test_the_same_store_gives_the_same_bytes(measured: Path, tmp_path: Path) -> None:
    files = [tmp_path / "one.zip", tmp_path / "two.zip"]
    for file in files:
        ended = call("export", "quick", str(file), "--store", str(measured))
        assert (ended.code, " answers of 1 campaign, " in ended.out) == (0, True)
    assert files[0].read_bytes() == files[1].read_bytes()


@pytest.fixture(scope="module")
def members(measured: Path, tmp_path_factory: pytest.TempPathFactory) -> Members:
    file = tmp_path_factory.mktemp("exported") / "study.zip"
    assert call("export", "quick", str(file), "--store", str(measured)).code == 0
    return members_of(file)


@pytest.mark.parametrize(
    ("spoiled", "words"),
    [
        (lambda members: {**members, "study.json": b"{}"}, ["study.json", "tampered"]),
        (lambda members: {**members, "archive.json": b"[]"}, ["not an archive"]),
        (lambda members: {**members, "archive.json": b'{"format": "other"}'}, ["not an archive"]),
        (
            lambda members: with_table(members, "results", lambda t: t.drop_columns(["call_key"])),
            ["'call_key'"],
        ),
    ],
)
def test_a_tampered_file_changes_nothing(
    spoiled: Callable[[Members], Members], words: list[str], members: Members, tmp_path: Path
) -> None:
    file, store = packed(spoiled(members), tmp_path / "spoiled.zip"), tmp_path / "fresh"
    assert_one_sentence(call("import", str(file), "--store", str(store)), "spoiled.zip", *words)
    assert not store.exists()


def test_an_archive_of_an_older_version_is_imported_and_vouched_for(
    members: Members, tmp_path: Path
) -> None:
    store = str(tmp_path / "other")
    lacked = ["extra", "checksum", "reasoning_tokens"]
    lesser = with_table(members, "results", lambda table: table.drop_columns(lacked))
    versions = {**json.loads(members["archive.json"])["versions"], "ledger": 4}
    older = packed(sealed(lesser, {"versions": versions}), tmp_path / "older.zip")
    taken = call("import", str(older), "--adopt", "--store", store, "--json")
    assert json.loads(taken.out)["new_answers"] == 15
    verified = call("ledger", "verify", "--store", store)
    assert (verified.code, verified.err) == (0, "")
    resumed = call(*MEASURE, "--store", store)
    assert json.loads(resumed.out)["calls"]["reference-short"]["sent"] == 0


ELSEWHERE = (
    "name: elsewhere\ncorpus: {kind: reference, task: lookup, documents: 60, max_tokens: 200}\n"
    "tokenizer: reference\nbins: {count: 2}\nmodels: [reference-short]\n"
    "sampling: {samples_per_bin: 2, pilot_per_bin: 1}\n"
)
"""A study that is not shipped; with another corpus seed it measures something else."""
OTHERWISE = ELSEWHERE.replace("documents: 60", "documents: 60, seed: 9")


@pytest.fixture(scope="module")
def sent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The archive of a colleague's own study."""

    def make(folder: Path) -> None:
        (folder / "elsewhere.yaml").write_text(ELSEWHERE)
        there = ("--store", str(folder / "store"))
        assert call("profile", str(folder / "elsewhere.yaml"), *there).code == 0
        assert call("export", "elsewhere", str(folder / "sent.zip"), *there).code == 0

    return copy_of_made(tmp_path_factory, "sent", make) / "sent.zip"


def test_an_import_that_ones_own_study_would_hide_is_refused(sent: Path, tmp_path: Path) -> None:
    store, env = tmp_path / "store", {"CONTEXTCLIFF_STUDIES": str(tmp_path)}
    path = tmp_path / "mine.yaml"
    path.write_text(OTHERWISE)
    taken = ("import", str(sent), "--store", str(store))
    assert_one_sentence(call(*taken, env=env), "sent.zip", str(path), "'elsewhere'", "rename")
    assert not store.exists()
    path.write_text(ELSEWHERE)
    same = call(*taken, env=env)
    assert (same.code, same.err) == (0, "")


def test_an_imported_study_that_is_hidden_later_is_named(sent: Path, tmp_path: Path) -> None:
    store, env = tmp_path / "store", {"CONTEXTCLIFF_STUDIES": str(tmp_path)}
    assert call("import", str(sent), "--store", str(store)).code == 0
    report = ("report", "elsewhere", "--store", str(store))
    assert call(*report).err == ""
    (tmp_path / "mine.yaml").write_text(OTHERWISE)
    kept = store / "_studies" / "elsewhere.yaml"
    output = call(*report, env=env).err.splitlines()[0]
    assert output.startswith(f"Note: study 'elsewhere' is {tmp_path / 'mine.yaml'}, not {kept} ")


def test_an_archive_takes_no_name_of_a_shipped_study(tmp_path: Path) -> None:
    made, taken = ("--store", str(tmp_path / "made")), tmp_path / "taken"
    (tmp_path / "quick.yaml").write_text(ELSEWHERE.replace("name: elsewhere", "name: quick"))
    file = str(tmp_path / "x.zip")
    assert call("profile", str(tmp_path / "quick.yaml"), *made).code == 0
    assert call("export", "quick", file, *made).code == 0
    into = ("import", file, "--store", str(taken))
    assert_one_sentence(call(*into), "x.zip", "'quick'", "--name")
    assert_one_sentence(call(*into, "--name", "../quick"), "name")
    assert not taken.exists()
    renamed = call(*into, "--name", "theirs", "--adopt")
    assert (renamed.code, renamed.err) == (0, "")
    there = ("--store", str(taken))
    assert results(call("report", "theirs", "--json", *there))[0]["study"] == "theirs"
    listed = json.loads(call("studies", "--json", *there).out)
    assert {one["bins"]["count"] for one in listed if one["name"] == "quick"} == {5}
    profiled = json.loads(call("profile", "theirs", "--json", *there).out)
    assert profiled["calls"]["reference-short"]["sent"] == 0
    again = ("export", "theirs", str(tmp_path / "again.zip"), *there)
    assert call(*again).code == 0


def test_an_imported_study_that_takes_the_place_of_another_says_so(
    sent: Path, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    taken = ("import", str(sent), "--store", str(store))
    assert call(*taken).err == ""
    assert call(*taken).err == ""
    (store / "_studies" / "elsewhere.yaml").write_text(
        ELSEWHERE + "prompt: {max_output_tokens: 9}\n"
    )
    assert call(*taken).err.startswith("Note: study 'elsewhere' differs from the imported one")


@pytest.mark.parametrize("data", [b"", b"not a zip", b"PK\x03\x04 half"])
def test_a_file_that_is_no_archive(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "x.zip"
    path.write_bytes(data)
    assert_one_sentence(call("import", str(path)), "x.zip", "not an archive")


def test_another_sample_of_the_same_name_is_not_mixed_in(measured: Path, tmp_path: Path) -> None:
    file, other = tmp_path / "study.zip", tmp_path / "other"
    call("export", "quick", str(file), "--store", str(measured))
    (tmp_path / "quick.yaml").write_text(
        "name: quick\ncorpus: {kind: reference, task: lookup, documents: 200, seed: 9}\n"
        "tokenizer: reference\nbins: {count: 5}\nmodels: [reference-short]\n"
    )
    prepared = call("prepare", str(tmp_path / "quick.yaml"), "--store", str(other))
    assert prepared.code == 0, prepared.err
    assert_one_sentence(
        call("import", str(file), "--store", str(other)), "another sample", "--store"
    )


def test_a_folder_is_no_file_to_write_to(measured: Path, tmp_path: Path) -> None:
    ended = call("export", "quick", str(tmp_path), "--store", str(measured))
    assert_one_sentence(ended, str(tmp_path), "is a folder", "choose a file")
    assert "CONTEXTCLIFF_HOME" not in ended.err
