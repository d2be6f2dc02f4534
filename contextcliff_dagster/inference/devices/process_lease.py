"""The devices of this process: leased, shown to CUDA, and given back.

``CUDA_VISIBLE_DEVICES`` counts for a whole process and is read once, when CUDA starts in it. So a
process has one lease at a time, and one that has opened a device keeps it until it ends.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from contextcliff_dagster.contracts import EngineError
from contextcliff_dagster.inference.devices.discovery import CPU_LANE, Gpus
from contextcliff_dagster.inference.devices.file_leases import Lease, WaitStopped, lease

LEASED_VARIABLE = "CONTEXTCLIFF_LEASED"
"""Names of the devices that were leased for this process before it started; ``cpu`` for the lane.
Set it yourself where a batch system has given you devices already."""

DESCRIPTORS_VARIABLE = "CONTEXTCLIFF_LEASE_DESCRIPTORS"
"""``pid:fd,fd``: the locked files that the launcher has left open across ``exec``."""

_one_at_a_time = threading.RLock()
_held: Lease | None = None


@contextmanager
def leased(
    gpus: Gpus,
    purpose: str,
    *,
    on_wait: Callable[[str], None] | None = None,
    should_stop: Callable[[], bool] | None = None,
) -> Iterator[None]:
    """Within, this process has ``gpus`` whole devices, and CUDA sees these only.

    Nothing is leased where devices were leased for this process at its start, or where the calling
    thread already has a lease. Other threads wait for their turn.

    Raises:
        EngineError: more devices are wanted than there are, than were leased for this process, or
            than it holds already.
        WaitStopped: ``should_stop`` returned True while waiting.
    """
    global _held
    if gpus == 0:
        yield
        return
    with _turn(should_stop):
        lease_descriptors()  # those of the launcher are no longer inherited
        if (listed := os.environ.get(LEASED_VARIABLE)) is not None:
            names = [name for name in listed.split(",") if name not in ("", CPU_LANE.key)]
            if isinstance(gpus, int) and gpus > len(names):
                raise EngineError(
                    f"{purpose} needs {gpus} GPU{'s' * (gpus > 1)}, and this process already has "
                    f"{', '.join(names) or 'the CPU lane'}, which it cannot exchange: measure that "
                    "model in a run of its own (after a change of models.yaml, reload the code "
                    "location)."
                )
            yield
            return
        ours = ("CUDA_VISIBLE_DEVICES", LEASED_VARIABLE, "CUDA_DEVICE_ORDER")
        before = {name: os.environ.get(name) for name in ours}
        _held = lease(gpus, purpose, on_wait=on_wait, should_stop=should_stop)
        os.environ.update(environment_of(_held))
        try:
            yield
        finally:
            if not _opened_a_device():
                _let_go(before)


def lease_descriptors() -> tuple[int, ...]:
    """For ``subprocess.Popen(..., pass_fds=...)`` of a server that works on our devices: they then
    stay leased until it has ended, even where we are killed before."""
    if _held is not None:
        return _held.descriptors
    pid, _, listed = os.environ.get(DESCRIPTORS_VARIABLE, "").partition(":")
    if pid != str(os.getpid()):
        return ()
    descriptors = tuple(int(number) for number in listed.split(",") if number)
    for descriptor in descriptors:
        # Open across the launcher's exec; programs that we start hold only what is passed to them.
        with suppress(OSError):
            os.set_inheritable(descriptor, False)
    return descriptors


def environment_of(held: Lease) -> dict[str, str]:
    """What a process that holds ``held`` must have in its environment before CUDA starts."""
    return {
        "CUDA_VISIBLE_DEVICES": held.visible,
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",  # as nvidia-smi counts, not the fastest first
        LEASED_VARIABLE: held.visible or CPU_LANE.key,
    }


def _let_go(before: dict[str, str | None]) -> None:
    global _held
    for name, value in before.items():
        os.environ.pop(name, None)
        if value is not None:
            os.environ[name] = value
    if _held is not None:
        _held.close()
        _held = None


@contextmanager
def _turn(should_stop: Callable[[], bool] | None) -> Iterator[None]:
    while not _one_at_a_time.acquire(timeout=0.2):
        if should_stop is not None and should_stop():
            raise WaitStopped
    try:
        yield
    finally:
        _one_at_a_time.release()


def _opened_a_device() -> bool:
    """Whether CUDA has started here: its context stays on the device as long as the process."""
    with suppress(OSError):
        for entry in Path("/proc/self/fd").iterdir():
            with suppress(OSError):
                if str(entry.readlink()).startswith("/dev/nvidia"):
                    return True
    return False
