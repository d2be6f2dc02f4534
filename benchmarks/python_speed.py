"""Time of `analyze` from Python, imports included, by number of rows and type of columns.

    python benchmarks/python_speed.py [--rows 1000 10000 100000]

Each row times a fresh process from its first line to the result, with all second opinions, then
with `_repr_html_`, which also draws the picture. On a busy machine, the CPU seconds (two threads)
are more reliable. Columns are those of `benchmarks/analyze_speed.py`, bare and named.

Target on 2 idle cores: 10,000 rows in 2 s.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from analyze_speed import table

KINDS = {
    "lists": "[column.to_pylist() for column in columns]",
    "numpy": "[column.to_numpy() for column in columns]",
    "pandas": "[column.to_pandas() for column in columns]",
    "arrow": "columns",
}
SCRIPT = """
import time
import pyarrow.parquet as pq
columns = pq.read_table({path!r}).columns
{imported}
columns = {kind}
started, spent = time.perf_counter(), time.process_time()
from contextcliff_dagster import analyze
names = dict(zip(("documents", "examples"), columns[2:4]))
result = analyze(*columns[:2], **names)
print(time.perf_counter() - started, time.process_time() - spent)
result._repr_html_()
print(time.perf_counter() - started)
"""


def seconds(path: Path, kind: str, repeats: int) -> list[float]:
    """Return median wall and CPU seconds to the result, and to its HTML block."""
    imported = "import pandas" if kind == "pandas" else ""
    script = SCRIPT.format(path=str(path), kind=KINDS[kind], imported=imported)
    taken = [
        subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        for _ in range(repeats)
    ]
    runs = np.array([[float(word) for word in one.stdout.split()] for one in taken])
    return [float(value) for value in np.median(runs, axis=0)]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rows", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    options.add_argument("--repeats", type=int, default=3)
    given = options.parse_args()
    print(f"{'rows':>9}  {'columns':8}  {'from':7}  analyze s   CPU s  with HTML s")
    with tempfile.TemporaryDirectory() as folder:
        import pyarrow.parquet as pq

        for rows in given.rows:
            for named in (False, True):
                path = Path(folder) / "rows.parquet"
                pq.write_table(table(rows, named), path)
                for kind in KINDS:
                    wall, cpu, shown = seconds(path, kind, given.repeats)
                    row = f"{rows:9,}  {'named' if named else 'bare':8}  {kind:7}"
                    print(f"{row}  {wall:9.2f}  {cpu:6.2f}  {shown:11.2f}", flush=True)


if __name__ == "__main__":
    main()
