"""Results of tools that write one answer a row, in files that we write in their formats."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from contextcliff_dagster.analysis.records import AnalysisSettings
from contextcliff_dagster.cli.score_analysis import AnalyzeOptions, analyze_files
from contextcliff_dagster.contracts import ContextCliffError
from contextcliff_dagster.score_files import (
    LogOptions,
    ScoreFileError,
    ScoreRecords,
    read_log,
    read_scores,
    read_wide_means,
)
from contextcliff_dagster.score_files.logs.row_formats import FORMATS, TOOLS, size_of
from contextcliff_dagster_tests.support.examples import examples
from contextcliff_dagster_tests.support.files.log_files import small_tokenizer, text, write_lines

DOCS = Path(__file__).parents[3] / "docs"


def read(path: Path, **options: Any) -> list[ScoreRecords]:
    return read_scores(path, LogOptions(open_tokenizer=small_tokenizer, **options))


def refused(path: Path, **options: Any) -> str:
    with pytest.raises(ScoreFileError) as caught:
        read(path, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def written(path: Path, value: Any, indent: int | None = 2) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=indent), encoding="utf-8")
    return path


def table(path: Path, rows: list[dict[str, Any]], quoting: Any = csv.QUOTE_MINIMAL) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), quoting=quoting)
        writer.writeheader()
        writer.writerows(rows)
    return path


# The writers: each writes eight answers of 100 to 800 tokens or words, of which the first five are
# right.

COUNT, RIGHT = 8, 5


def ruler(folder: Path, *, in_rows: bool = True) -> Path:
    """Predictions as `scripts/pred/call_api.py` of RULER writes them; ``length`` is -1 where the
    data set has none."""
    rows = [
        {
            "index": n,
            "pred": f" {n} and {n + 100}" if n < RIGHT else "",
            "input": text(n, 100 * (n + 1)),
            "outputs": [str(n), str(n + 100)],
            "others": {},
            "truncation": -1,
            "length": 100 * (n + 1) if in_rows else -1,
        }
        for n in range(COUNT)
    ]
    folder = folder / "some-model" / "synthetic" / "4096" / "pred"
    folder.mkdir(parents=True)
    return write_lines(folder / "vt.jsonl", rows)


def needles(folder: Path) -> Path:
    """A file an answer, as `LLMNeedleHaystackTester` of needlehaystack 0.1.0 writes them."""
    for n in range(COUNT):
        name = f"some-model_len_{100 * (n + 1)}_depth_{12.5 * n * 100:.0f}"
        row = {
            "model": "some-model", "context_length": 100 * (n + 1), "depth_percent": 12.5 * n,
            "version": 1, "needle": "\nEat a sandwich.\n", "model_response": "A sandwich.",
            "score": 10 if n < RIGHT else 1, "test_duration_seconds": 1.5,
            "test_timestamp_utc": "2026-03-01 12:12:42+0000", "file_name": name,
        }  # fmt: skip
        written(folder / "results" / f"{name}_results.json", row, None)
    return folder / "results"


def kvpress_row(n: int) -> dict[str, Any]:
    accepted = np.array([f"word{i}-{n}" for i in range(10)], dtype=object)
    return {
        "predicted_answer": ", ".join(accepted[:10 if n < RIGHT else 0]),
        "answer": str(accepted), "compression_ratio": 0.5, "max_new_tokens": 128, "task": "cwe",
        "question": "Which words?", "answer_prefix": "",
    }  # fmt: skip


def kvpress(folder: Path) -> Path:
    """Runs of `evaluation/evaluate.py` of kvpress 0.5, one for each length: its columns come in any
    order, and NumPy prints the answers."""
    for n in range(COUNT):
        run = folder / f"ruler__{100 * (n + 1)}__org--some-model__snapkv__0.50"
        table(run / "predictions.csv", [kvpress_row(n)])
        config = {
            "dataset": "ruler", "data_dir": str(100 * (n + 1)), "model": "org/some-model",
            "press_name": "snapkv", "compression_ratio": 0.5, "max_context_length": None,
        }  # fmt: skip
        (run / "config.yaml").write_text(yaml.dump(config, sort_keys=False))
        written(run / "metrics.json", {"cwe": {"string_match": 62.5}})
    return folder


def promptfoo_row(n: int) -> dict[str, Any]:
    context, tokens = text(n, 100 * (n + 1)), 100 * (n + 1)
    return {
        "cost": 0.001,
        "gradingResult": {"pass": n < RIGHT, "score": float(n < RIGHT), "reason": "x"},
        "id": f"id{n}",
        "latencyMs": 11,
        "namedScores": {"tone": 0.5},
        "prompt": {"raw": f"{context}\nHow many?", "label": "{{context}}\nHow many?"},
        "promptId": "21461aed",
        "promptIdx": 0,
        "provider": {"id": "openai:chat:some-model", "label": ""},
        "response": {
            "output": str(n),
            "tokenUsage": {"total": tokens + 3, "prompt": tokens, "completion": 3},
        },
        "score": float(n < RIGHT),
        "success": n < RIGHT,
        "testCase": {"vars": {"context": context}, "assert": []},
        "testIdx": n,
        "vars": {"context": context, "question": "How many?"},
        "metadata": {},
        "failureReason": int(n >= RIGHT),
        **({"error": "Expected output to contain 9"} if n >= RIGHT else {}),
    }


def promptfoo(folder: Path, rows: list[dict[str, Any]] | None = None) -> Path:
    """`promptfoo eval -o results.json` of promptfoo 0.121.20 (results of version 3)."""
    results = rows or [promptfoo_row(n) for n in range(COUNT)]
    prompts = [{"raw": "{{context}}\nHow many?", "label": "x", "provider": "y"}]
    inner = {"version": 3, "timestamp": "2026-03-01", "prompts": prompts, "results": results}
    whole = {"evalId": "eval-0VI", "results": {**inner, "stats": {}}, "config": {}, "metadata": {}}
    return written(folder / "results.json", whole)


def promptfoo_lines(folder: Path) -> Path:
    """`promptfoo eval -o results.jsonl` of promptfoo 0.121.20."""
    return write_lines(folder / "results.jsonl", [promptfoo_row(n) for n in range(COUNT)])


def deepeval_case(n: int, **more: Any) -> dict[str, Any]:
    metric = {
        "name": "Contains", "threshold": 0.5, "success": n < RIGHT, "score": float(n < RIGHT),
        "reason": "because", "strictMode": False, "flaky": False,
    }  # fmt: skip
    return {
        "name": f"test_case_{n}", "input": text(n, 100 * (n + 1)), "actualOutput": str(n),
        "expectedOutput": str(n), "tokenCost": 0.1, "completionTime": 1.2, "flaky": False,
        "success": n < RIGHT, "metricsData": [metric], "runDuration": 0.1, "order": n, **more,
    }  # fmt: skip


def deepeval(folder: Path, **more: Any) -> Path:
    """`.deepeval/.latest_test_run.json` of deepeval 4.3.1."""
    run = {
        "testCases": [deepeval_case(n, **more) for n in range(COUNT)],
        "conversationalTestCases": [],
        "metricsScores": [{"metric": "Contains", "scores": [1.0], "passes": 1, "fails": 0}],
        "hyperparameters": {"model": "some-model", "temperature": "0"},
        "testPassed": 5,
    }
    return written(folder / ".latest_test_run.json", {"testRunData": run}, None)


def call(n: int, k: int = 2) -> dict[str, Any]:
    """An observation as the `json()` of the SDK's `ObservationsView` (langfuse 3.15.0) has it."""
    tokens = 100 * (n + 1) - 10 * (2 - k)
    usage = {"input": tokens, "output": 3, "total": tokens + 3, "unit": "TOKENS"}
    return {
        "id": f"o{n}-{k}", "traceId": f"t{n}", "type": "GENERATION", "name": "answer",
        "startTime": f"2026-03-01T10:{n:02}:0{k}Z", "endTime": f"2026-03-01T10:{n:02}:1{k}Z",
        "model": "some-model", "modelParameters": None,
        "input": [{"role": "user", "content": text(n, 50 * (n + 1))}],
        "metadata": {"document_id": f"d{n}"}, "output": str(n), "usage": usage, "level": "DEFAULT",
        "usageDetails": {"input": tokens - 10, "input_cached_tokens": 10, "output": 3},
        "costDetails": {}, "environment": "default",
    }  # fmt: skip


def span(n: int) -> dict[str, Any]:
    return {**call(n, 0), "id": f"s{n}", "type": "SPAN", "model": None, "usageDetails": {},
            "usage": {"input": 0, "output": 0, "total": 0}}  # fmt: skip


def score(n: int, name: str = "right", **more: Any) -> dict[str, Any]:
    return {
        "value": float(n < RIGHT), "id": f"{name}{n}", "traceId": f"t{n}", "name": name,
        "source": "API", "timestamp": "2026-03-01T11:00:00Z", "metadata": None,
        "environment": "default", "dataType": "NUMERIC", **more,
    }  # fmt: skip


def langfuse(folder: Path) -> Path:
    """Traces with observations and scores, one a line: `TraceWithFullDetails` of langfuse 3.15."""
    traces = [
        {
            "id": f"t{n}", "timestamp": "2026-03-01T10:00:00Z", "metadata": None, "tags": ["x"],
            "public": False, "environment": "default", "htmlPath": "/x",
            "observations": [span(n), call(n, 1), call(n)],
            "scores": [score(n), score(n, "kind", dataType="CATEGORICAL", stringValue="a")],
        }
        for n in range(COUNT)
    ]  # fmt: skip
    return write_lines(folder / "traces.jsonl", traces)


def langfuse_lists(folder: Path) -> Path:
    """Answers of the API's lists, as the SDK's `ObservationsViews` and `GetScoresResponse` have
    them: the scores are of traces, in another file."""
    page = {"page": 1, "limit": 50, "totalItems": 24, "totalPages": 1}
    observations = [o for n in range(COUNT) for o in (call(n), span(n), call(n, 1))]
    scores = [score(n) for n in range(COUNT)]
    written(folder / "scores.json", {"data": scores, "meta": page}, None)
    return written(folder / "observations.json", {"data": observations, "meta": page}, None)


def langfuse_export(folder: Path) -> Path:
    """The export of the page of traces as CSV: cells are JSON, each score has a column."""
    rows = [
        {
            "id": f"t{n}", "timestamp": "2026-03-01T10:00:00.000Z", "name": "chat", "userId": "",
            "tags": '["x"]', "bookmarked": "false", "input": '{"question":"How many?"}',
            "output": str(n), "metadata": json.dumps({"document_id": f"d{n}"}), "level": "DEFAULT",
            "usage": json.dumps({"promptTokens": 100 * (n + 1), "completionTokens": 3}),
            "observationCount": 1, "inputTokens": 100 * (n + 1), "outputTokens": 3,
            "right": f"[{int(n < RIGHT)}]", "tone": '["a"]',
        }
        for n in range(COUNT)
    ]  # fmt: skip
    return table(folder / "1767-lf-traces-export-p.csv", rows, csv.QUOTE_ALL)


class Expected(NamedTuple):
    """What is read from a tool's eight answers."""

    write: Callable[[Path], Path]
    tool: str
    score_name: str
    length_kind: str
    model: str | None = "some-model"
    task: str | None = None
    documents: bool = True


COUNTED = "tiktoken:o200k_base"
CASES = {
    "ruler": Expected(ruler, "RULER", "ruler", "prompt tokens", task="vt"),
    "needles": Expected(needles, "LLMTest_NeedleInAHaystack", "score", "sizes", documents=False),
    "kvpress": Expected(kvpress, "kvpress", "ruler", "sizes", "org/some-model snapkv 0.5", "cwe"),
    "promptfoo": Expected(
        promptfoo, "promptfoo", "score", "prompt tokens", "openai:chat:some-model"
    ),
    "promptfoo, lines": Expected(
        promptfoo_lines, "promptfoo", "score", "prompt tokens", "openai:chat:some-model"
    ),
    "deepeval": Expected(deepeval, "deepeval", "Contains", COUNTED),
    "langfuse": Expected(langfuse, "Langfuse", "right", "prompt tokens"),
    "langfuse, lists": Expected(langfuse_lists, "Langfuse", "right", "prompt tokens"),
    "langfuse, export": Expected(langfuse_export, "Langfuse", "right", "prompt tokens", None),
}


@pytest.mark.parametrize("case", CASES)
def test_answers_have_length_score_document_and_model(case: str, tmp_path: Path) -> None:
    expected = CASES[case]
    (records,) = read(expected.write(tmp_path))
    frame = records.frame.sort_values("length_tokens", ignore_index=True)
    assert list(frame["score"]) == [1.0] * RIGHT + [0.0] * (COUNT - RIGHT)
    if expected.length_kind == COUNTED:
        assert frame["length_tokens"].is_unique
    else:
        assert list(frame["length_tokens"]) == [100 * (n + 1) for n in range(COUNT)]
    assert (records.model, records.task, records.score_name, records.length_kind) == (
        expected.model, expected.task, expected.score_name, expected.length_kind
    )  # fmt: skip
    assert ("document_id" in frame and frame["document_id"].is_unique) == expected.documents
    assert frame["example_id"].is_unique
    assert f"is a log of {expected.tool}: {COUNT} of " in records.notes[0]


def said(records: ScoreRecords) -> str:
    return " ".join(records.notes)


@pytest.mark.parametrize("case", [case for case in CASES if case != "needles"])
def test_a_folder_of_files_is_one_measurement(case: str, tmp_path: Path) -> None:
    expected = CASES[case]
    expected.write(tmp_path)
    (tmp_path / "notes.txt").write_text("x")
    written(tmp_path / "settings.json", {"a": 1})
    (records,) = read(tmp_path)
    assert len(records.frame) == COUNT
    assert records.notes[0].startswith(f"{tmp_path.name} is a log of {expected.tool}: {COUNT} of ")


def test_a_folder_of_several_tools_or_of_none_is_refused(tmp_path: Path) -> None:
    promptfoo(tmp_path)
    assert read_log(tmp_path / "none", LogOptions()) is None
    deepeval(tmp_path)
    sentence = refused(tmp_path)
    assert "not one measurement (deepeval, prompt tokens; promptfoo, prompt tokens)" in sentence
    (tmp_path / "empty").mkdir()
    assert "is a folder; give the files in it" in refused(tmp_path / "empty")


def test_lengths_of_ruler_are_the_rows_or_the_folder_s_or_counted(tmp_path: Path) -> None:
    (of_rows,) = read(ruler(tmp_path / "a"))
    assert of_rows.frame["length_tokens"].max() == 800
    path = ruler(tmp_path / "b", in_rows=False)
    (of_folder,) = read(path)
    assert set(of_folder.frame["length_tokens"]) == {4096}
    assert of_folder.length_kind == "sizes"
    bare = write_lines(tmp_path / "vt-0.jsonl", list(map(json.loads, path.open())))
    (counted,) = read(bare)
    assert (counted.length_kind, counted.model, counted.task) == (COUNTED, None, "vt")
    assert counted.frame["length_tokens"].is_monotonic_increasing


@pytest.mark.parametrize(
    ("task", "output", "share"),
    [
        ("vt", "A and B", 0.5),
        ("niah_multivalue", "a1, B2, C3, d4", 1.0),
        ("qa_1", "it is b2", 1.0),
        ("qa_2", "none", 0.0),
        ("cwe", "", 0.0),
    ],
)
def test_ruler_is_scored_by_its_own_rule(
    task: str, output: str, share: float, tmp_path: Path
) -> None:
    outputs = ["A1", "b2", "c3", "D4"] if task != "vt" else ["A", "B", "XX", "YY"]
    row = {"index": 0, "pred": output, "input": "x", "outputs": outputs, "length": 9}
    for scale in (1.0, 100.0):  # it is 0..1 whatever scale its own summary has
        log = LogOptions(open_tokenizer=small_tokenizer)
        (records,) = read_scores(write_lines(tmp_path / f"{task}.jsonl", [row]), log, scale=scale)
        assert list(records.frame["score"]) == [share]


def test_needles_have_positions_and_scores_of_1_to_10(tmp_path: Path) -> None:
    folder = needles(tmp_path)
    (records,) = read(folder)
    frame = records.frame.sort_values("length_tokens")
    assert list(frame["evidence_position"]) == [n / 8 for n in range(COUNT)]
    row = json.loads(next(folder.glob("*_800_*")).read_text())
    for value, share in ((1, 0.0), (4, 1 / 3), (10, 1.0), (10.0, 1.0)):
        (one,) = read(written(tmp_path / "one.json", {**row, "score": value}))
        assert list(one.frame["score"]) == pytest.approx([share])
    for value in (0, 1.0, 11, 0.5, -1):
        sentence = refused(written(tmp_path / "one.json", {**row, "score": value}))
        assert f"the score {value:g} is none of" in sentence
        assert "--columns length_tokens=context_length" in sentence


def test_needles_of_several_models_and_versions(tmp_path: Path) -> None:
    row = json.loads(next(needles(tmp_path).glob("*_100_*")).read_text())
    rows = [{**row, "model": model, "version": n} for model in "ab" for n in (1, 2)]
    path = write_lines(tmp_path / "all.jsonl", rows)
    models = read(path)
    assert [records.model for records in models] == ["a", "b"]
    assert all(list(records.frame["replicate"]) == [0, 1] for records in models)
    with pytest.raises(ScoreFileError, match="holds 2 models"):
        read_log(path, LogOptions())


def test_kvpress_reads_needles_and_names_what_other_data_sets_lack(tmp_path: Path) -> None:
    run = tmp_path / "needle_in_haystack__m--x__no_press__0.00__max_context8000"
    rows = [
        {"needle": "Eat a sandwich.", "needle_depth": depth, "question": "?", "answer_prefix": "",
         "max_new_tokens": 50, "predicted_answer": "Eat a sandwich.", "compression_ratio": 0.0}
        for depth in (0, 50, 100)
    ]  # fmt: skip
    path = table(run / "predictions.csv", rows)
    config = {"dataset": "needle_in_haystack", "model": "m/x", "press_name": "no_press"}
    (run / "config.yaml").write_text(yaml.dump({**config, "max_context_length": 8000}))
    (records,) = read(path)
    assert (records.model, records.score_name) == ("m/x", "f1")
    assert list(records.frame["evidence_position"]) == [0, 0.5, 1]
    assert set(records.frame["length_tokens"]) == {8000}
    assert records.frame["example_id"].is_unique
    (run / "config.yaml").write_text(yaml.dump({**config, "dataset": "loogle"}))
    sentence = refused(path)
    assert "3 without a length" in sentence
    assert "max_context_length" in sentence


def test_presses_are_models_of_their_own(tmp_path: Path) -> None:
    for press, ratio in (("no_press", "0.00"), ("snapkv", "0.25"), ("snapkv", "0.50")):
        run = tmp_path / f"ruler__4096__org--m__{press}__{ratio}"
        table(run / "predictions.csv", [kvpress_row(0)])
    assert [r.model for r in read(tmp_path)] == ["org/m", "org/m snapkv 0.25", "org/m snapkv 0.50"]


OLD_ERROR = {"failureReason": None, "gradingResult": None, "error": "API error: 429", "score": 0.0}


@pytest.mark.parametrize("error", [{"failureReason": 2, "error": "API error: 429"}, OLD_ERROR])
def test_failed_calls_of_promptfoo_are_no_wrong_answers(
    error: dict[str, Any], tmp_path: Path
) -> None:
    rows = [promptfoo_row(n) for n in range(COUNT)]
    rows[0] = {**rows[0], "response": {"error": "API error: 429"}, "success": False, **error}
    (records,) = read(promptfoo(tmp_path, rows))
    assert len(records.frame) == COUNT - 1
    assert "left out: 1 that ended in an error" in records.notes[0]
    assert "429" not in said(records)


def test_promptfoo_has_models_metrics_and_documents(tmp_path: Path) -> None:
    rows = [promptfoo_row(n) for n in range(COUNT)]
    path = promptfoo(tmp_path, [*rows, *({**row, "provider": "other"} for row in rows)])
    assert {r.model: len(r.frame) for r in read(path)} == {
        "openai:chat:some-model": COUNT, "other": COUNT
    }  # fmt: skip
    assert "repeat" not in said(read(path)[0])  # the same question to two models is none
    first, _ = read(path, metric="tone")
    assert set(first.frame["score"]) == {0.5}
    cached = {"output": "1", "tokenUsage": {"total": 9, "cached": 9}, "cached": True}
    (counted,) = read(promptfoo(tmp_path, [{**row, "response": cached} for row in rows]))
    assert counted.length_kind == COUNTED  # of the document alone, which is in vars
    assert "of the whole prompt" not in said(counted)


def test_promptfoo_s_csv_says_what_it_lacks(tmp_path: Path) -> None:
    names = (
        "context,question,[some-model] {{context}},Status,Score,Named Scores,Grader Reason,Comment"
    )
    path = tmp_path / "results.csv"
    path.write_text(f"{names}\nx,y,z,PASS,1.00,,All assertions passed,\n")
    assert "write JSON instead" in refused(path)


def test_deepeval_has_a_score_a_metric_and_no_score_where_the_judge_failed(tmp_path: Path) -> None:
    right = deepeval_case(0)["metricsData"][0]
    toxic = {**right, "name": "Toxicity", "score": 0.0, "success": True}  # less is better
    failed = {**right, "score": None, "success": False, "error": "judge failed"}
    path = deepeval(tmp_path, metricsData=[right, {**right, "name": "Other"}, toxic])
    assert "2 scores; found: Contains, Other" in refused(path)
    assert len(read(path, metric="Other")[0].frame) == COUNT
    cases = [deepeval_case(0, metricsData=[failed]), deepeval_case(1)]
    (records,) = read(written(tmp_path / "x.json", {"testCases": cases}))
    assert (len(records.frame), records.model) == (1, None)


def test_lengths_of_deepeval_count_what_the_model_was_given(tmp_path: Path) -> None:
    (whole,) = read(deepeval(tmp_path))
    assert "of the whole prompt" in said(whole)
    chunks = [text(9, 900), text(8, 900)]
    (retrieved,) = read(deepeval(tmp_path, input="How many?", retrievalContext=chunks))
    tokens = small_tokenizer("").count("\n".join(chunks))
    assert set(retrieved.frame["length_tokens"]) == {tokens}
    (logged,) = read(deepeval(tmp_path, inputTokenCount=77))
    assert (set(logged.frame["length_tokens"]), logged.length_kind) == ({77}, "prompt tokens")


def test_a_trace_s_score_is_its_last_call_s(tmp_path: Path) -> None:
    path = langfuse_lists(tmp_path)
    (records,) = read(path)
    assert list(records.frame["length_tokens"]) == [100 * (n + 1) for n in range(COUNT)]
    assert f"{COUNT} of {2 * COUNT} answers used, left out: {COUNT} without a" in records.notes[0]
    assert "name the observations or traces" in refused(tmp_path / "scores.json")
    whole = {
        "observations": [call(n) for n in range(COUNT)],
        "scores": [score(n, observationId=f"o{n}-2") for n in range(COUNT)],
    }
    (dumped,) = read(written(tmp_path / "dump" / "all.json", whole))
    assert list(dumped.frame["score"]) == list(records.frame["score"])


def test_langfuse_leaves_out_errors_and_other_units(tmp_path: Path) -> None:
    rows = [{**call(n), "scores": [score(n)]} for n in range(COUNT)]
    rows[0] |= {"level": "ERROR"}
    rows[2] |= {"usage": {"input": 9, "unit": "CHARACTERS"}}
    rows[1] |= {"scores": [score(1, value=1.0), score(1, value=0.0)]}
    (records,) = read(written(tmp_path / "a.json", rows))
    assert "1 that ended in an error, 1 without a length" in records.notes[0]
    assert records.frame["score"].iloc[0] == 0.5
    # A score of another scale is never taken for a share.
    rows = [{**call(n), "scores": [score(n, value=4.0)]} for n in range(COUNT)]
    assert "lie outside 0..1" in refused(written(tmp_path / "a.json", rows))


NO_LENGTH = {
    "RULER": {"index": 0, "pred": "a", "outputs": ["a"]},
    "LLMTest_NeedleInAHaystack": {
        "depth_percent": 5, "needle": "x", "model_response": "x", "score": 9
    },
    "promptfoo": {
        "vars": {}, "success": True, "score": 1, "provider": "x", "gradingResult": {}
    },
    "deepeval": {"metricsData": [{"name": "a", "score": 1.0}], "actualOutput": "x"},
    "Langfuse": {**call(0), "usage": None, "usageDetails": {}, "input": None, "scores": [score(0)]},
}  # fmt: skip


@pytest.mark.parametrize("tool", NO_LENGTH)
def test_a_missing_length_is_named_with_its_remedy(tool: str, tmp_path: Path) -> None:
    sentence = refused(write_lines(tmp_path / "a.jsonl", [NO_LENGTH[tool]] * 2))
    assert f"in this {tool} log can be used (2 without a length)" in sentence
    assert "missing" in sentence


# Tables of means


def summaries(folder: Path, lengths: tuple[int, ...] = (4096, 8192)) -> Path:
    """`summary.csv` as `scripts/eval/evaluate.py` of RULER writes it, by pandas."""
    for length in lengths:
        path = folder / "some-model" / "synthetic" / str(length) / "pred" / "summary.csv"
        path.parent.mkdir(parents=True)
        path.write_text("0,1,2\nTasks,niah_single_1,vt\nScore,100.0,60.0\nNulls,0/500,3/300\n")
    return folder


def test_summaries_of_ruler_have_their_number_of_examples(tmp_path: Path) -> None:
    tables = read_wide_means([summaries(tmp_path)], 1.0)
    assert tables is not None
    (means,) = tables
    assert (means.model, list(means.length_tokens), list(means.n)) == (
        "some-model", [4096, 8192], [800, 800]
    )  # fmt: skip
    assert list(means.mean) == [0.85, 0.85]
    predictions = ruler(tmp_path / "other")
    (predictions.parent / "summary.csv").write_text("0,1\nTasks,vt\nScore,60.0\nNulls,0/5\n")
    assert read_wide_means([predictions.parent], 1.0) is None
    lone = tmp_path / "lone" / "summary-vt.csv"
    lone.parent.mkdir()
    lone.write_text("0,1\nTasks,vt\nScore,60.0\nNulls,0/5\n")
    with pytest.raises(ScoreFileError, match="name the folder by the size"):
        read_wide_means([lone], 1.0)


@pytest.mark.parametrize(
    ("content", "scale", "expected"),
    [
        ("Model,Claimed,4K,8K,128K,Avg\na,128K,96,90,50,79\nb,32K,90,80,-,\n", 100.0,
         {"a": {4096: 0.96, 8192: 0.9, 131072: 0.5}, "b": {4096: 0.9, 8192: 0.8}}),
        ('[{"model": "a", "1000": 0.5, "16000": 0.25}]', 1.0, {"a": {1000: 0.5, 16000: 0.25}}),
        ("ctx,niah_single_1,qa_1\n4096,100,50\n8192,90,10\n", 1.0,
         {None: {4096: 0.75, 8192: 0.5}}),
        # A task that was not measured at every length would change the mix.
        ("ctx,niah_single_1,qa_1\n4k,100,50\n8k,90,\n", 100.0, {None: {4096: 1.0, 8192: 0.9}}),
    ],
)  # fmt: skip
def test_wide_tables_are_means_without_n(
    content: str, scale: float, expected: dict[Any, Any], tmp_path: Path
) -> None:
    (path := tmp_path / ("a.json" if content.startswith("[") else "a.csv")).write_text(content)
    tables = read_wide_means([path], scale)
    assert tables is not None
    found = {
        t.model: dict(zip(t.length_tokens.tolist(), t.mean.tolist(), strict=True)) for t in tables
    }
    assert found == {model: pytest.approx(means) for model, means in expected.items()}
    assert all(np.isnan(t.n).all() for t in tables)


def test_decimal_commas_are_read_and_a_task_left_out_is_named(tmp_path: Path) -> None:
    (path := tmp_path / "a.csv").write_text("Model;4K;8K\nA;96,5;95,8\nB;90;80\n")
    a, b = read_wide_means([path], 100) or []
    assert a.mean.tolist() == pytest.approx([0.965, 0.958])
    assert b.mean.tolist() == pytest.approx([0.9, 0.8])
    path.write_text("ctx,niah_single_1,qa_1\n4k,100,50\n8k,90,n/a\n")
    (table,) = read_wide_means([path], 100) or []
    assert table.notes == (
        "a.csv: qa_1 left out, as some lengths have no value (1 of 2 tasks used).",
    )


@pytest.mark.parametrize("cell", ["95.8*", "**88**", "88%", "1.2.3", "9 5"])
@pytest.mark.parametrize("head", ["Model,4K,8K\nx,", "length,niah_single_1,vt\n4096,90,"])
def test_what_is_no_number_is_refused(head: str, cell: str, tmp_path: Path) -> None:
    (path := tmp_path / "a.csv").write_text(
        f"{head}{cell},90\n" if "Model" in head else f"{head}{cell}\n"
    )
    with pytest.raises(ScoreFileError, match=r"data row 1, column .*is no number"):
        read_wide_means([path], 100)


def test_a_wide_table_has_no_cap_and_needs_its_scale(tmp_path: Path) -> None:
    (path := tmp_path / "a.csv").write_text("Model,4K,8K\nx,96.5,90\n")
    settings = AnalysisSettings(second_opinions=False)
    errors: list[ContextCliffError] = []
    assert not list(analyze_files([path], AnalyzeOptions(settings), errors))
    assert "percentages are read with --scale 100" in str(errors.pop())
    (analyzed,) = analyze_files([path], AnalyzeOptions(settings, scale=100), errors)
    assert not errors
    assert (analyzed.result.model, analyzed.result.safe_cap_tokens) == ("x", None)
    assert analyzed.result.verdict == "insufficient_data"


@pytest.mark.parametrize("name", ["2024", "1999", "16", "0k", "x4096", "4096x", ""])
def test_a_folder_named_otherwise_is_no_size(name: str) -> None:
    assert size_of(name) is None


# All of them


def test_every_tool_is_in_the_page_and_in_the_error_of_an_unknown_file(tmp_path: Path) -> None:
    page = (DOCS / "analyze.md").read_text("utf-8")
    (path := tmp_path / "a.csv").write_text("x,y\n1,2\n")
    sentence = refused(path)
    for tool in TOOLS:
        assert tool in page
        assert tool in sentence
    assert {form.tool for form in FORMATS} <= {*TOOLS, "LongBench v2"}


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.just(10**400) | st.text(max_size=5)
    | st.sampled_from(["[{[]: 1}]", "[" * 500, "0", "4K"]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from(["0", "raw", "name", "value", "score"]), inner, max_size=3),
    max_leaves=4,
)  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The way to every value inside ``value``."""
    inside = value.items() if isinstance(value, dict) else []
    inside = enumerate(value) if isinstance(value, list) else inside
    return [path, *(place for key, one in inside for place in places(one, (*path, key)))]


@examples(80)
@given(st.data())
def test_any_json_in_any_place_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Versions differ in their fields: never an error of another kind, with more or fewer."""
    folder = tmp_path_factory.mktemp("run")
    path = data.draw(st.sampled_from([c.write for n, c in CASES.items() if n != "kvpress"]))(folder)
    path = next(path.glob("*_100_*")) if path.is_dir() else path
    if path.suffix == ".csv":
        with path.open(encoding="utf-8") as file:
            value: Any = list(csv.DictReader(file))
    else:
        lines = path.read_text("utf-8").splitlines()
        value = (
            [json.loads(line) for line in lines]
            if len(lines) == COUNT
            else json.loads("\n".join(lines))
        )
    for _ in range(data.draw(st.integers(1, 3))):
        *way, last = data.draw(st.sampled_from(places(value)[1:]))
        inner = value
        for key in way:
            inner = inner[key]
        if isinstance(inner, dict) and data.draw(st.booleans()):
            del inner[last]
        else:
            inner[last] = data.draw(ANY_JSON)
        if not places(value)[1:]:
            break
    written(path.with_suffix(".json"), value)
    options = data.draw(st.sampled_from([{}, {"own_score": "em"}, {"tokenizer": "reference"}]))
    for named in (path.with_suffix(".json"), folder):
        with suppress(ScoreFileError):
            read(named, **options)
        with suppress(ScoreFileError):
            read_wide_means([named], 1.0)
