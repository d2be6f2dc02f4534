"""The readers as engines of models.yaml: `utilization-perfect`, `-guess` and `-planted`.

They have no context window.
"""

from __future__ import annotations

from typing import Any

from contextcliff_dagster.contracts import EngineError
from contextcliff_dagster.experiments.utilization.extraction import MARKER
from contextcliff_dagster.experiments.utilization.readers.guesses import pick, plausible, share
from contextcliff_dagster.experiments.utilization.readers.law import (
    EXAMPLE,
    PlantedLaw,
    parse_law,
)
from contextcliff_dagster.experiments.utilization.readers.prompt import (
    Asking,
    NoDocumentError,
    read_prompt,
)
from contextcliff_dagster.experiments.utilization.section import DEFAULT_TOKENIZER
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
