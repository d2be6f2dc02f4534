"""`--dry-run` says what would be measured, and leaves everything as it is."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from contextcliff_dagster_tests.support.files import warehouse_files
from contextcliff_dagster_tests.support.files.folders import library
from contextcliff_dagster_tests.support.measured_stores import FEW_CALLS, copy_of_few
from contextcliff_dagster_tests.support.terminal import assert_one_sentence, call

MODEL = ("--model", "reference-short")


def files(*folders: Path) -> dict[Path, str]:
    """Every file and folder below ``folders`` with a hash of what it holds."""
    return {
        path: hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        for folder in folders
        for path in folder.rglob("*")
    }


def test_in_a_fresh_store_nothing_is_left_behind(
    contextcliff_home: Path, dagster_home: Path, tmp_path: Path
) -> None:
    before = files(contextcliff_home, dagster_home)
    data = tmp_path / "own.jsonl"
    warehouse_files.write(data, warehouse_files.rows(60))
    library(tmp_path / "folder", documents=12)
    folder = ("--data", str(tmp_path / "folder"))
    for args in (("quick",), ("--data", str(data)), folder, ("quick", "--seed", "5")):
        ended = call("profile", *args, *MODEL, "--samples-per-bin", "2", "--dry-run", recorded=True)
        assert (ended.code, ended.sentences) == (0, [])
        assert "To measure: " in ended.out
        assert "is not kept" in ended.out
    assert files(contextcliff_home, dagster_home) == before
    assert "data-own" not in call("studies").out


def test_what_is_frozen_and_measured_stays_and_counts(
    tmp_path_factory: pytest.TempPathFactory, dagster_home: Path
) -> None:
    store = copy_of_few(tmp_path_factory)
    measure = ("profile", "quick", *MODEL, "--store", str(store), "--samples-per-bin")
    kept = [store / "quick" / name for name in ("manifest", "preparation")]
    before = files(*kept, dagster_home)
    same = call(*measure, "3", "--dry-run", "--json", recorded=True)
    assert json.loads(same.out)["estimate"]["calls"] == 0
    assert Path(json.loads(same.out)["manifest"]).is_file()
    more = call(*measure, "4", "--dry-run", "--json", recorded=True)
    result = json.loads(more.out)
    assert (result["estimate"]["calls"], result["estimate"]["cached"]) == (5, FEW_CALLS)
    assert result["manifest"] is None
    assert files(*kept, dagster_home) == before
    # What it said is what then happens.
    prepared = call("prepare", *measure[1:], "4", "--json")
    assert json.loads(prepared.out)["sha256"] == result["sha256"]


def test_a_fault_is_the_same_sentence() -> None:
    ended = call("profile", "quick", *MODEL, "--campaign", "nosuch", "--dry-run")
    assert_one_sentence(ended, "no campaign 'nosuch'")


@pytest.mark.parametrize(("asked", "said"), [("2", False), ("100000", True)])
def test_bins_with_fewer_examples_than_asked_for_are_counted(asked: str, said: bool) -> None:
    ended = call("profile", "quick", *MODEL, "--samples-per-bin", asked, "--dry-run")
    assert ended.code == 0, ended.err
    assert (f"5 of 5 bins have fewer than the {int(asked):,} examples asked for" in ended.out) is (
        said
    )
