"""Time and memory per call, and size of the ledger, for many calls to a local stub.

    python benchmarks/many_calls.py [--calls 10000 30000 100000] [--questions 5] [--bins 10]
                                    [--words 200 4000] [--delay 20] [--dir DIR]

Each size is a separate study, prepared and measured by the commands, with the stub of overhead.py
as the endpoint. The stub is then stopped and the study measured again, which succeeds if no call
was lost. Texts are cut from the Python standard library's source; their compressed size is summed
over texts, with the ledger's codec.

Targets (100,000): CPU per call no larger than at 10,000; ledger at most 3 x the compressed texts;
constant memory during the calls; one request per answered call.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

from many_examples import PREPARE, environment_of, show, write_study
from overhead import stub
from tree_memory import Followed, follow

PROFILE = [sys.executable, "-m", "contextcliff_dagster.cli", "profile", "many", "--yes", "--json"]
STATS = [sys.executable, "-m", "contextcliff_dagster.cli", "ledger", "stats", "--json"]
RIGHT = "93791508"  # what the stub answers


def compressed_mb(folder: Path) -> float:
    """Return the MB of the sample's distinct texts, each compressed separately."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    codec = pa.Codec("zstd")
    size = 0
    with pq.ParquetFile(folder / "store" / "many" / "manifest" / "documents.parquet") as file:
        for batch in file.iter_batches(batch_size=100, columns=["text"]):
            for text in batch.column(0).to_pylist():
                size += len(codec.compress(text.encode(), asbytes=True))
    return size / 1e6


def measure(calls: int, given: argparse.Namespace, folder: Path) -> Followed:
    """Prepare and measure a study of ``calls`` calls; print its figures."""
    environment = environment_of(folder)
    with stub(given.delay) as url:
        text_mb = write_study(folder, given, calls, url, RIGHT)
        print(f"== {calls:,} calls, {text_mb:,.0f} MB of distinct text")
        show("prepare", follow(PREPARE, environment, folder))
        run = follow(PROFILE, environment, folder)
    show("profile", run)
    print(
        f"  {run.cpu_s / calls * 1e3:.2f} CPU ms a call, {calls / run.wall_s:,.0f} calls a second"
    )
    show("profile again, without the stub", follow(PROFILE, environment, folder))
    stats = json.loads(follow(STATS, environment, folder).stdout)
    lost = calls - stats["answers"]
    print(
        f"  {stats['answers']:,} answers, {lost:,} lost; {stats['attempts']:,} requests, "
        f"{stats['failures']:,} failed"
    )
    ledger, texts = stats["bytes"] / 1e6, compressed_mb(folder)
    print(
        f"  ledger {ledger:,.1f} MB, {ledger / texts:.2f} x the compressed texts ({texts:,.1f} MB);"
        f" {(ledger - texts) / calls * 1e6:,.0f} bytes a call besides"
    )
    log = sum(f.stat().st_size for f in (folder / "store" / "dagster_home").rglob("*.db*"))
    files = list((folder / "store").rglob("*.parquet"))
    print(
        f"  Dagster's records {log / 1e6:,.1f} MB; {len(files):,} Parquet files of "
        f"{sum(f.stat().st_size for f in files) / 1e6:,.1f} MB",
        flush=True,
    )
    return run


def main() -> None:
    """Parse the arguments and print the figures of each size."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--calls", type=int, nargs="+", default=[10_000, 30_000, 100_000])
    parser.add_argument("--questions", type=int, default=5)
    parser.add_argument("--bins", type=int, default=10)
    parser.add_argument("--words", type=int, nargs=2, default=(200, 4_000))
    parser.add_argument("--delay", type=float, default=20.0, help="of the stub, in ms")
    parser.add_argument("--dir", type=Path)
    given = parser.parse_args()
    each = {}
    for calls in given.calls:
        with tempfile.TemporaryDirectory(dir=given.dir) as name:
            each[calls] = measure(calls, given, Path(name))
    if len(each) > 1:
        first, last = min(each), max(each)
        more = (each[last].cpu_s - each[first].cpu_s) / (last - first) * 1e3
        kb = (each[last].peak_mb - each[first].peak_mb) / (last - first) * 1e3
        print(f"from {first:,} to {last:,} calls: {more:.2f} CPU ms and {kb:.2f} KB of memory each")


if __name__ == "__main__":
    main()
