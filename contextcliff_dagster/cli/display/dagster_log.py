"""Dagster's own log: shown on `--verbose`, else silent (its events are recorded all the same)."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO, cast

_WRITTEN_PAST_ITS_LOGGERS = "Exception while writing logger call to event log"


class _WithoutAsides:
    """A stream without what Dagster writes to stderr by hand when its event log cannot be written.

    The error itself reaches the person as a sentence: the next event of a step raises it.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        if text.startswith(_WRITTEN_PAST_ITS_LOGGERS):
            return len(text)
        return self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def dagster_log(shown: bool) -> Iterator[None]:
    """Within, Dagster's console log and its notices of beta features are mute unless ``shown``."""
    if shown:
        # Read where the console logger's level is set: in `run.study`, and in child processes.
        os.environ["CONTEXTCLIFF_VERBOSE"] = "1"
        yield
        return
    # A Ctrl-C that comes while Dagster's database closes a connection is raised again there, after
    # a traceback in this log.
    logging.getLogger("sqlalchemy.pool").setLevel(logging.CRITICAL)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with contextlib.redirect_stderr(cast("TextIO", _WithoutAsides(sys.stderr))):
            yield
