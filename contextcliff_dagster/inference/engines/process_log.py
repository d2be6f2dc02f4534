"""What a process of an engine's own wrote before it ended."""

from __future__ import annotations

import os
from pathlib import Path

from contextcliff_dagster.redaction import redact

_TAIL_BYTES = 20_000


def last_words(path: Path, lines: int = 4) -> str:
    """The last lines of a log that hold a text, errors first, on one line and without secrets."""
    with path.open("rb") as log:
        log.seek(max(os.fstat(log.fileno()).st_size - _TAIL_BYTES, 0))
        text = log.read().decode(errors="replace")
    lines_logged = [line.strip() for line in text.splitlines() if line.strip(" \r\n^~|")]
    errors = [line for line in lines_logged if "Error" in line]
    # A traceback ends with the error of the outermost process, which only says that an inner one
    # failed.
    return redact(" | ".join((errors or lines_logged)[-lines:]), limit=1000) or "nothing"
