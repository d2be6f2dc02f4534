"""The same seed gives the same bytes in every process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[4]

SCRIPT = """
import json
from contextcliff_dagster.extensions.utilization.benchmarks.data import BENCHMARKS
from contextcliff_dagster.extensions.utilization.prompts import Arm
from contextcliff_dagster.extensions.utilization.documents import solver_of
from contextcliff_dagster.extensions.utilization.documents import Batch, make_batch
from contextcliff_dagster.extensions.utilization.section import Corruption

TOKENIZER = "tiktoken:o200k_base"
arms = [
    Arm(),
    Arm(evidence="fixed", verbosity="descriptive", order="shuffled"),
    Arm(corruption=Corruption(share=0.1)),
    Arm(corruption=Corruption(share=0.1, of="recomputed")),
]
for benchmark in BENCHMARKS:
    batch = Batch(benchmark, "1k", 3, ["jsonl", "prose"], arms, 4, "content", TOKENIZER)
    for row in make_batch(batch, solver_of(TOKENIZER)):
        print(json.dumps(row))
"""


def test_documents_do_not_depend_on_the_order_of_sets() -> None:
    rows = []
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)}
        made = subprocess.run(
            [sys.executable, "-c", SCRIPT], env=environment, capture_output=True, check=True
        )
        rows.append(made.stdout.splitlines())
    assert len(rows[0]) == 3 * 4 * 2
    assert rows[0] == rows[1]
