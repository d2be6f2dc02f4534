"""The texts that a study names, read from their files."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from contextcliff_dagster.contracts import StudyError
from contextcliff_dagster.experiments.continuation.passages.points import ReadText, read_text
from contextcliff_dagster.experiments.continuation.section import (
    DEFAULT_TOKENIZER,
    ContinuationSection,
)

if TYPE_CHECKING:
    from contextcliff_dagster.sampling.tokenizers.tokenizers import Tokenizer
    from contextcliff_dagster.studies import Study


def section_of(study: Study) -> ContinuationSection:
    """Return the study's key `continuation`."""
    section: ContinuationSection = study.sections["continuation"]
    return section


def tokenizer_name(study: Study) -> str:
    """Return the tokenizer that counts windows: the key's, the study's, or ours."""
    return section_of(study).tokenizer or study.tokenizer_name or DEFAULT_TOKENIZER


def tokenizer_of(study: Study) -> Tokenizer:
    """Open `tokenizer_name`.

    Raises:
        StudyError: there is none of that name, or it cannot be opened.
    """
    from contextcliff_dagster.studies.study_paths import refuse_without_leave

    refuse_without_leave(study, "tokenizer")
    return opened_tokenizer(tokenizer_name(study))


@lru_cache(maxsize=2)
def opened_tokenizer(name: str) -> Tokenizer:
    """Open a tokenizer by its name, once; raises StudyError."""
    from contextcliff_dagster.inference.models.tokenizers import open_any_tokenizer

    return open_any_tokenizer(name)


def read_source(study: Study, number: int) -> tuple[ReadText, str]:
    """Return a text of the study, by its place in `texts`, and its SHA-256 (hex).

    Raises:
        StudyError: its user has not agreed to the file, it cannot be read, or it holds no text.
    """
    from contextcliff_dagster.studies.study_paths import absolute, refuse_without_leave

    refuse_without_leave(study, "continuation")
    section = section_of(study)
    tokenizer_of(study)
    file = Path(absolute(study.folder, section.texts[number]))
    try:
        status = file.stat()
    except OSError as error:
        raise StudyError(
            f"Text {file} of study {study.name!r} cannot be read: "
            f"{error.strerror or error}; correct `continuation.texts`."
        ) from error
    changed = (status.st_size, status.st_mtime_ns)
    return _read(file, changed, section.text_names[number], tokenizer_name(study))


@lru_cache(maxsize=4)
def _read(file: Path, changed: tuple[int, int], name: str, tokenizer: str) -> tuple[ReadText, str]:
    from contextcliff_dagster.corpora.extraction.kinds_and_limits import Unusable
    from contextcliff_dagster.corpora.extraction.pool import extract_all

    (result,) = extract_all([file])
    if isinstance(result, Unusable):
        raise StudyError(f"Text {file} {result.reason}; give another file, or convert it to text.")
    if not result.text.strip():
        raise StudyError(f"Text {file} holds no text; give another file.")
    digest = hashlib.sha256(result.text.encode()).hexdigest()
    return read_text(name, result.text, opened_tokenizer(tokenizer)), digest
