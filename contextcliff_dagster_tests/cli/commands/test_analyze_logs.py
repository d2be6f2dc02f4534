"""`contextcliff analyze` on logs of other tools: scores to a cap, and what is said of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from contextcliff_dagster_tests.support.files.log_files import (
    inspect_sample,
    write_helmet,
    write_inspect,
)
from contextcliff_dagster_tests.support.files.score_tables import answers, conforming, write
from contextcliff_dagster_tests.support.requirements import published_file
from contextcliff_dagster_tests.support.terminal import assert_one_sentence, call


def planted(path: Path) -> Path:
    """A log of inspect_ai whose scores fall at 600 prompt tokens."""
    samples = [
        inspect_sample(
            number,
            input=f"Document {row.document_id}",
            output={"completion": "x", "usage": {"input_tokens": int(row.length_tokens)}},
            scores={"exact": {"value": float(row.score)}, "other": {"value": "I"}},
        )
        for number, row in enumerate(answers().itertuples(), start=1)
    ]
    return write_inspect(path, samples)


def test_a_log_becomes_a_report_that_says_what_its_lengths_are(tmp_path: Path) -> None:
    log, result = planted(tmp_path / "2026_crates.eval"), tmp_path / "result.json"
    ended = call("analyze", str(log), "--metric", "exact", "--quick", "--json", str(result))
    assert ended.code == 0, ended.err
    cliffs = conforming(result)
    assert (cliffs["verdict"], cliffs["n"], cliffs["n_documents"]) == ("cliff", 200, 200)
    assert 200 < cliffs["safe_cap_tokens"] <= 600
    assert cliffs["cap_prompt_tokens"] is not None
    assert (cliffs["model"], cliffs["task"]) == ("openai/some-model", "crates")
    assert cliffs["score"]["name"] == "exact"
    assert "Note: 2026_crates.eval is a log of inspect_ai: 200 of 200 answers used." in ended.out
    assert any("not tokens of the document alone" in w for w in cliffs["warnings"])


def test_files_of_one_benchmark_are_pooled_and_models_kept_apart(tmp_path: Path) -> None:
    files = [
        write_helmet(tmp_path / f"{model}{length}.json", length, range(20), model)
        for model in ("a", "b")
        for length in (1_000, 4_000)
    ]
    how = ("--metric", "substring_exact_match", "--quick", "--pool")
    ended = call("analyze", *map(str, files), *how)
    assert_one_sentence(ended, "2 models (a, b)", "--by model")
    to = tmp_path / "all.json"
    ended = call("analyze", *map(str, files), *how, "--by", "model", "--json", str(to))
    assert ended.code == 0, ended.err
    both = conforming(to)
    assert [(r["model"], r["n"]) for r in both] == [("a", 40), ("b", 40)]
    assert len(both[0]["provenance"]["hashes"]) == 4
    assert any("manufactured" in warning for warning in both[0]["warnings"])


def test_a_broken_log_stops_no_other(tmp_path: Path) -> None:
    good, bad = write(tmp_path / "good.csv", answers()), tmp_path / "bad.eval"
    bad.write_bytes(planted(tmp_path / "whole.eval").read_bytes()[:5_000])
    ended = call("analyze", str(bad), str(good), "--quick", "--json", f"{tmp_path}/to/")
    assert_one_sentence(ended, "bad.eval is a broken zip file")
    assert json.loads((tmp_path / "to" / "good.json").read_text("utf-8"))["n"] == 200


def test_options_of_logs_are_for_logs_and_exclude_each_other(tmp_path: Path) -> None:
    plain = str(write(tmp_path / "a.csv", answers()))
    assert_one_sentence(call("analyze", plain, "--metric", "exact"), "not another tool's log")
    log = str(planted(tmp_path / "a.eval"))
    assert_one_sentence(call("analyze", log), "found: exact, other", "--metric NAME")
    both = call("analyze", log, "--metric", "exact", "--score", "f1")
    assert_one_sentence(both, "--metric", "--score")
    assert_one_sentence(call("analyze", log, "--pool", "--aggregated"), "--pool")
    named = call("analyze", log, "--metric", "exact", "--tokenizer", "nonsense")
    assert_one_sentence(named, "no tokenizer 'nonsense'")


def test_columns_of_other_names_are_named_on_the_command_line(tmp_path: Path) -> None:
    usual, renamed = tmp_path / "usual.csv", tmp_path / "renamed.csv"
    write(usual, answers())
    names = {"length_tokens": "token_count", "score": "llm_judge_output", "document_id": "about"}
    write(renamed, answers().rename(columns=names))
    assert_one_sentence(call("analyze", str(renamed)), "no column 'length_tokens'", "--columns")
    results = []
    columns = ",".join(f"{ours}={theirs}" for ours, theirs in names.items())
    for path, how in ((usual, ()), (renamed, ("--columns", columns))):
        to = tmp_path / f"{path.stem}.json"
        ended = call("analyze", str(path), "--quick", "--model", "m", *how, "--json", str(to))
        assert ended.code == 0, ended.err
        results.append(conforming(to))
    assert results[0]["safe_cap_tokens"] == results[1]["safe_cap_tokens"]
    assert results[0]["bins"] == results[1]["bins"]
    table = tmp_path / "means.csv"
    table.write_text("ctx,mean\n1000,.9\n4000,.5\n", encoding="utf-8")
    ended = call("analyze", str(table), "--aggregated", "--columns", "length_tokens=ctx")
    assert ended.code == 0, ended.err
    for wrong in ("score", "score=", "score=a,score=b"):
        assert call("analyze", str(renamed), "--columns", wrong).code == 2


@pytest.mark.parametrize(("file", "n"), [("full", 306), ("focused", 306)])
def test_published_answers_of_a_judge_are_read(file: str, n: int, tmp_path: Path) -> None:
    """Context Rot's published results (Hong, Troynikov and Huber 2025), as they are."""
    path = published_file(f"gpt_4_1_longmemeval_{file}_evaluated.csv")
    to = tmp_path / "result.json"
    columns = "length_tokens=token_count,score=llm_judge_output"
    ended = call("analyze", str(path), "--quick", "--columns", columns, "--json", str(to))
    assert ended.code == 0, ended.err
    assert conforming(to)["n"] == n
