"""Readers of known ability: engines that parse a prompt and solve its question."""

from __future__ import annotations

import hashlib
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
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
"""Number of characters at the prompt's start and end that are searched for the question."""
_EDGE_LINES = 40
_HEAD_LINES = 3
"""Lines that identify a document: a Markdown table's header, its rule and a row."""
_KEPT_CHARACTERS = 8_000_000
_REASONS_FIRST = re.compile(r"last line that begins with", re.IGNORECASE)


class NoDocumentError(ValueError):
    """Raised if a prompt lacks a question or a document of these benchmarks."""


class Asking(NamedTuple):
    """A prompt's question, its document, and whether it asks for reasons before the answer."""

    about: dict[str, Any]
    document: ReadDocument
    reasons_first: bool


class ReadDocument:
    """A document with a solver for its questions; not thread-safe."""

    def __init__(self, text: str, benchmark: BenchmarkName, format: Format) -> None:
        self.text, self.benchmark, self.format = text, benchmark, format
        self._counts: dict[str, int] = {}
        self._answers: dict[tuple[tuple[str, Any], ...], str | None] = {}

    @cached_property
    def _solver(self) -> Solver:
        return solver_for(parse(self.text, self.benchmark, self.format), self.benchmark)

    def count(self, tokenizer: str, count: Callable[[str], int]) -> int:
        """Return the text's number of tokens under the named tokenizer, cached."""
        if tokenizer not in self._counts:
            self._counts[tokenizer] = count(self.text)
        return self._counts[tokenizer]

    def answer(self, about: dict[str, Any]) -> str | None:
        """Return the only possible answer; None if there is none or more than one."""
        key = tuple(sorted(about.items()))
        if key not in self._answers:
            ((values, _),) = self._solver.solve([about])
            self._answers[key] = values[0] if len(values) == 1 else None
        return self._answers[key]


def read_prompt(text: str) -> Asking:
    """Return a prompt's parts, documents cached; raise NoDocumentError for any other prompt."""
    edges = [text[:_EDGE_CHARACTERS], text[-_EDGE_CHARACTERS:]]
    question = parse_question(edges[1]) or parse_question(edges[0])
    if question is None:
        raise NoDocumentError("its start and end have no question of a utilization benchmark")
    lines, format = _document_lines(text.split("\n"), question.benchmark)
    document = _kept(lines, question.benchmark, format)
    return Asking(question.about, document, any(map(_REASONS_FIRST.search, edges)))


def _document_lines(lines: list[str], benchmark: BenchmarkName) -> tuple[str, Format]:
    """Return the text from the first to the last line of a document, and its format."""
    for first in range(min(_EDGE_LINES, len(lines))):
        head = lines[first : first + _HEAD_LINES]
        if lines[first].strip() and _reads(head, benchmark):
            break
    else:
        raise NoDocumentError("no document of a utilization benchmark starts near its beginning")
    for last in range(len(lines) - 1, max(first, len(lines) - _EDGE_LINES), -1):
        if lines[last].strip() and _reads([*head, lines[last]], benchmark):
            break
    else:
        raise NoDocumentError("no document of a utilization benchmark ends near its end")
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
        cached_characters = sum(len(kept_document.text) for kept_document in _documents.values())
        while cached_characters > _KEPT_CHARACTERS and len(_documents) > 1:
            cached_characters -= len(_documents.popitem(last=False)[1].text)
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
    """Return the first question in ``text``, or None if there is none."""
    searched = ((key, pattern.search(text)) for key, pattern in _patterns().items())
    matches = [(match.start(), key, match) for key, match in searched if match]
    if not matches:
        return None
    _, key, match = min(matches, key=lambda candidate: candidate[0])
    ask, _, action = key.partition(" ")
    words = match.groupdict()
    about: dict[str, Any] = {"ask": ask}
    for name in ASKS[ask]:
        value: Any = words.get(f"{name}_")
        if name in ("ts", "at", "hops") and value is not None:
            value = int(value)
        about[name] = value
    if ask == "units":
        about["action"] = action
    if ask == "facts" and all(isinstance(option, int) for option in DOMAINS[about["attr"]]):
        about["value"] = int(about["value"])
    return Asked(_BENCHMARK[ask], about)


@cache
def _patterns() -> dict[str, re.Pattern[str]]:
    return {key: re.compile(_pattern(text)) for key, text in PATTERNS.items()}


def _pattern(text: str) -> str:
    pattern, names = "", set()
    for number, part in enumerate(_PLACE.split(text)):
        if not number % 2:
            pattern += re.escape(part)
            continue
        name = f"{part}_"  # `from` is a keyword and cannot name a group
        pattern += rf"(?P={name})" if name in names else _PLACES[part].format(name)
        names.add(name)
    return pattern.replace(re.escape("such transfers"), re.escape("such transfer") + "s?")


READERS_VERSION = 1
"""Version in the readers' identity; increase it if a reader's answers change."""
_UNKNOWN = "unknown"


def reader_identity(entry: ModelEntry) -> dict[str, Any]:
    """Return everything that determines a reader's answers; raise EngineError without a law."""
    return {
        "engine": entry.engine,
        "readers_version": READERS_VERSION,
        "tokenizer": entry.tokenizer or DEFAULT_TOKENIZER,
        "law": repr(_law(entry)) if entry.engine == "utilization-planted" else None,
        "window_tokens": entry.window_tokens or UNLIMITED,
    }


def _law(entry: ModelEntry) -> PlantedLaw:
    try:
        return parse_law(entry.model_id)
    except ValueError as error:
        raise EngineError(
            f"Model {entry.name!r}: `model_id` must give engine {entry.engine!r} its losses, such "
            f"as {EXAMPLE!r}; {error}."
        ) from None


class _Reader(ScriptedEngine):
    """Base class of the readers; subclasses define the answer."""

    def __init__(self, entry: ModelEntry) -> None:
        super().__init__(entry, reader_identity(entry))

    def reply(self, prompt: Prompt, decoding: Decoding) -> tuple[str, str]:
        """Return the answer and the finish reason; raise RejectedError for any other prompt."""
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
        """Return the reader's answer; ``key``, the prompt's hash, seeds all random choices."""
        raise NotImplementedError


class PerfectReader(_Reader):
    """A reader that reads every record in any format and solves the question."""

    def answer(self, asking: Asking, key: str) -> str:
        """Return the only possible answer; "unknown" if there is none or more than one."""
        return asking.document.answer(asking.about) or _UNKNOWN


class GuessingReader(_Reader):
    """A reader that ignores the document and picks a plausible answer."""

    def answer(self, asking: Asking, key: str) -> str:
        """Return a plausible answer, drawn uniformly."""
        return pick(plausible(asking.about, asking.document.text), "guess", key)


class PlantedReader(_Reader):
    """A perfect reader that loses documents by a law of their format and length."""

    def answer(self, asking: Asking, key: str) -> str:
        """Return the right answer, or another plausible one if the document is lost."""
        document = asking.document
        solution = document.answer(asking.about) or _UNKNOWN
        law = _law(self._entry)
        tokens = document.count(self._identity["tokenizer"], self.count)
        if share("read", key) < law.right(document.format, tokens):
            return solution
        wrong = [answer for answer in plausible(asking.about, document.text) if answer != solution]
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
"""Question -> the lowest and highest plausible answer, roughly as in the documents."""
_WAREHOUSE = re.compile(r"WH-\d+|\bWarehouse \d+")
_LOOKED_AT = 20_000


def share(*key: str) -> float:
    """Return a number in [0, 1) derived from the hash of ``key``, uniform over keys."""
    digest = hashlib.sha256("\n".join(key).encode()).digest()
    return int.from_bytes(digest[:7], "big") / 2**56


def plausible(about: Mapping[str, Any], document: str) -> list[str]:
    """Return the plausible answers that a guesser picks from; one may be right."""
    if about["ask"] == "value":
        return [str(value) for value in DOMAINS[about["attr"]]]
    if about["ask"] == "transfers":
        numbers = {int(re.sub(r"\D", "", hit)) for hit in _WAREHOUSE.findall(document[:_LOOKED_AT])}
        return [f"WH-{number:04d}" for number in sorted(numbers)]
    lowest, highest = _RANGES[about["ask"]]
    return [str(number) for number in range(lowest, highest + 1)]


def pick(answers: Sequence[str], *key: str) -> str:
    """Return one of ``answers``, selected by the hash of ``key``."""
    return answers[int(share(*key) * len(answers))]


EXAMPLE = "jsonl=40000/4, prose=12000/4, top=1, chance=0"
_PART = re.compile(r"([a-z]+) *= *([0-9._]+)(?: */ *([0-9.]+))?")


@dataclass(frozen=True, slots=True)
class Loss:
    """Loss of a format. ``half_tokens``: document length at which half is lost. ``slope``: exponent
    of the logistic law in log length."""

    half_tokens: float
    slope: float = 4.0


@dataclass(frozen=True, slots=True)
class PlantedLaw:
    """Law of losses by format. ``top``: share of short documents that are read. ``chance``: share
    of lost documents that are answered right anyway. A format without a loss stays at ``top``."""

    losses: Mapping[Format, Loss] = field(default_factory=dict)
    top: float = 1.0
    chance: float = 0.0

    def read(self, format: Format, tokens: float) -> float:
        """Return the probability that a document is read rather than lost."""
        loss = self.losses.get(format)
        if loss is None or tokens <= 0:
            return self.top
        return float(self.top / (1 + (tokens / loss.half_tokens) ** loss.slope))

    def right(self, format: Format, tokens: float) -> float:
        """Return the probability of a right answer: read, or lost and guessed by chance."""
        read = self.read(format, tokens)
        return read + (1 - read) * self.chance


def parse_law(text: str) -> PlantedLaw:
    """Return the law in ``text``, such as `EXAMPLE` (tokens/slope); raise ValueError."""
    losses: dict[Format, Loss] = {}
    shares = {"top": 1.0, "chance": 0.0}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        match = _PART.fullmatch(part)
        if match is None:
            raise ValueError(f"{part!r} is not NAME=NUMBER")
        name, number, slope = match[1], float(match[2]), float(match[3] or 4)
        format = FORMAT_ALIASES.get(name, name)
        if name in shares and not match[3] and 0 <= number <= 1:
            shares[name] = number
        elif format in get_args(Format) and number > 0 and slope > 0:
            losses[format] = Loss(number, slope)  # type: ignore[index]
        else:
            raise ValueError(f"{part!r} has an unknown name or a number out of range")
    return PlantedLaw(losses, **shares)
