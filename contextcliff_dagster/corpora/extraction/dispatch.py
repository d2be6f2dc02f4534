"""The text of one file, by the reader of its kind."""

from __future__ import annotations

import os
import re
from importlib import import_module

from contextcliff_dagster.corpora.extraction.decoding import decoded, tidied
from contextcliff_dagster.corpora.extraction.file_type import kind_of
from contextcliff_dagster.corpora.extraction.kinds_and_limits import Limits, RefusedError
from contextcliff_dagster.corpora.extraction.safe_read import file_bytes

_READERS = frozenset(("pdf", "docx", "epub", "html"))
"""Kinds with a module of their name in `formats/`, loaded at first use."""

_ADDRESS = re.compile(r" ?\b(?:at )?0x[0-9a-fA-F]+")
"""Of an object, in a parser's message: it differs between runs."""


def read_file(path: bytes, limits: Limits) -> tuple[str, str, list[str]]:
    """Text, kind and notes of a file, see `kinds_and_limits.Extracted`.

    Raises:
        RefusedError: there is no text to be had.
        MemoryError: it takes more memory than there may be.
    """
    data = file_bytes(path, limits)
    notes: list[str] = []
    kind = "any kind of text"
    try:
        kind = kind_of(data, os.fsdecode(path), notes)
        if kind in _READERS:
            reader = import_module(f"contextcliff_dagster.corpora.extraction.formats.{kind}")
            text = reader.read(data, limits, notes)
        else:
            text = decoded(data, notes)
        return tidied(text, notes), kind, notes
    except (RefusedError, MemoryError):
        raise
    except RecursionError as error:
        raise RefusedError(f"cannot be read as {kind}: it is nested too deeply") from error
    except Exception as error:
        # Parsers fail in ways of their own; whatever it is, it is this file's.
        line = _ADDRESS.sub("", " ".join(str(error).split())).rstrip(".")
        name = type(error).__name__
        reason = f"{name}: {line[:150]}" if line else name
        raise RefusedError(f"cannot be read as {kind}: {reason}") from error
