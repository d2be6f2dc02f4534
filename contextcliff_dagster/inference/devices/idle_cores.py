"""How many processor cores an engine on the CPU may take without waiting for other programs."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

SAMPLE_SECONDS = 0.3
_CPUS = Path("/sys/devices/system/cpu")
_PROC = Path("/proc")
_CGROUPS = Path("/sys/fs/cgroup")


def usable_cores() -> int:
    """Physical cores that this process may use, by its affinity and its cgroup's quota; at least 1.

    llama.cpp's threads wait for each other at every layer: two on one core, or more than the quota
    has time for, only hold each other up.
    """
    cpus: set[int] = set(range(os.cpu_count() or 1))
    if hasattr(os, "sched_getaffinity"):
        cpus = os.sched_getaffinity(0)
    siblings = {_text(_CPUS / f"cpu{cpu}/topology/core_cpus_list") or str(cpu) for cpu in cpus}
    return max(1, min([len(siblings), *_quotas()]))


def idle_cores() -> int:
    """Those of `usable_cores` that were idle for the last moment; at least 1.

    Takes `SAMPLE_SECONDS`. Where the kernel does not count idle time: by the load of a minute.
    """
    cores = os.cpu_count() or 1
    try:
        idle, total = _idle_and_total()
        time.sleep(SAMPLE_SECONDS)
        idle_now, total_now = _idle_and_total()
        idle_share = (idle_now - idle) / max(1, total_now - total)
    except (OSError, ValueError, IndexError):
        idle_share = 1 - os.getloadavg()[0] / cores
    return max(1, min(usable_cores(), round(cores * idle_share)))


def _idle_and_total() -> tuple[int, int]:
    """Ticks of all processors since the start, idle or waiting for a disk, and in all."""
    line = (_PROC / "stat").read_text(encoding="ascii").partition("\n")[0]
    ticks = [int(number) for number in line.split()[1:9]]
    return ticks[3] + ticks[4], sum(ticks)


def _quotas() -> list[int]:
    """Whole cores that the cgroups of this process allow it (version 2; 1 in a container)."""
    limits = [
        _CGROUPS / folder.lstrip("/") / "cpu.max"
        for line in (_text(_PROC / "self/cgroup") or "").splitlines()
        for path in [Path(line.rpartition(":")[2] or "/")]
        for folder in map(str, (path, *path.parents))
    ]
    texts = [_text(limit) for limit in dict.fromkeys(limits)]
    quota, period = (_text(_CGROUPS / f"cpu/cpu.cfs_{name}_us") for name in ("quota", "period"))
    texts.append(f"{quota} {period}")
    quotas = []
    for text in texts:
        with suppress(ValueError, AttributeError, ZeroDivisionError):
            allowed, each = map(int, (text or "").split())  # "max 100000": no limit
            if allowed > 0:
                quotas.append(max(1, allowed // each))
    return quotas


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return None
