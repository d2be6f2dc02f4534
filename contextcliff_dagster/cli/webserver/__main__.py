"""`python -m contextcliff_dagster.cli.webserver`, started by `contextcliff ui`.

One JSON object on stdin holds the settings; when stdin ends, the parent is gone and this process
exits.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import IO

from contextcliff_dagster.cli.webserver.services import Settings, serve_ui


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main() -> int:
    """Serve until interrupted; return the exit code."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    parent = os.fdopen(os.dup(0))
    with Path(os.devnull).open() as nothing:  # what this process starts reads no settings
        os.dup2(nothing.fileno(), 0)
    settings = json.loads(parent.readline())
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    listener = socket.socket(fileno=settings.pop("listener"))
    ended_well = True
    with contextlib.suppress(KeyboardInterrupt):
        ended_well = serve_ui(Settings(**settings), listener)
    return 0 if ended_well else 1


def _end_with(parent: IO[str]) -> None:
    parent.read()
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())
