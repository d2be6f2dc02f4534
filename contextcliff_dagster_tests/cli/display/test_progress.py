"""The progress bar says how far it is, what it costs and how long it takes; on terminals only."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from contextcliff_dagster.cli.display.output import duration, money, note
from contextcliff_dagster.inference.telemetry import Progress
from contextcliff_dagster_tests.support.held_calls import Gate
from contextcliff_dagster_tests.support.records.calls import reference_server
from contextcliff_dagster_tests.support.terminal import COMMAND


def progress(**given: Any) -> Progress:
    nothing = dict.fromkeys(Progress.__dataclass_fields__, 0)
    return Progress(**{**nothing, "planned": 100, "done": 40, "seconds_left": None, **given})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "calls · 0 tokens"),
        (
            {"cached": 12, "prompt_tokens": 48_000, "completion_tokens": 100},
            "calls (12 known) · 48,100 tokens",
        ),
        ({"cost_usd": 0.1234, "seconds_left": 200.0}, "calls · 0 tokens · $0.1234 · 3:20 min left"),
        ({"done": 100, "seconds_left": 0.0}, "calls · 0 tokens"),
        ({"retries": 3, "failed": 1}, "calls · 0 tokens · 3 retries · 1 without answer"),
        (
            {"asked_to_wait": "asked to wait 2 of at most 60 times, 9 s now"},
            "calls · 0 tokens · asked to wait 2 of at most 60 times, 9 s now",
        ),
    ],
)
def test_the_note_has_no_part_that_says_nothing(given: dict[str, Any], said: str) -> None:
    assert note(progress(**given)) == said


def test_units() -> None:
    assert [duration(s) for s in (-1, 45, 99.6, 200, 7500)] == [
        *("0 s", "45 s", "1:40 min", "3:20 min", "2:05 h")
    ]
    assert [money(usd) for usd in (0, 0.00012, 3, 1234.5)] == [
        *("$0.00", "$0.0001", "$3.00", "$1,234.50")
    ]


def test_on_a_terminal_the_bar_moves_while_a_step_of_dagster_runs(tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    gate.let(7)
    ours, theirs = pty.openpty()
    screen = b""
    with reference_server(gate=gate) as url:
        entry = {"engine": "openai", "model_id": "reference-short", "base_url": url}
        served = {**entry, "concurrency": 1}
        (tmp_path / "models.yaml").write_text(json.dumps({"models": {"served": served}}))
        models = {"CONTEXTCLIFF_MODELS": str(tmp_path / "models.yaml")}
        process = subprocess.Popen(
            [*COMMAND, "profile", "quick", "--samples-per-bin", "3", "--model", "served"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=theirs,
            env={**os.environ, **models, "TERM": "xterm", "COLUMNS": "100"},
        )
        os.close(theirs)
        while True:
            try:
                screen += os.read(ours, 65536)
            except OSError:  # how a terminal says that the other side has gone
                break
            if b"7/15" in screen:
                gate.open()
        assert process.wait(120) == 0, screen
    seen = {int(done) for done in re.findall(rb"(\d+)/15", screen)}
    assert {7, 15} <= seen
    assert b" left" in screen
