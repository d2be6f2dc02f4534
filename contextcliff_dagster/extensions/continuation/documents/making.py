"""Source texts, and the contexts that are made of them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from contextcliff_dagster.contracts import StudyError
from contextcliff_dagster.corpora.corpus import document_id
from contextcliff_dagster.corpora.extraction.file_type import Limits
from contextcliff_dagster.experiments.common.documents import (
    opened_tokenizer,
    tokenizer_name,
    tokenizer_of,
)
from contextcliff_dagster.extensions.continuation.passages import (
    Point,
    ReadText,
    author_after,
    choose_points,
    context_before,
    read_text,
)
from contextcliff_dagster.extensions.continuation.prose.words import read_prose
from contextcliff_dagster.extensions.continuation.section import ContinuationSection
from contextcliff_dagster.sampling.tokenizers.tokenizers import Tokenizer
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
    from contextcliff_dagster.corpora.extraction.file_type import Unusable
    from contextcliff_dagster.corpora.extraction.pool import extract_all

    (result,) = extract_all([file])
    if isinstance(result, Unusable):
        raise StudyError(f"Text {file} {result.reason}; give another file, or convert it to text.")
    if not result.text.strip():
        raise StudyError(f"Text {file} holds no text; give another file.")
    return result.text


MAKING_VERSION = "1"
"""Raise it when the same study would give other documents: those in stores are then made anew."""
WORDS_A_TOKEN = 0.7
"""Words of the author's passage per token of the longest continuation."""
MOST_HUMAN, LEAST_HUMAN = 80, 20
"""Passages of a text for the noise floor at most, and of all texts together at least."""

_SPARE = 1.3
"""Characters that passages are apart, in those that so many words take on average."""
_MOST_READ = 1 << 22
"""Characters of a text that this average is taken over."""

Kind = Literal["context", "author", "human", "source"]
"""`source`: length of the text that a compat study was cut from, without its words."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is made of each text.

    Attributes:
        sizes: windows in tokens, the smallest first.
        reserved: tokens of a window that are not context: continuation, instruction, template.
        max_tokens: of the longest continuation.
        passages: points in a text.
        seed: of the points.
    """

    sizes: Sequence[int]
    reserved: int
    max_tokens: int
    passages: int
    seed: int

    @property
    def words(self) -> int:
        """Words of the author's passages."""
        return max(1, int(WORDS_A_TOKEN * self.max_tokens))

    def points(self, text: ReadText) -> tuple[Point, ...]:
        """Return the points of a text; raises like `choose_points`."""
        most = self.sizes[-1] - self.reserved
        return choose_points(text, self.passages, most, self.max_tokens, self.seed)


def passage_rows(plan: Plan, point: Point, tokenizer: Tokenizer) -> Iterator[dict[str, Any]]:
    """Yield the contexts of a point, the smallest first, and then the author's passage."""
    texts: list[tuple[Kind, int, str]] = [
        ("context", size, context_before(point, size - plan.reserved, tokenizer))
        for size in plan.sizes
    ]
    texts.append(("author", 0, author_after(point, plan.words)))
    for kind, size, text in texts:
        yield document_row(kind, point.text.name, point.name, size, text, tokenizer)


def human_rows(plan: Plan, text: ReadText, tokenizer: Tokenizer) -> Iterator[dict[str, Any]]:
    """Yield passages of the author that overlap none which continuations are compared with."""
    for number, place in enumerate(human_places(plan, text)):
        passage = author_after(Point("", text, place), plan.words)
        yield document_row("human", text.name, f"{number:03d}", 0, passage, tokenizer)


def human_places(plan: Plan, text: ReadText) -> list[int]:
    """Return the characters where these passages begin.

    They begin at sentence ends, do not overlap, and are spread evenly over the text.
    """
    sample = text.text[:_MOST_READ]
    reach = int(_SPARE * plan.words * len(sample) / max(1, _words_of(sample)))
    taken = [point.at for point in plan.points(text)]
    free, free_from = [], 0
    for at in text.ends:
        if at >= free_from and at + reach <= len(text.text) and not _is_near(at, taken, reach):
            free.append(at)
            free_from = at + reach
    chosen = np.unique(np.linspace(0, len(free) - 1, min(MOST_HUMAN, len(free))).round())
    return [free[place] for place in chosen.astype(int)]


@lru_cache(maxsize=8)
def _words_of(text: str) -> int:
    return len(read_prose(text).words)


def _is_near(at: int, taken: Sequence[int], reach: int) -> bool:
    return any(abs(at - other) < reach for other in taken)


def require_noise_floor(counts: Mapping[str, int], words: int) -> None:
    """Raise StudyError where the texts hold too few human passages for the score.

    ``counts``: text -> its human passages, of so many ``words``.
    """
    short = [name for name, count in counts.items() if count < 4]
    if sum(counts.values()) < LEAST_HUMAN or short:
        raise StudyError(
            f"The texts hold {sum(counts.values())} further passages of {words} words"
            f"{f', and {short[0]!r} too few of them' if short else ''}; the score needs at least "
            f"{LEAST_HUMAN} in all and 4 of each text to know how far an author is from himself: "
            "give longer texts, or lower `continuation.passages` or `continuation.max_tokens`."
        )


def document_row(
    kind: Kind, source: str, passage: str, size: int, text: str, tokenizer: Tokenizer
) -> dict[str, Any]:
    """Return a row of `CONTINUATION_DOCUMENTS`; ``size``: of the window, 0 without a context."""
    return {
        "document_id": document_id(text),
        "kind": kind,
        "source": source,
        "passage": passage,
        "context_tokens": size,
        "length_tokens": tokenizer.count(text),
        "text": text,
    }


def made_by(plan: Plan, text_sha256: str, fingerprint: str) -> str:
    """Return the SHA-256 (hex) of what decides a text's documents."""
    decides = [MAKING_VERSION, repr(plan), text_sha256, fingerprint]
    return hashlib.sha256("\0".join(decides).encode()).hexdigest()
