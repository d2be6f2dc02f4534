"""Accelerators of this machine, its idle processor cores, and whether a process runs."""

from __future__ import annotations

import math
import os
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from contextcliff_dagster.contracts import EngineError

Gpus = int | Literal["auto"]
"""Number of whole devices; ``auto`` means one device, or the CPU lane if there is none."""

DEVICES_VARIABLE = "CONTEXTCLIFF_DEVICES"
_VISIBLE = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True, slots=True)
class Device:
    """An accelerator: ``name`` is for ``CUDA_VISIBLE_DEVICES``, ``key`` identifies its lease.

    The key is the UUID if the driver reports one, because it does not depend on the mask. The name
    is always the index: vLLM before 0.24 accepts nothing else (``int('GPU-...')``).
    """

    name: str
    key: str


CPU_LANE = Device("", "cpu")
"""What a process leases on a machine without devices. There is only one, because a CPU engine uses
every core, so two at once would each be measured at half speed."""


def machine_devices() -> tuple[Device, ...]:
    """Return the devices that may be leased on this machine, in order.

    They come from ``CONTEXTCLIFF_DEVICES`` (same syntax as ``CUDA_VISIBLE_DEVICES``; ``none`` for
    no device), else from ``CUDA_VISIBLE_DEVICES``, else from ``nvidia-smi``. Indices follow
    ``nvidia-smi``, which orders devices by PCI bus.
    """
    driver_devices = _driver_devices()
    for variable in (DEVICES_VARIABLE, _VISIBLE):
        if (listed := os.environ.get(variable)) is not None:
            return _listed(listed, driver_devices)
    return tuple(Device(index, uuid) for index, uuid in driver_devices.items())


def _listed(listed: str, driver_devices: Mapping[str, str]) -> tuple[Device, ...]:
    devices: dict[str, Device] = {}
    for name in map(str.strip, listed.split(",")):
        if name in ("", "none", "-1", "NoDevFiles"):
            break  # CUDA also ignores everything after the first invalid name
        device = Device(name, name)
        for index, uuid in driver_devices.items():
            if name == index or (name.startswith("GPU-") and uuid.startswith(name)):
                device = Device(index, uuid)
                break
        devices.setdefault(device.key, device)
    return tuple(devices.values())


@cache
def _driver_devices() -> Mapping[str, str]:
    """Return index -> UUID as ``nvidia-smi`` reports them; empty without a driver."""
    try:
        result = subprocess.run(
            ["nvidia-smi", "--query-gpu=index,uuid", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return {}
    rows = (line.split(",") for line in result.stdout.splitlines() if line.count(",") == 1)
    return {index.strip(): uuid.strip() for index, uuid in rows}


def require_devices(gpus: Gpus, purpose: str) -> None:
    """Raise an error if this machine can never provide the requested devices.

    Raises:
        EngineError: more devices are requested than the machine has.
    """
    devices = machine_devices()
    if isinstance(gpus, int) and gpus > len(devices):
        names = ", ".join(device.name for device in devices)
        raise EngineError(
            f"{purpose} needs {gpus} GPU{'s' * (gpus > 1)}, but this machine has "
            f"{f'{len(devices)} ({names})' if devices else 'none'}: lower `gpus` in models.yaml, "
            "or run it on a machine with more GPUs."
        )


def most(wanted: list[Gpus]) -> Gpus:
    """Return the number of devices that is enough for any single request in ``wanted``."""
    numbers = [gpus for gpus in wanted if isinstance(gpus, int)]
    least = max(numbers, default=0)
    return "auto" if least == 0 and "auto" in wanted else least


SAMPLE_SECONDS = 0.3
_CPUS = Path("/sys/devices/system/cpu")
_PROC = Path("/proc")
_CGROUPS = Path("/sys/fs/cgroup")


def usable_cores() -> int:
    """Return the physical cores this process may use (affinity and cgroup quota); at least 1.

    llama.cpp's threads wait for each other at every layer, so two threads on one core, or more
    threads than the quota allows, only slow each other down.
    """
    cpus: set[int] = set(range(os.cpu_count() or 1))
    if hasattr(os, "sched_getaffinity"):
        cpus = os.sched_getaffinity(0)
    siblings = {_text(_CPUS / f"cpu{cpu}/topology/core_cpus_list") or str(cpu) for cpu in cpus}
    return max(1, min([len(siblings), *_quotas()]))


def idle_cores() -> int:
    """Return how many of `usable_cores` have just been idle; at least 1.

    Takes `SAMPLE_SECONDS`. If the kernel does not count idle time, uses the last minute's load.
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
    """Return the processors' idle ticks (including disk waits) and total ticks since boot."""
    line = (_PROC / "stat").read_text(encoding="ascii").partition("\n")[0]
    ticks = [int(number) for number in line.split()[1:9]]
    return ticks[3] + ticks[4], sum(ticks)


def _quotas() -> list[int]:
    """Return how many whole cores each cgroup of this process allows (versions 1 and 2)."""
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
            quota_us, period_us = map(int, (text or "").split())  # "max 100000": no limit
            if quota_us > 0:
                quotas.append(max(1, quota_us // period_us))
    return quotas


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return None


_CLOCK_S = 5.0
"""Largest difference (seconds) tolerated between two clocks' readings of a start time."""


def process_runs(pid: int, since: float) -> bool:
    """Return whether the process that had this id at ``since`` (seconds since 1970) still runs.

    A later process with the same id is recognised as such if the system has ``/proc``.
    """
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    with suppress(OSError, ValueError, IndexError):
        # After the name, which may hold anything: state, and as the 20th the start after the boot.
        fields = (_PROC / f"{pid}/stat").read_text().rpartition(")")[2].split()
        lines = (_PROC / "stat").read_text().splitlines()
        boots = (float(line.split()[1]) for line in lines if line.startswith("btime"))
        boot = next(boots, -math.inf)
        began = boot + int(fields[19]) / os.sysconf("SC_CLK_TCK")
        return fields[0] != "Z" and began <= since + _CLOCK_S
    return True
