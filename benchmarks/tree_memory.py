"""Run a command and record its cost: CPU and wall seconds, and resident memory over time.

Memory is summed over the process and its descendants every 0.5 s. Shared pages count once for each
process, so the sum is never too small.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import psutil

EVERY_S = 0.5


@dataclass
class Followed:
    """Cost of a command. ``memory``: (second, MB) in order; ``stdout``: what it printed."""

    wall_s: float = 0.0
    cpu_s: float = 0.0
    stdout: str = ""
    memory: list[tuple[float, float]] = field(default_factory=list)

    @property
    def peak_mb(self) -> float:
        return max(mb for _, mb in self.memory)

    def parts(self, count: int) -> list[float]:
        """Return the peak MB in each of ``count`` equal parts of the time, in order."""
        edges = [self.wall_s * part / count for part in range(count + 1)]
        return [
            max((mb for at, mb in self.memory if low <= at <= high), default=0.0)
            for low, high in pairwise(edges)
        ]


def follow(
    command: Sequence[str], environment: Mapping[str, str], folder: Path,
    each: Callable[[float, float], None] | None = None,
) -> Followed:  # fmt: skip
    """Run ``command`` to its end and return its cost; ``each`` receives every (second, MB).

    Raises:
        SystemExit: the command failed; contains the end of its output.
    """
    result = Followed()
    before, began = os.times(), time.perf_counter()
    with (folder / "stdout").open("w+") as out, (folder / "stderr").open("w+") as err:
        process = subprocess.Popen(
            command, cwd=folder, env={**os.environ, **environment}, stdout=out, stderr=err
        )
        while process.poll() is None:
            at, mb = time.perf_counter() - began, tree_mb(process.pid)
            if mb:
                result.memory.append((at, mb))
                if each is not None:
                    each(at, mb)
            time.sleep(EVERY_S)
    after = os.times()
    result.wall_s = time.perf_counter() - began
    result.cpu_s = after.children_user + after.children_system
    result.cpu_s -= before.children_user + before.children_system
    result.stdout = (folder / "stdout").read_text()
    if process.returncode:
        raise SystemExit((folder / "stderr").read_text()[-3_000:] or result.stdout[-3_000:])
    return result


def tree_mb(pid: int) -> float:
    """Return the resident MB of a process and its descendants; 0 if it has ended."""
    total = 0
    try:
        root = psutil.Process(pid)
        for process in (root, *root.children(recursive=True)):
            try:
                total += process.memory_info().rss
            except psutil.Error:
                continue
    except psutil.Error:
        return 0.0
    return total / 1e6
