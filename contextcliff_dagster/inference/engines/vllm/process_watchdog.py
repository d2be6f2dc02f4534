"""A watchdog that runs a program and ends it, with all it started, when our caller ends.

``python process_watchdog.py GRACE_SECONDS COMMAND ...`` prints the program's process id on stdout.
If stdin ends (it is closed, or the process at the other end was killed), the program gets SIGTERM,
and after the grace period its whole process group is killed. Processes that outlive a program are
killed too. On Linux the program also gets SIGTERM when this process is killed.

It imports nothing from the package, so that it starts as a script within milliseconds."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress

_PR_SET_PDEATHSIG = 1


def main() -> None:
    grace_s, command = float(sys.argv[1]), sys.argv[2:]
    if os.getpgrp() != os.getpid():
        os.setsid()  # the group that is killed must be our own
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # our caller handles Ctrl-C
    # The program also inherits the descriptors passed to us (device leases).
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=2,
        close_fds=False,
        preexec_fn=_end_with_the_parent,  # safe: there is no other thread yet
    )
    print(child.pid, flush=True)

    def wait_for_the_end_of_stdin() -> None:
        while os.read(0, 4096):
            pass
        child.terminate()
        try:
            child.wait(grace_s)
        except subprocess.TimeoutExpired:
            child.kill()

    threading.Thread(target=wait_for_the_end_of_stdin, daemon=True).start()
    child.wait()
    os.killpg(0, signal.SIGKILL)  # this process, too


def _end_with_the_parent() -> None:
    with suppress(OSError, AttributeError):  # not on macOS
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


if __name__ == "__main__":
    main()
