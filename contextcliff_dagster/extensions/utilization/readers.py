"""Readers of known ability: engines that take a prompt apart and solve its question."""

from __future__ import annotations

import hashlib
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any, NamedTuple, get_args

from contextcliff_dagster.contracts import EngineError
from contextcliff_dagster.experiments.common.documents import DEFAULT_TOKENIZER
from contextcliff_dagster.extensions.utilization.benchmarks.asking import PATTERNS
from contextcliff_dagster.extensions.utilization.benchmarks.data import ASKS, DOMAINS, BenchmarkName
from contextcliff_dagster.extensions.utilization.extraction import MARKER
from contextcliff_dagster.extensions.utilization.rendering.sentences import FORMAT_ALIASES, Format
from contextcliff_dagster.extensions.utilization.rendering.structured import detect, parse
from contextcliff_dagster.extensions.utilization.verification import Solver, solver_for
from contextcliff_dagster.inference.engines.base import Decoding, RejectedError
from contextcliff_dagster.inference.engines.scripted import UNLIMITED, ScriptedEngine
from contextcliff_dagster.inference.models.models_file import ModelEntry
from contextcliff_dagster.inference.requests.recipe import Prompt

_EDGE_CHARACTERS = 8_000
"""A question is within so many of the prompt's beginning or end."""
_EDGE_LINES = 40
_HEAD_LINES = 3
"""A Markdown table's header, its rule and a row."""
_KEPT_CHARACTERS = 8_000_000
_REASONS_FIRST = re.compile(r"last line that begins with", re.IGNORECASE)


class NoDocumentError(ValueError):
    """Raised for a prompt without a question or a document of these benchmarks."""


class Asking(NamedTuple):
    """A prompt's question, its document, and whether it asks for reasons before the answer."""

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
        """Return the only possible answer; None if there is none or more than one."""
        asked = tuple(sorted(about.items()))
        if asked not in self._answers:
            ((values, _),) = self._solver.solve([about])
            self._answers[asked] = values[0] if len(values) == 1 else None
        return self._answers[asked]


def read_prompt(text: str) -> Asking:
    """Take a prompt apart; recently read documents are cached.

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
        kept = sum(len(kept_document.text) for kept_document in _documents.values())
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
    """A parsed question: its benchmark, and ``about`` as in `benchmarks.data.Question`."""

    benchmark: BenchmarkName
    about: dict[str, Any]


def parse_question(text: str) -> Asked | None:
    """Parse the first question in ``text``; None where there is none."""
    matches = [(match.start(), key, match) for key, match in _matches(text)]
    if not matches:
        return None
    _, key, match = min(matches, key=lambda candidate: candidate[0])
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
    if ask == "facts" and all(isinstance(option, int) for option in DOMAINS[about["attr"]]):
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


READERS_VERSION = 1
"""Part of the identity: raised when a reader answers a prompt differently."""
_UNKNOWN = "unknown"


def reader_identity(entry: ModelEntry) -> dict[str, Any]:
    """Return everything that determines a reader's answers.

    Raises:
        EngineError: the entry's `model_id` is no law of losses (planted reader only).
    """
    planted = entry.engine == "utilization-planted"
    return {
        "engine": entry.engine,
        "readers_version": READERS_VERSION,
        "tokenizer": entry.tokenizer or DEFAULT_TOKENIZER,
        "law": repr(_law(entry)) if planted else None,
        "window_tokens": entry.window_tokens or UNLIMITED,
    }


def _law(entry: ModelEntry) -> PlantedLaw:
    try:
        return parse_law(entry.model_id)
    except ValueError as error:
        raise EngineError(
            f"Model {entry.name!r}: engine {entry.engine!r} reads its losses from `model_id`, such "
            f"as {EXAMPLE!r}; {error}."
        ) from None


class _Reader(ScriptedEngine):
    """The base of readers; subclasses define the answer."""

    def __init__(self, entry: ModelEntry) -> None:
        super().__init__(entry, reader_identity(entry))

    def reply(self, prompt: Prompt, decoding: Decoding) -> tuple[str, str]:
        """Return the answer to a question on a made document.

        Raises:
            RejectedError: the prompt holds no question or no document of the benchmarks.
        """
        try:
            asking = read_prompt("\n".join(prompt.contents()))
        except NoDocumentError as error:
            raise RejectedError(
                f"engine {self._entry.engine!r} cannot read the prompt: {error}"
            ) from None
        answer = self.answer(asking, prompt.hash)
        if asking.reasons_first:
            answer = f"I looked it up in the document.\n{MARKER} {answer}"
        return answer, "stop"

    def answer(self, asking: Asking, key: str) -> str:
        """Return the reader's answer; ``key``: the prompt's hash, which decides all chances."""
        raise NotImplementedError


class PerfectReader(_Reader):
    """A reader that reads every record of any format, and solves the question."""

    def answer(self, asking: Asking, key: str) -> str:
        """Return the only possible answer; "unknown" where there is none, or more than one."""
        return asking.document.answer(asking.about) or _UNKNOWN


class GuessingReader(_Reader):
    """A reader of the question alone, which picks one of the plausible answers."""

    def answer(self, asking: Asking, key: str) -> str:
        """Return a plausible answer, evenly drawn."""
        return pick(plausible(asking.about, asking.document.text), "guess", key)


class PlantedReader(_Reader):
    """A perfect reader that loses documents by a law of their format and length."""

    def answer(self, asking: Asking, key: str) -> str:
        """Return the right answer, or for a lost document another plausible one."""
        document = asking.document
        right = document.answer(asking.about) or _UNKNOWN
        law = _law(self._entry)
        tokens = document.count(self._identity["tokenizer"], self.count)
        if share("read", key) < law.right(document.format, tokens):
            return right
        wrong = [answer for answer in plausible(asking.about, document.text) if answer != right]
        return pick(wrong, "guess", key) if wrong else _UNKNOWN


_RANGES = {
    "units": (1, 50),
    "stock": (0, 200),
    "facts": (0, 50),
    "initial_weight": (1, 100),
    "weight": (1, 200),
    "distance": (1, 400),
    "max_flow": (1, 400),
}
"""Lowest and highest number of each question, about those of the documents."""
_WAREHOUSE = re.compile(r"WH-\d+|\bWarehouse \d+")
_LOOKED_AT = 20_000


def share(*key: str) -> float:
    """Return a number in [0, 1) by the hash of ``key``, uniform over keys."""
    digest = hashlib.sha256("\n".join(key).encode()).digest()
    return int.from_bytes(digest[:7], "big") / 2**56


def plausible(about: Mapping[str, Any], document: str) -> list[str]:
    """Return the answers that a guesser picks from; one may be right."""
    if about["ask"] == "value":
        return [str(value) for value in DOMAINS[about["attr"]]]
    if about["ask"] == "transfers":
        numbers = {int(re.sub(r"\D", "", hit)) for hit in _WAREHOUSE.findall(document[:_LOOKED_AT])}
        return [f"WH-{number:04d}" for number in sorted(numbers)]
    lowest, highest = _RANGES[about["ask"]]
    return [str(number) for number in range(lowest, highest + 1)]


def pick(answers: Sequence[str], *key: str) -> str:
    """Return one of ``answers`` by the hash of ``key``."""
    return answers[int(share(*key) * len(answers))]


EXAMPLE = "jsonl=40000/4, prose=12000/4, top=1, chance=0"
_PART = re.compile(r"([a-z]+) *= *([0-9._]+)(?: */ *([0-9.]+))?")


@dataclass(frozen=True, slots=True)
class Loss:
    """``half_tokens``: length of the document at which half is lost; ``slope``: how steeply, as the
    exponent of a logistic law in log length."""

    half_tokens: float
    slope: float = 4.0


@dataclass(frozen=True, slots=True)
class PlantedLaw:
    """``top``: share of short documents that are read right; ``chance``: share of the lost ones
    that are answered right all the same. A format without a loss is read right at any length."""

    losses: Mapping[Format, Loss] = field(default_factory=dict)
    top: float = 1.0
    chance: float = 0.0

    def read(self, format: Format, tokens: float) -> float:
        """Return the probability that a document is read, not lost."""
        loss = self.losses.get(format)
        if loss is None or tokens <= 0:
            return self.top
        return float(self.top / (1 + (tokens / loss.half_tokens) ** loss.slope))

    def right(self, format: Format, tokens: float) -> float:
        """Return the probability of a right answer: read, or lost and met by chance."""
        read = self.read(format, tokens)
        return read + (1 - read) * self.chance


def parse_law(text: str) -> PlantedLaw:
    """Parse a law from ``text``, such as `EXAMPLE`: tokens/slope per format.

    Raises:
        ValueError: a part of it is not understood or out of range.
    """
    losses: dict[Format, Loss] = {}
    shares = {"top": 1.0, "chance": 0.0}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        match = _PART.fullmatch(part)
        if match is None:
            raise ValueError(f"{part!r} is no NAME=NUMBER")
        name, number, slope = match[1], float(match[2]), float(match[3] or 4)
        format = FORMAT_ALIASES.get(name, name)
        if name in shares and not match[3] and 0 <= number <= 1:
            shares[name] = number
        elif format in get_args(Format) and number > 0 and slope > 0:
            losses[format] = Loss(number, slope)  # type: ignore[index]
        else:
            raise ValueError(f"{part!r} has an unknown name or a number out of range")
    return PlantedLaw(losses, **shares)
