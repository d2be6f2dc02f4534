"""`profile --data` against servers that word and report everything differently (`strange_server`):
the number of the model behind each, or one sentence that says why there is none."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from contextcliff_dagster_tests.support.records.calls import on_a_thread
from contextcliff_dagster_tests.support.servers.strange_server import (
    KINDS,
    LIMIT,
    TOKENIZER,
    StrangeServer,
    questions,
)
from contextcliff_dagster_tests.support.terminal import Ended, run

PLAIN_CAP = 1_316
"""The cap of the model, in tokens, behind a server of which nothing is strange."""


@dataclass
class Measured:
    """How the command ended, with its result, and how many completions each run asked for."""

    ended: Ended
    cliffs: dict[str, Any]
    asked: list[int]

    @property
    def says(self) -> str:
        """All that is shown, on one line."""
        told = [self.ended.out, self.ended.err, *self.cliffs["warnings"]]
        return " ".join(" ".join(told).split())


def profiled(kind: Any, folder: Path, home: Path, *, runs: int = 1, expected: int = 0) -> Measured:
    server, asked = StrangeServer(kind), []
    table = questions(folder / "q.jsonl")
    with on_a_thread(server.handle) as url:
        model = {"engine": "openai", "model_id": "m", "base_url": url, "concurrency": 4}
        model |= {"revision": "r1", "tokenizer": TOKENIZER}
        (folder / "models.yaml").write_text(json.dumps({"models": {"m": model}}))
        for _ in range(runs):
            before = server.asked
            ended = run("profile", "--data", str(table), "--model", "m", "--yes", cwd=folder)
            asked.append(server.asked - before)
            assert ended.code == expected, ended
    found = list(home.rglob("cliffs.json"))
    return Measured(ended, json.loads(found[0].read_bytes()) if found else {"warnings": []}, asked)


def kinds(of: str) -> Any:
    return pytest.mark.parametrize("kind", KINDS[of].values(), ids=KINDS[of].keys())


@kinds("same")
def test_the_number_is_the_models_however_its_server_reports_it(
    kind: Any, tmp_path: Path, contextcliff_home: Path
) -> None:
    measured = profiled(kind, tmp_path, contextcliff_home)
    assert measured.cliffs["safe_cap_tokens"] == PLAIN_CAP
    assert sum(measured.cliffs["missing"].values()) == 0


@kinds("limited")
def test_prompts_that_a_server_does_not_take_did_not_fit(
    kind: Any, tmp_path: Path, contextcliff_home: Path
) -> None:
    measured = profiled(kind, tmp_path, contextcliff_home, runs=2)
    assert measured.cliffs["missing"]["context_overflow"] > 5
    assert (
        sum(measured.cliffs["missing"].values()) == measured.cliffs["missing"]["context_overflow"]
    )
    assert 0 < measured.cliffs["safe_cap_tokens"] < LIMIT
    assert "did not fit" in measured.says
    assert measured.asked[1] <= 1


@kinds("quota")
def test_what_an_account_may_not_send_at_once_is_no_window(
    kind: Any, tmp_path: Path, contextcliff_home: Path
) -> None:
    measured = profiled(kind, tmp_path, contextcliff_home)
    assert measured.cliffs["missing"]["transport_error"] > 5
    assert measured.cliffs["missing"]["context_overflow"] == 0
    assert "exceeds the account's limit of 3,000 tokens a minute" in measured.says


@kinds("filter")
def test_what_a_content_filter_withholds_is_neither_wrong_nor_asked_again(
    kind: Any, tmp_path: Path, contextcliff_home: Path
) -> None:
    measured = profiled(kind, tmp_path, contextcliff_home, runs=2)
    assert measured.cliffs["missing"]["content_filter"] >= 5
    assert "withheld by a content filter" in measured.says
    assert measured.asked[1] == 0


@kinds("instead")
def test_what_stands_in_the_place_of_an_answer_is_wrong_with_its_own_tag(
    kind: Any, tmp_path: Path, contextcliff_home: Path, request: pytest.FixtureRequest
) -> None:
    profiled(kind, tmp_path, contextcliff_home)
    tags = {"refusal": "refusal", "tool_calls": "schema_violation"}
    bins = json.loads(next(contextcliff_home.rglob("metrics.json")).read_bytes())["bins"]
    counted = [one["failures"].get(tags[request.node.callspec.id], 0) for one in bins]
    assert sum(counted) > 5
    assert counted[0] == 0


@kinds("mixed")
def test_more_than_one_server_behind_a_name_is_said(
    kind: Any, tmp_path: Path, contextcliff_home: Path
) -> None:
    measured = profiled(kind, tmp_path, contextcliff_home)
    first, _, _ = measured.ended.out.partition("Safe Cap")
    assert "More than one" in first
    assert "Mean score by length bin" in first


@kinds("ended")
def test_what_was_answered_is_reported_whatever_ended_the_run(
    kind: Any, tmp_path: Path, contextcliff_home: Path
) -> None:
    measured = profiled(kind, tmp_path, contextcliff_home, expected=2)
    assert "Safe Cap" in measured.ended.out
    assert len(measured.ended.sentences) == 1
    assert measured.cliffs["missing"]["transport_error"] <= 8  # those in flight at the end


@kinds("cut")
def test_thoughts_that_the_output_limit_cuts_are_not_bought_to_the_end(
    kind: Any, tmp_path: Path, contextcliff_home: Path
) -> None:
    measured = profiled(kind, tmp_path, contextcliff_home, expected=2)
    assert "max_output_tokens" in measured.says
    assert measured.asked[0] < 15
