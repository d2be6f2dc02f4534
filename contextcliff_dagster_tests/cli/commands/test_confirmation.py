"""Nobody spends money without having been asked."""

from __future__ import annotations

import os
import pty
import subprocess
from pathlib import Path

import pytest

from contextcliff_dagster_tests.support.terminal import COMMAND, assert_one_sentence, call, served

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
    assert_one_sentence(call(*TWO, env=priced), "--yes", "--budget", "$")


def test_yes_goes_on_to_the_endpoint(priced: dict[str, str]) -> None:
    assert_one_sentence(call(*TWO, "--yes", env=priced), "127.0.0.1:9")
    assert "Nothing is measured yet" in call("campaign", "list").out


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
    screen = b""
    while process.poll() is None or screen.count(b"contextcliff:") == 0:
        try:
            screen += os.read(ours, 4096)
        except OSError:
            break
    assert process.wait(120) == 2
    assert b"Go on? [y/N]" in screen
    assert b"nothing was sent" in screen


def test_a_budget_stops_before_it_is_exceeded_and_keeps_what_it_bought(tmp_path: Path) -> None:
    with served("reference-short") as url:
        env = priced_at(tmp_path, url)
        ended = call(*TWO, "--budget", "3", "--yes", env=env)
    assert_one_sentence(ended, "budget", "$3", "kept")
    listed = call("campaign", "list", "quick", "--json", env=env)
    assert '"answered": 0' not in listed.out


ELSEWHERE = "http://192.0.2.1:9/v1"
"""Of a network kept for documentation: nobody is there."""


def unpriced_at(folder: Path, url: str) -> dict[str, str]:
    path = folder / "models.yaml"
    path.write_text(
        "models:\n  mine:\n    engine: openai\n    model_id: reference-short\n"
        f"    base_url: {url}\n    max_attempts: 1\n"
    )
    return {"CONTEXTCLIFF_MODELS": str(path)}


UNPRICED = ("profile", "quick", "--samples-per-bin", "2", "--model", "mine")


def test_a_price_that_nobody_knows_is_not_nothing(tmp_path: Path) -> None:
    env = unpriced_at(tmp_path, ELSEWHERE)
    assert_one_sentence(call(*UNPRICED, env=env), "mine", "price unknown", "--yes", "price")
    # A limit cannot be kept without a price: --yes would not help there.
    limited = call(*UNPRICED, "--budget", "1", env=env)
    assert_one_sentence(limited, "mine", "budget", "no price")


def test_an_unknown_price_is_said_beforehand(tmp_path: Path) -> None:
    env = unpriced_at(tmp_path, ELSEWHERE)
    for args in ((*UNPRICED, "--dry-run"), ("prepare", *UNPRICED[1:])):
        ended = call(*args, env=env)
        assert ended.code == 0, ended.err
        assert "price unknown (mine)" in ended.out


def test_a_server_of_this_machine_and_an_engine_in_process_bill_nobody(tmp_path: Path) -> None:
    for url in ("http://127.0.0.1:9/v1", "http://localhost:9/v1", "http://[::1]:9/v1"):
        ended = call(*UNPRICED, "--dry-run", env=unpriced_at(tmp_path, url))
        assert ended.code == 0, ended.err
        assert "price unknown" not in ended.out
    assert_one_sentence(call(*UNPRICED, env=unpriced_at(tmp_path, "http://127.0.0.1:9/v1")), ":9")
    assert "price unknown" not in call("prepare", "quick").out


def test_on_a_terminal_the_estimate_is_said_even_where_nothing_is_asked() -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, "profile", "quick", "--samples-per-bin", "2", "--model", "reference-short"],
        stdin=subprocess.DEVNULL,
        stderr=theirs,
        stdout=subprocess.DEVNULL,
    )
    os.close(theirs)
    screen = b""
    try:
        while part := os.read(ours, 4096):
            screen += part
    except OSError:
        pass  # the other end is closed
    assert process.wait(120) == 0
    assert b"To measure: 10 calls, about" in screen.splitlines()[0]


def test_a_server_of_this_machine_is_measured_without_being_asked_for(tmp_path: Path) -> None:
    with served("reference-short") as url:
        ended = call(*UNPRICED, env=unpriced_at(tmp_path, url))
    assert (ended.code, ended.err) == (0, "")
