"""One file reproduces a study elsewhere, and says so when it cannot."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from contextcliff_dagster_tests.cli.terminal import Ended, assert_one_sentence, run

MEASURE = ("profile", "quick", "--samples-per-bin", "3", "--model", "reference-short", "--json")


def results(ended: Ended) -> list[dict[str, Any]]:
    """The cliffs that a command printed, without the time they were computed at."""
    assert ended.code == 0, ended.err
    found = json.loads(ended.out)["cliffs"]
    for cliffs in found:
        cliffs.pop("created_at")
        cliffs.pop("provenance")
    return list(found)


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a finished study; tests copy nothing into it."""
    store = tmp_path_factory.mktemp("measured")
    ended = run(*MEASURE, "--store", str(store))
    assert ended.code == 0, ended.err
    return store


def test_what_is_exported_and_imported_reports_the_same_without_a_call(
    measured: Path, tmp_path: Path
) -> None:
    file, other = tmp_path / "study.zip", tmp_path / "other"
    assert run("export", "quick", str(file), "--store", str(measured)).code == 0
    taken = run("import", str(file), "--store", str(other), "--json")
    assert json.loads(taken.out)["new_answers"] == 15
    here = run("report", "quick", "--model", "reference-short", "--json", "--store", str(measured))
    there = run("report", "quick", "--model", "reference-short", "--json", "--store", str(other))
    assert results(there) == results(here)
    resumed = run(*MEASURE, "--store", str(other))
    assert json.loads(resumed.out)["calls"]["reference-short"]["sent"] == 0
    twice = run("import", str(file), "--store", str(other), "--json")
    assert json.loads(twice.out)["new_answers"] == 0
    again = tmp_path / "again.zip"
    assert run("export", "quick", str(again), "--store", str(other)).code == 0
    assert _members(again) == _members(file)


def _members(file: Path) -> dict[str, bytes]:
    """All but the numbers that a ledger gives to its attempts, which are its own."""
    with zipfile.ZipFile(file) as archive:
        return {n: archive.read(n) for n in archive.namelist() if n != "archive.json"}


def test_the_same_store_gives_the_same_bytes(measured: Path, tmp_path: Path) -> None:
    files = [tmp_path / "one.zip", tmp_path / "two.zip"]
    for file in files:
        assert run("export", "quick", str(file), "--store", str(measured)).code == 0
    assert files[0].read_bytes() == files[1].read_bytes()


def _repacked(file: Path, target: Path, changes: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(file) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            new.writestr(name, changes.pop(name, old.read(name)))
        for name, data in changes.items():
            new.writestr(name, data)
    return target


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"study.json": b"{}"}, ["study.json", "tampered"]),
        ({"../../evil": b"x"}, ["evil", "tampered"]),
        ({"/etc/evil": b"x"}, ["evil", "tampered"]),
        ({"archive.json": b"[]"}, ["not an archive"]),
        ({"archive.json": b'{"format": "other"}'}, ["not an archive"]),
        ({"ledger/results.parquet": b"PAR1"}, ["results.parquet", "tampered"]),
    ],
)
def test_a_tampered_file_changes_nothing(
    changes: dict[str, bytes], words: list[str], measured: Path, tmp_path: Path
) -> None:
    file = tmp_path / "study.zip"
    assert run("export", "quick", str(file), "--store", str(measured)).code == 0
    spoiled = _repacked(file, tmp_path / "spoiled.zip", dict(changes))
    store = tmp_path / "fresh"
    assert_one_sentence(run("import", str(spoiled), "--store", str(store)), "spoiled.zip", *words)
    assert not store.exists()
    assert not (tmp_path.parent / "evil").exists()


@pytest.mark.parametrize("data", [b"", b"not a zip", b"PK\x03\x04 half"])
def test_a_file_that_is_no_archive(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "x.zip"
    path.write_bytes(data)
    assert_one_sentence(run("import", str(path)), "x.zip", "not an archive")


def test_a_truncated_archive(measured: Path, tmp_path: Path) -> None:
    file = tmp_path / "study.zip"
    run("export", "quick", str(file), "--store", str(measured))
    file.write_bytes(file.read_bytes()[:-1000])
    assert_one_sentence(run("import", str(file)), "study.zip", "damaged")


def test_another_sample_of_the_same_name_is_not_mixed_in(measured: Path, tmp_path: Path) -> None:
    file, other = tmp_path / "study.zip", tmp_path / "other"
    run("export", "quick", str(file), "--store", str(measured))
    (tmp_path / "quick.yaml").write_text(
        "name: quick\ncorpus: {kind: reference, task: lookup, documents: 200, seed: 9}\n"
        "tokenizer: reference\nbins: {count: 5}\nmodels: [reference-short]\n"
    )
    prepared = run("prepare", str(tmp_path / "quick.yaml"), "--store", str(other))
    assert prepared.code == 0, prepared.err
    assert_one_sentence(
        run("import", str(file), "--store", str(other)), "another sample", "--store"
    )
