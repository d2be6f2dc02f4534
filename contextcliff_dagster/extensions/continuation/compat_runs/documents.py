"""The contexts of a compat study: one passage of one text, cut as Context-Tester cuts it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.contracts import StudyError
from contextcliff_dagster.experiments.common.kept_documents import (
    opened_tokenizer,
    tokenizer_name,
    tokenizer_of,
)
from contextcliff_dagster.extensions.continuation.compat.slicing import (
    Slices,
    needed_tokens,
    sliced,
    source_text,
    trimmed,
)
from contextcliff_dagster.extensions.continuation.documents.files import (
    part_file,
    point_key,
    read_part,
)
from contextcliff_dagster.extensions.continuation.documents.making import document_row
from contextcliff_dagster.extensions.continuation.documents.source_texts import (
    read_source,
    section_of,
)
from contextcliff_dagster.extensions.continuation.prompts import instruction_of

if TYPE_CHECKING:
    from contextcliff_dagster.store import Store
    from contextcliff_dagster.studies import Study

_TEMPLATE_TOKENS = 108
"""Left free of the largest window for a chat template, next to the reference's 20: a prompt that
might not fit is not sent."""


def slices_of(study: Study) -> Slices:
    """Cut the text of a compat study.

    Raises:
        StudyError: it cannot be read.
        DataError: it is empty.
    """
    section = section_of(study)
    text = read_source(study, 0)
    most, length = section.max_context, section.max_tokens
    tokenizer_of(study, "continuation")  # refused without leave
    return _cut(
        text.text, tokenizer_name(study, "continuation"), most, length, instruction_of(section)
    )


@lru_cache(maxsize=2)
def _cut(text: str, tokenizer: str, max_context: int, max_tokens: int, instruction: str) -> Slices:
    counts = opened_tokenizer(tokenizer)
    return sliced(source_text(text), counts, max_context, max_tokens, instruction)


def compat_rows(study: Study, name: str) -> Iterator[dict[str, Any]]:
    """Yield the contexts of ``study``, the smallest first, what the author wrote after them, and
    the length of the text.

    The first size that the text does not reach, and all larger ones, have none.

    Raises:
        StudyError: the text reaches no size at all.
    """
    section, tokenizer = section_of(study), tokenizer_of(study, "continuation")
    slices, passage = slices_of(study), f"{name}-00"
    largest = section.max_context - _TEMPLATE_TOKENS
    for size in section.sizes:
        if not slices.has(min(size, largest)):
            if size == section.sizes[0]:
                raise StudyError(
                    f"Text {name!r} does not fill the smallest window of study {study.name!r}, "
                    f"{size:,} tokens; raise `continuation.start_context` or lower "
                    "`continuation.max_tokens`."
                )
            break
        context = trimmed(slices.context(min(size, largest)))
        yield document_row("context", name, passage, size, context, tokenizer)
    yield document_row("author", name, passage, 0, slices.ground_truth, tokenizer)
    whole = document_row("source", name, passage, 0, "", tokenizer)
    yield {**whole, "length_tokens": slices.source_tokens}


def was_repeated(study: Study, store: Store) -> bool | None:
    """Whether the kept contexts are of a text that was repeated, as it was too short.

    None where they were made before that was kept, and the text is gone.
    """
    section = section_of(study)
    part = part_file(store, study.name, section.text_names[0], point_key(0))
    for row in read_part(part) or ():
        if row["kind"] == "source":
            needed = needed_tokens(section.max_context, section.max_tokens)
            return bool(row["length_tokens"] < needed)
    with suppress(StudyError):
        return slices_of(study).repeated
    return None
