"""CPU time of importing the definitions, relative to importing Dagster alone.

Every Dagster step process pays this. With an empty store, `reference` alone of the shipped studies
is loaded. Run: ``python benchmarks/import_cost.py [REPEATS]``; exits 1 above the limit.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile

LIMIT = 2.0
DAGSTER = "import dagster"
OURS = "from contextcliff_dagster.definitions import defs; defs().get_repository_def()"


def cpu_seconds(code: str) -> float:
    """Return user plus system time of a fresh interpreter that runs ``code``."""
    command = [sys.executable, "-c", f"{code}\nimport time\nprint(time.process_time())"]
    with tempfile.TemporaryDirectory() as store:
        environment = {**os.environ, "CONTEXTCLIFF_HOME": store}
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return float(done.stdout.splitlines()[-1])


def main(repeats: int = 7) -> int:
    for code in (DAGSTER, OURS):  # warm caches and bytecode
        cpu_seconds(code)
    # Alternating, so that a busy machine slows both alike.
    pairs = [(cpu_seconds(DAGSTER), cpu_seconds(OURS)) for _ in range(repeats)]
    dagster, ours = (statistics.median(column) for column in zip(*pairs, strict=True))
    ratio = statistics.median(b / a for a, b in pairs)
    print(f"import dagster            {dagster:5.2f} CPU s (median of {repeats})")
    print(f"our definitions, resolved {ours:5.2f} CPU s")
    print(f"ratio                     {ratio:5.2f} (limit {LIMIT})")
    return 0 if ratio <= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:2])))
