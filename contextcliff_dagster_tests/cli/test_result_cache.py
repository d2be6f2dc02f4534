"""What is current is printed at once; what is gone or changed is made again, without a call."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from contextcliff_dagster.cli import result_cache
from contextcliff_dagster.contracts import StudyError
from contextcliff_dagster_tests.support.measured_stores import copy_of_made
from contextcliff_dagster_tests.support.terminal import call

PROFILE = ("profile", "quick", "--samples-per-bin", "3", "--model", "reference-short")
FOLDERS = ("profiles", "report", "eval_records", "predictions")


@pytest.fixture(autouse=True)
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stands for the package's files, which somebody may edit while tests run."""
    monkeypatch.setattr(result_cache, "PACKAGE", tmp_path / "package")
    (tmp_path / "package").mkdir()
    return tmp_path / "package"


@pytest.fixture
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A store with a finished study, and what the command said."""

    def make(folder: Path) -> None:
        ended = call(*PROFILE, "--store", str(folder))
        assert ended.code == 0, ended.err
        (folder / "said").write_text(ended.out.replace(str(folder), "{store}"))

    store = copy_of_made(tmp_path_factory, "finished", make)
    return store, (store / "said").read_text().replace("{store}", str(store))


REPORT = ("report", "quick", "--model", "reference-short")


@pytest.fixture
def reported(tmp_path_factory: pytest.TempPathFactory, finished: tuple[Path, str]) -> Path:
    """A store with a study whose report was made again, by which its sample has fewer than asked
    for, and what the command said in the file `said`."""

    def make(folder: Path) -> None:
        shutil.copytree(finished[0], folder, dirs_exist_ok=True, symlinks=True)
        ended = call(*REPORT, "--store", str(folder))
        assert ended.code == 0, ended.err
        (folder / "said").write_text(ended.out.replace(str(folder), "{store}"))

    return copy_of_made(tmp_path_factory, "reported", make)


def files(store: Path) -> set[str]:
    return {
        str(path.relative_to(store))
        for name in FOLDERS
        for path in (store / "quick" / name).rglob("*")
        if path.is_file() and not path.name.startswith(".")
    }


HEAVY = "dagster", "matplotlib", "scipy"


def lightly(package: Path, *args: str) -> list[str]:
    """The lines that a command prints in a process that imports nothing of `HEAVY`."""
    code = (
        "import sys; from contextcliff_dagster.cli import main, result_cache; "
        f"from pathlib import *; result_cache.PACKAGE = {package!r}; "
        f"code = main({[*args]!r}); heavy = {{*{HEAVY}}} & {{*sys.modules}}; "
        "print(heavy, file=sys.stderr); sys.exit(code or 3 * bool(heavy))"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.splitlines()


def test_a_second_run_prints_the_same_and_does_not_even_import_dagster(
    finished: tuple[Path, str], package: Path
) -> None:
    store, said = finished
    printed = lightly(package, *PROFILE, "--store", str(store))
    changed = [line for line in printed if line not in said.splitlines()]
    assert changed == ["Nothing new to measure: all 15 calls are in the ledger."]


def test_a_report_that_would_be_the_same_and_answers_are_printed_without_dagster(
    reported: Path, package: Path
) -> None:
    at = ("--store", str(reported))
    said = (reported / "said").read_text().replace("{store}", str(reported))
    assert lightly(package, *REPORT, *at) == said.splitlines()
    assert lightly(package, "answers", "quick", *at)[-1].startswith("Study quick, campaign ")


def _gone(store: Path) -> None:
    for name in FOLDERS:
        shutil.rmtree(store / "quick" / name)


def _one_gone(store: Path) -> None:
    next((store / "quick" / "eval_records").rglob("*.parquet")).unlink()


def _spoiled(store: Path) -> None:
    path = next((store / "quick" / "profiles").rglob("cliffs.json"))
    path.write_text("{}")


def _note_spoiled(store: Path) -> None:
    next((store / "quick" / "report").rglob(".made_from.json")).write_text("[1]")


@pytest.mark.parametrize("spoil", [_gone, _one_gone, _spoiled, _note_spoiled])
def test_what_is_gone_or_changed_is_rebuilt_without_a_call(
    spoil: Callable[[Path], None], finished: tuple[Path, str]
) -> None:
    store, _ = finished
    before = files(store)
    spoil(store)
    ended = call(*PROFILE, "--store", str(store), "--json")
    assert ended.code == 0, ended.err
    result = json.loads(ended.out)
    assert result["calls"]["reference-short"]["sent"] == 0
    assert result["cliffs"][0]["n"] == 15
    assert files(store) == before


def test_another_question_is_another_answer(finished: tuple[Path, str]) -> None:
    store, _ = finished
    ended = call(
        *PROFILE[:2], "--samples-per-bin", "4", *PROFILE[4:], "--store", str(store), "--json"
    )
    calls = json.loads(ended.out)["calls"]["reference-short"]
    assert (calls["cached"], calls["sent"]) == (15, 5)


def test_other_weights_under_the_same_name_are_noticed(
    finished: tuple[Path, str], tmp_path: Path
) -> None:
    from contextcliff_dagster.reference.card import weights_path

    store, _ = finished
    (tmp_path / "models.yaml").write_text(
        "models:\n  reference-short:\n    engine: reference\n    tokenizer: reference\n"
        f"    window_tokens: 8192\n    weights: {weights_path('reference-long')}\n"
    )
    env = {"CONTEXTCLIFF_MODELS": str(tmp_path / "models.yaml")}
    ended = call(*PROFILE, "--store", str(store), env=env)
    assert ended.code == 2
    assert "has changed since" in ended.err
    assert "campaign new quick" in ended.err


def test_answers_are_in_the_page_after_each_run_that_asks_for_them(
    finished: tuple[Path, str],
) -> None:
    store, _ = finished
    for asked in (True, False):
        ended = call(*PROFILE, *(["--with-answers"] if asked else []), "--store", str(store))
        assert ended.code == 0, ended.err
        (page,) = (store / "quick" / "report").glob("2*/report.html")
        assert f"Report:  {page}" in ended.out
        assert ('"question":' in page.read_text(encoding="utf-8")) is asked
    shown = call("report", "quick", "--with-answers", "--store", str(store))
    assert shown.code == 0, shown.err
    assert '"question":' in page.read_text(encoding="utf-8")


def is_made_again(store: Path, *more: str) -> bool:
    """Whether `report` would make the report again; it is not made."""
    from contextcliff_dagster.run import study

    with mock.patch.object(study, "rebuild_report", side_effect=StudyError("It is made again.")):
        ended = call(*REPORT, *more, "--store", str(store))
    assert ended.code == 0 or "It is made again." in ended.err, ended.err
    return ended.code != 0


def _of(store: Path, name: str) -> Path:
    (path,) = (store / "quick" / "report").glob(f"2*/{name}")
    return path


def _note(text: str) -> Callable[[Path], None]:
    def change(store: Path) -> None:
        _of(store, ".made_from.json").write_text(text)

    return change


def _profile_damaged_unseen(store: Path) -> None:
    path = next((store / "quick" / "profiles").rglob("cliffs.json"))
    stat = path.stat()
    path.write_bytes(b"{" * stat.st_size)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def _latest_elsewhere(store: Path) -> None:
    latest = store / "quick" / "report" / "latest"
    latest.unlink()
    latest.symlink_to("2020-01-01", target_is_directory=True)


def _in_the_ledger(statement: str) -> Callable[[Path], None]:
    def change(store: Path) -> None:
        with sqlite3.connect(store / "state.db") as db:
            db.execute(statement)
        db.close()

    return change


ONE = "(SELECT call_key FROM results LIMIT 1)"
CALL_IN_FLIGHT = "INSERT INTO claims SELECT call_key, 'other', '' FROM results LIMIT 1"


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(_in_the_ledger("UPDATE results SET origin = 'elsewhere'"), id="origin"),
        pytest.param(lambda store: _of(store, "report.html").unlink(), id="page deleted"),
        pytest.param(lambda store: _of(store, "report.md").write_text(""), id="page emptied"),
        pytest.param(_one_gone, id="records deleted"),
        pytest.param(_profile_damaged_unseen, id="profile damaged"),
        pytest.param(_latest_elsewhere, id="latest names another"),
        pytest.param(_in_the_ledger(f"DELETE FROM results WHERE call_key IN {ONE}"), id="lost"),
        pytest.param(_in_the_ledger(CALL_IN_FLIGHT), id="call in flight"),
        pytest.param(
            lambda store: (store / "quick" / "baseline.json").write_text("{}"),
            id="baseline, whose alert may be due",
        ),
        *(
            pytest.param(_note(text), id=f"note {text!r}")
            for text in ("", "[1]", "{}", '{"planned": 1, "counts": {}, "made_from": null}')
        ),
    ],
)
def test_a_report_is_made_again_once_its_sources_or_itself_have_changed(
    change: Callable[[Path], Any], reported: Path
) -> None:
    assert not is_made_again(reported)
    change(reported)
    assert is_made_again(reported)


def test_a_report_is_made_again_by_other_code_models_or_options(
    reported: Path, package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert is_made_again(reported, "--with-answers")
    assert is_made_again(reported, "--tolerance", ".2")
    with monkeypatch.context() as patch:
        (tmp_path / "models.yaml").write_text(
            "models: {other: {engine: openai, model_id: m, base_url: 'http://localhost:1/v1'}}"
        )
        patch.setenv("CONTEXTCLIFF_MODELS", str(tmp_path / "models.yaml"))
        assert is_made_again(reported)
    assert not is_made_again(reported)
    (package / "analysis.py").write_text("1")
    assert is_made_again(reported)


def test_code_of_another_version_may_be_older_and_as_long(reported: Path, package: Path) -> None:
    file = package / "analysis.py"
    file.write_text("1")
    assert call(*REPORT, "--store", str(reported)).code == 0
    assert not is_made_again(reported)
    os.utime(file, (1, 1))
    assert is_made_again(reported)


def test_a_note_of_a_report_is_no_note_of_a_complete_run(reported: Path) -> None:
    ended = call(*PROFILE[:2], *PROFILE[4:], "--store", str(reported), "--json")
    assert json.loads(ended.out)["calls"]["reference-short"]["sent"] == 35
