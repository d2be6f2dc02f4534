"""A launcher that runs a program on leased devices.

``python -m contextcliff_dagster.inference.devices.launch 1 -- COMMAND``

It waits for its turn, then becomes the program (``exec``), so that the program holds the lease: if
it is killed, the kernel frees its devices. It imports little because it may wait for hours.
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
    """Lease the devices, then replace this process with the program.

    Raises:
        SystemExit: with code 2 and a message, if the devices cannot be leased.
    """
    parser = argparse.ArgumentParser(prog="python -m contextcliff_dagster.inference.devices.launch")
    parser.add_argument(
        "gpus",
        type=_gpus,
        help="number of whole devices; auto: one if the machine has any",
    )
    parser.add_argument("--for", dest="purpose", default="", help="purpose to show to others")
    parser.add_argument("--tell", type=int, default=2, help="file descriptor for messages")
    parser.add_argument("--with-parent", type=int, help="process id; end when it ends")
    words = list(sys.argv[1:] if arguments is None else arguments)
    end = words.index("--") if "--" in words else len(words)
    options, command = parser.parse_args(words[:end]), words[end + 1 :]
    if not command:
        parser.error("write -- and the program to run after the options")
    if options.with_parent is not None and sys.platform == "linux":
        # The kernel is to end this process, exec or not, when the parent ends.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != options.with_parent:  # it ended before this call
            raise SystemExit(143)

    def report(sentence: str) -> None:
        with suppress(OSError):  # its reader may have ended
            os.write(options.tell, f"{sentence}\n".encode())

    if os.environ.get(LEASED_VARIABLE) is None and options.gpus != 0:
        try:
            held = lease(options.gpus, options.purpose or Path(command[0]).name, on_wait=report)
        except ContextCliffError as error:
            report(str(error))
            raise SystemExit(2) from None
        os.environ.update(environment_of(held))
        os.environ[DESCRIPTORS_VARIABLE] = f"{os.getpid()}:{','.join(map(str, held.descriptors))}"
        for descriptor in held.descriptors:
            os.set_inheritable(descriptor, True)
    if options.tell > 2:
        os.set_inheritable(options.tell, False)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        report(f"Cannot run {command[0]}: {error.strerror}.")
        raise SystemExit(127) from None


if __name__ == "__main__":
    main()
