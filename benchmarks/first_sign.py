"""Seconds until a command writes its first output, on a pipe and on a terminal.

    python benchmarks/first_sign.py [--runs 3] [--busy 2]

Each command runs in its own process and is stopped at its first byte on stderr or stdout.
``cold``: without compiled modules, as right after an installation. ``busy``: number of processes
that only compute at the same time. Exits with 1 if a command takes more than 2 s.
"""

from __future__ import annotations

import argparse
import os
import pty
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GOAL_S = 2.0
COMMANDS = ("profile quick", "prepare quick", "report quick", "analyze scores.csv", "doctor", "ui")


def first_byte_s(command: Sequence[str], *, terminal: bool, cold: bool) -> float:
    """Return the seconds from the start of the process to its first byte."""
    with tempfile.TemporaryDirectory() as folder:
        rows = (f"{length},{int(length < 3_000)}" for length in range(100, 6_000, 30))
        (Path(folder) / "scores.csv").write_text("\n".join(["length_tokens,score", *rows]))
        env = {**os.environ, "PYTHONPATH": str(ROOT), "CONTEXTCLIFF_HOME": f"{folder}/store"}
        env.pop("CONTEXTCLIFF_PROGRESS", None)
        if cold:
            env["PYTHONPYCACHEPREFIX"] = f"{folder}/compiled"
        ours, theirs = pty.openpty() if terminal else os.pipe()
        began = time.monotonic()
        process = subprocess.Popen(
            [sys.executable, "-m", "contextcliff_dagster.cli", *command],
            stdin=subprocess.DEVNULL,
            stdout=theirs,
            stderr=theirs,
            env=env,
            cwd=folder,
        )
        os.close(theirs)
        select.select([ours], [], [], 120)
        seconds = time.monotonic() - began
        process.kill()
        process.wait()
        os.close(ours)
        return seconds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--busy", type=int, default=2)
    given = parser.parse_args()
    print(f"load before: {os.getloadavg()[0]:.1f}; median (longest) of {given.runs} runs, s")
    longest = 0.0
    for busy in (0, given.busy):
        spinning = [
            subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(busy)
        ]
        try:
            for cold in (False, True):
                for command in COMMANDS:
                    cells = []
                    for terminal in (False, True):
                        times = sorted(
                            first_byte_s(command.split(), terminal=terminal, cold=cold)
                            for _ in range(given.runs)
                        )
                        longest = max(longest, times[-1])
                        where = "terminal" if terminal else "pipe"
                        cells.append(f"{where} {times[len(times) // 2]:.2f} ({times[-1]:.2f})")
                    state = f"{busy} busy, {'cold' if cold else 'warm'}"
                    print(f"{state:<14}{command:<20}{'   '.join(cells)}", flush=True)
        finally:
            for process in spinning:
                process.kill()
    return int(longest > GOAL_S)


if __name__ == "__main__":
    sys.exit(main())
