"""`contextcliff answers`: what is listed, in which order, and in which forms."""

from __future__ import annotations

import csv
import io
import json
import shutil
import stat
import subprocess
from pathlib import Path
from typing import Any

import pyarrow.csv as pa_csv
import pytest

from contextcliff_dagster.contracts import ANSWERS, EVAL_RECORDS
from contextcliff_dagster.store import read_table, write_table
from contextcliff_dagster_tests.support.measured_stores import FEW_CALLS, copy_of_few
from contextcliff_dagster_tests.support.read_only import read_only
from contextcliff_dagster_tests.support.terminal import COMMAND, Ended, assert_one_sentence, call

HOSTILE = (
    "=cmd|'/C calc'!A0\x1b[2J\x07\u202egnp.exe\r\nnext,\"line\"\u2028 caf\u00e9 \u6f22 \U0001f9e8"
)


@pytest.fixture
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_of_few(tmp_path_factory)


def listed(store: Path, *options: str, study: str = "quick", columns: int = 120) -> Ended:
    return call("answers", study, *options, "--store", str(store), env={"COLUMNS": str(columns)})


def objects(store: Path, *options: str) -> list[dict[str, Any]]:
    ended = listed(store, "--format", "jsonl", *options)
    assert (ended.code, ended.err) == (0, "")
    return [json.loads(line) for line in ended.out.splitlines()]


def alter(store: Path, cell: str, **values: Any) -> None:
    """Replace values of the first record of a cell."""
    (file,) = (store / "quick" / "eval_records").glob(f"*/*/bin={cell}/*.parquet")
    first, *others = read_table(file, EVAL_RECORDS).to_pylist()
    write_table(file, [first | values, *others], EVAL_RECORDS)


def test_every_answer_is_listed_by_bin_then_length(store: Path) -> None:
    rows = objects(store)
    assert len(rows) == FEW_CALLS
    order = [(row["bin"], row["length_tokens"]) for row in rows]
    assert order == sorted(order)
    assert [*rows[0]] == ["study", "campaign", *ANSWERS.column_names]
    for row in rows:
        assert (row["score"] == 1.0) == (row["parsed_answer"] in row["accepted"])


def test_right_and_wrong_and_each_tag_are_told_apart(store: Path) -> None:
    alter(store, "b00", score=None, em=None, failure="transport_error", error="timeout: none")
    rows = objects(store)
    wrong, right = objects(store, "--wrong"), objects(store, "--right")
    unscored = objects(store, "--failure", "transport_error")
    assert wrong
    assert right
    assert len(wrong) + len(right) + 1 == len(rows)
    assert [row["error"] for row in unscored] == ["timeout: none"]
    assert all(row["failure"] for row in wrong)
    assert not any(row["failure"] for row in right)
    for tag in {row["failure"] for row in wrong}:
        assert objects(store, "--failure", tag) == [r for r in wrong if r["failure"] == tag]
    said = listed(store, "--wrong").out.splitlines()[-1]
    assert f"{FEW_CALLS} answers, {len(right)} right, {len(wrong)} wrong, 1 not scored" in said
    assert said.endswith(f"; {len(wrong)} shown.")


def test_bins_models_campaigns_and_a_limit_choose(store: Path) -> None:
    rows = objects(store)
    assert objects(store, "--bin", "b04", "--bin", "b01") == [
        row for row in rows if row["bin"] in ("b01", "b04")
    ]
    assert objects(store, "--limit", "4", "--model", "reference-short") == rows[:4]
    campaign = rows[0]["campaign"]
    assert objects(store, "--campaign", campaign, "--limit", "100") == rows
    whole = json.loads(listed(store, "--json", "--limit", "2").out)
    assert whole["shown"] == 2
    assert whole["right"] + whole["wrong"] == FEW_CALLS
    names = ("study", "campaign")
    assert whole["answers"] == [{k: v for k, v in r.items() if k not in names} for r in rows[:2]]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--bin", "b99"), ["bin 'b99'", "b00, b01, b02, b03, b04"]),
        (("--model", "nosuch"), ["model 'nosuch'", "reference-short"]),
        (("--campaign", "nosuch"), ["campaign 'nosuch'", "20"]),
        (("--failure", "nosuch"), ["--failure", "hallucination"]),
        (("--control", "oracle"), ["no answers of controls", "profile --controls"]),
        (("--wrong", "--right"), ["--wrong", "--right", "choose one"]),
        (("--json", "--format", "csv"), ["--json", "--format"]),
    ],
)
def test_what_is_not_there_is_named_with_what_is(
    store: Path, options: tuple[str, ...], words: list[str]
) -> None:
    assert_one_sentence(listed(store, *options), *words)


def test_one_question_is_shown_with_prompt_replies_and_evidence(store: Path) -> None:
    first = objects(store)[0]
    name = first["example_id"]
    ended = listed(store, "--show", name[:8])
    assert (ended.code, ended.err) == (0, "")
    assert f"Document: {first['document_id']}, {first['length_tokens']:,} tokens" in ended.out
    assert f"Question: {first['question']}\nAccepted: {first['accepted'][0]}\n" in ended.out
    assert f"Evidence: at {first['evidence_position']:.0%} of the document" in ended.out
    assert f"Reply of {first['model']} to wording 1: score {first['score']:.2f}" in ended.out
    assert f"Prompt of {name}: bin b00" in ended.out
    shown = json.loads(listed(store, "--show", name, "--json").out)
    assert {row["example_id"] for row in shown["answers"]} == {name}
    (prompt,) = shown["prompts"]
    assert first["question"] in json.dumps(prompt["messages"])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--show", "zz"), "No chosen answer has an id that begins with 'zz'; the column ID of"),
        (("--show", ""), "questions have an id that begins with ''"),
        (("--show", "zz", "--format", "csv"), "--show prints to the terminal"),
        (("--whole",), "--whole needs --show ID"),
    ],
)
def test_what_cannot_be_shown_is_a_sentence(
    store: Path, options: tuple[str, ...], words: str
) -> None:
    assert_one_sentence(listed(store, *options), words)


def test_a_question_is_shown_after_its_sample_is_gone(store: Path) -> None:
    name = objects(store)[0]["example_id"]
    shutil.rmtree(store / "quick" / "manifest")
    ended = listed(store, "--show", name)
    assert (ended.code, ended.err) == (0, "")
    assert "Question: no longer in the sample\nAccepted: no longer in the sample" in ended.out


def test_a_study_without_answers_says_how_to_get_them(store: Path, tmp_path: Path) -> None:
    for place in (store, tmp_path):
        assert_one_sentence(
            listed(place, study="reference"), "no answers in", "contextcliff profile reference"
        )


@pytest.mark.parametrize("columns", [80, 120])
def test_no_text_breaks_the_table(store: Path, columns: int) -> None:
    alter(store, "b02", raw_output=HOSTILE, parsed_answer=None, failure="x\x1b[1m" * 9)
    alter(store, "b03", parsed_answer="\u6f22" * 500_000)
    lines = listed(store, columns=columns).out.splitlines()
    assert all(line.isprintable() and len(line) <= columns for line in lines)
    text = "\n".join(lines)
    assert r"=cmd|'/C calc'!A0\x1b[2J" in text
    assert "\u6f22\u6f22\u6f22\u2026" in text
    assert len({line.index("TOKENS") for line in lines if "TOKENS" in line}) == 1


def test_a_call_without_an_answer_shows_why(store: Path) -> None:
    gone = {"raw_output": None, "parsed_answer": None, "score": None}
    alter(store, "b01", **gone, failure="context_overflow", error="2,048 tokens are too many")
    alter(store, "b02", **gone, failure=None, error=None, evidence_position=None)
    table = listed(store, "--bin", "b01").out
    assert "context_overflow" in table
    assert "(2,048 tokens are too many)" in table
    assert "not scored" in listed(store, "--bin", "b02").out


def test_jsonl_and_csv_give_back_every_character(store: Path, tmp_path: Path) -> None:
    alter(store, "b02", raw_output=HOSTILE, parsed_answer="", error="'quoted")
    alter(store, "b03", raw_output="-5", parsed_answer="@SUM(1)")
    rows = objects(store)
    for name in ("out.jsonl", "out.csv"):
        ended = listed(store, "--output", str(tmp_path / name))
        assert (ended.code, ended.err) == (0, "")
        assert ended.out == f"{tmp_path / name} holds 15 answers as {name[4:]}.\n"
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
    file = (tmp_path / "out.jsonl").read_text("utf-8")
    assert [json.loads(line) for line in file.splitlines()] == rows
    assert HOSTILE in {row["answer"] for row in rows}

    text = (tmp_path / "out.csv").read_bytes().decode("utf-8")
    read = list(csv.DictReader(io.StringIO(text, newline="")))
    for given, row in zip(read, rows, strict=True):
        for key, value in row.items():
            cell = given[key]
            if value is None:
                assert cell == ""
            elif isinstance(value, list):
                assert json.loads(cell) == value
            elif isinstance(value, str):
                assert cell.removeprefix("'") == value or cell == value
                assert cell[:1] not in ("=", "@", "\t", "\r", "+")
            else:
                assert float(cell) == value
    answers = {given["answer"] for given in read}
    assert {f"'{HOSTILE}", "-5"} <= answers
    assert "'@SUM(1)" in {given["parsed_answer"] for given in read}
    assert "''quoted" in {given["error"] for given in read}
    typed = pa_csv.read_csv(
        tmp_path / "out.csv",
        parse_options=pa_csv.ParseOptions(newlines_in_values=True),
        convert_options=pa_csv.ConvertOptions(
            strings_can_be_null=True, quoted_strings_can_be_null=False, null_values=[""]
        ),
    ).to_pylist()
    for name in ("error", "parsed_answer", "failure", "control"):
        assert [r[name] is None for r in typed] == [r[name] is None for r in rows]


def test_a_terminal_is_not_moved_by_json_lines(store: Path) -> None:
    alter(store, "b02", raw_output=HOSTILE)
    for options in (("--format", "jsonl"), ("--format", "jsonl", "--bin", "b02")):
        out = listed(store, *options).out
        assert not set(out) & set("\x1b\x07\r\u202e\u2028")


def test_a_file_that_cannot_be_written_is_a_sentence(store: Path, tmp_path: Path) -> None:
    assert_one_sentence(listed(store, "--output", str(tmp_path)), str(tmp_path), "folder")
    (tmp_path / "link").symlink_to("/dev/full")
    assert_one_sentence(listed(store, "--output", str(tmp_path / "link")), "link", "device")


def test_a_reader_that_leaves_early_is_no_error(store: Path) -> None:
    first_line = '"$@" | head -n 1; exit ${PIPESTATUS[0]}'
    line = ("answers", "quick", "--format", "jsonl", "--store", str(store))
    done = subprocess.run(
        ["bash", "-c", first_line, "bash", *COMMAND, *line],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["study"] == "quick"


def test_a_store_that_cannot_be_written_is_read(store: Path) -> None:
    before = listed(store)
    with read_only(store):
        assert listed(store) == before
