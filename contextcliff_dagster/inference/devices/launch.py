"""Run a program on leased devices.

``python -m contextcliff_dagster.inference.devices.launch 1 -- COMMAND``

Waits for its turn, then becomes the program (``exec``), so that the program itself holds the lease:
killed, it frees its devices by the kernel alone. Imports little, since it may wait for hours.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from contextcliff_dagster.contracts import ContextCliffError
from contextcliff_dagster.inference.devices.leases import (
    DESCRIPTORS_VARIABLE,
    LEASED_VARIABLE,
    environment_of,
    lease,
)

_PR_SET_PDEATHSIG = 1


def _gpus(text: str) -> int | str:
    if text != "auto" and not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is neither a number nor auto")
    return text if text == "auto" else int(text)


def main(arguments: Sequence[str] | None = None) -> None:
    """Lease, then become the program.

    Raises:
        SystemExit: 2 after a sentence on stderr, where the devices cannot be had.
    """
    parser = argparse.ArgumentParser(prog="python -m contextcliff_dagster.inference.devices.launch")
    parser.add_argument(
        "gpus",
        type=_gpus,
        help="how many whole devices; auto: one, or none",
    )
    parser.add_argument("--for", dest="purpose", default="", help="reported to others that wait")
    parser.add_argument("--tell", type=int, default=2, help="descriptor that messages go to")
    parser.add_argument("--with-parent", type=int, help="end when the process of this id ends")
    given = list(sys.argv[1:] if arguments is None else arguments)
    end = given.index("--") if "--" in given else len(given)
    asked, command = parser.parse_args(given[:end]), given[end + 1 :]
    if not command:
        parser.error("write -- and the program to run after the options")
    if asked.with_parent is not None and sys.platform == "linux":
        # The kernel is to end this process, exec or not, when the parent ends.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != asked.with_parent:  # it ended before this call
            raise SystemExit(143)

    def report(sentence: str) -> None:
        with suppress(OSError):  # its reader may have ended
            os.write(asked.tell, f"{sentence}\n".encode())

    if os.environ.get(LEASED_VARIABLE) is None and asked.gpus != 0:
        try:
            held = lease(asked.gpus, asked.purpose or Path(command[0]).name, on_wait=report)
        except ContextCliffError as error:
            report(str(error))
            raise SystemExit(2) from None
        os.environ.update(environment_of(held))
        os.environ[DESCRIPTORS_VARIABLE] = f"{os.getpid()}:{','.join(map(str, held.descriptors))}"
        for descriptor in held.descriptors:
            os.set_inheritable(descriptor, True)
    if asked.tell > 2:
        os.set_inheritable(asked.tell, False)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        report(f"Cannot run {command[0]}: {error.strerror}.")
        raise SystemExit(127) from None


if __name__ == "__main__":
    main()
