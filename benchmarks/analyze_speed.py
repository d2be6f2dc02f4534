"""Time and memory of `contextcliff analyze`, including reading, by number of rows and format.

    python benchmarks/analyze_speed.py [--rows 10000 1000000] [--dir DIR] [--formats jsonl ...]

The command analyses every file in a fresh process, imports included: bare (two columns) and with
names (four questions per document, ids of 64 and 11 characters, a model, the answer's text). CPU
seconds are user plus system time; on a busy machine they are more reliable than the wall clock. The
last measurement is the analysis alone: records in memory, everything imported, 2,000 resamples, all
second opinions.

Targets on 2 cores: the analysis of 10,000 records in 2 s, 1,000,000 rows of JSON Lines with
reading in 10 s and 1 GB.
"""

from __future__ import annotations

import argparse
import hashlib
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

QUESTIONS = 4
ANSWER = "The answer is forty-two, as far as the text tells."


def table(rows: int, named: bool) -> pa.Table:
    """Return a table of scores, a quarter of them graded, that halve at 40,000 tokens."""
    rng = np.random.default_rng(0)
    document = np.arange(rows) // QUESTIONS
    tokens = np.exp(rng.uniform(np.log(200), np.log(120_000), document[-1] + 1)).astype(np.int64)
    length = tokens[document]
    mean = 0.9 / (1.0 + (length / 40_000) ** 2)
    score = np.where(
        np.arange(rows) % QUESTIONS == 0,
        rng.beta(4 * mean + 0.1, 4 * (1 - mean) + 0.1).round(4),
        (rng.random(rows) < mean).astype(float),
    )
    columns: dict[str, Any] = {"length_tokens": length, "score": score}
    if named:
        ids = [hashlib.sha256(str(d).encode()).hexdigest() for d in range(int(document[-1]) + 1)]
        columns["document_id"] = pa.array(ids).take(pa.array(document))
        columns["example_id"] = [f"ex-{i:08d}" for i in range(rows)]
        columns["model"] = ["a-model"] * rows
        columns["raw_output"] = [ANSWER] * rows
    return pa.table(columns)


def write(rows: int, named: bool, path: Path) -> None:
    data = table(rows, named)
    if path.suffix == ".parquet":
        pa.parquet.write_table(data, path)
    elif path.suffix == ".csv":
        pa.csv.write_csv(data, path)
    else:
        data.to_pandas().to_json(path, orient="records", lines=True)


def measured(*arguments: str) -> tuple[float, float, float]:
    """Run the command; return wall seconds, CPU seconds and peak memory (MB)."""
    started = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "contextcliff_dagster.cli", "analyze", *arguments],
        stdout=subprocess.DEVNULL,
    )
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - started
    if status:
        raise SystemExit(f"analyze {' '.join(arguments)} ended with status {status}")
    unit = 1 if sys.platform == "darwin" else 1_024
    return wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * unit / 1e6


def alone(rows: int) -> list[float]:
    """Return wall seconds of three analyses alone, after one that imports everything."""
    from contextcliff_dagster.analysis.profile import ProfileContext, profile_model
    from contextcliff_dagster.analysis.records import AnalysisSettings

    records = table(rows, True).drop_columns(["model", "raw_output"]).to_pandas()
    took = []
    for _ in range(4):
        started = time.perf_counter()
        profile_model(records, [], AnalysisSettings(), ProfileContext("a-model"))
        took.append(time.perf_counter() - started)
    return took[1:]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rows", type=int, nargs="+", default=[10_000, 1_000_000])
    options.add_argument("--formats", nargs="+", default=["jsonl", "csv", "parquet"])
    options.add_argument("--dir", type=Path, help="where the files are written and stay")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.dir or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        print(f"{'rows':>9}  {'columns':7}  {'format':10}  {'MB':>6}  wall s   CPU s  peak MB")
        for rows in given.rows:
            for named in (False, True):
                for ending in given.formats:
                    kind = "named" if named else "bare"
                    path = folder / f"{kind}-{rows}.{ending}"
                    # In a process of its own: the peak of a child counts what its parent held.
                    writer = multiprocessing.get_context("spawn").Process(
                        target=write, args=(rows, named, path)
                    )
                    writer.start()
                    writer.join()
                    wall, cpu, memory = measured(str(path))
                    print(
                        f"{rows:9,}  {kind:7}  {ending:10}  {path.stat().st_size / 1e6:6.1f}  "
                        f"{wall:6.1f}  {cpu:6.1f}  {memory:7.0f}",
                        flush=True,
                    )
        last = folder / f"named-{given.rows[-1]}.{given.formats[0]}"
        wall, cpu, memory = measured(str(last), "--out", str(folder / "report"))
        print(
            f"the last {given.formats[0]} with report and picture: {wall:.1f} s, {cpu:.1f} CPU s, "
            f"{memory:.0f} MB"
        )
    took = ", ".join(f"{seconds:.2f}" for seconds in alone(given.rows[0]))
    print(f"the analysis of {given.rows[0]:,} records by itself: {took} s")


if __name__ == "__main__":
    main()
