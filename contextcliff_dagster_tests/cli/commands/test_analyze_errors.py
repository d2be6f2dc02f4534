"""`contextcliff analyze` on files it cannot use: one sentence each, with the file and the row."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from contextcliff_dagster_tests.support.files.score_tables import answers, conforming, means, write
from contextcliff_dagster_tests.support.terminal import assert_one_sentence, call

HEAD = "length_tokens,score\n"
GOOD = "100,1\n200,0\n"


def refused(path: Path, *options: str, words: list[str]) -> None:
    ended = call("analyze", str(path), *options)
    assert_one_sentence(ended, str(path), *words)
    assert ended.out == ""


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.csv", "tokens,score\n1,1\n", ["no column 'length_tokens'", "tokens, score"]),
        ("a.csv", "304,0\n400,1\n", ["begins with numbers", "first line must name the columns"]),
        ("a.csv", "Length Tokens,score\n1,1\n", ["--columns 'length_tokens=Length Tokens'"]),
        ("a.csv", "length_tokens,em\n1,1\n", ["no column 'score'", "length_tokens, em"]),
        ("a.csv", "length_tokens,mean\n1,1\n", ["no column 'score'", "--aggregated"]),
        ("a.jsonl", '{"length": 1, "score": 1}\n', ["'length_tokens'", "length, score"]),
        ("a.json", '[{"length_tokens": 1}]', ["no column 'score'"]),
        ("a.csv", HEAD + GOOD + "300,\n", ["row 3", "score is empty", "failure"]),
        ("a.csv", HEAD + GOOD + "300,NaN\n", ["row 3", "score is empty"]),
        ("a.jsonl", '{"length_tokens": 1, "score": 1}\n{"length_tokens": 2, "score": NaN}\n',
         ["row 2", "score is nan"]),
        ("a.json", '[{"length_tokens": 1, "score": 1}, {"length_tokens": 2, "score": NaN}]',
         ["row 2", "score is"]),
        ("a.csv", HEAD + GOOD + "300,inf\n", ["row 3", "score is inf"]),
        ("a.csv", HEAD + GOOD + "300,good\n", ["row 3", "'good'", "no number"]),
        ("a.csv", HEAD + "1,2026-11-21\n2,2026-11-22\n", ["row 1 (and 1 more)", "no number"]),
        ("a.csv", HEAD + GOOD + "300,87\n301,90\n",
         ["row 3 (and 1 more)", "score is 87, outside 0..1", "--scale 100"]),
        ("a.csv", HEAD + GOOD + "300,-0.1\n", ["row 3", "outside 0..1"]),
        ("a.csv", HEAD + GOOD + "0,1\n", ["row 3", "length_tokens is 0", "above 0"]),
        ("a.csv", HEAD + GOOD + "-5,1\n", ["row 3", "length_tokens is -5"]),
        ("a.csv", HEAD + GOOD + ",1\n", ["row 3", "length_tokens is empty"]),
        ("a.csv", HEAD + GOOD + "4K,1\n", ["row 3", "'4K'"]),
        ("a.csv", HEAD + "100,1\n100,0\n", ["one length, 100 tokens"]),
        ("a.csv", HEAD, ["no rows"]),
        ("a.csv", "", ["is empty"]),
        ("a.csv", "\n \n", ["is empty"]),
        ("a.json", "[]", ["no rows"]),
        ("a.jsonl", "5\n", ["row 1", "not a JSON object"]),
        ("a.jsonl", '{"length_tokens": 1, "score": 1}\n{"length_tokens":\n',
         ["row 2", "not one JSON object"]),
        ("a.json", "[1, 2", ["not JSON"]),
        ("a.csv", HEAD + "100,1\n200,1,1\n", ["line 3", "3 fields", "header has 2"]),
        ("a.csv", "score," + HEAD + "1,100,1\n", ["'score' twice"]),
        ("a.parquet", "no parquet", ["not of a known format"]),
        ("a.xlsx", "PK", ["not of a known format", "Parquet"]),
        ("a.csv", HEAD.replace("\n", ",failure\n") + "1,,timeout\n2,1,\n",
         ["row 1", "transport_error"]),
        ("a.csv", HEAD.replace("\n", ",failure\n") + "1,,transport_error\n",
         ["no row has a score"]),
        ("a.csv", "length_tokens,score,model\n1,1,a\n2,1,\n", ["row 2", "model is empty"]),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_with_its_row(
    name: str, text: str, words: list[str], tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    refused(path, words=words)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ("längte,score\n1,1\n".encode("utf-16"), ["columns found: längte, score"]),
        ("length_tokens,score\n".encode("utf-16")[:-1], ["cannot be read", "utf-16"]),
        (HEAD.encode() + b"100,1\n\xff,1\n", ["UTF-8"]),
        (b"PAR1 of a sort", ["known format"]),
    ],
)
def test_bytes_that_are_no_text(data: bytes, words: list[str], tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(data)
    refused(tmp_path / "a.csv", words=words)


def test_a_damaged_parquet_file_and_a_folder(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", answers())
    path.write_bytes(path.read_bytes()[:-20])
    refused(path, words=["not readable Parquet"])
    refused(tmp_path, words=["is a folder"])
    refused(tmp_path / "none.csv", words=["There is no file"])


def test_a_wrong_value_after_a_million_bytes_is_found_by_its_row(tmp_path: Path) -> None:
    """Types are guessed from the beginning of a file; they may be wrong later."""
    path = tmp_path / "long.jsonl"
    lines = ['{"document_id": 1, "length_tokens": 10, "score": 1}'] * 30_000
    lines.append('{"document_id": "x", "length_tokens": 20, "score": "half"}')
    path.write_text("\n".join(lines), encoding="utf-8")
    refused(path, words=["row 30001", "'half'", "no number"])


def test_what_is_of_another_type_later_is_read_all_the_same(tmp_path: Path) -> None:
    path = tmp_path / "long.jsonl"
    lines = ['{"document_id": 1, "length_tokens": 10, "score": 1}'] * 30_000
    lines.append('{"document_id": "x", "length_tokens": "20", "score": true, "model": "m"}')
    path.write_text("\n".join(lines), encoding="utf-8")
    refused(path, words=["row 1", "model is empty"])
    lines[-1] = lines[-1].replace(', "model": "m"', "")
    path.write_text("\n".join(lines), encoding="utf-8")
    ended = call("analyze", "--quick", str(path), "--json", "-")
    assert json.loads(ended.out)["n_documents"] == 2


def test_several_models_need_a_choice(tmp_path: Path) -> None:
    both = pd.concat([answers(1).assign(model="a"), answers(2).assign(model="b")])
    path = write(tmp_path / "both.csv", both)
    refused(path, words=["2 models (a, b)", "--model NAME", "--by model"])
    refused(path, "--model", "c", words=["no model 'c'", "a, b"])
    ended = call("analyze", str(path), "--by", "model", "--model", "a")
    assert_one_sentence(ended, "--model", "--by")
    single = write(tmp_path / "single.csv", answers())
    refused(single, "--by", "model", words=["no column 'model'"])


def test_one_bad_file_of_several_stops_no_other(tmp_path: Path) -> None:
    good, last = write(tmp_path / "good.csv", answers()), write(tmp_path / "last.csv", answers(2))
    bad = tmp_path / "bad.csv"
    bad.write_text(HEAD + "1,7\n", encoding="utf-8")
    to, out = tmp_path / "to", tmp_path / "out"
    files = [str(good), str(bad), str(last)]
    ended = call("analyze", "--quick", *files, "--json", str(to), "--out", str(out))
    assert_one_sentence(ended, str(bad), "row 1")
    assert {p.name for p in to.iterdir()} == {"good.json", "last.json"}
    assert conforming(to / "good.json")["verdict"] == "cliff"
    page = (out / "report.md").read_text("utf-8")
    assert "Left out:" in page
    assert "| `last` | cliff |" in page


def test_one_bad_model_of_several_stops_no_other(tmp_path: Path) -> None:
    alone = pd.DataFrame({"length_tokens": [5, 5], "score": [1, 1], "model": "alone"})
    path = write(tmp_path / "both.csv", pd.concat([answers().assign(model="good"), alone]))
    to = tmp_path / "both.json"
    ended = call("analyze", "--quick", str(path), "--by", "model", "--json", str(to))
    assert_one_sentence(ended, "model 'alone'", "one length, 5 tokens")
    assert [result["model"] for result in conforming(to)] == ["good"]
    assert call("analyze", "--quick", str(path), "--model", "good").code == 0


def test_where_results_cannot_go(tmp_path: Path) -> None:
    one, other = write(tmp_path / "a.csv", answers()), write(tmp_path / "a.jsonl", answers())
    ended = call("analyze", str(one), str(other), "--json", str(tmp_path / "all.json"))
    assert_one_sentence(ended, "all.json is one file", "folder")
    ended = call("analyze", str(one), str(other), "--json", str(tmp_path / "to"))
    assert_one_sentence(ended, "called 'a'")
    assert not (tmp_path / "to").exists()
    ended = call("analyze", str(one), "--json", str(one / "x" / "y.json"))
    assert_one_sentence(ended, "Cannot write", "--json")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--tolerance", "0.9"], ["tolerance", "0.05 to 0.5"]),
        (["--confidence", "2"], ["confidence"]),
        (["--scale", "0"], ["--scale"]),
        (["--by", "task"], ["--by"]),
        (["--window", "0"], ["--window"]),
    ],
)
def test_choices_that_make_no_sense(options: list[str], words: list[str], tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", answers())
    assert_one_sentence(call("analyze", str(path), *options), *words)


def test_without_a_file_there_is_nothing_to_do() -> None:
    assert_one_sentence(call("analyze"), "FILES")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"mean": 94.0}, ["row 1", "mean is 94", "--scale 100"]),
        ({"mean": None}, ["row 1", "mean is empty"]),
        ({"n": 0}, ["row 1", "n is 0", "counts examples"]),
        ({"n": 2.5}, ["row 1", "n is 2.5"]),
        ({"length_tokens": 0}, ["row 1", "length_tokens is 0"]),
        ({"threshold": [0.8, 0.9, 0.8, 0.8, 0.8, 0.8]}, ["threshold", "2 different values"]),
        ({"base_score": 3}, ["row 1", "base_score is 3", "outside 0..1"]),
        ({"length_tokens": 4_096}, ["one length, 4,096 tokens"]),
    ],
)  # fmt: skip
def test_tables_of_means_that_cannot_be(
    change: dict[str, object], words: list[str], tmp_path: Path
) -> None:
    refused(write(tmp_path / "t.csv", means().assign(**change)), "--aggregated", words=words)


def test_a_table_is_not_taken_for_records_nor_records_for_a_table(tmp_path: Path) -> None:
    refused(write(tmp_path / "t.csv", means()), words=["'score'", "--aggregated"])
    refused(
        write(tmp_path / "r.csv", answers()),
        "--aggregated",
        words=["'mean'", "without --aggregated"],
    )
