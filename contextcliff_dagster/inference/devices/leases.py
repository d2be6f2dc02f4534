"""Whole devices leased to one process at a time, shown to CUDA, and given back.

A device is one file of a folder that all programs of the machine share (not of a store: several
stores share a machine). Its holder has an exclusive `flock` on it; when the last process that
inherited it has ended, however it ended, the kernel frees it. No heartbeat, no timeout.

Processes that wait form a line by numbered tickets, locked files, too. Only the first takes
devices, one by one as they become free, so that a request for many is not starved by small ones.

``CUDA_VISIBLE_DEVICES`` counts for a whole process and is read once, when CUDA starts in it. So a
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
    """A wait for a device was stopped before one became free."""


@dataclass
class Lease:
    """Devices held until `close`, and on by every process that has inherited ``descriptors``.

    Forked children inherit them, programs that are started only by ``subprocess.Popen(...,
    pass_fds=lease.descriptors)``: a server that works on the devices should have them, or they
    would count as free while it still runs.
    """

    devices: tuple[Device, ...]
    descriptors: tuple[int, ...]

    @property
    def visible(self) -> str:
        """Value for ``CUDA_VISIBLE_DEVICES``; empty for the CPU lane."""
        return ",".join(device.name for device in self.devices)

    def close(self) -> None:
        """Let go; not by unlocking, which would free the devices under children that use them."""
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
    """Wait for ``gpus`` whole devices, or for the CPU lane, and take them.

    ``purpose`` is reported to other processes that wait. ``on_wait`` is called once, where there is
    a wait, with the devices and their holders. ``should_stop`` is asked while waiting.

    Raises:
        EngineError: the machine has fewer devices, or the folder of leases cannot be written.
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


def holders() -> dict[str, str]:
    """Key of each leased device -> who holds it."""
    paths = sorted(_folder().glob("*.device"))
    return {path.stem: holder for path in paths if (holder := _holder(path))}


def _folder() -> Path:
    """The user's folder, or the one that ``CONTEXTCLIFF_LEASES`` names (for several users, or for
    containers that share devices).

    Not below TMPDIR, which differs between the processes of one user.

    Raises:
        EngineError: it cannot be made, or it is another user's.
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
    """A descriptor that holds the lock of the file now at ``path``, or None where another does."""
    while True:
        descriptor = _open(path)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with suppress(FileNotFoundError):
                # The lock of a file that was deleted meanwhile is seen by no other process.
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
    """Alone for the few system calls within."""
    descriptor = _open(folder / "line.lock")
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def _ticket(folder: Path) -> Iterator[Path]:
    """A place at the end of the line, given up on exit."""
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


def _earlier(own: Path) -> Iterator[Path]:
    """The tickets before ``own`` of processes that live; those of dead ones are removed."""
    for path in sorted(own.parent.glob("*.ticket")):
        if path == own:
            return
        if (descriptor := _try_lock(path)) is None:
            yield path
        else:
            path.unlink()
            os.close(descriptor)


def _take(
    folder: Path, candidates: Sequence[Device], count: int, taken: dict[Device, int], purpose: str
) -> None:
    """Add free devices to ``taken`` until there are ``count``."""
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
    """Who holds a device; None where it is free."""
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
    held = [
        f"{f'GPU {device.name}' if device.name else 'it'} is held by {holder}"
        for device in candidates
        if (holder := _holder(_path(folder, device)))
    ]
    if candidates[0] == CPU_LANE:
        wanted = "the CPU lane of this machine"
    else:
        wanted = f"{count} of {len(candidates)} GPU{'s' * (len(candidates) > 1)}"
    line = f"; {ahead} ahead in line" if ahead else ""
    return f"{purpose} waits for {wanted}: {', '.join(held) or 'just taken'}{line}."


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
        # Open across the launcher's exec; programs that we start hold only descriptors passed on.
        with suppress(OSError):
            os.set_inheritable(descriptor, False)
    return descriptors


def environment_of(held: Lease) -> dict[str, str]:
    """Variables for a process that holds ``held``, to be set before CUDA starts."""
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
