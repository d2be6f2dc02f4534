"""What an engine measures next to its answer is kept, and comes out wherever answers come out.

This file and the engine's own are all that a new measurement per call touches.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from contextcliff_dagster.archive.results import export_results
from contextcliff_dagster.contracts import EVAL_RECORDS, PREDICTIONS, conform
from contextcliff_dagster.inference.engines.base import Delta
from contextcliff_dagster.inference.ledger.ledger import Ledger
from contextcliff_dagster.inference.ledger.prune import prune
from contextcliff_dagster.inference.ledger.verify import verify
from contextcliff_dagster.inference.requests.call_plan import measurements
from contextcliff_dagster.inference.requests.recipe import Prompt
from contextcliff_dagster.scoring.evaluate import ScoringRules, score_rows
from contextcliff_dagster_tests.support.records.calls import openai_entry
from contextcliff_dagster_tests.support.records.measured import SAMPLE, rows_of, run
from contextcliff_dagster_tests.support.scripted_engine import ScriptedEngine

ENTRY = openai_entry("http://127.0.0.1:9/v1")


def attention(prompt: Prompt) -> Sequence[Delta]:
    """An answer with measurements that no code of this project knows."""
    length = sum(map(len, prompt.contents()))
    return [
        Delta(text="12", extra={"attention_entropy": 9.0, "kv_budget_kept": 0.25}),
        Delta(text="3", extra={"attention_entropy": length / 7, "policy": "h2o é"}),
    ]


def test_a_new_measurement_reaches_predictions_records_and_exports(
    ledger: Ledger, tmp_path: Path
) -> None:
    run(ledger, ENTRY, n=2, engine=ScriptedEngine(attention))
    rows = rows_of(ledger, n=2, model=ENTRY.name)
    for row in rows:
        length = row["own_prompt_tokens"]
        assert json.loads(row["extra"]) == {
            "attention_entropy": length / 7,
            "kv_budget_kept": 0.25,
            "policy": "h2o é",
        }
    assert conform(rows, PREDICTIONS)["extra"].to_pylist() == [row["extra"] for row in rows]
    examples = {s.example.example_id: s.example for b in SAMPLE.bins for s in SAMPLE.planned(b, 2)}
    records = score_rows(rows, examples, SAMPLE.document_text, ScoringRules())
    assert conform(records, EVAL_RECORDS)["extra"].to_pylist() == [row["extra"] for row in rows]

    by_key = {row["call_key"]: row["extra"] for row in rows}
    for name in ("calls.jsonl", "calls.parquet"):
        export_results(ledger, "s", None, tmp_path / name)
    lines = [json.loads(line) for line in (tmp_path / "calls.jsonl").read_text().splitlines()]
    assert {line["call_key"]: line["extra"] for line in lines} == {
        key: json.loads(extra) for key, extra in by_key.items()
    }
    table = pq.read_table(tmp_path / "calls.parquet").to_pylist()
    assert {row["call_key"]: row["extra"] for row in table} == by_key

    assert verify(ledger).faults == ()
    ledger.write(lambda db: db.execute("UPDATE results SET extra = '{\"kv_budget_kept\": 1.0}'"))
    assert verify(ledger).fault_count == len(rows), "a changed measurement is noticed"
    prune(ledger, "s", texts=True)
    assert ledger.read("SELECT DISTINCT extra FROM results") == [(None,)], "it may hold texts"


@pytest.mark.parametrize("extra", [["a list"], {"kept": [1, 2]}, {1: 2.0}, {"nan": math.nan}])
def test_a_malformed_measurement_never_costs_the_answer(sqlite_ledger: Ledger, extra: Any) -> None:
    engine = ScriptedEngine(lambda prompt: [Delta(text="123", extra=extra)])
    assert run(sqlite_ledger, ENTRY, n=1, engine=engine).answered == 3
    rows = rows_of(sqlite_ledger, n=1, model=ENTRY.name)
    assert [(row["raw_output"], row["extra"]) for row in rows] == [("123", None)] * 3


def test_numbers_of_numpy_are_numbers() -> None:
    given = {"a": np.float32(0.5), "b": np.int64(3), "c": np.bool_(True), "d": None, "e": "x"}
    kept = measurements(given)
    assert kept == {"a": 0.5, "b": 3, "c": True, "d": None, "e": "x"}
    assert json.loads(json.dumps(kept)) == kept
    assert measurements({"half": "\ud800", "many": np.zeros(2), "huge": math.inf}) is None
