"""CPU time of importing the definitions, relative to importing Dagster alone; and of short answers.

Every Dagster step process pays the first. With an empty store, `reference` alone of the shipped
studies is loaded. Short answers are those of commands on a study of which nothing has changed.
Run: ``python benchmarks/import_cost.py [REPEATS]``; exits 1 above a limit.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile

LIMIT = 2.0
SHORT_LIMIT_S = 1.0
SHORT = ("answers", "quick"), ("report", "quick"), ("profile", "quick")
DAGSTER = "import dagster"
OURS = "from contextcliff_dagster.definitions import defs; defs().get_repository_def()"


def cpu_seconds(code: str, store: str | None = None) -> float:
    """Return user plus system time of a fresh interpreter that runs ``code``."""
    command = [sys.executable, "-c", f"{code}\nimport time\nprint(time.process_time())"]
    with tempfile.TemporaryDirectory() as empty:
        environment = {**os.environ, "CONTEXTCLIFF_HOME": store or empty}
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return float(done.stdout.splitlines()[-1])


def short_answers(repeats: int) -> dict[str, float]:
    """Return the median CPU seconds of each command in `SHORT` after a `profile quick`."""
    with tempfile.TemporaryDirectory() as store:
        run = "from contextcliff_dagster.cli import main; assert not main({!r})"
        cpu_seconds(run.format(["profile", "quick"]), store)
        codes = {" ".join(args): run.format([*args]) for args in SHORT}
        return {
            name: statistics.median(cpu_seconds(code, store) for _ in range(repeats))
            for name, code in codes.items()
        }


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
    short = short_answers(repeats)
    for name, seconds in short.items():
        print(f"{name:25} {seconds:5.2f} CPU s (limit {SHORT_LIMIT_S})")
    return 0 if ratio <= LIMIT and max(short.values()) <= SHORT_LIMIT_S else 1


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:2])))
