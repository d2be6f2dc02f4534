"""What a corpus is: a named, streaming source of Documents and Examples; that of one file."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from contextcliff_dagster.contracts import CorpusError, Document, Example
from contextcliff_dagster.user_files import open_file

EVIDENCE_CHARACTERS = "evidence_characters"
"""Metadata of an example: where its pieces of evidence begin in the text, in characters. A corpus
knows no tokenizer; the manifest's is the one that makes ``inter_evidence_tokens`` of them."""
EVIDENCE_SPANS = "evidence_spans"
"""Metadata of an example: its pieces of evidence whole, pairs of [start, end) in characters."""
WORDINGS = ("sentence", "beginning")
"""How the rest of a text is asked for: by a sentence, or by the bare beginning, for prompts that
begin the answer with it."""
PATH = (str, Path)
"""Types of the option ``path``."""


class Entry(NamedTuple):
    """One example with its document.

    ``place`` names it in the source, for error messages (``qa.jsonl, line 7``). ``id_given`` is
    false where the source names no id: then it is derived from the content.
    """

    document: Document
    example: Example
    place: str
    id_given: bool = True


class StreamedCorpus(ABC):
    """A source of Examples. Iterating reads the source anew and holds one entry at a time."""

    name: str
    _account: Mapping[str, Any] = {}

    @abstractmethod
    def fingerprint(self) -> str:
        """SHA-256 (hex) of what decides the content: the options and the source's bytes."""

    @abstractmethod
    def entries(self) -> Iterator[Entry]:
        """Every example with its document, in source order; documents may repeat."""

    def documents(self) -> Iterator[Document]:
        """Each distinct document once, in the order of its first appearance."""
        seen: set[bytes] = set()
        for entry in self.entries():
            key = bytes.fromhex(entry.document.document_id)
            if key not in seen:
                seen.add(key)
                yield entry.document

    def examples(self) -> Iterator[Example]:
        """The examples of :meth:`entries`."""
        return (entry.example for entry in self.entries())

    def account(self) -> Mapping[str, Any]:
        """What the last whole reading of :meth:`entries` used and left out, as a JSON object.

        Empty where there is nothing to report; ``summary`` is the sentence for people, ``cautions``
        are clauses that audit and report repeat, ``list`` names the list of files, if one is kept.
        """
        return self._account

    def file_list(self) -> Sequence[Mapping[str, Any]]:
        """What became of each file at the last whole reading, as rows of the same columns.

        Empty where a corpus keeps no such list.
        """
        return ()


def document_id(text: str) -> str:
    """SHA-256 (hex) of the text's UTF-8 bytes. Raises UnicodeEncodeError for lone surrogates."""
    return hashlib.sha256(text.encode()).hexdigest()


def entry_about(text: str, example: Example, place: str) -> Entry:
    """The example with its document; an empty id is derived from the content.

    Raises:
        CorpusError: there is half a surrogate pair in it; ``place`` is in the sentence.
    """
    try:
        identity = document_id(text)
        asked = [identity, example.question, example.answers, example.task]
        content = json.dumps(asked, ensure_ascii=False).encode()
        given = example.example_id.encode()
    except UnicodeEncodeError as error:
        raise CorpusError(
            f"{place} holds half a surrogate pair, which is no character; write it as UTF-8."
        ) from error
    name = example.example_id or hashlib.sha256(content).hexdigest()[:32]
    example = replace(example, example_id=name, document_id=identity)
    return Entry(Document(identity, text), example, place, id_given=bool(given))


def seeded_place(*parts: object) -> bytes:
    """A place in the order that a seed decides: SHA-256 of the parts, a line each."""
    return hashlib.sha256("\n".join(map(str, parts)).encode()).digest()


def options_hash(kind: str, options: Mapping[str, Any], *content: str) -> str:
    """SHA-256 (hex) of an adapter's kind and options and of its source's own hashes."""
    text = json.dumps([kind, dict(options), *content], sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def file_sha256(path: Path) -> str:
    """SHA-256 (hex) of a file's bytes.

    Raises:
        CorpusError: it cannot be read.
    """
    try:
        with open_file(path) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise unreadable(path, error) from error


def no_such_tasks(path: Path, wanted: Iterable[str], there: Iterable[str]) -> CorpusError:
    """The error that no row of ``path`` is of the tasks asked for."""
    known = ", ".join(sorted(there)[:40]) or "none"
    return CorpusError(
        f"{path} holds no question of the task {' or '.join(wanted)}; its tasks are {known}."
    )


def unreadable(path: Path, error: OSError) -> CorpusError:
    """The error that ``path`` cannot be read."""
    return CorpusError(f"{path} cannot be read: {error.strerror or error}.")


MOST = 1_000_000_000
"""Of documents, tokens and the like: more is a slip of the keyboard."""


def take_options(
    kind: str,
    options: Mapping[str, Any],
    types: Mapping[str, Any],
    numbers: Mapping[str, tuple[int | None, int]] | None = None,
) -> dict[str, Any]:
    """The options that were given (null counts as not given), each known and of the right type.

    Args:
        types: a type, or several, by the name of the option.
        numbers: default and least value of options that are whole numbers; all are in the result.

    Raises:
        CorpusError: an option is unknown, has the wrong type, or is too small.
    """
    numbers = numbers or {}
    known: Mapping[str, Any] = {**types, **dict.fromkeys(numbers, int)}
    given = {name: default for name, (default, _) in numbers.items()}
    given |= {key: value for key, value in options.items() if value is not None}
    for key, value in given.items():
        if key not in known:
            raise CorpusError(
                f"A corpus of kind {kind!r} has no option {key!r}; "
                f"it has {', '.join(sorted(known))}."
            )
        wanted = known[key] if isinstance(known[key], tuple) else (known[key],)
        if value is not None and (not isinstance(value, wanted) or isinstance(value, bool)):
            raise CorpusError(
                f"Option {key!r} of a corpus of kind {kind!r} must be "
                f"{' or '.join(_TYPE_NAMES.get(k, k.__name__) for k in wanted)}, not {value!r}."
            )
        if isinstance(value, int) and key != "seed" and value > MOST:
            raise CorpusError(
                f"Option {key!r} of a corpus of kind {kind!r} must be at most {MOST:,}; write less."
            )
        if key in numbers and value is not None and value < numbers[key][1]:
            raise CorpusError(
                f"Option {key!r} of a corpus of kind {kind!r} must be at least {numbers[key][1]}, "
                f"not {value}."
            )
    return given


_TYPE_NAMES: dict[Any, str] = {int: "a whole number", str: "text", list: "a list"}


def given_path(kind: str, given: Mapping[str, Any]) -> Path:
    """The option ``path``.

    Raises:
        CorpusError: it was not given.
    """
    if "path" not in given:
        raise CorpusError(f"A corpus of kind {kind!r} needs the option 'path'.")
    return Path(given["path"]).expanduser()


def one_of(option: str, value: Any, known: Sequence[str]) -> str:
    """The value of an option, the first of those ``known`` where it is None.

    Raises:
        CorpusError: it is none of them.
    """
    if value is None:
        return known[0]
    if value not in known:
        raise CorpusError(f"Option {option!r} is one of {', '.join(known)}, not {value!r}.")
    return str(value)
