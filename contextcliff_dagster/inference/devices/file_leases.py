"""Whole devices leased to one process at a time, by files that the kernel unlocks.

A device is one file of a folder that all programs of the machine share (not of a store: several
stores share a machine). Its holder has an exclusive `flock` on it; when the last process that
inherited it has ended, however it ended, the kernel frees it. No heartbeat, no timeout.

Who must wait stands in line by a numbered ticket, a locked file, too. Only the first in line takes
devices, one by one as they fall free, so that a request for many is not starved by small ones.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
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
    """A wait for a device was stopped before one fell free."""


@dataclass
class Lease:
    """Devices held until `close`, and on by every process that has inherited ``descriptors``.

    Descriptors pass to forked children but not to programs that are started, unless they are handed
    on (``subprocess.Popen(..., pass_fds=lease.descriptors)``): a server that works on the devices
    should have them, or they would count as free while it still runs.
    """

    devices: tuple[Device, ...]
    descriptors: tuple[int, ...]

    @property
    def visible(self) -> str:
        """What ``CUDA_VISIBLE_DEVICES`` has to be; empty for the CPU lane."""
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

    ``purpose`` is what others who wait are told. ``on_wait`` is called once, where there is a wait,
    with what is waited for and who holds it. ``should_stop`` is asked while waiting.

    Raises:
        EngineError: the machine has fewer devices, or the folder of leases cannot be written.
        WaitStopped: ``should_stop`` said so.
    """
    require_devices(gpus, purpose)
    candidates = machine_devices()
    if gpus == "auto":
        count, candidates = 1, candidates or (CPU_LANE,)
    else:
        count = gpus
    if count == 0:
        return Lease((), ())
    folder = _folder()
    try:
        with _ticket(folder) as (first_in_line, ahead):
            taken: dict[Device, int] = {}
            waiting = False
            try:
                while True:
                    with _locked(folder / "line.lock"):
                        if first_in_line():
                            _take(folder, candidates, count, taken, purpose)
                    if len(taken) == count:
                        # Cleaners of temporary folders leave one alone that somebody has locked.
                        whole = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
                        fcntl.flock(whole, fcntl.LOCK_SH)
                        return Lease(tuple(taken), (*taken.values(), whole))
                    if on_wait is not None and not waiting:
                        on_wait(_waiting(folder, candidates, count, purpose, ahead()))
                        waiting = True
                    if should_stop is not None and should_stop():
                        raise WaitStopped
                    time.sleep(_POLL_SECONDS)
            except BaseException:
                Lease(tuple(taken), tuple(taken.values())).close()
                raise
    except OSError as error:
        raise EngineError(
            f"Cannot lease a device through {folder} ({error.strerror}); point {FOLDER_VARIABLE} "
            "at a folder on a local disk that you may write."
        ) from error


def holders() -> dict[str, str]:
    """Key of each leased device -> who holds it."""
    folder = _folder()
    return {path.stem: _holder(path) for path in sorted(folder.glob("*.device")) if _is_held(path)}


def _folder() -> Path:
    """The user's folder, or the one that ``CONTEXTCLIFF_LEASES`` names (for several users, or for
    containers that share devices).

    Not below TMPDIR, which differs between the processes of one user.

    Raises:
        EngineError: it cannot be made, or it is somebody else's.
    """
    own = os.environ.get(FOLDER_VARIABLE)
    folder = Path(own) if own else Path("/tmp") / f"contextcliff-leases-{os.getuid()}"
    try:
        folder.mkdir(mode=0o777 if own else 0o700, parents=True, exist_ok=True)
        (folder / "line").mkdir(mode=0o777 if own else 0o700, exist_ok=True)
        status = folder.lstat()
    except OSError as error:
        raise EngineError(
            f"Cannot make the folder of device leases {folder} ({error.strerror}); point "
            f"{FOLDER_VARIABLE} at a folder on a local disk that you may write."
        ) from error
    if not own and (not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid()):
        raise EngineError(
            f"{folder}, the folder of device leases, belongs to somebody else: remove it, or point "
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
                # A file that was deleted meanwhile is locked for nobody to see.
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
def _locked(path: Path) -> Iterator[None]:
    """Alone for the few system calls within."""
    descriptor = _open(path)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def _ticket(folder: Path) -> Iterator[tuple[Callable[[], bool], Callable[[], int]]]:
    """Stand in line. Yields: whether nobody alive stands before us; how many do."""
    line = folder / "line"
    with _locked(folder / "line.lock"):
        last = max((int(path.stem) for path in line.glob("*.ticket")), default=0)
        own = line / f"{last + 1:012d}.ticket"
        descriptor = _try_lock(own)
    assert descriptor is not None  # nobody else makes tickets while the line is locked

    def before() -> Iterator[Path]:
        for path in sorted(line.glob("*.ticket")):
            if path == own:
                return
            if (gone := _try_lock(path)) is None:
                yield path
            else:  # whoever had it is dead
                path.unlink()
                os.close(gone)

    def ahead() -> int:
        with _locked(folder / "line.lock"):
            return len(list(before()))

    try:
        yield lambda: not any(True for _ in before()), ahead
    finally:
        with suppress(OSError):
            own.unlink()
        os.close(descriptor)


def _take(
    folder: Path,
    candidates: Sequence[Device],
    count: int,
    taken: dict[Device, int],
    purpose: str,
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


def _is_held(path: Path) -> bool:
    descriptor = _try_lock(path)
    if descriptor is not None:
        os.close(descriptor)
    return descriptor is None


def _holder(path: Path) -> str:
    try:
        record = json.loads(path.read_bytes())
        return f"{record['purpose']} (pid {record['pid']})"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"


def _waiting(
    folder: Path, candidates: Sequence[Device], count: int, purpose: str, ahead: int
) -> str:
    paths = {device: _path(folder, device) for device in candidates}
    held = [
        f"{f'GPU {device.name}' if device.name else 'it'} is held by {_holder(path)}"
        for device, path in paths.items()
        if path.exists() and _is_held(path)
    ]
    if candidates[0] == CPU_LANE:
        wanted = "the CPU lane of this machine"
    else:
        wanted = f"{count} of {len(candidates)} GPU{'s' * (len(candidates) > 1)}"
    line = f"; {ahead} ahead in line" if ahead else ""
    return f"{purpose} waits for {wanted}: {', '.join(held) or 'just taken'}{line}."
