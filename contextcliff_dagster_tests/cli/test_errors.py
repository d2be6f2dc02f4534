"""Whatever goes wrong becomes one sentence and an exit code."""

from __future__ import annotations

import errno
import shutil
import sqlite3
from pathlib import Path

import click
import pytest

from contextcliff_dagster.cli.errors import Interrupted, guarded
from contextcliff_dagster.contracts import AnswersLostError, BudgetError, StoreError
from contextcliff_dagster_tests.support.terminal import call


def outcome(fault: BaseException | None, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    def run() -> None:
        if fault is not None:
            raise fault

    code = guarded(run, debug=False, resume="contextcliff profile quick")
    return code, capsys.readouterr().err


def wrapped(inner: BaseException) -> RuntimeError:
    """As orchestrators do: the fault we know, inside one we do not."""
    try:
        raise RuntimeError("step failed") from inner
    except RuntimeError as outer:
        return outer


def test_nothing_wrong_is_zero(capsys: pytest.CaptureFixture[str]) -> None:
    assert outcome(None, capsys) == (0, "")


@pytest.mark.parametrize("wrap", [lambda f: f, wrapped])
def test_our_errors_are_their_sentence(wrap, capsys: pytest.CaptureFixture[str]) -> None:  # type: ignore[no-untyped-def]
    code, err = outcome(wrap(BudgetError("The budget is used\nup")), capsys)
    assert (code, err) == (2, "contextcliff: The budget is used up.\n")


@pytest.mark.parametrize("wrap", [lambda f: f, wrapped])
def test_lost_answers_are_named_and_have_a_code_of_their_own(  # type: ignore[no-untyped-def]
    wrap, capsys: pytest.CaptureFixture[str]
) -> None:
    code, err = outcome(wrap(AnswersLostError("Two are lost.", ["k1", "k2"])), capsys)
    assert code == 5
    assert err.splitlines()[1:] == [
        f"contextcliff: The answer to call {key} is lost." for key in ("k1", "k2")
    ]


@pytest.mark.parametrize(
    "fault",
    [
        OSError(errno.ENOSPC, "No space left on device", "/s/x.parquet"),
        wrapped(sqlite3.OperationalError("database or disk is full")),
        OSError(errno.EFBIG, "File too large", "/s/x.parquet"),
    ],
)
def test_a_full_disk_is_said_whoever_met_it(
    fault: BaseException, capsys: pytest.CaptureFixture[str]
) -> None:
    code, err = outcome(fault, capsys)
    assert code == 2
    assert "the disk is full" in err
    assert "kept" in err


@pytest.mark.parametrize(
    "fault", [KeyboardInterrupt(), wrapped(KeyboardInterrupt()), click.Abort()]
)
def test_ctrl_c_is_130_and_says_how_to_go_on(
    fault: BaseException, capsys: pytest.CaptureFixture[str]
) -> None:
    code, err = outcome(fault, capsys)
    assert code == 130
    assert "go on with `contextcliff profile quick`" in err


def test_an_interruption_says_what_is_kept(capsys: pytest.CaptureFixture[str]) -> None:
    _, err = outcome(Interrupted("12 calls are measured and kept"), capsys)
    assert err.startswith("Interrupted: 12 calls are measured and kept;")


def test_what_broke_is_said_before_that_it_was_interrupted(
    capsys: pytest.CaptureFixture[str],
) -> None:
    try:
        try:
            raise StoreError("The ledger is gone.")
        except StoreError as inner:
            raise KeyboardInterrupt from inner
    except KeyboardInterrupt as error:
        code, _ = outcome(wrapped(error), capsys)
    assert code == 2


def test_a_fault_of_ours_keeps_a_log_and_shows_no_traceback(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, err = outcome(ZeroDivisionError("division by zero"), capsys)
    assert code == 1
    assert len(err.splitlines()) == 1
    assert "ZeroDivisionError" in err
    log = Path(next(word for word in err.split() if word.endswith((".log;", ".log"))).rstrip(";"))
    assert "Traceback" in log.read_text()
    log.unlink()


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("history/runs.db", b"no database" * 1000),
        ("history/runs/index.db", b"SQLite format 3\0" + bytes(6000)),
    ],
)
def test_a_damaged_database_of_dagster_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, damage: bytes
) -> None:
    home = tmp_path / "dagster"
    monkeypatch.setenv("DAGSTER_HOME", str(home))
    prepare = ("prepare", "quick", "--samples-per-bin", "2", "--store", str(tmp_path / "store"))
    home.joinpath(name).parent.mkdir(parents=True)
    home.joinpath(name).write_bytes(damage)
    ended = call(*prepare, recorded=True)
    assert ended.code == 2
    assert len(ended.sentences) == 1
    assert f"runs in {home} is damaged; move the folders" in ended.err
    shutil.move(home, tmp_path / "away")
    assert call(*prepare, recorded=True).code == 0
