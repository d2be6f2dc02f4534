"""False latency caps and warnings on a loaded machine without a slow server.

    python benchmarks/latency_false_caps.py [--runs 20] [--busy CORES] [--keep DIR]

Each run measures the study ``reference`` (two models, in process) into a fresh store, with busy
processes next to it. Printed per run: joint caps that a time limits, warnings on times, and, of
both kinds of time, slowdowns that the test finds whether or not a user would notice them. With
``--keep`` the stores stay in DIR; repeated, the script analyses them again and measures nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

WORDS = ("time to first token", "time to the full answer")


def profile(folder: Path) -> tuple[int, int, int]:
    """Return latency caps, warnings on times (printed) and slowdowns of one profile."""
    environment = {**os.environ, "CONTEXTCLIFF_HOME": str(folder)}
    command = [sys.executable, "-m", "contextcliff_dagster.cli", "profile", "reference"]
    subprocess.run(command, env=environment, check=True, capture_output=True)
    caps = warnings = slowdowns = 0
    for file in sorted((folder / "reference" / "profiles").rglob("cliffs.json")):
        result = json.loads(file.read_bytes())
        tests = json.loads((file.parent / "metrics.json").read_bytes())["slowdown"]
        joint = result["joint_cap"]
        caps += joint is not None and joint["limited_by"] != "accuracy"
        lines = [line for line in result["warnings"] if any(w in line.lower() for w in WORDS)]
        warnings += len(lines)
        print(*lines, sep="\n", end="\n" * bool(lines), file=sys.stderr)
        slowdowns += sum(bool(test and test["slowdown"]) for test in tests.values())
    return caps, warnings, slowdowns


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--busy", type=int, default=os.cpu_count() or 2, help="busy processes")
    parser.add_argument("--keep", type=Path, help="folder for the stores")
    given = parser.parse_args()
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(given.busy)]
    totals = [0, 0, 0]
    print("| run | latency caps | warnings | slowdowns found |\n|---|---|---|---|", flush=True)
    try:
        for run in range(given.runs):
            with tempfile.TemporaryDirectory() as folder:
                counts = profile(given.keep / str(run) if given.keep else Path(folder))
            totals = [total + count for total, count in zip(totals, counts, strict=True)]
            print(f"| {run + 1} | {' | '.join(map(str, counts))} |", flush=True)
    finally:
        for process in busy:
            process.terminate()
    print(f"| all | {' | '.join(map(str, totals))} |")


if __name__ == "__main__":
    main()
