"""Accelerators of this machine, and how many of its processor cores are idle."""

from __future__ import annotations

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
"""How many whole devices are wanted; ``auto``: one where the machine has any, else its CPU lane."""

DEVICES_VARIABLE = "CONTEXTCLIFF_DEVICES"
_VISIBLE = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True, slots=True)
class Device:
    """``name`` is the value for ``CUDA_VISIBLE_DEVICES``, ``key`` identifies the lease.

    The key is the UUID where the driver reports one, the same through different masks. The name is
    the index all the same: vLLM before 0.24 takes nothing else (``int('GPU-...')``).
    """

    name: str
    key: str


CPU_LANE = Device("", "cpu")
"""The lease where there is no device. One lane a machine: an engine on the CPU takes every
core, so two at a time would be measured at half speed."""


def machine_devices() -> tuple[Device, ...]:
    """The devices that may be leased here, in order.

    The list of ``CONTEXTCLIFF_DEVICES`` (in the syntax of ``CUDA_VISIBLE_DEVICES``; ``none`` for
    none), else of ``CUDA_VISIBLE_DEVICES``, else all that ``nvidia-smi`` names. Indices count
    as ``nvidia-smi`` counts, in the order of the PCI bus.
    """
    known = _driver_devices()
    for variable in (DEVICES_VARIABLE, _VISIBLE):
        if (listed := os.environ.get(variable)) is not None:
            return _listed(listed, known)
    return tuple(Device(index, uuid) for index, uuid in known.items())


def _listed(listed: str, known: Mapping[str, str]) -> tuple[Device, ...]:
    devices: dict[str, Device] = {}
    for name in map(str.strip, listed.split(",")):
        if name in ("", "none", "-1", "NoDevFiles"):
            break  # CUDA, too, sees nothing after the first name that is none
        device = Device(name, name)
        for index, uuid in known.items():
            if name == index or (name.startswith("GPU-") and uuid.startswith(name)):
                device = Device(index, uuid)
                break
        devices.setdefault(device.key, device)
    return tuple(devices.values())


@cache
def _driver_devices() -> Mapping[str, str]:
    """Index -> UUID by ``nvidia-smi``; nothing where there is no driver."""
    try:
        done = subprocess.run(
            ["nvidia-smi", "--query-gpu=index,uuid", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return {}
    rows = (line.split(",") for line in done.stdout.splitlines() if line.count(",") == 1)
    return {index.strip(): uuid.strip() for index, uuid in rows}


def require_devices(gpus: Gpus, purpose: str) -> None:
    """Refuse requests that this machine can never meet.

    Raises:
        EngineError: more devices are wanted than there are.
    """
    devices = machine_devices()
    if isinstance(gpus, int) and gpus > len(devices):
        there = ", ".join(device.name for device in devices)
        raise EngineError(
            f"{purpose} needs {gpus} GPU{'s' * (gpus > 1)}, and this machine has "
            f"{f'{len(devices)} ({there})' if devices else 'none'}: lower `gpus` in models.yaml, "
            "or run it on a machine that has them."
        )


def most(wanted: list[Gpus]) -> Gpus:
    """Devices that serve each of ``wanted``, one after the other."""
    numbers = [gpus for gpus in wanted if isinstance(gpus, int)]
    least = max(numbers, default=0)
    return "auto" if least == 0 and "auto" in wanted else least


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
    """Number of `usable_cores` that were idle for the last moment; at least 1.

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
