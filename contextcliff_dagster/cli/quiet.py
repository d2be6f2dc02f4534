"""Dagster's own log: shown on `--verbose`, else silent (its events are recorded all the same)."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager


class _Mute(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        return False


@contextmanager
def dagster_log(shown: bool) -> Iterator[None]:
    """Within, Dagster's console log and its notices of beta features are mute unless ``shown``."""
    if shown:
        os.environ["CONTEXTCLIFF_VERBOSE"] = "1"
        yield
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
