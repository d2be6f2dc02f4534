"""Records of a file that is a log of another tool, or carries lengths and scores itself."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from contextcliff_dagster.contracts import ScoreFileError
from contextcliff_dagster.score_files.logs import LogOptions, read_log
from contextcliff_dagster.score_files.logs.answers import TEXT_FIELDS
from contextcliff_dagster.score_files.logs.lengths import Lengths, digest
from contextcliff_dagster.score_files.records import CountedTexts, ScoreRecords, read_records

if TYPE_CHECKING:
    from pathlib import Path


def read_scores(path: Path, log: LogOptions, *, scale: float = 1.0) -> list[ScoreRecords]:
    """The records of ``path`` by model, told by its content.

    Raises:
        ScoreFileError: it cannot be used, or ``log`` says how to read a log and it is none.
    """
    if (found := read_log(path, replace(log, scale=scale))) is not None:
        return [found]
    if log != LogOptions(tokenizer=log.tokenizer):
        raise ScoreFileError(
            f"{path} is no log of another tool: --metric, --score, --documents and --partial say "
            "how to read one, and its own columns say the rest."
        )
    return read_records(path, scale=scale, counted=_counted(log) if log.tokenizer else None)


def _counted(log: LogOptions) -> CountedTexts:
    lengths = Lengths(log)

    def measure(text: str) -> tuple[str, int]:
        document = digest(text)
        return document, lengths.count(text, document)

    return CountedTexts(lengths.name, TEXT_FIELDS, measure)
