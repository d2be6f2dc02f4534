"""Logs that inspect_ai and lm-evaluation-harness really write, of a model behind a local server."""

from __future__ import annotations

import json
import os
import re
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from contextcliff_dagster.score_files import LogOptions, ScoreFileError, ScoreRecords, read_log
from contextcliff_dagster_tests.support import run_tools
from contextcliff_dagster_tests.support.files.log_files import small_tokenizer, text, write_lines
from contextcliff_dagster_tests.support.requirements import log_tools_python

pytestmark = pytest.mark.log_tools

QUESTIONS: list[dict[str, Any]] = [
    {
        "id": number,
        "context": f"{text(number, 40 * number)} The code is {1_000 + number}.",
        "question": "What is the code?" + (" REFUSE" if number == 3 else ""),
        "answer": str(1_000 + number),
    }
    for number in range(1, 9)
]
FORGETS_FROM = 200
"""Words from which on the model does not find the code any more."""


class _Model(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        prompt = str(body["messages"][-1]["content"])
        words = len(prompt.split())
        code = re.search(r"code is (\d+)", prompt)
        answer = code[1] if code and words < FORGETS_FROM else "unknown"
        message = {"role": "assistant", "content": answer}
        refused = "REFUSE" in prompt and "lm_eval" not in self.path
        said = {
            "id": "x", "object": "chat.completion", "created": 0, "model": "stub",
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": words, "completion_tokens": 1, "total_tokens": words + 1},
        }  # fmt: skip
        content = json.dumps({"error": {"message": "no"}} if refused else said).encode()
        self.send_response(400 if refused else 200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Model) as serving:
        thread = threading.Thread(target=serving.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{serving.server_port}"
        serving.shutdown()
        thread.join()


def run(tool: str, url: str, folder: Path) -> None:
    questions = write_lines(folder / "questions.jsonl", QUESTIONS)
    script = Path(run_tools.__file__)
    done = subprocess.run(
        [log_tools_python(), str(script), tool, url, str(folder), str(questions)],
        capture_output=True,
        text=True,
        env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3_000:]


def read(path: Path, **options: Any) -> ScoreRecords:
    records = read_log(path, LogOptions(open_tokenizer=small_tokenizer, **options))
    assert records is not None
    return records


def expected(number: int) -> float:
    row = QUESTIONS[number - 1]
    return float(len(f"{row['context']} {row['question']}".split()) < FORGETS_FROM)


@pytest.mark.timeout(600)
def test_logs_of_inspect_ai(server: str, tmp_path: Path) -> None:
    run("inspect_ai", f"{server}/v1", tmp_path)
    (packed,) = (tmp_path / "both").glob("*.eval")
    (plain,) = (tmp_path / "both").glob("*.json")
    with pytest.raises(ScoreFileError, match="found: exact, includes"):
        read(packed)
    one, same = read(packed, metric="exact"), read(plain, metric="exact")
    order = ["example_id", "replicate"]
    pd.testing.assert_frame_equal(
        one.frame.drop(columns="finished_at").sort_values(order, ignore_index=True),
        same.frame.drop(columns="finished_at").sort_values(order, ignore_index=True),
    )
    assert one.frame["finished_at"].notna().all()
    assert (one.model, one.task) == ("openai-api/stub/stub", "both")
    assert "14 of 16 answers used, left out: 2 with an error" in one.notes[0]
    assert "they repeat 7 examples" in one.notes[0]
    for _, answer in one.frame.iterrows():
        number = int(str(answer["example_id"]).split("/")[1])
        row = QUESTIONS[number - 1]
        assert answer["score"] == expected(number)
        assert answer["length_tokens"] == len(f"{row['context']} {row['question']}".split())
    # The log's own mean is that of the answers taken.
    results = json.loads(plain.read_text("utf-8"))["results"]["scores"]
    (own,) = (s["metrics"]["mean"]["value"] for s in results if s["name"] == "exact")
    assert np.isclose(one.frame["score"].mean(), own)
    counted = read(packed, metric="exact", tokenizer="any").frame
    pages = {small_tokenizer("").count(row["context"]) for row in QUESTIONS if row["id"] != 3}
    assert set(counted["length_tokens"]) == pages
    (failed,) = (tmp_path / "failed").glob("*.eval")
    with pytest.raises(ScoreFileError, match=r"of a run that failed .*--partial"):
        read(failed, metric="exact")


@pytest.mark.timeout(600)
def test_samples_of_lm_evaluation_harness(server: str, tmp_path: Path) -> None:
    run("lm_eval", f"{server}/lm_eval/v1", tmp_path)
    (path,) = (tmp_path / "out").rglob("samples_*.jsonl")
    (results,) = (tmp_path / "out").rglob("results_*.json")
    with pytest.raises(ScoreFileError, match="exact_match,digits, exact_match,whole"):
        read(path)
    with pytest.raises(ScoreFileError, match="no single answers"):
        read(results)
    records = read(path, metric="exact_match,whole")
    assert (records.model, records.task, len(records.frame)) == ("stub", "crates", len(QUESTIONS))
    assert list(records.frame["length_tokens"]) == [
        small_tokenizer("").count(row["context"]) for row in QUESTIONS
    ]
    assert list(records.frame["score"]) == [expected(row["id"]) for row in QUESTIONS]
    own = json.loads(results.read_text("utf-8"))["results"]["crates"]["exact_match,whole"]
    assert np.isclose(records.frame["score"].mean(), own)
    assert records.frame["document_id"].nunique() == len(QUESTIONS)
    scored = read(path, own_score="em")
    assert list(scored.frame["score"]) == list(records.frame["score"])
