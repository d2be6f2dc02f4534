"""Which accelerators this machine has, by what names they are distinguished and shown to CUDA."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Literal

from contextcliff_dagster.contracts import EngineError

Gpus = int | Literal["auto"]
"""How many whole devices are wanted; ``auto``: one where the machine has any, else its CPU lane."""

DEVICES_VARIABLE = "CONTEXTCLIFF_DEVICES"
_VISIBLE = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True, slots=True)
class Device:
    """``name`` is what ``CUDA_VISIBLE_DEVICES`` is given, ``key`` what the device is leased by.

    The key is the UUID where the driver reports one, the same through different masks. The name is
    the index all the same: vLLM before 0.24 takes nothing else (``int('GPU-...')``).
    """

    name: str
    key: str


CPU_LANE = Device("", "cpu")
"""What is leased where there is no device. One lane a machine: an engine on the CPU takes every
core, so two at a time would be measured at half speed."""


def machine_devices() -> tuple[Device, ...]:
    """The devices that may be leased here, in order.

    Those that ``CONTEXTCLIFF_DEVICES`` lists (as ``CUDA_VISIBLE_DEVICES`` would; ``none`` for
    none), else those of ``CUDA_VISIBLE_DEVICES``, else all that ``nvidia-smi`` names. Indices count
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
    """Refuse what this machine can never give.

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
    """What serves each of ``wanted``, one after the other."""
    numbers = [gpus for gpus in wanted if isinstance(gpus, int)]
    least = max(numbers, default=0)
    return "auto" if least == 0 and "auto" in wanted else least
