"""`profile --pilot N --until W%`: rounds with their reasons, and a report of what they measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from contextcliff_dagster.experiments.common.study_run import open_ledger
from contextcliff_dagster.store import Store
from contextcliff_dagster_tests.support.terminal import assert_one_sentence, call, served

STUDY = ("profile", "quick", "--model", "reference-short")


def test_each_round_says_why_and_the_end_says_what_is_known() -> None:
    ended = call(*STUDY, "--pilot", "3", "--until", "8%", "--round", "10", "--json")
    assert ended.code == 0, ended.err
    said = [line for line in ended.err.splitlines() if line.startswith("reference-short: ")]
    assert said[0].startswith("reference-short: Pilot: ")
    assert "a drop of 26% is reached between" in said[-1]
    assert "Done after" in said[-1] or "is asked" in said[-1]
    result = json.loads(ended.out)
    total = result["calls"]["reference-short"]["answered"]
    assert result["cliffs"][0]["n"] == total
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
    assert_one_sentence(
        call(*STUDY, "--sentinel", "--pilot", "3"), "--sentinel measures at the cap"
    )


PRICED = """\
models:
  priced:
    engine: openai
    model_id: reference-short
    base_url: {url}
    price: {{input_usd_per_mtok: 1000, output_usd_per_mtok: 1000}}
"""
SHORT = """\
name: short
corpus: {kind: reference, task: lookup, documents: 200, max_tokens: 900}
tokenizer: reference
bins: {count: 5}
sampling: {samples_per_bin: 10}
prompt: {max_output_tokens: 12}
models: [priced]
analysis: {resamples: 100}
"""
ROUNDS = (
    *("--samples-per-bin", "10", "--pilot", "3", "--until", "1%", "--round", "8"),
    *("--json", "--yes"),
)


def money_of(store: Store) -> tuple[float, int, int]:
    """USD charged to the campaign, requests that were sent, and answers that are kept."""
    with open_ledger(store) as ledger:
        ((usd, sent, still_open),) = ledger.read(
            "SELECT sum(charged_usd), count(*), count(*) - count(ended_at) FROM attempts"
        )
        ((running,),) = ledger.read("SELECT usd FROM spend")
        ((kept,),) = ledger.read("SELECT count(*) FROM results")
    assert still_open == 0
    assert running == pytest.approx(usd)
    return usd, sent, kept


def test_rounds_end_at_the_paid_budget_and_keep_what_it_bought(
    tmp_path: Path, contextcliff_home: Path
) -> None:
    store = Store(contextcliff_home)
    with served("reference-short") as url:
        (tmp_path / "models.yaml").write_text(PRICED.format(url=url))
        (tmp_path / "short.yaml").write_text(SHORT)
        profile = ("profile", str(tmp_path / "short.yaml"), *ROUNDS)
        env = {"CONTEXTCLIFF_MODELS": str(tmp_path / "models.yaml")}
        few = call(*profile, "--budget", "1", env=env)
        # Not even the pilot: a sentence instead of a report of a few answers.
        assert (few.code, few.out) == (2, "")
        assert "budget of $1.0000 has no room" in few.sentences[-1]
        assert "everything measured is kept" in few.sentences[-1]
        spent, sent, kept = money_of(store)
        assert 0 < spent <= 1
        assert 0 < sent == kept < 15

        ended = call(*profile, "--budget", "7", env=env)
        assert ended.code == 0, ended.err
        rounds = [line for line in ended.err.splitlines() if line.startswith("priced: Round ")]
        assert rounds
        (early,) = [line for line in ended.err.splitlines() if "ended early" in line]
        assert "budget of $7.0000 has no room" in early
        spent, sent, kept = money_of(store)
        assert 4 < spent <= 7
        assert 15 < sent == kept < 50  # more than the pilot, less than all; nothing paid twice
        result = json.loads(ended.out)
        assert result["cliffs"][0]["n"] == kept
        assert result["calls"]["priced"]["cost_usd"] <= 7

        # A larger budget goes on where the smaller one ended, and is kept to as well.
        more = call(*profile, "--budget", "8", env=env)
        assert more.code == 0, more.err
        usd, requests, answers = money_of(store)
        assert spent < usd <= 8
        assert requests == answers > kept
