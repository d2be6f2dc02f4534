"""A prompt taken apart: the question, and the document that it is about."""

from __future__ import annotations

import hashlib
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from functools import cache, cached_property
from typing import Any, NamedTuple

from contextcliff_dagster.extensions.utilization.benchmarks.data import BenchmarkName
from contextcliff_dagster.extensions.utilization.benchmarks.schema import ASKS, DOMAINS
from contextcliff_dagster.extensions.utilization.benchmarks.wording import PATTERNS
from contextcliff_dagster.extensions.utilization.rendering.formats import Format
from contextcliff_dagster.extensions.utilization.rendering.parse import detect, parse
from contextcliff_dagster.extensions.utilization.verification.solution import Solver, solver_for

_EDGE_CHARACTERS = 8_000
"""A question is within so many of the prompt's beginning or end."""
_EDGE_LINES = 40
_HEAD_LINES = 3
"""A Markdown table's header, its rule and a row."""
_KEPT_CHARACTERS = 8_000_000
_REASONS_FIRST = re.compile(r"last line that begins with", re.IGNORECASE)


class NoDocumentError(ValueError):
    """The prompt holds no question or no document of these benchmarks."""


class Asking(NamedTuple):
    """A prompt's question, its document, and whether reasons are to come before the answer."""

    about: dict[str, Any]
    document: ReadDocument
    reasons_first: bool


class ReadDocument:
    """A document as text, solved from its records. Not for several threads at once."""

    def __init__(self, text: str, benchmark: BenchmarkName, format: Format) -> None:
        self.text, self.benchmark, self.format = text, benchmark, format
        self._counts: dict[str, int] = {}
        self._answers: dict[tuple[tuple[str, Any], ...], str | None] = {}

    @cached_property
    def _solver(self) -> Solver:
        return solver_for(parse(self.text, self.benchmark, self.format), self.benchmark)

    def count(self, tokenizer: str, count: Callable[[str], int]) -> int:
        """Return the tokens of the text under the named tokenizer, counted once."""
        if tokenizer not in self._counts:
            self._counts[tokenizer] = count(self.text)
        return self._counts[tokenizer]

    def answer(self, about: dict[str, Any]) -> str | None:
        """Return the only possible answer, None where there is none or more than one."""
        asked = tuple(sorted(about.items()))
        if asked not in self._answers:
            ((values, _),) = self._solver.solve([about])
            self._answers[asked] = values[0] if len(values) == 1 else None
        return self._answers[asked]


def read_prompt(text: str) -> Asking:
    """Take a prompt apart; a document that was read lately is not read again.

    Raises:
        NoDocumentError: it holds no question or no document of these benchmarks.
    """
    edges = [text[:_EDGE_CHARACTERS], text[-_EDGE_CHARACTERS:]]
    asked = parse_question(edges[1]) or parse_question(edges[0])
    if asked is None:
        raise NoDocumentError("its beginning and end hold no question of a utilization benchmark")
    lines, format = _document_lines(text.split("\n"), asked.benchmark)
    document = _kept(lines, asked.benchmark, format)
    return Asking(asked.about, document, any(map(_REASONS_FIRST.search, edges)))


def _document_lines(lines: list[str], benchmark: BenchmarkName) -> tuple[str, Format]:
    """The text between the first line and the last that are lines of a document."""
    for first in range(min(_EDGE_LINES, len(lines))):
        head = lines[first : first + _HEAD_LINES]
        if lines[first].strip() and _reads(head, benchmark):
            break
    else:
        raise NoDocumentError("it begins with no document of a utilization benchmark")
    for last in range(len(lines) - 1, max(first, len(lines) - _EDGE_LINES), -1):
        if lines[last].strip() and _reads([*head, lines[last]], benchmark):
            break
    else:
        raise NoDocumentError("it ends with no document of a utilization benchmark")
    return "\n".join(lines[first : last + 1]), detect(head[0], benchmark)


def _reads(lines: Sequence[str], benchmark: BenchmarkName) -> bool:
    try:
        return bool(parse("\n".join(lines), benchmark))
    except ValueError:
        return False


_documents: OrderedDict[bytes, ReadDocument] = OrderedDict()
_keeping = threading.Lock()


def _kept(text: str, benchmark: BenchmarkName, format: Format) -> ReadDocument:
    key = hashlib.sha256(f"{benchmark}\n{text}".encode()).digest()
    with _keeping:
        document = _documents.setdefault(key, ReadDocument(text, benchmark, format))
        _documents.move_to_end(key)
        kept = sum(len(one.text) for one in _documents.values())
        while kept > _KEPT_CHARACTERS and len(_documents) > 1:
            kept -= len(_documents.popitem(last=False)[1].text)
    return document


_BENCHMARK: dict[str, BenchmarkName] = {
    **dict.fromkeys(("units", "stock", "transfers"), "warehouse"),
    **dict.fromkeys(("value", "facts"), "constraints"),
    **dict.fromkeys(("initial_weight", "weight", "distance", "max_flow"), "network"),
}
_TIME = r"[^()?]+\(timestamp (?P<{0}>\d+)\)"
_NAMED = r"[A-Z][a-z]+ \d+ \((?P<{0}>[A-Z]+-\d+)\)"
_PLACES = {
    **dict.fromkeys(("ts", "at"), _TIME),
    **dict.fromkeys(("warehouse", "entity", "from", "to"), _NAMED),
    "sku": r"(?P<{0}>SKU-\d+)",
    "hops": r"(?P<{0}>\d+)",
    "attr": r"(?P<{0}>\w+)",
    "value": r"(?P<{0}>\w+)",
}
_PLACE = re.compile(r"\{(\w+)\}")


class Asked(NamedTuple):
    """What a question asks: of which benchmark, and as in `benchmarks.data.Question.about`."""

    benchmark: BenchmarkName
    about: dict[str, Any]


def parse_question(text: str) -> Asked | None:
    """Return what the first question in ``text`` asks; None where there is none."""
    found = [(match.start(), key, match) for key, match in _matches(text)]
    if not found:
        return None
    _, key, match = min(found, key=lambda one: one[0])
    ask, _, more = key.partition(" ")
    words = match.groupdict()
    about: dict[str, Any] = {"ask": ask}
    for name in ASKS[ask]:
        value: Any = words.get(f"{name}_")
        if name in ("ts", "at", "hops") and value is not None:
            value = int(value)
        about[name] = value
    if ask == "units":
        about["action"] = more
    if ask == "facts" and all(isinstance(one, int) for one in DOMAINS[about["attr"]]):
        about["value"] = int(about["value"])
    return Asked(_BENCHMARK[ask], about)


def _matches(text: str) -> Iterator[tuple[str, re.Match[str]]]:
    for key, pattern in _patterns().items():
        if (match := pattern.search(text)) is not None:
            yield key, match


@cache
def _patterns() -> dict[str, re.Pattern[str]]:
    return {key: re.compile(_pattern(text)) for key, text in PATTERNS.items()}


def _pattern(text: str) -> str:
    written, seen = "", set()
    for number, part in enumerate(_PLACE.split(text)):
        if not number % 2:
            written += re.escape(part)
            continue
        name = f"{part}_"  # `from` would be no name of a group
        written += rf"(?P={name})" if name in seen else _PLACES[part].format(name)
        seen.add(name)
    return written.replace(re.escape("such transfers"), re.escape("such transfer") + "s?")
