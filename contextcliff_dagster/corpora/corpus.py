"""Corpus: a named, streaming source of documents and examples, with checks of its options."""

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
"""Key in an example's metadata: where its pieces of evidence start, in characters. A corpus has no
tokenizer; the manifest's tokenizer converts them to ``inter_evidence_tokens``."""
EVIDENCE_SPANS = "evidence_spans"
"""Key in an example's metadata: its pieces of evidence as pairs [start, end) in characters."""
WORDINGS = ("sentence", "beginning")
"""How a question asks for the rest of a text: in a sentence, or by giving only the beginning, for
prompts that begin the answer with it."""
PATH = (str, Path)
"""Accepted types for the option ``path``."""


class Entry(NamedTuple):
    """One example with its document.

    ``place`` is its place in the source, for error messages (``qa.jsonl, line 7``). ``id_given`` is
    false if the source has no id and the id was derived from the content.
    """

    document: Document
    example: Example
    place: str
    id_given: bool = True

    def repeats(self, derived: set[bytes]) -> bool:
        """Return whether an entry without an id has the document, question, answers and task of one
        before; ``derived`` holds their ids, to which this one's is added."""
        if self.id_given:
            return False
        key = bytes.fromhex(self.example.example_id)
        repeated = key in derived
        derived.add(key)
        return repeated


class StreamedCorpus(ABC):
    """A source of examples. Each iteration rereads the source and holds one entry at a time."""

    name: str
    _account: Mapping[str, Any] = {}

    @abstractmethod
    def fingerprint(self) -> str:
        """Return the SHA-256 (hex) of all that determines the content: options and source."""

    @abstractmethod
    def entries(self) -> Iterator[Entry]:
        """Yield every example with its document, in source order; documents may repeat.

        Raises:
            CorpusError: the source cannot be used, with file and line, or it has no question.
        """

    def documents(self) -> Iterator[Document]:
        """Yield each distinct document once, in order of first appearance."""
        digests: set[bytes] = set()
        for entry in self.entries():
            key = bytes.fromhex(entry.document.document_id)
            if key not in digests:
                digests.add(key)
                yield entry.document

    def examples(self) -> Iterator[Example]:
        """Yield the examples of :meth:`entries`."""
        return (entry.example for entry in self.entries())

    def account(self) -> Mapping[str, Any]:
        """Return what the last complete reading of :meth:`entries` used and left out, as JSON.

        Empty if there is nothing to report; ``summary`` is a sentence for people, ``cautions`` are
        clauses that audit and report repeat, and ``list`` names the list of files, if there is one.
        """
        return self._account

    def file_list(self) -> Sequence[Mapping[str, Any]]:
        """Return what happened to each file in the last complete reading, one row per file.

        Empty if the corpus has no such list.
        """
        return ()


def document_id(text: str) -> str:
    """Return the SHA-256 (hex) of the text's UTF-8. Raises UnicodeEncodeError: lone surrogates."""
    return hashlib.sha256(text.encode()).hexdigest()


def entry_about(text: str, example: Example, place: str) -> Entry:
    """Return the example together with its document; an empty id is derived from the content.

    Raises:
        CorpusError: it contains half a surrogate pair; the message names ``place``.
    """
    try:
        identity = document_id(text)
        content_fields = [identity, example.question, example.answers, example.task]
        content = json.dumps(content_fields, ensure_ascii=False).encode()
        given_id = example.example_id.encode()
    except UnicodeEncodeError as error:
        raise CorpusError(
            f"{place} holds half a surrogate pair, which is not a character; write it as UTF-8."
        ) from error
    name = example.example_id or hashlib.sha256(content).hexdigest()[:32]
    example = replace(example, example_id=name, document_id=identity)
    return Entry(Document(identity, text), example, place, id_given=bool(given_id))


def seeded_place(*parts: object) -> bytes:
    """Return a seeded sort key: the SHA-256 of the parts, one per line."""
    return hashlib.sha256("\n".join(map(str, parts)).encode()).digest()


def options_hash(kind: str, options: Mapping[str, Any], *content: str) -> str:
    """Return the SHA-256 (hex) of an adapter's kind, options and source hashes."""
    text = json.dumps([kind, dict(options), *content], sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def file_sha256(path: Path) -> str:
    """Return the SHA-256 (hex) of a file's bytes. Raises CorpusError: it cannot be read."""
    try:
        with open_file(path) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise unreadable(path, error) from error


def no_such_tasks(path: Path, wanted: Iterable[str], there: Iterable[str]) -> CorpusError:
    """Return the error for a ``path`` without any row of the wanted tasks."""
    task_names = ", ".join(sorted(there)[:40]) or "none"
    return CorpusError(
        f"{path} holds no question of the task {' or '.join(wanted)}; its tasks are {task_names}."
    )


def unreadable(path: Path, error: OSError) -> CorpusError:
    """Return the error for a ``path`` that cannot be read."""
    return CorpusError(f"{path} cannot be read: {error.strerror or error}.")


MOST = 1_000_000_000
"""Upper limit on numbers of documents, tokens and the like; anything larger is assumed a typo."""


def take_options(
    kind: str,
    options: Mapping[str, Any],
    types: Mapping[str, Any],
    numbers: Mapping[str, tuple[int | None, int]] | None = None,
) -> dict[str, Any]:
    """Return the options that were given, checked for name and type; null counts as not given.

    Args:
        types: option -> its type or types.
        numbers: default and minimum of each whole-number option; the result has all of them.

    Raises:
        CorpusError: an option is unknown, has the wrong type, or is too small.
    """
    numbers = numbers or {}
    option_types: Mapping[str, Any] = {**types, **dict.fromkeys(numbers, int)}
    values = {name: default for name, (default, _) in numbers.items()}
    values |= {key: value for key, value in options.items() if value is not None}
    for key, value in values.items():
        if key not in option_types:
            raise CorpusError(
                f"A corpus of kind {kind!r} has no option {key!r}; "
                f"it has {', '.join(sorted(option_types))}."
            )
        must = f"Option {key!r} of a corpus of kind {kind!r} must be"
        kinds = option_types[key] if isinstance(option_types[key], tuple) else (option_types[key],)
        if value is not None and (not isinstance(value, kinds) or isinstance(value, bool)):
            names = " or ".join(_TYPE_NAMES.get(k, k.__name__) for k in kinds)
            raise CorpusError(f"{must} {names}, not {value!r}.")
        if isinstance(value, int) and key != "seed" and value > MOST:
            raise CorpusError(f"{must} at most {MOST:,}; write less.")
        if key in numbers and value is not None and value < numbers[key][1]:
            raise CorpusError(f"{must} at least {numbers[key][1]}, not {value}.")
    return values


_TYPE_NAMES: dict[Any, str] = {int: "a whole number", str: "text", list: "a list"}


def given_path(kind: str, given: Mapping[str, Any]) -> Path:
    """Return the value of the option ``path``. Raises CorpusError: it is missing."""
    if "path" not in given:
        raise CorpusError(f"A corpus of kind {kind!r} needs the option 'path'.")
    return Path(given["path"]).expanduser()


def one_of(option: str, value: Any, known: Sequence[str]) -> str:
    """Return the value of an option; None stands for the first ``known`` value.

    Raises:
        CorpusError: the value is not ``known``.
    """
    if value is None:
        return known[0]
    if value not in known:
        raise CorpusError(f"Option {option!r} is one of {', '.join(known)}, not {value!r}.")
    return str(value)
