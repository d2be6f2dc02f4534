"""Runs a program and ends it, with all that it started, when the process that asked for it ends.

``python process_watchdog.py GRACE_SECONDS COMMAND ...`` prints the program's process id on stdout.
When its stdin ends (closed, or the process at the other end was killed), the program gets SIGTERM,
and after the grace it is killed with its whole process group; so is what a program that ends by
itself leaves behind. On Linux the program gets SIGTERM, too, when this process is killed.

It imports nothing of the package: it is run as a script, which starts in some milliseconds.
"""

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
        os.setsid()  # the group that is killed in the end must be our own
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the asking process's to handle
    # The program, too, holds the descriptors that were passed on (device leases).
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
