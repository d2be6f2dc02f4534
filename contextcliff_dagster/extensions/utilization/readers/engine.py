"""The readers as engines of models.yaml: `utilization-perfect`, `-guess` and `-planted`.

They have no context window. The planted law says how probably a document of some format and length
is still read right.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, get_args

from contextcliff_dagster.contracts import EngineError
from contextcliff_dagster.experiments.common.kept_documents import DEFAULT_TOKENIZER
from contextcliff_dagster.extensions.utilization.benchmarks.schema import DOMAINS
from contextcliff_dagster.extensions.utilization.extraction import MARKER
from contextcliff_dagster.extensions.utilization.readers.prompt import (
    Asking,
    NoDocumentError,
    read_prompt,
)
from contextcliff_dagster.extensions.utilization.rendering.formats import FORMAT_ALIASES, Format
from contextcliff_dagster.inference.engines.base import Decoding, RejectedError
from contextcliff_dagster.inference.engines.scripted import UNLIMITED, ScriptedEngine
from contextcliff_dagster.inference.models.models_file import ModelEntry
from contextcliff_dagster.inference.requests.recipe import Prompt

READERS_VERSION = 1
"""Part of the identity: raised when a reader answers a prompt differently."""
_UNKNOWN = "unknown"


def reader_identity(entry: ModelEntry) -> dict[str, Any]:
    """All that decides a reader's answers.

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
    """What to answer is a subclass's own."""

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
    """Reads every record of any format, and solves the question."""

    def answer(self, asking: Asking, key: str) -> str:
        """Return the only possible answer; "unknown" where there is none, or more than one."""
        return asking.document.answer(asking.about) or _UNKNOWN


class GuessingReader(_Reader):
    """Reads the question alone, and picks one of the plausible answers."""

    def answer(self, asking: Asking, key: str) -> str:
        """Return a plausible answer, evenly drawn."""
        return pick(plausible(asking.about, asking.document.text), "guess", key)


class PlantedReader(_Reader):
    """A perfect reader that loses documents by a law of their format and length."""

    def answer(self, asking: Asking, key: str) -> str:
        """Return the right answer, or where the document is lost another plausible one."""
        document = asking.document
        right = document.answer(asking.about) or _UNKNOWN
        law = _law(self._entry)
        tokens = document.count(self._identity["tokenizer"], self.count)
        if share("read", key) < law.right(document.format, tokens):
            return right
        wrong = [one for one in plausible(asking.about, document.text) if one != right]
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
    """Return a number in [0, 1) that the texts of ``key`` decide, evenly over keys."""
    digest = hashlib.sha256("\n".join(key).encode()).digest()
    return int.from_bytes(digest[:7], "big") / 2**56


def plausible(about: Mapping[str, Any], document: str) -> list[str]:
    """Return the answers that a guesser picks from, of which one may be right."""
    if about["ask"] == "value":
        return [str(value) for value in DOMAINS[about["attr"]]]
    if about["ask"] == "transfers":
        numbers = {int(re.sub(r"\D", "", one)) for one in _WAREHOUSE.findall(document[:_LOOKED_AT])}
        return [f"WH-{number:04d}" for number in sorted(numbers)]
    lowest, highest = _RANGES[about["ask"]]
    return [str(number) for number in range(lowest, highest + 1)]


def pick(answers: Sequence[str], *key: str) -> str:
    """Return the one of ``answers`` that the texts of ``key`` decide."""
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
    """Return the law that ``text`` words, such as `EXAMPLE`: per format tokens/slope.

    Raises:
        ValueError: a part of it is not understood or out of range.
    """
    losses: dict[Format, Loss] = {}
    shares = {"top": 1.0, "chance": 0.0}
    for part in filter(None, (one.strip() for one in text.split(","))):
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
