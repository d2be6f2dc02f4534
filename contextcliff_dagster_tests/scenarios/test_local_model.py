"""A real language model, profiled for real: SmolLM2 copies lines of the standard library."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from contextcliff_dagster.contracts import EVAL_RECORDS, PREDICTIONS
from contextcliff_dagster.inference.weights import LOCAL_MODEL_FILE
from contextcliff_dagster.run.study import Profiled, profile_study
from contextcliff_dagster.store import Store, read_table
from contextcliff_dagster.studies import load_study
from contextcliff_dagster_tests.support.files.source_lines import source_documents

pytestmark = [
    pytest.mark.local_model,
    pytest.mark.timeout(1500),
]

STUDY = {
    "name": "lines",
    "corpus": {"kind": "file", "path": "lines.jsonl"},
    "tokenizer": "tiktoken:o200k_base",
    "bins": {"count": 2},
    "sampling": {"samples_per_bin": 30, "pilot_per_bin": 5, "questions_per_document": 3},
    "prompt": {
        "mode": "chat_prefill",
        "instructions": "instructions.txt",
        "answer_prefix": "{question}",
        "max_output_tokens": 16,
    },
    "models": ["small"],
    "scoring": {"primary": "contained"},
    "analysis": {"resamples": 100},
}
MODEL = {"engine": "llamacpp", "weights": LOCAL_MODEL_FILE, "window_tokens": 1024, "threads": 1}
DOCUMENTS, CALLS = 4, 12
TOO_LONG = 3
"""Questions over the one document that does not fit into the window."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    documents = source_documents(DOCUMENTS, (500, 1000))
    long = source_documents(1, (6_000, 60_000))
    lines = [
        {"document": d.text, "question": line.beginning, "answers": [line.rest]}
        for d in (*documents, *long)
        for line in d.lines
    ]
    (tmp_path / "lines.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    (tmp_path / "instructions.txt").write_text(
        "Copy the whole line of the text above that begins with: {question}\n", encoding="utf-8"
    )
    (tmp_path / "lines.yaml").write_text(yaml.safe_dump(STUDY), encoding="utf-8")
    models = tmp_path / "models.yaml"
    models.write_text(yaml.safe_dump({"models": {"small": MODEL}}), encoding="utf-8")
    monkeypatch.setenv("CONTEXTCLIFF_MODELS", str(models))
    return tmp_path


def rows(store: Store, table: Any, done: Profiled) -> list[dict[str, Any]]:
    folder = store.campaign_dir(table.name, "lines", done.campaign)
    return [
        row
        for path in sorted(folder.rglob("*.parquet"))
        for row in read_table(path, table).to_pylist()
    ]


def test_a_real_model_is_profiled_and_what_is_measured_is_never_asked_again(
    folder: Path, contextcliff_home: Path
) -> None:
    study, store = load_study(folder / "lines.yaml"), Store(contextcliff_home)
    done = profile_study(study)
    calls = done.calls["small"]
    assert (calls.sent, calls.answered) == (CALLS, CALLS)
    assert calls.planned == CALLS + TOO_LONG

    predictions = rows(store, PREDICTIONS, done)
    sent = [row for row in predictions if row["prompt_tokens"] is not None]
    assert len(sent) == CALLS
    said = [row for row in sent if row["raw_output"]]
    assert len(said) > CALLS * 2 // 3
    assert all(0 < row["ttft_ms"] <= row["duration_ms"] for row in said)
    assert all(row["prompt_tokens"] == row["own_prompt_tokens"] for row in sent)
    # Questions over one document follow each other: for the second and third it is cached.
    reused = [row for row in sent if row["cached_tokens"] > row["length_tokens"] / 2]
    assert len(reused) >= 2 * DOCUMENTS

    records = rows(store, EVAL_RECORDS, done)
    too_long = [row for row in records if row["failure"] == "context_overflow"]
    assert len(too_long) == TOO_LONG
    scores = [row["score"] for row in records if row["score"] is not None]
    share = sum(scores) / len(scores)
    assert len(scores) == CALLS
    assert share >= 0.3, "about 0.6 of the begun lines are copied to their end"
    (cliffs,) = done.cliffs
    assert cliffs.model == "small"

    again = profile_study(study).calls["small"]
    assert (again.sent, again.cached) == (0, CALLS + TOO_LONG)
