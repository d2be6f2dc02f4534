"""The text of one file, by the reader of its kind."""

from __future__ import annotations

import os
import re
from importlib import import_module

from contextcliff_dagster.corpora.extraction.decoding import decoded
from contextcliff_dagster.corpora.extraction.file_type import kind_of
from contextcliff_dagster.corpora.extraction.results import Limits, RefusedError
from contextcliff_dagster.corpora.extraction.safe_read import file_bytes
from contextcliff_dagster.corpora.extraction.text_cleanup import tidied

_READERS = frozenset(("pdf", "docx", "epub", "html"))
"""Kinds with a module of their name in `formats/`, loaded at first use."""

_ADDRESS = re.compile(r" ?\b(?:at )?0x[0-9a-fA-F]+")


def read_file(path: bytes, limits: Limits) -> tuple[str, str, list[str]]:
    """Text, kind and notes of a file, see `results.Extracted`.

    Raises:
        RefusedError: there is no text to be had.
        MemoryError: it takes more memory than there may be.
    """
    data = file_bytes(path, limits)
    notes: list[str] = []
    kind = "any kind of text"
    try:
        kind = kind_of(data, os.fsdecode(path), notes)
        if kind not in _READERS:
            return tidied(decoded(data, notes), notes), kind, notes
        reader = import_module(f"contextcliff_dagster.corpora.extraction.formats.{kind}")
        return tidied(reader.read(data, limits, notes), notes), kind, notes
    except (RefusedError, MemoryError):
        raise
    except RecursionError as error:
        raise RefusedError(f"cannot be read as {kind}: it is nested too deeply") from error
    except Exception as error:
        # Parsers fail in ways of their own; whatever it is, it is this file's.
        raise RefusedError(f"cannot be read as {kind}: {_in_one_line(error)}") from error


def _in_one_line(error: Exception) -> str:
    """A parser's complaint in one line, the same in every run."""
    line = _ADDRESS.sub("", " ".join(str(error).split())).rstrip(".")
    return f"{type(error).__name__}: {line[:150]}" if line else type(error).__name__
