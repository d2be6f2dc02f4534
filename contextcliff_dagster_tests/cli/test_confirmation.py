"""Nobody spends money without having been asked."""

from __future__ import annotations

import os
import pty
import subprocess
from pathlib import Path

import pytest

from contextcliff_dagster_tests.cli.terminal import COMMAND, assert_one_sentence, call, run, served

TWO = ("profile", "quick", "--samples-per-bin", "2", "--model", "priced")


@pytest.fixture
def priced(tmp_path: Path) -> dict[str, str]:
    """A user whose models.yaml prices a model nobody serves: asking must come before calling."""
    return priced_at(tmp_path, "http://127.0.0.1:9/v1")


def priced_at(folder: Path, url: str) -> dict[str, str]:
    path = folder / "models.yaml"
    path.write_text(
        "models:\n  priced:\n    engine: openai\n    model_id: reference-short\n"
        f"    base_url: {url}\n"
        "    price: {input_usd_per_mtok: 5000, output_usd_per_mtok: 5000}\n"
    )
    return {"CONTEXTCLIFF_MODELS": str(path)}


def test_without_a_terminal_it_refuses_and_names_the_flag(priced: dict[str, str]) -> None:
    assert_one_sentence(run(*TWO, env=priced), "--yes", "--budget", "$")


def test_yes_goes_on_to_the_endpoint(priced: dict[str, str]) -> None:
    assert_one_sentence(call(*TWO, "--yes", env=priced), "127.0.0.1:9")


def test_on_a_terminal_it_asks_and_no_means_no(priced: dict[str, str]) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, *TWO],
        stdin=theirs,
        stderr=theirs,
        stdout=subprocess.DEVNULL,
        env={**os.environ, **priced},
    )
    os.close(theirs)
    os.write(ours, b"n\n")
    said = b""
    while process.poll() is None or said.count(b"contextcliff:") == 0:
        try:
            said += os.read(ours, 4096)
        except OSError:
            break
    assert process.wait(60) == 2
    assert b"Go on? [y/N]" in said
    assert b"nothing was sent" in said


def test_a_budget_stops_before_it_is_exceeded_and_keeps_what_it_bought(tmp_path: Path) -> None:
    with served("reference-short") as url:
        env = priced_at(tmp_path, url)
        ended = call(*TWO, "--budget", "3", "--yes", env=env)
    assert_one_sentence(ended, "budget", "$3", "kept")
    listed = call("campaign", "list", "quick", "--json", env=env)
    assert '"answered": 0' not in listed.out
