"""The corpus `python-source` of this machine: how many examples, over which lengths, how fast.

    python benchmarks/python_source.py                # both roots, all kinds, 2,000 files
    python benchmarks/python_source.py --files 500

Reads, materializes and counts it as preparing a study does, and prints one JSON object. Must reach:
3,000 examples over 500 documents, lengths over two decades (5th to 95th percentile and extremes
are both shown), 60 s in all. CPU seconds are shown beside wall seconds: on a busy machine only
they compare.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from contextcliff_dagster.corpora.materialize import materialize_corpus
from contextcliff_dagster.corpora.registry import open_corpus
from contextcliff_dagster.sampling.length_map import build_length_map, read_length_map
from contextcliff_dagster.sampling.tokenizers.tokenizers import open_tokenizer


def measured(options: dict[str, Any], tokenizer: str) -> dict[str, Any]:
    import numpy as np
    import pyarrow.parquet as pq

    with tempfile.TemporaryDirectory(prefix="contextcliff-") as name:
        folder = Path(name)
        wall, cpu = time.perf_counter(), time.process_time()
        summary = materialize_corpus(open_corpus("python-source", options), folder)
        build_length_map(folder, open_tokenizer(tokenizer), folder / "length_map.parquet")
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        lengths = read_length_map(folder / "length_map.parquet")
        ids = lengths["document_id"].to_numpy(zero_copy_only=False)
        _, first = np.unique(ids, return_index=True)
        tokens = np.sort(lengths["length_tokens"].to_numpy()[first])
        tasks = pq.read_table(folder / "examples.parquet", columns=["task", "level"]).to_pylist()
    low, middle, high = (int(x) for x in np.quantile(tokens, (0.05, 0.5, 0.95)))
    return {
        "examples": summary.examples,
        "documents": summary.documents,
        "megabytes": round(summary.text_bytes / 1e6, 1),
        "tokens": {
            "min": int(tokens[0]),
            "p05": low,
            "median": middle,
            "p95": high,
            "max": int(tokens[-1]),
        },
        "decades": round(math.log10(tokens[-1] / tokens[0]), 2),
        "decades_p05_to_p95": round(math.log10(high / low), 2),
        "kinds": dict(Counter(row["task"] for row in tasks).most_common()),
        "level_2": sum(row["level"] == 2 for row in tasks),
        "seconds": round(wall, 1),
        "cpu_seconds": round(cpu, 1),
        "files": summary.account["files"],
        "python": summary.account["python"],
        "distributions": len(summary.account["distributions"]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=2_000)
    parser.add_argument("--tokenizer", default="tiktoken:o200k_base")
    asked = parser.parse_args()
    print(json.dumps(measured({"files": asked.files}, asked.tokenizer), indent=1))


if __name__ == "__main__":
    main()
