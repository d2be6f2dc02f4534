"""Conversion of a row to an Example: the meaning of its fields, and which rows are refused."""

from __future__ import annotations

import ast
import json
import math
import re
import reprlib
import warnings
from collections.abc import Iterator, Mapping
from contextlib import suppress
from io import StringIO
from itertools import islice, pairwise
from tokenize import COMMENT, ERRORTOKEN, NL, NUMBER, STRING, TokenError, generate_tokens
from typing import Any

from contextcliff_dagster.contracts import CorpusError, Example
from contextcliff_dagster.corpora.corpus import EVIDENCE_SPANS, MOST, Entry, entry_about
from contextcliff_dagster.corpora.readers.tables import GROUPED, key_names, value_at

FIELDS: dict[str, tuple[str, ...]] = {
    "id": ("id", "example_id"),
    "context": ("context", "document", "text"),
    "question": ("question",),
    "answers": ("answers", "answer"),
    "task": ("task",),
    "level": ("level",),
    "evidence_position": ("evidence_position",),
    "inter_evidence_tokens": ("inter_evidence_tokens",),
    "domain": ("domain",),
    "source": ("source",),
}
"""Our name for a field -> the names under which it is searched for; the first present wins."""

_LONGEST_METADATA = 2_000
"""Maximum length (as JSON, in characters) of an unknown field that is stored as metadata."""

_LEVELS = {"level": int, "inter_evidence_tokens": int, "evidence_position": float}


class RowReader:
    """Reader that checks rows and turns them into entries.

    ``columns`` maps our field names to the file's own (`value_at`); ``task`` is for rows without
    one. ``untyped`` rows (CSV) hold only text: in these, a bare ``nan`` is a missing value, and a
    list of answers is JSON, or as Python, pandas or NumPy print it.
    """

    def __init__(self, columns: Mapping[str, str], task: str, *, untyped: bool = False) -> None:
        self._names = {**FIELDS, **{field: (column,) for field, column in columns.items()}}
        self._chosen = dict(columns)
        self._ours = {name for names in self._names.values() for name in names}
        self._task = task
        self._untyped = untyped

    def entry(self, row: Any, place: str, *, whole: bool = True) -> Entry:
        """Return the row as an entry; if ``whole``, the context is the text itself, not its name.

        Raises:
            CorpusError: a field is missing or unusable; the message names it and ``place``.
        """
        if not isinstance(row, Mapping):
            raise CorpusError(
                f"{place} is not an object with context, question and answers; "
                "write one JSON object per example."
            )
        text = self._text(row, "context", place)
        question = self._text(row, "question", place)
        answers = self._answers(row, place)
        task = self._optional_text(row, "task", place) or self._task
        given_id = self._optional_text(row, "id", place) or ""
        metadata = self._metadata(row, place)
        if (spans := row.get(EVIDENCE_SPANS)) is not None and not self._is_nan(spans):
            metadata[EVIDENCE_SPANS] = _checked_spans(spans, len(text) if whole else None, place)
        return entry_about(text, Example(given_id, "", question, answers, task, metadata), place)

    def _find(self, row: Mapping[str, Any], field: str) -> tuple[str, Any]:
        """Return the field's name in the row, and its value (None also for null and NaN)."""
        names = self._names[field]
        for name in names:
            value = value_at(row, name)
            if value is not None:
                return name, None if self._is_nan(value) else value
        return next((name for name in names if name in row), names[0]), None

    def _is_nan(self, value: Any) -> bool:
        if isinstance(value, float):
            return math.isnan(value)
        if not self._untyped or not isinstance(value, str):
            return False
        # Long texts are checked without a copy.
        return not value or value.isspace() or (len(value) == 3 and value.lower() == "nan")

    def _text(self, row: Mapping[str, Any], field: str, place: str) -> str:
        name, value = self._find(row, field)
        if value is None:
            state = "has an empty (null or NaN)" if name in row else "has no"
            raise self._lacking(row, field, f"{place} {state}")
        if not isinstance(value, str):
            raise CorpusError(f"{place} has a {field} that is not text but {_kind(value)}.")
        if not value.strip():
            raise CorpusError(f"{place} has an empty {field}; fill {name!r} or drop the row.")
        return value

    def _lacking(self, row: Mapping[str, Any], field: str, begins: str) -> CorpusError:
        names = " or ".join(map(repr, self._names[field]))
        hint = f", or name the column under columns.{field}"
        if field in self._chosen:
            hint = f"; columns found: {', '.join(islice(key_names(row), 40))}"
        return CorpusError(f"{begins} {field}: fill {names}{hint}.")

    def _optional_text(self, row: Mapping[str, Any], field: str, place: str) -> str | None:
        _, value = self._find(row, field)
        if value is None or value == "":
            return None
        if isinstance(value, bool) or not isinstance(value, str | int):
            raise CorpusError(f"{place} has a {field} that is not text but {_kind(value)}.")
        return str(value)

    def _answers(self, row: Mapping[str, Any], place: str) -> tuple[str, ...]:
        name, value = self._find(row, "answers")
        if value is None and name not in row:
            raise self._lacking(row, "answers", f"{place} has no")
        answers = tuple(dict.fromkeys(_answer_texts(value, self._untyped, place)))
        if not answers:
            raise CorpusError(
                f"{place} has an empty {name!r} (null, NaN or blank); give at least one accepted "
                "answer or drop the row."
            )
        return answers

    def _metadata(self, row: Mapping[str, Any], place: str) -> dict[str, Any]:
        metadata: dict[str, Any] = {}
        for field, kind in _LEVELS.items():
            _, value = self._find(row, field)
            if value is not None and value != "":
                metadata[field] = _number(value, kind, field, place)
        if not 0 <= metadata.get("evidence_position", 0.0) <= 1:
            raise CorpusError(
                f"{place} has evidence_position {metadata['evidence_position']}; "
                "it is a share, 0 to 1."
            )
        for field in ("domain", "source"):
            if (text := self._optional_text(row, field, place)) is not None:
                metadata[field] = text
        for name, value in row.items():
            if name is None or name in self._ours or value is None or self._is_nan(value):
                continue
            json_text = json.dumps(value, default=str, ensure_ascii=True)
            finite = "NaN" not in json_text and "Infinity" not in json_text
            if finite and len(json_text) <= _LONGEST_METADATA:
                metadata[str(name)] = json.loads(json_text)
        return metadata


def _answer_texts(value: Any, untyped: bool, place: str) -> Iterator[str]:
    """Yield accepted answers from a text, a number, a list, or SQuAD's ``{"text": [...]}``."""
    if isinstance(value, str):
        values = _listed(value, place) if untyped and _LIST.match(value) else None
        if values is not None:
            yield from _answer_texts(values, False, place)
        elif value.strip():
            yield value
    elif isinstance(value, bool):
        yield "true" if value else "false"
    elif isinstance(value, float) and not math.isfinite(value):
        raise CorpusError(f"{place} has NaN or infinity as an answer; fill it or drop the row.")
    elif isinstance(value, int | float):
        yield str(value)
    elif isinstance(value, Mapping) and "text" in value:
        yield from _answer_texts(value["text"], untyped, place)
    elif isinstance(value, list | tuple):
        for item in value:
            if isinstance(item, list | tuple):
                raise CorpusError(
                    f"{place} has a list within its list of answers; write one list of texts."
                )
            yield from _answer_texts(item, untyped, place)
    elif value is not None:
        raise CorpusError(
            f"{place} has answers that are neither text nor a list of texts but {_kind(value)}."
        )


_LIST = re.compile(r"\s*(\[|[{(]\s*['\"]|((np|numpy)\.)?array\()")
"""Beginning of a list of answers in a cell of text, or of SQuAD's object."""


class _Plain(ast.NodeTransformer):
    """Replaces NumPy's ``array(['a'], dtype=object)`` and ``np.str_('a')`` by what they hold."""

    def visit_Call(self, node: ast.Call) -> Any:
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        known = name in ("array", "str_", "int64", "float64") and len(node.args) == 1
        return self.visit(node.args[0]) if known else node

    def visit_Set(self, node: ast.Set) -> Any:
        return self.visit(ast.List(node.elts, ast.Load()))


def _listed(text: str, place: str) -> Any:
    """Return the list or SQuAD's object in ``text``; None for another object or a bare value."""
    try:
        try:
            value = json.loads(text)
        except ValueError:
            value = _literal(text)
    except (ValueError, SyntaxError, TokenError, RecursionError, MemoryError) as error:
        raise CorpusError(
            f"{place} has {reprlib.repr(text)} as answers, which begins like a list and cannot be "
            'read as one; write JSON, e.g. ["first answer", "second"].'
        ) from error
    is_list = isinstance(value, list | tuple) or (isinstance(value, dict) and "text" in value)
    return value if is_list else None


def _literal(text: str) -> Any:
    read = StringIO(text.strip()).readline
    tokens = [token for token in generate_tokens(read) if token.type != NL]
    pieces = [tokens[0].string]
    for before, token in pairwise(tokens):
        # NumPy prints no commas; Python would join the strings.
        adjacent = {before.type, token.type} <= {STRING, NUMBER}
        if token.type in (COMMENT, ERRORTOKEN) or (adjacent and before.end == token.start):
            raise ValueError("no list")
        pieces += ["," if adjacent else "", token.string]
    with warnings.catch_warnings(action="ignore"):
        return ast.literal_eval(_Plain().visit(ast.parse(" ".join(pieces), mode="eval")))


def _checked_spans(spans: Any, length: int | None, place: str) -> list[list[int]]:
    """Return the checked positions of the evidence: [[start, end), ...] in characters from 0."""
    if isinstance(spans, str):  # a cell of a CSV
        with suppress(ValueError, RecursionError):
            spans = json.loads(spans)
    limit = MOST if length is None else length
    for span in spans if isinstance(spans, list | tuple) else [spans]:
        numbers = list(span) if isinstance(span, list | tuple) else []
        is_pair = len(numbers) == 2 and all(type(number) is int for number in numbers)
        if not is_pair or not 0 <= numbers[0] < numbers[1] <= limit:
            raise CorpusError(
                f"{place} has {reprlib.repr(span)} in evidence_spans; use [[start, end], ...] in "
                "characters of the context, with start < end and both within it."
            )
    return [list(span) for span in spans]


def _number(value: Any, kind: type[int] | type[float], field: str, place: str) -> int | float:
    try:
        if isinstance(value, bool):
            raise ValueError
        is_text = isinstance(value, str)
        if is_text and kind is int and GROUPED.fullmatch(value.strip()):
            raise ValueError
        number = float(value.replace(",", ".") if is_text else value)
        is_count = number.is_integer() and 0 <= number <= MOST
        if not math.isfinite(number) or (kind is int and not is_count):
            raise ValueError
    except (TypeError, ValueError) as error:
        expected = f"a whole number of 0 to {MOST:,}" if kind is int else "a number"
        raise CorpusError(f"{place} has {field} {value!r}; it must be {expected}.") from error
    return kind(number)


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", bool: "true or false", bytes: "bytes"}
    return names.get(
        type(value), "a number" if isinstance(value, int | float) else type(value).__name__
    )
