"""A study over Python files, from the folder to the verdict, in this process.

The model is a stub that copies a begun line to its end, unless the file is longer than it can.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from contextcliff_dagster.contracts import EVAL_RECORDS
from contextcliff_dagster.run.study import prepare_study, profile_study
from contextcliff_dagster.store import Store, read_table
from contextcliff_dagster.studies import Study, load_study
from contextcliff_dagster_tests.support.paths import CHECKOUT
from contextcliff_dagster_tests.support.terminal import call

pytestmark = pytest.mark.usefixtures("unrecorded")

READS = 6_000
"""Characters of a prompt beyond which the stub finds nothing any more."""
FILES = 24


class Copyist(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        file, begun = (turn["content"] for turn in asked["messages"][-2:])
        assert asked["messages"][-1]["role"] == "assistant"
        at = file.find(begun)
        said = "pass" if len(file) > READS else file[at + len(begun) :].split("\n")[0]
        choice = {"index": 0, "message": {"role": "assistant", "content": said}}
        answer = {"choices": [{**choice, "finish_reason": "stop"}], "object": "chat.completion"}
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def address() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Copyist) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
        server.shutdown()
        thread.join()


def source(number: int) -> str:
    lines = [
        f"def step_{number}_{n}(amount):\n    total_{n} = mix_{number}(amount, by=1{n}_{number})"
        for n in range(3 + 9 * number)
    ]
    return "\n\n".join(lines) + "\n"


@pytest.fixture
def study(tmp_path: Path, address: str, monkeypatch: pytest.MonkeyPatch) -> Study:
    files = tmp_path / "files"
    files.mkdir()
    for number in range(FILES):
        (files / f"module_{number}.py").write_text(source(number), encoding="utf-8")
    (files / "broken.py").write_text("def (", encoding="utf-8")
    entry = {
        "engine": "openai",
        "model_id": "copyist",
        "base_url": address,
        "window_tokens": 100_000,
        "quirks": {"prefill": "last_message", "probes": "omit"},
    }
    models = tmp_path / "models.yaml"
    models.write_text(yaml.safe_dump({"models": {"copyist": entry}}), encoding="utf-8")
    monkeypatch.setenv("CONTEXTCLIFF_MODELS", str(models))
    # The shipped study's own recipe and scoring, over other files and another model.
    shipped = CHECKOUT / "studies"
    told = yaml.safe_load((shipped / "local.yaml").read_text(encoding="utf-8"))
    told["corpus"] = {
        **{k: v for k, v in told["corpus"].items() if k in ("kind", "task", "line_question")},
        "path": "files",
        "questions_per_document": 3,
    }
    told |= {"models": ["copyist"], "bins": {"count": 3}, "analysis": {"resamples": 100}}
    told["prompt"]["template"] = str(shipped / told["prompt"]["template"])
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump({**told, "name": "mine"}), encoding="utf-8")
    return load_study(path)


def test_files_become_questions_answers_and_a_loss_where_the_model_stops(
    study: Study, store: Store
) -> None:
    done = profile_study(study, store=store)
    calls = done.calls["copyist"]
    assert calls.planned == calls.answered == 3 * FILES
    records = [
        row
        for path in store.campaign_dir(EVAL_RECORDS.name, "mine", done.campaign).rglob("*.parquet")
        for row in read_table(path, EVAL_RECORDS).to_pylist()
    ]
    texts = {source(n): n for n in range(FILES)}
    reads = {len(text) + 200 < READS for text in texts}
    assert reads == {True, False}
    for row in records:
        assert row["task"] == "complete_line"
        assert row["level"] == 1
        assert 0 <= row["evidence_position"] < 1
    scores = sorted((row["length_tokens"], row["score"]) for row in records)
    first_loss = next(length for length, score in scores if score == 0)
    assert all(score == 1 for length, score in scores if length < first_loss)
    assert all(score == 0 for length, score in scores if length > first_loss)
    (cliffs,) = done.cliffs
    assert cliffs.task == "complete_line"
    assert cliffs.verdict == "cliff"
    again = profile_study(study, store=store).calls["copyist"]
    assert (again.sent, again.cached) == (0, 3 * FILES)


def test_preparing_says_what_became_of_the_files(study: Study, tmp_path: Path) -> None:
    output = call("prepare", str(tmp_path / "mine.yaml"))
    assert output.code == 0
    assert f"{FILES + 1} Python files read, {FILES} used; left out: 1 not Python" in output.out
    result = json.loads(call("prepare", str(tmp_path / "mine.yaml"), "--json").out)
    assert result["corpus"]["account"]["files"]["skipped"] == {"not_python": 1}
    assert "python-source" in call("studies").out


def test_options_changed_after_a_preparation_count(study: Study, store: Store) -> None:
    prepare_study(study, store=store, reread=True)
    fewer = study.changed(
        corpus={**study.corpus.model_dump(), "path": study.corpus_options["path"], "documents": 12}
    )
    assert prepare_study(fewer, store=store).manifest.documents.num_rows == 12
