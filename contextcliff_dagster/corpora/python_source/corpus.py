"""The corpus `python-source`: the interpreter's own library and packages, or your own folder."""

from __future__ import annotations

import hashlib
import platform
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from contextcliff_dagster.contracts import CorpusError, Document, Example
from contextcliff_dagster.corpora.corpus import (
    EVIDENCE_CHARACTERS,
    EVIDENCE_SPANS,
    PATH,
    WORDINGS,
    Entry,
    StreamedCorpus,
    document_id,
    one_of,
    options_hash,
    seeded_place,
    take_options,
)
from contextcliff_dagster.corpora.python_source.files import (
    SKIPPED,
    Root,
    SkippedFileError,
    SourceFile,
    SourceModule,
    decoded,
    find_files,
    installed_roots,
    read_bytes,
)
from contextcliff_dagster.corpora.python_source.questions import KINDS, Question, choose_questions

ROOTS = ("stdlib", "site-packages")
_PYTHON = f"{platform.python_implementation()} {platform.python_version()}"
_NUMBERS = {  # option: default, least
    "files": (2_000, 1),
    "documents": (None, 1),
    "questions_per_document": (6, 1),
    "min_bytes": (1, 1),
    "max_bytes": (1_000_000, 1),
    "seed": (0, 0),
}


class PythonSourceCorpus(StreamedCorpus):
    """Python files at their natural length, with questions that their syntax trees answer.

    Options: ``roots`` (``stdlib``, ``site-packages``; both) or ``path`` (a folder instead of them);
    ``kinds`` of questions (all of `KINDS`) or a single ``task``; maximum of ``files`` to read
    (2,000, in a seeded order) and ``documents`` to use (all), ``questions_per_document`` (6),
    ``min_bytes`` and ``max_bytes`` of a file (1; 1,000,000), ``seed`` (0), ``line_question``
    (``sentence``, or ``beginning``: the bare beginning of the line, for prompts that begin the
    answer with it).

    A file is used whole and unchanged, or left out and counted (`account`). The same files,
    Python version and options give the same entries, in the same order.
    """

    name = "python-source"

    def __init__(self, options: Mapping[str, Any]) -> None:
        types = {"roots": list, "path": PATH, "kinds": list, "task": str, "line_question": str}
        values = take_options(self.name, options, types, _NUMBERS)
        self._limits = {name: values[name] for name in _NUMBERS}
        if self._limits["min_bytes"] > self._limits["max_bytes"]:
            raise CorpusError(
                f"Option 'min_bytes' ({self._limits['min_bytes']}) is above 'max_bytes' "
                f"({self._limits['max_bytes']}); no file could be used."
            )
        if "task" in values and "kinds" in values:
            raise CorpusError("Options 'task' and 'kinds' both name kinds of questions; give one.")
        kinds = [values["task"]] if "task" in values else values.get("kinds", KINDS)
        self._kinds = _chosen_values("kinds", kinds, KINDS)
        self._wording = one_of("line_question", values.get("line_question"), WORDINGS)
        self._roots = _roots(values)

    def fingerprint(self) -> str:
        # The list of files, and the bytes of those that would be read.
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
            "python": _PYTHON,
        }
        return options_hash(self.name, options, content.hexdigest())

    def entries(self) -> Iterator[Entry]:
        """Yield the questions about every file."""
        skipped: Counter[str] = Counter()
        texts: set[str] = set()
        read = 0
        for file in self._files(skipped):
            if len(texts) == self._limits["documents"]:
                break
            read += 1
            try:
                entries = self._entries_of(file, texts)
            except SkippedFileError as error:
                skipped[error.reason] += 1
                continue
            yield from entries
        if not texts:
            places = ", ".join(str(root.folder) for root in self._roots)
            raise CorpusError(
                f"No Python file of {places} gives a question of the kinds asked for "
                f"({read:,} read); choose other kinds, or another folder under 'path'."
            )
        folders = [str(root.folder) for root in self._roots]
        installed = {f"{package.name} {package.version}" for package in distributions(path=folders)}
        counts = sorted(skipped.items(), key=lambda item: (-item[1], item[0]))
        left_out = ", ".join(f"{n:,} {SKIPPED[reason]}" for reason, n in counts)
        summary = f"{read:,} Python files read, {len(texts):,} used"
        self._account = {
            "python": _PYTHON,
            "roots": sorted({root.label for root in self._roots}),
            "distributions": sorted(installed),
            "files": {"read": read, "used": len(texts), "skipped": dict(sorted(skipped.items()))},
            "summary": f"{summary}; left out: {left_out}." if left_out else f"{summary}.",
        }

    def _files(self, skipped: Counter[str]) -> list[SourceFile]:
        return find_files(self._roots, self._limits["seed"], skipped)[: self._limits["files"]]

    def _bytes(self, file: SourceFile) -> bytes:
        return read_bytes(file.path, self._limits["min_bytes"], self._limits["max_bytes"])

    def _entries_of(self, file: SourceFile, seen: set[str]) -> list[Entry]:
        """Return the questions about the file; its document is added to ``seen``."""
        text = decoded(self._bytes(file))
        identity = document_id(text)
        if identity in seen:
            raise SkippedFileError("duplicate")
        order = partial(seeded_place, self._limits["seed"], identity)
        n_questions = self._limits["questions_per_document"]
        try:
            module = SourceModule(text)
            questions = choose_questions(module, self._kinds, self._wording, order, n_questions)
        except RecursionError as error:  # the tree was built, but is too deep to walk
            raise SkippedFileError("too_deep") from error
        if not questions:
            raise SkippedFileError("no_question")
        seen.add(identity)
        document = Document(identity, text)
        return [
            Entry(document, _example(identity, module, question, file.name), file.name)
            for question in questions
        ]


def _example(identity: str, module: SourceModule, asked: Question, name: str) -> Example:
    metadata: dict[str, Any] = {
        "level": asked.level,
        "evidence_position": asked.places[-1] / len(module.text),
        "domain": "/".join(name.split("/")[:2]).removesuffix(".py"),
        "source": name,
        EVIDENCE_SPANS: module.evidence_spans(asked.places),
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


def _chosen_values(option: str, named: Sequence[Any], known: Sequence[str]) -> list[str]:
    if not named:
        raise CorpusError(f"Option {option!r} is empty; choose from {', '.join(known)}.")
    return sorted({one_of(option, value, known) for value in named})


def _roots(given: Mapping[str, Any]) -> list[Root]:
    if "path" in given:
        if "roots" in given:
            raise CorpusError("Options 'path' and 'roots' both say what is read; give one.")
        folder = Path(given["path"]).expanduser()
        if not folder.is_dir():
            raise CorpusError(f"There is no folder {folder}; check the corpus option 'path'.")
        return [Root(folder.resolve().name or "folder", folder)]
    labels = _chosen_values("roots", given.get("roots", ROOTS), ROOTS)
    roots = [root for label in labels for root in installed_roots(label)]
    if not roots:
        raise CorpusError(
            f"This Python keeps no {' or '.join(labels)} in folders; choose one under 'path'."
        )
    return roots
