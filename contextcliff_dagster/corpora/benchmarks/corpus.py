"""Shared base class of the benchmark corpora: options, files, accounts, manufactured lengths."""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from contextcliff_dagster.contracts import CorpusError, Example
from contextcliff_dagster.corpora.benchmarks.item import (
    NO_ANSWER,
    AnswerType,
    Item,
    answer_type,
    ask_unanswerable,
)
from contextcliff_dagster.corpora.benchmarks.recognition import ENDINGS, PACKED, benchmarks_of
from contextcliff_dagster.corpora.corpus import (
    EVIDENCE_CHARACTERS,
    EVIDENCE_SPANS,
    PATH,
    Entry,
    StreamedCorpus,
    entry_about,
    file_sha256,
    given_path,
    no_such_tasks,
    one_of,
    options_hash,
    take_options,
)
from contextcliff_dagster.corpora.readers.rows import READERS
from contextcliff_dagster.corpora.readers.tables import saved_files

_LOOKED_INTO = 40
"""Maximum number of files that are checked for another benchmark before an error is raised."""
ALLOW_SYNTHETIC_LENGTH = "allow_synthetic_length"
SCORING_RULE = "scoring_rule"
"""Key in an example's metadata for the benchmark's published scoring rule."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One question of a benchmark.

    ``answers`` is empty if the benchmark says that the text does not answer the question.
    ``evidence`` holds its pieces of evidence, [start, end), and ``place`` where the answer is, both
    in characters of ``text``. ``identity`` is the benchmark's own id, or empty. ``rule`` is its
    published rule (`scoring.scorers`); None scores as text, or by letter for multiple choice.
    """

    text: str
    question: str
    answers: tuple[str, ...]
    task: str
    identity: str = ""
    kind: AnswerType | None = None
    level: int | None = None
    evidence: Sequence[tuple[int, int]] = ()
    place: int | None = None
    domain: str = ""
    source: str = ""
    rule: Mapping[str, Any] | None = None
    more: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A question that is left out and the reason, by which the account counts it."""

    reason: str


class BenchmarkCorpus(StreamedCorpus):
    """A local copy of a benchmark: one of its files, or a folder with several.

    Options: ``path``; ``tasks`` (a list) or ``task`` to use only these; ``unanswerable``:
    ``leave_out`` (default), or ``ask``, where every question names the reply that means "the text
    does not say"; ``allow_synthetic_length``: use tasks whose lengths were manufactured.

    Metadata of every example: ``answer_type`` (text, number, yes_no, multiple_choice,
    unanswerable), and the level, position and distance of its evidence where these are known.
    """

    lengths: str
    """Where the documents' lengths come from (a clause), except `made_up_lengths`."""
    made_up_lengths: ClassVar[Mapping[str, str]] = {}
    """Task -> how its lengths were manufactured, as a clause; other lengths are natural."""
    endings: ClassVar[tuple[str, ...]] = (".json", ".jsonl", ".parquet")
    reader_version: ClassVar[int] = 1
    """Increase this when the same file yields other examples, so that `prepare` reads it again."""
    own_options: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """Additional text options, each with its allowed values; the first value is the default."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        chosen = dict(options)
        allowed = chosen.pop(ALLOW_SYNTHETIC_LENGTH, None)
        if allowed is not None and not isinstance(allowed, bool):
            raise CorpusError(
                f"Option {ALLOW_SYNTHETIC_LENGTH!r} is true or false, not {allowed!r}."
            )
        self._allowed = bool(allowed)
        words = {"unanswerable": ("leave_out", "ask"), **self.own_options}
        types = {"path": PATH, "tasks": list, "task": str, **dict.fromkeys(words, str)}
        chosen = take_options(self.name, chosen, types)
        self.path = given_path(self.name, chosen)
        if "task" in chosen and "tasks" in chosen:
            raise CorpusError("Options 'task' and 'tasks' both say what is used; give one.")
        self._tasks = [chosen["task"]] if "task" in chosen else chosen.get("tasks")
        self.chosen = {
            option: one_of(option, chosen.get(option), values) for option, values in words.items()
        }
        self.files = self._found()

    @abstractmethod
    def asked(self, record: Item, file: Path) -> Iterator[Asked | LeftOut]:
        """Yield the questions in one record of a file."""

    def records(self, file: Path) -> Iterator[tuple[str, Any]]:
        """Yield (place, record) for each record of a file, one at a time."""
        return READERS[ENDINGS[file.suffix.lower()]](file)

    def manufactured(self, task: str) -> str | None:
        """Return how the task's lengths were manufactured, or None if they are natural."""
        return self.made_up_lengths.get(task)

    def fingerprint(self) -> str:
        digests = b"".join(bytes.fromhex(file_sha256(file)) for file in self.files)
        options = {**self.chosen, "tasks": self._tasks}
        if self.reader_version > 1:
            options["reader_version"] = self.reader_version
        return options_hash(self.name, options, hashlib.sha256(digests).hexdigest())

    def entries(self) -> Iterator[Entry]:
        """Yield the questions of the chosen tasks; in a folder, skip tasks with disallowed lengths.

        Errors include a named task, or only tasks, with such lengths. If a file looks like another
        benchmark's, the message says so instead.
        """
        try:
            yield from self._entries()
        except CorpusError as error:
            for file in self.files[:_LOOKED_INTO]:
                self._refuse_another(file, error)
            raise

    def _refuse_another(self, file: Path, error: CorpusError | None = None) -> None:
        """Raise CorpusError if the file looks like another benchmark's and not like this one's."""
        if (kinds := benchmarks_of(file)) and self.name not in kinds:
            raise CorpusError(
                f"{file} is not a file of {self.name}; it looks like {' or '.join(sorted(kinds))}: "
                "name that with --dataset, or leave --dataset out (in a study: corpus.kind)."
            ) from error

    def _entries(self) -> Iterator[Entry]:
        left_out: Counter[str] = Counter()
        used: Counter[str] = Counter()
        seen_tasks: set[str] = set()
        made: dict[str, str] = {}
        refused: CorpusError | None = None
        derived: set[bytes] = set()
        for file in self.files:
            for place, value in self.records(file):
                for question in self.asked(Item(value, place), file):
                    if not isinstance(question, LeftOut):
                        seen_tasks.add(question.task)
                    if isinstance(question, LeftOut):
                        left_out[question.reason] += 1
                    elif self._tasks is not None and question.task not in self._tasks:
                        left_out["of another task"] += 1
                    elif not question.answers and self.chosen["unanswerable"] == "leave_out":
                        left_out["unanswerable"] += 1
                    elif (how := self.manufactured(question.task)) and not self._allowed:
                        refused = refused or self._manufactured(question.task, how, place)
                        if self._tasks is not None or not self.path.is_dir():
                            raise refused  # the study names this task
                        left_out[f"of {question.task} (manufactured lengths)"] += 1
                    elif (entry := self._entry(question, place)).repeats(derived):
                        left_out["repeated"] += 1
                    else:
                        if how:
                            made[question.task] = how
                        used[question.task] += 1
                        yield entry
        if refused is not None and not used:
            raise refused
        missing_tasks = [str(task) for task in self._tasks or () if task not in seen_tasks]
        if seen_tasks and missing_tasks:
            raise no_such_tasks(self.path, missing_tasks, seen_tasks)
        if not used:
            raise CorpusError(
                f"{self.path} has no question of {self.name} ({_counts_text(left_out) or 'none'} "
                "left out); choose another file, or other 'tasks'."
            )
        summary = f"{used.total():,} questions of {self.name} used"
        if left_out:
            summary += f"; left out: {_counts_text(left_out)}"
        lengths = self.lengths
        if made and self.made_up_lengths:
            lengths += f"; manufactured in {', '.join(sorted(made))}"
        account = {
            "summary": f"{summary}. Lengths: {lengths}.",
            "lengths": lengths,
            "used": dict(sorted(used.items())),
            "left_out": dict(sorted(left_out.items())),
        }
        self._account = account | ({"manufactured": dict(sorted(made.items()))} if made else {})

    def _manufactured(self, task: str, how: str, place: str) -> CorpusError:
        return CorpusError(
            f"{place}: the lengths of {task!r} were manufactured ({how}), so a fall over them "
            "says little about documents of natural length; choose other 'tasks', or "
            "allow it with --allow-synthetic-length (in a study: "
            f"corpus.{ALLOW_SYNTHETIC_LENGTH}: true)."
        )

    def _entry(self, asked: Asked, place: str) -> Entry:
        question, answers, kind = asked.question.strip(), asked.answers, asked.kind
        if self.chosen["unanswerable"] == "ask":
            question = ask_unanswerable(question)
        if not answers:
            answers, kind = (NO_ANSWER,), "unanswerable"
        answers = tuple(dict.fromkeys(answers))
        first = [start for start, _ in asked.evidence]
        fields = {
            "domain": asked.domain or None,
            "level": asked.level,
            "evidence_position": None if asked.place is None else asked.place / len(asked.text),
            EVIDENCE_SPANS: sorted(map(list, asked.evidence)) or None,
            EVIDENCE_CHARACTERS: sorted(first) if len(first) > 1 else None,
        }
        metadata = {
            **{key: value for key, value in asked.more.items() if value != ""},
            "answer_type": kind or answer_type(answers),
            "source": asked.source or self.name,
            **{key: value for key, value in fields.items() if value is not None},
            **({SCORING_RULE: dict(asked.rule)} if asked.rule and asked.answers else {}),
        }
        example = Example(asked.identity, "", question, answers, asked.task, metadata)
        return entry_about(asked.text, example, place)

    def _found(self) -> list[Path]:
        if saved := saved_files(self.path, CorpusError):
            return saved
        if not self.path.is_dir():
            if not self.path.is_file():
                raise CorpusError(f"There is no file {self.path}; check the corpus option 'path'.")
            if (ending := self.path.suffix.lower()) not in self.endings:
                self._refuse_another(self.path)
                raise CorpusError(
                    f"{self.path}: {self.name} is read from {', '.join(self.endings)}; "
                    f"{'unpack it' if ending in PACKED else 'name such a file'}."
                )
            return [self.path]
        files = [file for file in self.path.rglob("*") if file.suffix.lower() in self.endings]
        if not (files := sorted(filter(Path.is_file, files))):
            raise CorpusError(
                f"{self.path} holds no {' or '.join(self.endings)} file; give the folder with "
                f"the files of {self.name}."
            )
        return files


def _counts_text(counts: Mapping[str, int]) -> str:
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{n:,} {reason}" for reason, n in ordered)
