"""Leases that give whole devices to one process at a time and show only these to CUDA.

Each device has one lock file in a folder that all programs on the machine share (not in a store:
several stores share a machine). The holder has an exclusive `flock` on it. The kernel frees the
lock when the last process that inherited it ends. There is no heartbeat and no timeout.

Waiting processes form a line of numbered tickets, which are locked files too. Only the first in
line takes devices, one by one as they become free, so small requests cannot starve a large one.

``CUDA_VISIBLE_DEVICES`` applies to a whole process and is read once, when CUDA starts in it. So a
process has one lease at a time, and one that has opened a device keeps it until it ends.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from contextcliff_dagster.contracts import EngineError
from contextcliff_dagster.inference.devices.discovery import (
    CPU_LANE,
    Device,
    Gpus,
    machine_devices,
    require_devices,
)

FOLDER_VARIABLE = "CONTEXTCLIFF_LEASES"
_POLL_SECONDS = 0.1


class WaitStopped(Exception):
    """Raised if a wait for a device is stopped before one becomes free."""


@dataclass
class Lease:
    """Devices held until `close` is called and every process with the ``descriptors`` has ended.

    Forked children inherit the descriptors; other programs inherit them only through
    ``subprocess.Popen(..., pass_fds=lease.descriptors)``. Pass them to a server that works on the
    devices, or the devices would count as free while it still runs.
    """

    devices: tuple[Device, ...]
    descriptors: tuple[int, ...]

    @property
    def visible(self) -> str:
        """The value for ``CUDA_VISIBLE_DEVICES``; empty for the CPU lane."""
        return ",".join(device.name for device in self.devices)

    def close(self) -> None:
        """Close the descriptors without unlocking, which would free devices that children use."""
        for descriptor in self.descriptors:
            with suppress(OSError):
                os.close(descriptor)
        self.descriptors = ()


def lease(
    gpus: Gpus,
    purpose: str,
    *,
    on_wait: Callable[[str], None] | None = None,
    should_stop: Callable[[], bool] | None = None,
) -> Lease:
    """Wait for ``gpus`` whole devices, or for the CPU lane, and return their lease.

    Other waiting processes see ``purpose``. If there is a wait, ``on_wait`` is called once with a
    sentence about the devices and their holders. ``should_stop`` is checked while waiting.

    Raises:
        EngineError: the machine has fewer devices, or the lease folder is not writable.
        WaitStopped: ``should_stop`` returned True.
    """
    require_devices(gpus, purpose)
    candidates = machine_devices()
    if gpus == "auto":
        gpus, candidates = 1, candidates or (CPU_LANE,)
    if gpus == 0:
        return Lease((), ())
    folder = _folder()
    taken: dict[Device, int] = {}
    try:
        with _ticket(folder) as ticket:
            while True:
                with _line_locked(folder):
                    earlier = _earlier(ticket)
                    first = next(earlier, None)
                    if first is None:
                        _take(folder, candidates, gpus, taken, purpose)
                    ahead = 1 + len(list(earlier)) if first and on_wait else 0
                if len(taken) == gpus:
                    # Cleaners of temporary folders leave a locked one alone.
                    whole = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
                    fcntl.flock(whole, fcntl.LOCK_SH)
                    return Lease(tuple(taken), (*taken.values(), whole))
                if on_wait is not None:
                    on_wait(_waiting(folder, candidates, gpus, purpose, ahead))
                    on_wait = None
                if should_stop is not None and should_stop():
                    raise WaitStopped
                time.sleep(_POLL_SECONDS)
    except BaseException as error:
        Lease(tuple(taken), tuple(taken.values())).close()
        if not isinstance(error, OSError):
            raise
        raise EngineError(
            f"Cannot lease a device through {folder} ({error.strerror}); point {FOLDER_VARIABLE} "
            "at a folder on a local disk that you may write."
        ) from error


def _folder() -> Path:
    """Return the user's lease folder, or the one that ``CONTEXTCLIFF_LEASES`` names (for several
    users, or for containers that share devices).

    It is not below TMPDIR, which differs between the processes of one user.
    """
    chosen = os.environ.get(FOLDER_VARIABLE)
    folder = Path(chosen) if chosen else Path("/tmp") / f"contextcliff-leases-{os.getuid()}"
    mode = 0o777 if chosen else 0o700
    try:
        folder.mkdir(mode, parents=True, exist_ok=True)
        (folder / "line").mkdir(mode, exist_ok=True)
        status = folder.lstat()
    except OSError as error:
        raise EngineError(
            f"Cannot make the folder of device leases {folder} ({error.strerror}); point "
            f"{FOLDER_VARIABLE} at a folder on a local disk that you may write."
        ) from error
    if not chosen and (not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid()):
        raise EngineError(
            f"{folder}, the folder of device leases, belongs to another user: remove it, or point "
            f"{FOLDER_VARIABLE} at another."
        )
    return folder


def _open(path: Path) -> int:
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
    # Not at once with O_CREAT: in a sticky folder the kernel refuses that for others' files.
    with suppress(FileNotFoundError):
        return os.open(path, flags)
    descriptor = os.open(path, flags | os.O_CREAT, 0o666)
    with suppress(OSError):  # any user of a shared folder has to lock what another has made
        os.fchmod(descriptor, 0o666)
    return descriptor


def _try_lock(path: Path) -> int | None:
    """Return a descriptor that locks the file now at ``path``, or None if it is already locked."""
    while True:
        descriptor = _open(path)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with suppress(FileNotFoundError):
                # If the file was deleted meanwhile, no other process sees this lock.
                if path.stat().st_ino == os.fstat(descriptor).st_ino:
                    return descriptor
        except BlockingIOError:
            os.close(descriptor)
            return None
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


@contextmanager
def _line_locked(folder: Path) -> Iterator[None]:
    """Lock the waiting line while the body runs, which makes only a few system calls."""
    descriptor = _open(folder / "line.lock")
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def _ticket(folder: Path) -> Iterator[Path]:
    """Hold a place at the end of the line, and give it up on exit."""
    line = folder / "line"
    with _line_locked(folder):
        last = max((int(path.stem) for path in line.glob("*.ticket")), default=0)
        ticket = line / f"{last + 1:012d}.ticket"
        descriptor = _try_lock(ticket)
    assert descriptor is not None  # tickets are made only while the line is locked
    try:
        yield ticket
    finally:
        with suppress(OSError):
            ticket.unlink()
        os.close(descriptor)


def _earlier(ticket: Path) -> Iterator[Path]:
    """Yield the tickets of live processes before ``ticket``; remove those of dead processes."""
    for path in sorted(ticket.parent.glob("*.ticket")):
        if path == ticket:
            return
        if (descriptor := _try_lock(path)) is None:
            yield path
        else:
            path.unlink()
            os.close(descriptor)


def _take(
    folder: Path, candidates: Sequence[Device], count: int, taken: dict[Device, int], purpose: str
) -> None:
    """Lock free devices and add them to ``taken`` until it holds ``count``."""
    for device in candidates:
        if len(taken) == count:
            return
        if device in taken or (descriptor := _try_lock(_path(folder, device))) is None:
            continue
        taken[device] = descriptor
        record = json.dumps({"pid": os.getpid(), "purpose": purpose}).encode()
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, record, 0)


def _path(folder: Path, device: Device) -> Path:
    plain = "".join(c if c.isalnum() or c in "-_." else "_" for c in device.key)
    return folder / f"{plain}.device"


def _holder(path: Path) -> str | None:
    """Return who holds a device, or None if it is free."""
    if not path.exists():
        return None
    if (descriptor := _try_lock(path)) is not None:
        os.close(descriptor)
        return None
    try:
        record = json.loads(path.read_bytes())
        return f"{record['purpose']} (pid {record['pid']})"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"


def _waiting(
    folder: Path, candidates: Sequence[Device], count: int, purpose: str, ahead: int
) -> str:
    holdings = [
        f"{f'GPU {device.name}' if device.name else 'it'} is held by {holder}"
        for device in candidates
        if (holder := _holder(_path(folder, device)))
    ]
    if candidates[0] == CPU_LANE:
        wanted = "the CPU lane of this machine"
    else:
        wanted = f"{count} of {len(candidates)} GPU{'s' * (len(candidates) > 1)}"
    line = f"; {ahead} ahead in line" if ahead else ""
    return f"{purpose} waits for {wanted}: {', '.join(holdings) or 'just taken'}{line}."


LEASED_VARIABLE = "CONTEXTCLIFF_LEASED"
"""Variable with the devices leased for this process before it started; ``cpu`` means the lane. Set
it yourself if a batch system has already allocated devices to you."""

DESCRIPTORS_VARIABLE = "CONTEXTCLIFF_LEASE_DESCRIPTORS"
"""Variable with ``pid:fd,fd``: the locked files that the launcher leaves open across ``exec``."""

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
    """Hold ``gpus`` whole devices for this process while the body runs; CUDA sees only these.

    Nothing is leased if this process got devices at its start, or if the calling thread already has
    a lease. Other threads wait for their turn.

    Raises:
        EngineError: more devices are requested than the machine has, than were leased for
                this process, or than it already holds.
        WaitStopped: ``should_stop`` returned True while waiting.
    """
    global _held
    if gpus == 0:
        yield
        return
    with _turn(should_stop):
        lease_descriptors()  # stops children from inheriting the launcher's
        if (listed := os.environ.get(LEASED_VARIABLE)) is not None:
            names = [name for name in listed.split(",") if name not in ("", CPU_LANE.key)]
            if isinstance(gpus, int) and gpus > len(names):
                raise EngineError(
                    f"{purpose} needs {gpus} GPU{'s' * (gpus > 1)}, but this process already has "
                    f"{', '.join(names) or 'the CPU lane'}, which it cannot exchange: measure that "
                    "model in a run of its own (after a change of models.yaml, reload the code "
                    "location)."
                )
            yield
            return
        variables = ("CUDA_VISIBLE_DEVICES", LEASED_VARIABLE, "CUDA_DEVICE_ORDER")
        before = {name: os.environ.get(name) for name in variables}
        _held = lease(gpus, purpose, on_wait=on_wait, should_stop=should_stop)
        os.environ.update(environment_of(_held))
        try:
            yield
        finally:
            if not _opened_a_device():
                _let_go(before)


def lease_descriptors() -> tuple[int, ...]:
    """Return the descriptors to pass to a server that works on our devices (``pass_fds``). The
    devices then stay leased until the server has ended, even if we are killed first."""
    if _held is not None:
        return _held.descriptors
    pid, _, listed = os.environ.get(DESCRIPTORS_VARIABLE, "").partition(":")
    if pid != str(os.getpid()):
        return ()
    descriptors = tuple(int(number) for number in listed.split(",") if number)
    for descriptor in descriptors:
        # Open across the launcher's exec; programs that we start hold only descriptors passed on.
        with suppress(OSError):
            os.set_inheritable(descriptor, False)
    return descriptors


def environment_of(held: Lease) -> dict[str, str]:
    """Return the variables for a process that holds ``held``; set them before CUDA starts."""
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
    """Return whether CUDA has started here; its context stays on the device until we exit."""
    with suppress(OSError):
        for entry in Path("/proc/self/fd").iterdir():
            with suppress(OSError):
                if str(entry.readlink()).startswith("/dev/nvidia"):
                    return True
    return False
