"""Logged answers, the form into which every log is read: their scores and sources of lengths."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from contextcliff_dagster.contracts import FailureTag, ScoreFileError
from contextcliff_dagster.corpora.readers.tables import value_at
from contextcliff_dagster.score_files.columns import MOST_TOKENS
from contextcliff_dagster.score_files.logs.members import rows_of

if TYPE_CHECKING:
    from contextcliff_dagster.sampling.tokenizers.tokenizers import Tokenizer


def digest(text: str) -> str:
    """Return the document's name: the SHA-256 of its bytes."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def answers_first(answers: Iterator[Answer]) -> Iterator[Answer]:
    """Move an answered row to the front: missing ones often do not show how length is known."""
    head = []
    for answer in answers:
        head.append(answer)
        if answer.failure is None:
            break
    yield from reversed(head)
    yield from answers


class Lengths:
    """Lengths of all answers in one log, measured by one rule.

    The rule is ``documents`` or ``counted`` if the options ask for it; else the first answer
    decides: ``logged`` if the log gives its length, ``counted`` if it has the text. Answers that
    the rule cannot measure have no length: different measures are never mixed.
    """

    def __init__(self, options: LogOptions) -> None:
        self.rule = "documents" if options.documents else "counted" if options.tokenizer else ""
        self.name = options.tokenizer or DEFAULT_TOKENIZER
        self._open = options.open_tokenizer
        self._tokenizer: Tokenizer | None = None
        self._counts: dict[str, int] = {}

    def of(self, answer: Answer, document: str | None) -> float | None:
        """Return the answer's length; ``document`` is the digest of ``answer.text``, if known."""
        if not self.rule and (answer.length or answer.text):
            self.rule = "logged" if answer.length else "counted"
        if self.rule == "logged":
            length = answer.length
        elif self.rule == "counted" and answer.text is not None and document is not None:
            length = self.count(answer.text, document)
        else:
            return None
        return length if length and 0 < length <= MOST_TOKENS else None

    def count(self, text: str, document: str) -> int:
        """Count the tokens of ``text``.

        Raises:
            StudyError: the tokenizer cannot be loaded.
            ScoreFileError: the options do not say how to open one.
        """
        if (known := self._counts.get(document)) is not None:
            return known
        if self._tokenizer is None:
            if self._open is None:
                raise ScoreFileError(
                    "The log gives no lengths, so they must be counted: set open_tokenizer to "
                    "contextcliff_dagster.sampling.tokenizers.tokenizers.open_tokenizer."
                )
            self._tokenizer = self._open(self.name)
        if not text.isascii():  # no tokenizer reads half a surrogate pair
            text = text.encode("utf-8", "replace").decode()
        count = self._counts[document] = self._tokenizer.count(text)
        return count

    def of_documents(self, path: Path, wanted: set[str]) -> dict[str, tuple[str, int]]:
        """Return name -> (digest, tokens) for the documents in ``path`` whose names are ``wanted``.

        Raises:
            ScoreFileError: the file cannot be read, or none of them is in it.
        """
        documents: dict[str, tuple[str, int]] = {}
        try:
            for row in map(mapping, rows_of(path)):
                name = name_of(row.get("_id")) or name_of(row.get("id"))
                text = longest_text(row)
                if name in wanted and name is not None and text is not None:
                    document = digest(text)
                    documents[name] = document, self.count(text, document)
        except OSError as error:
            raise ScoreFileError(f"{path} cannot be read: {error.strerror or error}.") from error
        if not documents:
            raise ScoreFileError(
                f"{path} has none of the log's documents: it needs one object a document, with "
                "'_id' (or 'id') as in the log and 'context'."
            )
        return documents


DEFAULT_TOKENIZER = "tiktoken:o200k_base"
OwnScore = Literal["em", "f1", "contained"]

TEXT_FIELDS = ("context", "document", "passage", "article", "story", "text")
"""Fields in which tasks store a question's document."""


@dataclass(frozen=True, slots=True)
class LogOptions:
    """Options for reading a log.

    Attributes:
        metric: which of the log's own scores to use; needed if it has several.
        own_score: score the answers here instead, against the accepted ones in the log.
        tokenizer: counts lengths from the texts and overrides the log's; None takes the log's own
            lengths if it has any, else ``DEFAULT_TOKENIZER``.
        documents: file of the data set (JSON or JSON Lines with ``_id`` or ``id``, and ``context``)
            for logs that leave the documents out.
        partial: accept the log of a run that failed or was stopped.
        scale: scores are 0..scale.
        columns: our name for a column -> a plain table's (``{"length_tokens": "token_count"}``); a
            file read with them is not a log.
        open_tokenizer: `api.open_tokenizer`; without it only lengths in the log can be used.
    """

    metric: str | None = None
    own_score: OwnScore | None = None
    tokenizer: str | None = None
    documents: Path | None = None
    partial: bool = False
    scale: float = 1.0
    columns: Mapping[str, str] = field(default_factory=dict)
    open_tokenizer: Callable[[str], Tokenizer] | None = field(default=None, compare=False)


@dataclass(slots=True)
class Answer:
    """One logged answer.

    Attributes:
        example: the example's name in its data set; repeats share it.
        scores: the scores by their names in the log; values that are not numbers are left out.
        variant: distinguishes rows that score one answer in several ways (filters of lm-eval).
        output, accepted: the answer and the accepted ones, for scoring here.
        rule: the benchmark's published rule (`scoring.scorers`); None: as text.
        text: the document, or the whole prompt if ``of_prompt``.
        document: the document's name, if the log has one.
        model, task: of this answer; None: the log's.
        evidence_position: position of the evidence in the document, 0 to 1.
        length: the log's own length; ``Log.length_kind`` says what it counts.
        error: why there is no answer, as a completion of "3 answers ...".
        failure: the failure tag of a missing answer, if it has one; the answer then counts as
            missing at its length.
        finished_at: time of the answer, ISO 8601.
    """

    example: str | None = None
    scores: Mapping[str, float] = field(default_factory=dict)
    variant: str = ""
    output: str | None = None
    accepted: Sequence[str] = ()
    rule: Mapping[str, Any] | None = None
    text: str | None = None
    of_prompt: bool = False
    document: str | None = None
    model: str | None = None
    task: str | None = None
    evidence_position: float | None = None
    length: float | None = None
    prompt_tokens: float | None = None
    completion_tokens: float | None = None
    error: str | None = None
    failure: FailureTag | None = None
    finished_at: str | None = None


@dataclass
class Log:
    """A log being read: ``answers`` can be iterated once, and completes the fields after it.

    Attributes:
        tool: the name of the program that wrote it.
        length_kind: what ``Answer.length`` counts: ``prompt tokens``, ``words``, ``characters`` or
            ``sizes``.
        size: the length that the benchmark was set to, in tokens, of answers without their own.
        joined: scores that the tool keeps apart from the answers, by the answer's id.
        own_rule: whether F1 scored here equals the tool's own score of this task.
        score_names: names of the scores, if the log lists them apart.
        main_score: the score to use if none is chosen and the log has several.
        is_scaled: whether its scores are 0..1 already, whatever scale the options state.
        default_score: our score that is closest to the tool's own, for logs without scores.
        notes: sentences about the log that matter for the result.
        no_text: why lengths cannot be counted, as a clause, if the tool keeps no texts.
        remedy: how to give the lengths.
    """

    path: Path
    tool: str
    answers: Iterator[Answer] = field(default_factory=lambda: iter(()))
    model: str | None = None
    task: str | None = None
    length_kind: str = "prompt tokens"
    size: float | None = None
    joined: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    own_rule: bool = False
    score_names: set[str] | None = None
    main_score: str | None = None
    is_scaled: bool = False
    default_score: OwnScore = "f1"
    notes: list[str] = field(default_factory=list)
    no_text: str = ""
    remedy: str = "give the data set's own file, whose ids the log has, with --documents FILE"


class UnusableLogError(ScoreFileError):
    """Raised for another tool's log without a usable answer."""


def first_of(row: Mapping[str, Any], *names: str) -> Any:
    """Return the first value that is not empty; ``a.b`` is b of the object in a."""
    found = [value for name in names if (value := value_at(row, name)) is not None]
    return next((value for value in found if value != ""), found[0] if found else None)


def prompt_text(prompt: Any) -> str | None:
    """Return the text of a prompt: a text, chat messages, or either in JSON form."""
    if isinstance(prompt, str) and prompt.startswith(("[{", '{"messages"')):
        with suppress(ValueError, RecursionError):
            return prompt_text(json.loads(prompt)) or prompt
    messages = prompt.get("messages") if isinstance(prompt, dict) else prompt
    return (prompt if isinstance(prompt, str) else chat_text(messages)) or None


def number(value: Any) -> float | None:
    """Return ``value`` as a float if it is a finite number or a boolean, else None."""
    try:
        return float(value) if isinstance(value, int | float) and isfinite(value) else None
    except OverflowError:  # an integer that no float holds
        return None


def figure(value: Any) -> float | None:
    """Return a number that may also be written as text, as in a table."""
    try:
        return number(float(value) if isinstance(value, str) else value)
    except ValueError:
        return None


def mapping(value: Any) -> Mapping[str, Any]:
    """Return ``value`` if it is a mapping, else an empty one."""
    return value if isinstance(value, dict) else {}


def listed(value: Any) -> list[Any]:
    """Return ``value`` if it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def name_of(value: Any) -> str | None:
    """Return ``value`` as a name if it can be one, else None."""
    if isinstance(value, str):
        return value or None
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else None


def texts_of(value: Any) -> list[str]:
    """Return the accepted answers in ``value``: one, several, or a list of wordings for each."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, int | float) and not isinstance(value, bool):
        return [str(value)]
    if isinstance(value, list):
        return [text for item in value for text in texts_of(item)]
    return []


def longest_text(fields: Mapping[str, Any]) -> str | None:
    """Return the longest text among the `TEXT_FIELDS`."""
    texts = [text for name in TEXT_FIELDS if isinstance(text := fields.get(name), str)]
    return max(texts, key=len, default="") or None


def chat_text(messages: Any) -> str:
    """Return the texts in a list of chat messages, in order."""
    parts: list[str] = []
    for message in listed(messages):
        content = first_of(mapping(message), "content", "prompt")
        texts = content if isinstance(content, list) else [{"text": content}]
        parts += [text for part in texts if isinstance(text := mapping(part).get("text"), str)]
    return "\n".join(parts)
