"""Measuring over HTTP from the command line: rivals, and the plan's own line."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from contextcliff_dagster_tests.support.terminal import (
    Ended,
    assert_one_sentence,
    call,
    run,
    served,
    start,
)

QUICK = ("quick", "--samples-per-bin", "4")
PLANNED = 20  # five bins of four


def models_yaml(
    folder: Path, url: str, name: str = "served", model_id: str = "reference-short"
) -> dict[str, str]:
    """The environment of a user whose models.yaml points ``name`` at a server."""
    path = folder / "models.yaml"
    path.write_text(
        f"models:\n  {name}:\n    engine: openai\n    model_id: {model_id}\n    base_url: {url}\n"
        "    concurrency: 2\n"
    )
    return {"CONTEXTCLIFF_MODELS": str(path)}


def received(log: Path) -> Counter[str]:
    """How often each prompt has reached the server."""
    lines = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    return Counter(line["prompt_hash"] for line in lines if line["event"] == "received")


def calls(ended: Ended, model: str = "served") -> dict[str, int]:
    """What the command says it did."""
    assert ended.code == 0, ended.err
    result = json.loads(ended.out)["calls"][model]
    assert isinstance(result, dict)
    return result


def test_two_at_once_both_finish_and_pay_no_call_twice(tmp_path: Path) -> None:
    log = tmp_path / "requests.jsonl"
    with served("reference-short", "--request-log", str(log), "--delay-ms", "60") as url:
        env = models_yaml(tmp_path, url)
        command = ("profile", *QUICK, "--model", "served", "--json")
        both = [start(*command, env=env) for _ in range(2)]
        said = [process.communicate(timeout=240) for process in both]
        ended = [Ended(p.returncode, *texts) for p, texts in zip(both, said, strict=True)]
    first, second = (calls(e) for e in ended)
    assert received(log).total() == len(received(log)) == PLANNED
    assert first["sent"] + second["sent"] == PLANNED
    assert json.loads(ended[0].out)["cliffs"][0]["n"] == PLANNED


def test_the_plans_own_line_in_small(tmp_path: Path) -> None:
    with served("reference-long") as url:
        env = models_yaml(tmp_path, url, "Qwen2.5-7B", "reference-long")
        line = "profile --model Qwen2.5-7B --task multi_hop_qa --samples-per-bin 1 --json"
        ended = call(*line.split(), env=env)
    assert calls(ended, "Qwen2.5-7B")["answered"] == 10
    assert json.loads(ended.out)["cliffs"][0]["task"] == "two_hop"


@pytest.mark.timeout(600)
def test_the_plans_own_line_as_written(tmp_path: Path) -> None:
    with served("reference-short") as url:
        env = models_yaml(tmp_path, url, "Qwen2.5-7B", "reference-short")
        line = "profile --model Qwen2.5-7B --task multi_hop_qa"
        ended = run(*line.split(), env=env, timeout=500, fresh=True)
    # Off a terminal a good run writes nothing to stderr.
    assert (ended.code, ended.err) == (0, "")
    assert "FAILURE RISK REPORT" in ended.out
    assert "Qwen2.5-7B" in ended.out


def test_ones_own_file_is_one_option_away(tmp_path: Path) -> None:
    from contextcliff_dagster_tests.support.files import warehouse_files

    path = warehouse_files.write(tmp_path / "own.jsonl", warehouse_files.rows(80))
    line = f"--data {path} --model reference-short --kv_policy none --kv_budget 1.0 --task lookup"
    ended = run(*line.split(), "--samples-per-bin", "3")
    assert ended.code == 0, ended.err
    study = next(word for word in ended.out.split() if "/report/" in word).split("/report/")[0]
    name = Path(study).name
    assert name.startswith("data-own-")
    again = call("report", name)
    assert again.code == 0, again.err
    assert "FAILURE RISK REPORT" in again.out


def test_a_question_before_the_document_is_refused_before_anything_is_asked(
    contextcliff_home: Path, tmp_path: Path
) -> None:
    prompt = tmp_path / "prompt.txt"
    prompt.write_text("{question}\n\n{document}")
    line = "profile quick --model reference-short --kv_policy snapkv --kv_budget 0.5 --prompt"
    ended = call(*line.split(), str(prompt))
    assert_one_sentence(ended, "reference-short+snapkv@0.5", "the question before the document")
    assert not (contextcliff_home / "quick").exists()
