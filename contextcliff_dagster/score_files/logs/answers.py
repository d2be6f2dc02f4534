"""What every log comes down to: answers, their scores, and what their lengths are known by."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from contextcliff_dagster.contracts import FailureTag, ScoreFileError
from contextcliff_dagster.score_files.columns import MOST_TOKENS
from contextcliff_dagster.score_files.logs.members import rows

if TYPE_CHECKING:
    from contextcliff_dagster.sampling.tokenizers.tokenizers import Tokenizer


def digest(text: str) -> str:
    """The document's name: SHA-256 of its bytes."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def answers_first(answers: Iterator[Answer]) -> Iterator[Answer]:
    """The same, an answer at the head: missing ones often lack what shows how length is known."""
    begun = []
    for answer in answers:
        begun.append(answer)
        if answer.failure is None:
            break
    yield from reversed(begun)
    yield from answers


class Lengths:
    """The length of every answer of one log, all by one rule.

    The rule is ``documents`` or ``counted`` where the options ask for it; else the first answer
    decides: ``logged`` where the log gives its length, ``counted`` where it has the text. What the
    rule does not give has no length: different measures are never mixed.
    """

    def __init__(self, options: LogOptions) -> None:
        self.rule = "documents" if options.documents else "counted" if options.tokenizer else ""
        self.name = options.tokenizer or DEFAULT_TOKENIZER
        self._open = options.open_tokenizer
        self._tokenizer: Tokenizer | None = None
        self._counts: dict[str, int] = {}

    def of(self, answer: Answer, document: str | None) -> float | None:
        """The length; ``document`` is the digest of ``answer.text``."""
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
        """Tokens of ``text``.

        Raises:
            StudyError: the tokenizer cannot be had.
            ScoreFileError: the options say nothing of how to open one.
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
        if not text.isascii():  # half a surrogate pair is no text to any tokenizer
            text = text.encode("utf-8", "replace").decode()
        count = self._counts[document] = self._tokenizer.count(text)
        return count

    def of_documents(self, path: Path, wanted: set[str]) -> dict[str, tuple[str, int]]:
        """(digest, tokens) of the documents in ``path`` whose names are ``wanted``.

        Raises:
            ScoreFileError: the file cannot be read, or none of them is in it.
        """
        counted: dict[str, tuple[str, int]] = {}
        try:
            for row in rows(path):
                name = name_of(row.get("_id")) or name_of(row.get("id"))
                text = longest_text(row)
                if name in wanted and name is not None and text is not None:
                    document = digest(text)
                    counted[name] = document, self.count(text, document)
        except OSError as error:
            raise ScoreFileError(f"{path} cannot be read: {error.strerror or error}.") from error
        if not counted:
            raise ScoreFileError(
                f"{path} has none of the log's documents: it needs one object a document, with "
                "'_id' (or 'id') as in the log and 'context'."
            )
        return counted


DEFAULT_TOKENIZER = "tiktoken:o200k_base"
OwnScore = Literal["em", "f1", "contained"]

TEXT_FIELDS = ("context", "document", "passage", "article", "story", "text")
"""Fields in which tasks keep the document of a question."""


@dataclass(frozen=True, slots=True)
class LogOptions:
    """How a log is to be read.

    Attributes:
        metric: the log's own score to take; needed where it has several.
        own_score: score the answers here instead, against the accepted ones in the log.
        tokenizer: counts lengths from the texts, whatever the log says of them; None takes the
            log's own lengths where it has any, else ``DEFAULT_TOKENIZER``.
        documents: file of the data set (JSON or JSON Lines with ``_id`` or ``id``, and ``context``)
            for logs that leave the documents out.
        partial: take what a run that failed or was stopped has logged.
        scale: scores are 0..scale.
        columns: names of a plain table's columns by what they are here
            (``{"length_tokens": "token_count"}``); a file read with them is no log.
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
        scores: by the names the log gives them; one that is no number is left out.
        variant: rows that score one answer in several ways differ in it (filters of lm-eval).
        output, accepted: the answer and the accepted ones, for scoring here.
        rule: the benchmark's own way to score (`scoring.scorers`); None: as text.
        text: the document, or the whole prompt where ``of_prompt``.
        document: the document's name where the log has one.
        length: what the log says of the length; ``Log.length_kind`` says what it counts.
        error: why there is no answer, as the end of "3 ...".
        failure: which of the tags of missing answers that is, where it is one; the answer then
            counts as missing at its length.
        finished_at: when it came, ISO 8601.
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
    length: float | None = None
    prompt_tokens: float | None = None
    completion_tokens: float | None = None
    error: str | None = None
    failure: FailureTag | None = None
    finished_at: str | None = None


@dataclass
class Log:
    """A log being read: ``answers`` runs once, and what comes after them is known at its end.

    Attributes:
        tool: what wrote it, as people call it.
        length_kind: what ``Answer.length`` counts: ``prompt tokens``, ``words``, ``characters`` or
            ``sizes``.
        own_rule: F1 scored here is the tool's own score of this task.
        score_names: the names that are scores, where the log lists them apart.
        default_score: which of ours is nearest to the tool's own, where the log has no scores.
        notes: sentences about the log that bear on the result.
        no_text: why lengths cannot be counted, as a clause, where the tool keeps no texts.
    """

    path: Path
    tool: str
    answers: Iterator[Answer] = field(default_factory=lambda: iter(()))
    model: str | None = None
    task: str | None = None
    length_kind: str = "prompt tokens"
    own_rule: bool = False
    score_names: set[str] | None = None
    default_score: OwnScore = "f1"
    notes: list[str] = field(default_factory=list)
    no_text: str = ""


def number(value: Any) -> float | None:
    """``value`` as a float where it is a number or true or false, and finite."""
    try:
        return float(value) if isinstance(value, int | float) and isfinite(value) else None
    except OverflowError:  # an integer that no float holds
        return None


def mapping(value: Any) -> Mapping[str, Any]:
    """``value`` where it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def name_of(value: Any) -> str | None:
    """``value`` as a name where it can be one."""
    if isinstance(value, str):
        return value or None
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else None


def texts_of(value: Any) -> list[str]:
    """The accepted answers in ``value``: one, several, or lists of wordings of each."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, int | float) and not isinstance(value, bool):
        return [str(value)]
    if isinstance(value, list):
        return [text for item in value for text in texts_of(item)]
    return []


def longest_text(fields: Mapping[str, Any]) -> str | None:
    """The longest of the fields that tasks keep documents in."""
    texts = [text for name in TEXT_FIELDS if isinstance(text := fields.get(name), str)]
    return max(texts, key=len, default="") or None


def chat_text(messages: Any) -> str:
    """What a list of chat messages says, in order; texts alone."""
    parts: list[str] = []
    for message in messages if isinstance(messages, list) else []:
        content = mapping(message).get("content")
        texts = content if isinstance(content, list) else [{"text": content}]
        parts += [text for part in texts if isinstance(text := mapping(part).get("text"), str)]
    return "\n".join(parts)
