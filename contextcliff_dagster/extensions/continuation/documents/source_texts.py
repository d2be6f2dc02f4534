"""The texts that a study names, read from their files."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from contextcliff_dagster.contracts import StudyError
from contextcliff_dagster.corpora.extraction.kinds_and_limits import Limits
from contextcliff_dagster.experiments.common.kept_documents import (
    opened_tokenizer,
    tokenizer_name,
    tokenizer_of,
)
from contextcliff_dagster.extensions.continuation.passages import ReadText, read_text
from contextcliff_dagster.extensions.continuation.section import ContinuationSection
from contextcliff_dagster.user_files import open_file

if TYPE_CHECKING:
    from contextcliff_dagster.studies import Study

_Changed = tuple[int, int]
"""Size and time of the last change: a file with others is read again."""
_TEXTS_KEPT = 8


def section_of(study: Study) -> ContinuationSection:
    """Return the study's key `continuation`."""
    section: ContinuationSection = study.sections["continuation"]
    return section


def read_source(study: Study, number: int) -> ReadText:
    """Return a text of the study, by its place in `texts`.

    Raises:
        StudyError: its user has not agreed to the file, it cannot be read, or it holds no text.
    """
    tokenizer_of(study, "continuation")
    name = section_of(study).text_names[number]
    return _read(*_file_of(study, number), name, tokenizer_name(study, "continuation"))


class SourceDigests(NamedTuple):
    """SHA-256 (hex) of a text's file, and of the text in it."""

    file: str
    text: str


def source_digests(
    study: Study, number: int, kept: Mapping[str, Sequence[str]] | None = None
) -> SourceDigests:
    """Return the digests of a text, by its place in `texts`.

    Where the file is gone, or its user has not agreed to reading it, those in ``kept`` (name ->
    both) stand in: what was made of it is in the store.

    Raises:
        StudyError: as `read_source`, and nothing is kept.
    """
    name = section_of(study).text_names[number]
    known = SourceDigests(*kept[name]) if kept and name in kept else None
    try:
        file, changed = _file_of(study, number)
        if changed[0] > Limits().file_mb * 1e6:
            _extracted(file, changed)  # refuses it, before so much is read
        digest = _file_digest(file, changed)
    except StudyError:
        if known is None:
            raise
        return known
    if known is not None and known.file == digest:
        return known
    return SourceDigests(digest, _text_digest(file, changed))


def _file_of(study: Study, number: int) -> tuple[Path, _Changed]:
    """A text's file, and what an edit changes of it."""
    from contextcliff_dagster.studies.study_paths import absolute, refuse_without_leave

    refuse_without_leave(study, "continuation.texts")
    file = Path(absolute(study.folder, section_of(study).texts[number]))
    try:
        status = file.stat()
    except (OSError, ValueError) as error:
        problem = error.strerror if isinstance(error, OSError) else None
        raise StudyError(
            f"Text {file} of study {study.name!r} cannot be read: {problem or error}; correct "
            "`continuation.texts`."
        ) from error
    return file, (status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=256)
def _file_digest(file: Path, changed: _Changed) -> str:
    try:
        with open_file(file) as opened:
            return hashlib.file_digest(opened, "sha256").hexdigest()
    except OSError as error:
        raise StudyError(
            f"Text {file} cannot be read: {error.strerror or error}; correct `continuation.texts`."
        ) from error


@lru_cache(maxsize=256)
def _text_digest(file: Path, changed: _Changed) -> str:
    return hashlib.sha256(_extracted(file, changed).encode()).hexdigest()


@lru_cache(maxsize=_TEXTS_KEPT)
def _read(file: Path, changed: _Changed, name: str, tokenizer: str) -> ReadText:
    return read_text(name, _extracted(file, changed), opened_tokenizer(tokenizer))


@lru_cache(maxsize=_TEXTS_KEPT)
def _extracted(file: Path, changed: _Changed) -> str:
    from contextcliff_dagster.corpora.extraction.kinds_and_limits import Unusable
    from contextcliff_dagster.corpora.extraction.pool import extract_all

    (result,) = extract_all([file])
    if isinstance(result, Unusable):
        raise StudyError(f"Text {file} {result.reason}; give another file, or convert it to text.")
    if not result.text.strip():
        raise StudyError(f"Text {file} holds no text; give another file.")
    return result.text
