"""A command that takes long shows so: soon, on stderr alone, and out of the way of its words."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO

import pytest

from contextcliff_dagster.cli import shell as life
from contextcliff_dagster.cli.display.output import ProgressBar
from contextcliff_dagster.cli.shell import note_state, sign_of_life
from contextcliff_dagster.step_progress import report_step
from contextcliff_dagster_tests.support.terminal import COMMAND, call


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONTEXTCLIFF_PROGRESS", "0.01")
    monkeypatch.setattr(life, "_FIRST_S", 0.01)
    monkeypatch.setattr(life, "_TICK_S", 0.01)


class Screen:
    """What arrives at the other end of stdout and stderr."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def until(self, text: str) -> str:
        shown = ""
        while text not in shown:
            ready, _, _ = select.select([self._descriptor], [], [], 120)
            assert ready, f"{text!r} is not in {shown!r}"
            shown += os.read(self._descriptor, 4096).decode()
        return shown

    def rest(self) -> str:
        shown = ""
        while select.select([self._descriptor], [], [], 0)[0]:
            shown += os.read(self._descriptor, 4096).decode()
        return shown


@contextmanager
def on(descriptors: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> Iterator[Screen]:
    """Let stdout and stderr go to the second of ``descriptors``."""
    ours, theirs = descriptors
    streams: list[IO[str]] = [os.fdopen(os.dup(theirs), "w", buffering=1) for _ in range(2)]
    try:
        with monkeypatch.context() as patch:
            for name, stream in zip(("stdout", "stderr"), streams, strict=True):
                patch.setattr(sys, name, stream)
            yield Screen(ours)
    finally:
        for stream in streams:
            stream.close()
        os.close(theirs)
        os.close(ours)


def test_off_a_terminal_lines_say_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    with on(os.pipe(), monkeypatch) as screen:
        with sign_of_life(["profile"]):
            assert re.match(r"Progress: \d+:\d\d min, reading the study\n", screen.until("\n"))
            report_step("reading the documents")
            report_step("reading files", 3, 30)
            screen.until("min, reading files: 3 of 30\n")
            report_step("reading files", 30, 30)
            screen.until("min, reading the documents\n")
            with ProgressBar() as bar:
                bar.show("my-model", 40, 100, "calls · $0.12 · 3:20 min left")
                screen.until("min, my-model: 40 of 100 calls · $0.12 · 3:20 min left\n")
        screen.rest()
        report_step("reading files", 4, 30)
        note_state("nobody listens")
        assert screen.rest() == ""


def test_off_a_terminal_nothing_is_said_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONTEXTCLIFF_PROGRESS", "1e6")
    with on(os.pipe(), monkeypatch) as screen:
        with sign_of_life(["profile"]):
            report_step("reading files", 3, 30)
        assert screen.rest() == ""


def test_on_a_terminal_the_line_gives_way_to_words_and_questions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with on(pty.openpty(), monkeypatch) as screen:
        with sign_of_life(["profile"]):
            report_step("reading files", 15, 30)
            bar = "#" * 12 + "." * 12
            assert "\n" not in screen.until(f"reading files: [{bar}] 15 of 30")
            print("A note.")
            assert "\x1b[KA note.\r\n" in screen.until("A note.\r\n")
            screen.until("reading files")  # and comes back
            print("Go on? ", end="", flush=True, file=sys.stderr)
            assert screen.until("Go on? ").endswith("\r\x1b[KGo on? ")
            assert not select.select([screen._descriptor], [], [], 0.2)[0], "over a question"
            print("Yes.", file=sys.stderr)
            screen.until("reading files")
        print("The end.")
        assert screen.until("The end.\r\n").endswith("\r\x1b[KThe end.\r\n")


def test_a_bar_has_the_terminal_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    with on(pty.openpty(), monkeypatch) as screen, sign_of_life(["profile"]):
        screen.until("reading the study")
        with ProgressBar() as bar:
            screen.until("reading the study")  # nothing is asked yet
            bar.show("my-model", 1, 2, "calls")
            screen.until("my-model")
            screen.rest()
            print("A note.", file=sys.stderr)
            assert "min, " not in screen.until("A note.")
            assert "min, " not in screen.until("my-model")
            report_step("scoring the answers")
            assert "min, scoring the answers" in screen.until("scoring the answers")
            bar.show("other", 0, 7, "calls")
            assert "my-model" not in screen.until("0/7")


def test_a_server_has_no_line_once_it_has_said_where_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with on(pty.openpty(), monkeypatch) as screen, sign_of_life(["serve", "a-model"]):
        screen.until("working")
        print("http://127.0.0.1:8000")
        screen.until(":8000")
        assert not select.select([screen._descriptor], [], [], 0.2)[0] or not screen.rest().strip()
        assert not select.select([screen._descriptor], [], [], 0.2)[0]


@pytest.mark.parametrize("args", [["profile", "-h"], ["profile", "--verbose"]])
def test_help_and_dagsters_log_have_no_line(
    args: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with on(os.pipe(), monkeypatch) as screen:
        with sign_of_life(args):
            assert not select.select([screen._descriptor], [], [], 0.1)[0]
        monkeypatch.setenv("CONTEXTCLIFF_PROGRESS", "off")
        with sign_of_life(["profile"]):
            assert not select.select([screen._descriptor], [], [], 0.1)[0]


def test_without_a_stderr_the_command_goes_on() -> None:
    assert call("studies").code == 0  # in memory: no descriptor
    ended = subprocess.run([*COMMAND, "studies", "2>&-"], capture_output=True, check=False)
    assert ended.returncode == 2
    closed = subprocess.run(
        ["sh", "-c", 'exec "$@" 2>&-', "sh", *COMMAND, "studies"], capture_output=True, check=False
    )
    assert closed.returncode == 0, closed


IMPORTS_SHOWN = """
import os, runpy, sys
terminal = os.dup(2)
class Watch:
    def find_spec(name, *_):
        if name in {"contextcliff_dagster.cli.app", "dagster"}:
            os.write(terminal, f"<{name}>".encode())
sys.meta_path.insert(0, Watch)
runpy.run_module("contextcliff_dagster.cli", run_name="__main__", alter_sys=True)
"""
FEW = ("--samples-per-bin", "2", "--model", "reference-short")
APP = "<contextcliff_dagster.cli.app>"
STEPS = [
    "reading the study", APP, "starting Dagster", "<dagster>", "reading the documents",
    "counting tokens of the documents", "drawing the sample", "loading reference-short",
    "asking reference-short", "0/10", "10/10", "scoring the answers", "analysing the scores",
    "writing the report",
]  # fmt: skip


@pytest.mark.parametrize(
    ("args", "code", "steps"),
    [
        (("profile", "quick", *FEW, "--json"), 0, STEPS),
        (("--data", "nowhere.jsonl", "--model", "m"), 2, ["reading the study", APP]),
        (("report", "quick"), 2, ["reading the study", APP]),
        (("answers", "quick"), 2, ["reading the study", APP]),
    ],
    ids=["profile", "options alone", "report", "answers"],
)
def test_on_a_terminal_each_step_is_named_before_it_imports_anything(
    args: tuple[str, ...], code: int, steps: list[str]
) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", IMPORTS_SHOWN, *args],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=theirs, text=True,
        env={**os.environ, "CONTEXTCLIFF_PROGRESS": "60", "TERM": "xterm", "COLUMNS": "100"},
    )  # fmt: skip
    os.close(theirs)
    err = b""
    with suppress(OSError):  # the terminal is closed
        while part := os.read(ours, 4096):
            err += part
    os.close(ours)
    out, _ = process.communicate()
    screen = err.decode()
    assert process.returncode == code, screen
    at = [screen.find(step) for step in steps]
    assert -1 not in at, (steps, screen)
    assert at == sorted(at), screen
    assert "working" not in screen
    if code == 0:
        json.loads(out)  # nothing else is on stdout
