"""The corpus `python-source`: the interpreter's own library and packages, or a folder of yours."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, cast, get_args

from contextcliff_dagster.contracts import CorpusError, Document, Example
from contextcliff_dagster.corpora.corpus import (
    EVIDENCE_CHARACTERS,
    EVIDENCE_SPANS,
    Entry,
    StreamedCorpus,
    document_id,
    options_hash,
    take_options,
)
from contextcliff_dagster.corpora.python_source.evidence import evidence_spans
from contextcliff_dagster.corpora.python_source.file_discovery import (
    FoundFile,
    Root,
    find_files,
    installed_roots,
)
from contextcliff_dagster.corpora.python_source.line_completion import LineQuestion
from contextcliff_dagster.corpora.python_source.module import Question, SourceModule
from contextcliff_dagster.corpora.python_source.question_selection import (
    KINDS,
    choose_questions,
    order_of,
)
from contextcliff_dagster.corpora.python_source.source_file import (
    SKIPPED,
    SkippedFileError,
    read_bytes,
    read_text,
)

ROOTS = ("stdlib", "site-packages")
_NUMBERS = {  # option: default, least
    "files": (2_000, 1),
    "documents": (None, 1),
    "questions_per_document": (6, 1),
    "min_bytes": (1, 1),
    "max_bytes": (1_000_000, 1),
    "seed": (0, 0),
}


class PythonSourceCorpus(StreamedCorpus):
    """Python files at their natural length; questions that their syntax trees answer.

    Options: ``roots`` (``stdlib``, ``site-packages``; both) or ``path`` (a folder instead of
    them); ``kinds`` of questions (all of `asking.KINDS`) or one as ``task``; ``files`` to read at
    most (2,000, by a seeded order over all), ``documents`` to use at most (all),
    ``questions_per_document`` (6), ``min_bytes`` and ``max_bytes`` of a file (1; 1,000,000),
    ``seed`` (0), ``line_question`` (``sentence``, or ``beginning``: the bare beginning of the line,
    for prompts that begin the answer with it).

    A file is used whole and as it stands, or left out and counted (`account`). The same files,
    Python version and options give the same entries, in the same order.
    """

    name = "python-source"

    def __init__(self, options: Mapping[str, Any]) -> None:
        known: dict[str, type | tuple[type, ...]] = {
            "roots": list,
            "path": (str, Path),
            "kinds": list,
            "task": str,
            "line_question": str,
        }
        given = take_options("python-source", options, known | dict.fromkeys(_NUMBERS, int))
        self._limits = _numbers(given)
        self._kinds = _kinds(given)
        self._wording = cast(
            LineQuestion,
            _one_of(
                "line_question", given.get("line_question", "sentence"), get_args(LineQuestion)
            ),
        )
        self._roots = _roots(given)
        self._account: dict[str, Any] = {}

    def fingerprint(self) -> str:
        # Which files there are, and the bytes of those that would be read.
        content = hashlib.sha256()
        for file in self._files(Counter()):
            content.update(file.name.encode() + b"\0")
            try:
                content.update(hashlib.sha256(self._bytes(file)).digest())
            except SkippedFileError as error:
                content.update(error.reason.encode())
        options = {
            **self._limits,
            "kinds": self._kinds,
            "line_question": self._wording,
            "roots": sorted({root.label for root in self._roots}),
            "python": _interpreter(),
        }
        return options_hash("python-source", options, content.hexdigest())

    def account(self) -> dict[str, Any]:
        """What became of every file at the last reading, and whose files they are."""
        return self._account

    def entries(self) -> Iterator[Entry]:
        """
        Raises:
            CorpusError: no file gives a question.
        """
        skipped: Counter[str] = Counter()
        files = self._files(skipped)
        most = self._limits["documents"]
        seen: set[str] = set()
        read = 0
        for file in files:
            if most is not None and len(seen) >= most:
                break
            read += 1
            try:
                entries = self._entries_of(file, seen)
            except SkippedFileError as error:
                skipped[error.reason] += 1
                continue
            yield from entries
        if not seen:
            where = ", ".join(str(root.folder) for root in self._roots)
            raise CorpusError(
                f"No Python file of {where} gives a question of the kinds asked for "
                f"({read:,} read); name other kinds, or another folder under 'path'."
            )
        self._account = {
            "python": _interpreter(),
            "roots": sorted({root.label for root in self._roots}),
            "distributions": _distributions(self._roots),
            "files": {"read": read, "used": len(seen), "skipped": dict(sorted(skipped.items()))},
            "summary": _summary(read, len(seen), skipped),
        }

    def _files(self, skipped: Counter[str]) -> list[FoundFile]:
        found = find_files(self._roots, cast(int, self._limits["seed"]), skipped)
        return list(islice(found, self._limits["files"]))

    def _bytes(self, file: FoundFile) -> bytes:
        least, most = self._limits["min_bytes"], self._limits["max_bytes"]
        assert least is not None
        assert most is not None
        return read_bytes(file.path, least, most)

    def _entries_of(self, file: FoundFile, seen: set[str]) -> list[Entry]:
        """The file's questions; its document joins those that were ``seen``.

        Raises:
            SkippedFileError: it is left out.
        """
        text = read_text(self._bytes(file))
        identity = document_id(text)
        if identity in seen:
            raise SkippedFileError("duplicate")
        order = order_of(cast(int, self._limits["seed"]), identity)
        try:
            module = SourceModule(text)
            questions = choose_questions(
                module,
                self._kinds,
                self._wording,
                order,
                cast(int, self._limits["questions_per_document"]),
            )
        except RecursionError as error:  # a tree that could just be built
            raise SkippedFileError("too_deep") from error
        if not questions:
            raise SkippedFileError("no_question")
        seen.add(identity)
        document = Document(identity, text)
        return [
            Entry(document, _example(identity, module, one, file.name), file.name)
            for one in questions
        ]


def _example(identity: str, module: SourceModule, asked: Question, name: str) -> Example:
    metadata: dict[str, Any] = {
        "level": asked.level,
        "evidence_position": asked.places[-1] / len(module.text),
        "domain": "/".join(name.split("/")[:2]).removesuffix(".py"),
        "source": name,
        EVIDENCE_SPANS: evidence_spans(module, asked.places),
    }
    if asked.level > 1:
        metadata[EVIDENCE_CHARACTERS] = list(asked.places)
    digest = hashlib.sha256(f"{asked.kind}\n{asked.text}".encode()).hexdigest()
    return Example(
        example_id=f"{identity[:16]}-{asked.kind}-{digest[:12]}",
        document_id=identity,
        question=asked.text,
        answers=asked.answers,
        task=asked.kind,
        metadata=metadata,
    )


def _summary(read: int, used: int, skipped: Mapping[str, int]) -> str:
    counts = sorted(skipped.items(), key=lambda item: (-item[1], item[0]))
    left_out = ", ".join(f"{n:,} {SKIPPED[reason]}" for reason, n in counts)
    return f"{read:,} Python files read, {used:,} used" + (
        f"; left out: {left_out}." if left_out else "."
    )


def _numbers(given: Mapping[str, Any]) -> dict[str, int | None]:
    limits: dict[str, int | None] = {}
    for name, (default, least) in _NUMBERS.items():
        value = given.get(name, default)
        if value is not None and value < least:
            raise CorpusError(
                f"Option {name!r} of a corpus of kind 'python-source' must be at least {least}, "
                f"not {value}."
            )
        limits[name] = value
    if cast(int, limits["min_bytes"]) > cast(int, limits["max_bytes"]):
        raise CorpusError(
            f"Option 'min_bytes' ({limits['min_bytes']}) is above 'max_bytes' "
            f"({limits['max_bytes']}); no file could be used."
        )
    return limits


def _kinds(given: Mapping[str, Any]) -> list[str]:
    if "task" in given and "kinds" in given:
        raise CorpusError("Options 'task' and 'kinds' both name kinds of questions; give one.")
    named = [given["task"]] if "task" in given else given.get("kinds", list(KINDS))
    return _several("kinds", named, KINDS)


def _several(option: str, named: Sequence[Any], known: Sequence[str]) -> list[str]:
    if not named:
        raise CorpusError(f"Option {option!r} is empty; name some of {', '.join(known)}.")
    return sorted({_one_of(option, one, known) for one in named})


def _one_of(option: str, value: Any, known: Sequence[str]) -> str:
    if value not in known:
        raise CorpusError(
            f"Option {option!r} of a corpus of kind 'python-source' names {value!r}; "
            f"there are {', '.join(known)}."
        )
    return str(value)


def _roots(given: Mapping[str, Any]) -> list[Root]:
    if "path" in given:
        if "roots" in given:
            raise CorpusError("Options 'path' and 'roots' both say what is read; give one.")
        folder = Path(given["path"]).expanduser()
        if not folder.is_dir():
            raise CorpusError(f"There is no folder {folder}; check the corpus option 'path'.")
        return [Root(folder.resolve().name or "folder", folder)]
    labels = _several("roots", given.get("roots", list(ROOTS)), ROOTS)
    roots = [root for label in labels for root in installed_roots(label)]
    if not roots:
        raise CorpusError(
            f"This Python keeps no {' or '.join(labels)} in folders; name one under 'path'."
        )
    return roots


def _interpreter() -> str:
    import platform

    return f"{platform.python_implementation()} {platform.python_version()}"


def _distributions(roots: Sequence[Root]) -> list[str]:
    """Name and version of each distribution installed below the roots."""
    from importlib.metadata import distributions

    folders = [str(root.folder) for root in roots]
    return sorted({f"{one.name} {one.version}" for one in distributions(path=folders)})
