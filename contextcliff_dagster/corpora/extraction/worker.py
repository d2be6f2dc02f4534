"""The process that reads files, one after another, under limits that the kernel enforces.

Started by `pool.WorkerProcess` with an interpreter of its own, and given one path at a
time on stdin, as a line of hexadecimal digits; answers go to stdout. It dies with its parent, even
in the middle of a parser that holds the interpreter's lock, and even if the parent was killed.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
import resource
import select
import sys
import time
from contextlib import suppress
from pathlib import Path

from contextcliff_dagster.corpora.extraction.file_type import Limits, RefusedError, read_file
from contextcliff_dagster.corpora.extraction.ipc_messages import write_message


def main() -> None:
    """Read files until stdin ends. Arguments: the lifeline's descriptor, settings as JSON."""
    lifeline, settings = int(sys.argv[1]), json.loads(sys.argv[2])
    limits = Limits(**settings["limits"])
    _die_with_parent(lifeline)
    requests, answers = os.dup(0), os.dup(1)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))  # reading needs no writing
    if settings["limit_address_space"]:
        pages = int(Path("/proc/self/statm").read_bytes().split()[0])  # in use now
        most_bytes = pages * resource.getpagesize() + int(limits.memory_mb * 1e6)
        resource.setrlimit(resource.RLIMIT_AS, (most_bytes, most_bytes))
    # Parsers print: discard their output from here on.
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)
    write_message(answers, {"ready": True})
    with os.fdopen(requests, "rb") as lines:
        for line in lines:
            # The kernel ends this process (SIGXCPU) after this much more processor time.
            most_seconds = math.ceil(min(time.process_time() + limits.seconds, 1e9))
            hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
            with suppress(ValueError):  # the hard limit is lower already
                resource.setrlimit(resource.RLIMIT_CPU, (most_seconds, hard))
            if not _answer(bytes.fromhex(line.decode()), limits, answers):
                os._exit(0)


def _answer(path: bytes, limits: Limits, answers: int) -> bool:
    """Read one file and report the outcome; return False if this process must not continue."""
    try:
        text, kind, notes = read_file(path, limits)
        body = text.encode()
        if len(body) > limits.text_mb * 1e6:
            raise RefusedError(f"holds more than {limits.text_mb:,g} MB of text")
    except RefusedError as refusal:
        write_message(answers, {"reason": str(refusal)})
    except MemoryError:
        # The remaining memory is fragmented: the next file gets a fresh process.
        write_message(answers, {"out_of_memory": True})
        return False
    else:
        write_message(answers, {"kind": kind, "notes": notes}, body)
    return True


def _die_with_parent(lifeline: int) -> None:
    """Make the kernel end this process when the other end of the pipe is closed.

    A thread waiting for that would not get the interpreter's lock while a parser holds it; a signal
    at the parent's death (PR_SET_PDEATHSIG) comes at the end of the *thread* that started this
    process. SIGIO, which has no handler here, ends the process.
    """
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
    watch = select.poll()
    watch.register(lifeline, 0)
    if watch.poll(0):  # closed before the signal was requested
        os._exit(0)
