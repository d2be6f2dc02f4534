"""What the command line accepts, and how it refuses: one sentence, exit code 2."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import click
import dagster as dg
import pytest

from contextcliff_dagster.cli import main
from contextcliff_dagster.cli.app import app
from contextcliff_dagster.contracts.extensions import extensions
from contextcliff_dagster_tests.support.measured_stores import FEW, copy_of_few
from contextcliff_dagster_tests.support.terminal import COMMAND, assert_one_sentence, call, run


def test_without_arguments_shows_help() -> None:
    assert call().out == call("--help").out


@pytest.mark.parametrize(
    ("line", "words"),
    [
        # The three command lines of the plan that the product grew from, as far as they refuse.
        (
            "prepare --dataset narrativeqa --samples-per-bin 20",
            ["data/corpora/narrativeqa", "published at https://", "--data PATH"],
        ),
        ("prepare --dataset squd", ["Did you mean squad?", "python-source", "l-eval"]),
        ("profile --dataset python-source", ["--dataset python-source needs --model"]),
        ("prepare --dataset reference --data x.jsonl", ["both name the corpus"]),
        ("prepare --questions-per-document 0", ["--questions-per-document"]),
        (
            "--data nowhere.jsonl --model m --kv_policy none --kv_budget 1 --task t",
            ["'m'", "reference-long"],
        ),
        ("--data x.jsonl --model m --kv_policy snapkv --kv_budget 0.2 --task t", ["'m'"]),
        (
            "--model reference-long --kv_policy H20 --task lookup",
            ["h2o", "--kv_budget", "0.1 to 1"],
        ),
        ("--model reference-long --kv_budget 0.5", ["--kv_budget 0.5", "--kv_policy"]),
        ("--model reference-long --kv_policy none --kv_budget 0.5", ["--kv_budget 0.5", "policy"]),
        ("--kv_policy snapkv --kv_budget 0.09", ["'0.09'", "0.1 to 1"]),
        ("--kv_policy snapkv --kv-budget .2,1.5", ["'1.5'", "0.1 to 1"]),
        ("--kv_policy snapkv --kv_budget nan", ["'nan'", "0.1 to 1"]),
        ("--kv_policy q4_0 --kv_budget 0.5", ["q4_0", "precision", "no budget"]),
        ("--kv-policy lru --kv_budget 0.5", ["'lru'", "snapkv", "q8_0"]),
        (
            "--model gpt-4o-mini --kv_policy SnapKV --kv_budget .5",
            ["gpt-4o-mini", "its server decides"],
        ),
        ("profile quick --kv_policy= --kv_budget 0.5", ["--kv_policy", "empty"]),
        ("--kv_policy q4_0", ["reference-short+q4_0", "llamacpp"]),
        ("profile --model gpt-17", ["gpt-17", "Qwen2.5-7B", "reference-short"]),
        ("profile --task poetry", ["poetry", "lookup, two_hop", "multi_hop_qa"]),
        ("profile nosuch", ["nosuch", "quick", "reference"]),
        ("profile quick --budget nan", ["--budget", "'nan' is not an amount"]),
        ("profile quick --deadline inf", ["--deadline", "'inf' is not an amount"]),
        (
            "profile --data a.csv --dataset reference --model reference-long",
            ["--data", "--dataset"],
        ),
        ("--data a.csv --task t", ["--data", "--model"]),
        ("frobnicate", ["frobnicate", "profile", "doctor"]),
        ("profil quick", ["There is no command 'profil'; did you mean profile?"]),
        ("profile --frobnicate", ["--frobnicate"]),
        ("profile --seed minus", ["--seed", "minus"]),
        ("profile --samples-per-bin 0", ["--samples-per-bin"]),
        ("profile --campaign 1999-01-01", ["1999-01-01", "campaign new"]),
        ("report", ["no measurement", "contextcliff profile reference"]),
        ("export reference out.zip", ["nothing to export"]),
        ("import nowhere.zip", ["nowhere.zip", "No such file"]),
        ("serve nosuch", ["nosuch", "reference-long"]),
        ("campaign new nosuch", ["nosuch", "reference"]),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(line: str, words: list[str]) -> None:
    assert_one_sentence(call(*line.split()), *words)


def test_without_the_environment_of_kvpress_nothing_is_begun(tmp_path: Path) -> None:
    line = "quick --kv_policy snapkv --kv_budget 0.5"
    ended = run(
        "profile",
        *line.split(),
        env={"CONTEXTCLIFF_KV_PYTHON": "/nowhere/bin/python", "CONTEXTCLIFF_HOME": str(tmp_path)},
    )
    assert_one_sentence(ended, "make install-kv", "reference-short+none")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("more", ["--pilot 3", "--until 10%", "--sentinel"])
def test_policies_are_compared_on_the_whole_sample(more: str) -> None:
    line = f"profile quick --kv_policy snapkv --kv_budget 0.5 {more}"
    assert_one_sentence(call(*line.split()), "--kv_policy", "whole sample")


def test_refusals_look_the_same_in_a_process_of_their_own() -> None:
    assert_one_sentence(run("profile", "--model", "gpt-17"), "gpt-17", "reference-long")


def test_a_closed_pipe_is_nobodys_fault() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [*COMMAND, "models"], stdout=writer, stderr=subprocess.PIPE, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("command", ["models", "studies"])
def test_lists_need_no_dagster(command: str) -> None:
    code = (
        "import sys; from contextcliff_dagster.cli import main; "
        f"code = main(['{command}']); "
        "heavy = {'dagster', 'aiohttp', 'pandas', 'pyarrow', 'scipy', 'matplotlib'}; "
        "loaded = heavy & set(sys.modules); "
        "assert not loaded, loaded; sys.exit(code)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_a_model_named_twice_is_measured_once(tmp_path_factory: pytest.TempPathFactory) -> None:
    twice = ("quick", "--store", str(copy_of_few(tmp_path_factory)), *FEW[2:], *FEW[2:], "--json")
    for line in (("prepare", *twice, *FEW[:2]), ("profile", *twice, *FEW[:2]), ("report", *twice)):
        ended = call(*line)
        assert (ended.code, ended.err) == (0, "")
    assert [c["model"] for c in json.loads(ended.out)["cliffs"]] == ["reference-short"]


def test_a_seed_may_have_many_digits() -> None:
    ended = call("prepare", "quick", "--seed", "1" * 59, "--samples-per-bin", "2", "--json")
    assert (ended.code, ended.err) == (0, "")
    assert json.loads(ended.out)["study"].startswith("quick-seed-1111")
    assert len(json.loads(ended.out)["study"]) == 60


@pytest.mark.parametrize("empty", ["STUDY", "--task", "--dataset"])
def test_an_empty_word_is_not_the_default(empty: str) -> None:
    args = ("",) if empty == "STUDY" else (empty, "")
    for command in ("profile", "prepare", "report"):
        assert_one_sentence(call(command, *args), f"{empty} is empty")


@pytest.mark.parametrize("name", ["", "../x", "A B", ".x", "-x", "a/b", "日", "x" * 61, "a\n"])
def test_a_campaign_has_a_plain_name(name: str) -> None:
    assert_one_sentence(call("campaign", "new", "quick", "--name", name), "not a campaign name")
    assert json.loads(call("campaign", "list", "--json").out) == []


def test_a_campaign_may_be_named() -> None:
    ended = call("campaign", "new", "quick", "--name", "2026-11-21-new_weights.2")
    assert ended.code == 0, ended.err
    assert_one_sentence(call("profile", "quick", "--campaign", ""), "no campaign ''")


def test_a_campaign_is_a_key_at_once_where_dagster_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    assert main(["campaign", "new", "quick", "--name", "second"]) == 0
    with dg.DagsterInstance.get() as instance:
        assert instance.get_dynamic_partitions("quick/campaigns") == ["second"]


def test_the_help_has_commands_and_options_in_sections() -> None:
    out = call("-h").out
    heads = [line for line in out.splitlines() if line.endswith(":") and line[0] != " "]
    others = ["Other experiments"] if extensions() else []
    sections = ["Start", "Use a cap", "Compare", *others, "Look after"]
    assert heads == ["Options:", *(f"{title}:" for title in sections)]
    context = app.make_context("contextcliff", ["models"])
    assert all(f"\n  {name} " in out for name in app.list_commands(context))
    profile = call("profile", "-h").out
    first = profile.index("\nQuestions:\n")
    assert first < profile.index("\nCost:\n") < profile.rindex("--dry-run")
    command = app.get_command(context, "profile")
    assert command is not None
    options = [p for p in command.params if isinstance(p, click.Option)]
    assert all(option.opts[0] in profile for option in options)
