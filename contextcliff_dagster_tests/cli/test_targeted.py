"""`profile --pilot N --until W%`: rounds with their reasons, and a report of what they measured."""

from __future__ import annotations

import json

import pytest

from contextcliff_dagster_tests.cli.terminal import assert_one_sentence, call

STUDY = ("profile", "quick", "--model", "reference-short")


def test_each_round_says_why_and_the_end_says_what_is_known() -> None:
    ended = call(*STUDY, "--pilot", "3", "--until", "8%", "--round", "10", "--json")
    assert ended.code == 0, ended.err
    said = [line for line in ended.err.splitlines() if line.startswith("reference-short: ")]
    assert said[0].startswith("reference-short: Pilot: ")
    assert "the loss lies between" in said[-1]
    assert "Done after" in said[-1] or "is asked" in said[-1]
    found = json.loads(ended.out)
    total = found["calls"]["reference-short"]["answered"]
    assert found["cliffs"][0]["n"] == total
    assert f"{total}" in said[-1]

    again = call(*STUDY, "--pilot", "3", "--until", "8%", "--round", "10", "--json")
    assert json.loads(again.out)["calls"] == {}
    assert [line for line in again.err.splitlines() if line.startswith("reference")] == said[-1:]
    # A plain run later asks the rest of what the study samples, and nothing twice.
    whole = json.loads(call(*STUDY, "--json").out)
    assert whole["calls"]["reference-short"]["sent"] < whole["calls"]["reference-short"]["planned"]
    assert whole["cliffs"][0]["n"] >= total


@pytest.mark.parametrize("width", ["0.5%", "30%", "wide", "nan"])
def test_a_width_that_means_nothing_is_refused(width: str) -> None:
    ended = call(*STUDY, "--until", width)
    assert ended.code == 2
    assert_one_sentence(ended, width.rstrip("%"))


def test_a_sentinel_has_no_rounds() -> None:
    assert_one_sentence(call(*STUDY, "--sentinel", "--pilot", "3"), "--sentinel asks at the cap")
