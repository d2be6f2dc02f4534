"""The export: lines that say all there is, and a task that inspect_ai runs over them."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from runpy import run_path
from typing import Any

import pytest
import uvicorn

from contextcliff_dagster.contracts import StoreError
from contextcliff_dagster.extensions.utilization.benchmarks.asking import question_text
from contextcliff_dagster.extensions.utilization.benchmarks.data import (
    BENCHMARKS,
    Benchmark,
    BenchmarkName,
)
from contextcliff_dagster.extensions.utilization.export import export
from contextcliff_dagster.extensions.utilization.extraction import extract_answer
from contextcliff_dagster.extensions.utilization.rendering.sentences import FORMATS, Format
from contextcliff_dagster.extensions.utilization.rendering.structured import render
from contextcliff_dagster.extensions.utilization.verification import Verifier
from contextcliff_dagster.inference.engines.base import open_engine
from contextcliff_dagster.inference.models.models_file import get_model
from contextcliff_dagster.inference.server import make_app
from contextcliff_dagster_tests.extensions.utilization.hand_made import document
from contextcliff_dagster_tests.support.requirements import log_tools_python


def row(name: BenchmarkName, format: Format) -> dict[str, Any]:
    """A document as the table `utilization_documents` has it."""
    records, questions = document(name)
    text = render(Benchmark(name, 7, {}, tuple(records), tuple(questions)), format).text
    asked = [
        {
            "kind": one.kind, "text": question_text(one.about), "answer": one.answer,
            "form": one.form, "choices": choices(one.answer, one.form), "about": dict(one.about),
            "margin": one.margin, "hops": one.hops, "needed": 1, "evidence_position": 0.0,
        }
        for one in questions
    ]  # fmt: skip
    return {
        "document_id": hashlib.sha256(text.encode()).hexdigest(), "benchmark": name, "scale": "1k",
        "seed": 7, "format": format, "arm": json.dumps({"order": "chronological"}),
        "length_tokens": len(text) // 4, "records": len(records), "corrupted": 0, "text": text,
        "questions": json.dumps(asked), "evidence": json.dumps([[0]] * len(asked)),
        "verdicts": json.dumps([one._asdict() for one in Verifier(name).verify(text, questions)]),
    }  # fmt: skip


def choices(answer: str, form: str) -> list[str]:
    if form == "number":
        return []
    return [f"WH-{n:04d}" for n in range(4)] if answer.startswith("WH") else ["red", "blue"]


def every_row() -> Iterator[dict[str, Any]]:
    for name, format in product(BENCHMARKS, FORMATS):
        yield row(name, format)


def read(folder: Path, name: str) -> list[dict[str, Any]]:
    lines = (folder / f"{name}.jsonl").read_text("utf-8").splitlines()
    return [json.loads(line) for line in lines]


def test_lines_say_all_that_a_document_has(tmp_path: Path) -> None:
    folder = tmp_path / "made" / "here"
    rows = [*every_row(), *every_row()]
    done = export(iter(rows), folder)
    documents, questions = read(folder, "documents"), read(folder, "questions")
    asked = sum(len(document(name)[1]) for name in BENCHMARKS) * len(FORMATS)
    assert done == (12, asked) == (len(documents), len(questions))
    assert {path.name for path in folder.iterdir()} == {
        *("documents.jsonl", "questions.jsonl", "answers.jsonl", "verdicts.jsonl"),
        *("inspect_task.py", "extraction.py"),
    }
    for given, kept in zip(rows, documents, strict=False):
        assert kept["text"] == given["text"]
        assert kept["document_key"] == f"{given['benchmark']}/1k/7"
        assert kept["arm"] == {"order": "chronological"}
    answers, verdicts = read(folder, "answers"), read(folder, "verdicts")
    identities = [one["question_id"] for one in questions]
    assert len(set(identities)) == asked
    assert [one["question_id"] for one in answers] == identities
    assert [one["question_id"] for one in verdicts] == identities
    assert all(one["agrees"] and one["unique"] for one in verdicts)
    assert [one["answer"] for one in answers] == [one["answer"] for one in verdicts]
    assert all("answer" not in one for one in questions)
    first = questions[0]["prompt"]
    assert first.startswith("{document}\n\nQuestion: What is the current stock of SKU-0000 at Ware")
    assert first.endswith("\nAnswer with just the number:")


def test_prompts_follow_the_arms(tmp_path: Path) -> None:
    export([row("network", "csv")], tmp_path, thought="on", question_place="before")
    prompt = read(tmp_path, "questions")[0]["prompt"]
    assert prompt.startswith("Question: What is the initial weight")
    assert '"Answer:"' in prompt.partition("{document}")[0]


def test_an_export_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    export([row("network", "csv")], tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def broken() -> Iterator[dict[str, Any]]:
        yield row("warehouse", "prose")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        export(broken(), tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="Cannot write"):
        export([], tmp_path / "file")


def test_the_exported_extraction_runs_alone_and_is_ours(tmp_path: Path) -> None:
    export([row("network", "csv")], tmp_path)
    theirs = run_path(str(tmp_path / "extraction.py"))["extract_answer"]
    for reply in ("42", "It is 42.", "Answer: red", "red or blue", "WH-0001 (Warehouse 1)", ""):
        for form in ("number", "value"):
            assert tuple(theirs(reply, form, ["red", "blue"])) == tuple(
                extract_answer(reply, form, ["red", "blue"])  # type: ignore[arg-type]
            )


@contextmanager
def served(name: str) -> Iterator[str]:
    """A reader behind the OpenAI-compatible server, on a thread."""
    entry = get_model(name).model_copy(update={"tokenizer": "reference"})
    config = uvicorn.Config(make_app(name, open_engine(entry)), port=0, log_level="error")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            time.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        server.should_exit = True
        thread.join(30)


def evaluated(folder: Path, model: str, *options: str) -> dict[str, Any]:
    """The log of an evaluation by inspect_ai's own command line."""
    logs = folder / f"logs-{model}-{'-'.join(options)}"
    with served(model) as url:
        own = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME")}
        done = subprocess.run(
            [
                *(log_tools_python(), "-m", "inspect_ai", "eval", "inspect_task.py"),
                *("--model", f"openai-api/stub/{model}", "--log-dir", str(logs)),
                *("--log-format", "json", "--display", "none", "--max-connections", "1"),
                *(part for option in options for part in ("-T", option)),
            ],
            cwd=folder,
            env=own | {"STUB_API_KEY": "none", "STUB_BASE_URL": url},
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = logs.glob("*.json")
    log: dict[str, Any] = json.loads(path.read_text("utf-8"))
    assert log["status"] == "success"
    return log


@pytest.mark.log_tools
@pytest.mark.timeout(600)
def test_inspect_ai_runs_the_task(tmp_path: Path) -> None:
    done = export(every_row(), tmp_path)
    log = evaluated(tmp_path, "reader-perfect")
    (result,) = log["results"]["scores"]
    metrics = {name: one["value"] for name, one in result["metrics"].items()}
    assert log["results"]["completed_samples"] == done.questions
    assert {metrics[name] for name in ("accuracy", *FORMATS)} == {1.0}
    assert {one["metadata"]["document_key"] for one in log["samples"]} == {
        f"{name}/1k/7" for name in BENCHMARKS
    }
    guessed = evaluated(tmp_path, "reader-guess", "format=prose", "benchmark=network")
    assert guessed["results"]["completed_samples"] == len(document("network")[1])
    assert guessed["results"]["scores"][0]["metrics"]["accuracy"]["value"] < 0.5
