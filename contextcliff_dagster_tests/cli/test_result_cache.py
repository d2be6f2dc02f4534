"""What is current is printed at once; what is gone or changed is made again, without a call."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from contextcliff_dagster_tests.support.measured_stores import copy_of_made
from contextcliff_dagster_tests.support.terminal import call

PROFILE = ("profile", "quick", "--samples-per-bin", "3", "--model", "reference-short")
FOLDERS = ("profiles", "report", "eval_records", "predictions")


@pytest.fixture
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A store with a finished study, and what the command said."""

    def make(folder: Path) -> None:
        ended = call(*PROFILE, "--store", str(folder))
        assert ended.code == 0, ended.err
        (folder / "said").write_text(ended.out.replace(str(folder), "{store}"))

    store = copy_of_made(tmp_path_factory, "finished", make)
    return store, (store / "said").read_text().replace("{store}", str(store))


def files(store: Path) -> set[str]:
    return {
        str(path.relative_to(store))
        for name in FOLDERS
        for path in (store / "quick" / name).rglob("*")
        if path.is_file() and not path.name.startswith(".")
    }


def test_a_second_run_prints_the_same_and_does_not_even_import_dagster(
    finished: tuple[Path, str],
) -> None:
    store, said = finished
    arguments = [*PROFILE, "--store", str(store)]
    code = (
        "import sys; from contextcliff_dagster.cli import main; "
        f"code = main({arguments!r}); sys.exit(code or 3 * ('dagster' in sys.modules))"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    changed = [line for line in ended.stdout.splitlines() if line not in said.splitlines()]
    assert changed == ["Nothing new to measure: all 15 calls are in the ledger."]


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
