"""What a corpus is: a named, streaming source of Documents and the Examples that ask about them."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from contextcliff_dagster.contracts import CorpusError, Document, Example

EVIDENCE_CHARACTERS = "evidence_characters"
"""Metadata of an example: where its pieces of evidence begin in the text, in characters. A corpus
knows no tokenizer; the manifest's is the one that makes ``inter_evidence_tokens`` of them."""
EVIDENCE_SPANS = "evidence_spans"
"""Metadata of an example: its pieces of evidence whole, pairs of [start, end) in characters."""


class Corpus(Protocol):
    """A source of Examples. Iterating reads the source anew and holds one entry at a time."""

    @property
    def name(self) -> str: ...

    def fingerprint(self) -> str:
        """SHA-256 (hex) of what decides the content: the options and the source's bytes."""
        ...

    def entries(self) -> Iterator[Entry]:
        """Every example with its document, in source order; documents may repeat."""
        ...

    def documents(self) -> Iterator[Document]:
        """Each distinct document once, in the order of its first appearance."""
        ...

    def examples(self) -> Iterator[Example]: ...

    def account(self) -> Mapping[str, Any]:
        """What the last whole reading of :meth:`entries` used and left out, as a JSON object.

        Empty where there is nothing to say; ``summary`` is the sentence for people, ``cautions``
        are clauses that audit and report repeat, ``list`` names the list of files, if one is kept.
        """
        ...


class Entry(NamedTuple):
    """One example beside its document.

    ``place`` says where it stands in the source, for error messages (``qa.jsonl, line 7``).
    ``id_given`` is false where the source names no id: then it is derived from the content.
    """

    document: Document
    example: Example
    place: str
    id_given: bool = True


class StreamedCorpus(ABC):
    """A corpus defined by its :meth:`entries`."""

    name: str

    @abstractmethod
    def fingerprint(self) -> str: ...

    @abstractmethod
    def entries(self) -> Iterator[Entry]: ...

    def documents(self) -> Iterator[Document]:
        seen: set[bytes] = set()
        for entry in self.entries():
            key = bytes.fromhex(entry.document.document_id)
            if key not in seen:
                seen.add(key)
                yield entry.document

    def examples(self) -> Iterator[Example]:
        return (entry.example for entry in self.entries())

    def account(self) -> Mapping[str, Any]:
        return {}

    def file_list(self) -> Sequence[Mapping[str, Any]]:
        """What became of each file at the last whole reading, as rows of the same columns.

        Empty where a corpus keeps no such list.
        """
        return ()


def document_id(text: str) -> str:
    """SHA-256 (hex) of the text's UTF-8 bytes. Raises UnicodeEncodeError for lone surrogates."""
    return hashlib.sha256(text.encode()).hexdigest()


def options_hash(kind: str, options: Mapping[str, Any], *content: str) -> str:
    """SHA-256 (hex) of an adapter's kind and options and of its source's own hashes."""
    text = json.dumps([kind, dict(options), *content], sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def take_options(
    kind: str, options: Mapping[str, Any], known: Mapping[str, type | tuple[type, ...]]
) -> dict[str, Any]:
    """The options that were given (null counts as not given), each known and of the right type.

    Raises:
        CorpusError: an option is unknown or has the wrong type.
    """
    given = {key: value for key, value in options.items() if value is not None}
    for key, value in given.items():
        if key not in known:
            raise CorpusError(
                f"A corpus of kind {kind!r} has no option {key!r}; "
                f"it has {', '.join(sorted(known))}."
            )
        kinds = known[key]
        if not isinstance(value, kinds) or isinstance(value, bool):
            wanted = kinds if isinstance(kinds, tuple) else (kinds,)
            raise CorpusError(
                f"Option {key!r} of a corpus of kind {kind!r} must be "
                f"{' or '.join(_KIND_NAMES.get(k, k.__name__) for k in wanted)}, not {value!r}."
            )
    return given


_KIND_NAMES: dict[type, str] = {
    int: "a whole number",
    str: "text",
    dict: "a mapping",
    list: "a list",
}
