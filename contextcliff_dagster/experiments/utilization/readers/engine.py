"""The readers as engines of models.yaml: `utilization-perfect`, `-guess` and `-planted`.

They count tokens with the tokenizer of their entry, have no context window, and answer the same
prompt alike on every machine.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

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
from contextcliff_dagster.inference.engines.base import (
    Decoding,
    Delta,
    NoEmbeddings,
    PromptCount,
    RejectedError,
    Usage,
)
from contextcliff_dagster.inference.engines.thread_stream import stream_from
from contextcliff_dagster.inference.models.identity import Identity
from contextcliff_dagster.inference.models.models_file import ModelEntry
from contextcliff_dagster.inference.requests.recipe import Prompt

if TYPE_CHECKING:
    from contextcliff_dagster.sampling.tokenizers.tokenizers import Tokenizer

READERS_VERSION = 1
"""Part of the identity: raised when a reader answers a prompt differently."""
_UNLIMITED = 1 << 32
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
        "window_tokens": entry.window_tokens or _UNLIMITED,
    }


def _law(entry: ModelEntry) -> PlantedLaw:
    try:
        return parse_law(entry.model_id)
    except ValueError as error:
        raise EngineError(
            f"Model {entry.name!r}: engine {entry.engine!r} reads its losses from `model_id`, such "
            f"as {EXAMPLE!r}; {error}."
        ) from None


class _Reader(NoEmbeddings):
    """See `base.Engine`; what to answer is a subclass's own."""

    def __init__(self, entry: ModelEntry) -> None:
        self._entry = entry
        self._identity = reader_identity(entry)
        self._thread: ThreadPoolExecutor | None = None
        self._tokenizer: Tokenizer | None = None

    @property
    def window_tokens(self) -> int | None:
        """The entry's; without one, more than any prompt has."""
        return int(self._identity["window_tokens"])

    async def start(self) -> None:
        """Open the tokenizer."""
        from contextcliff_dagster.sampling.tokenizers.tokenizers import open_tokenizer

        self._tokenizer = open_tokenizer(self._identity["tokenizer"])
        # One thread: the documents that are kept are read by one question after the other.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=self._entry.engine)

    async def stop(self) -> None:
        """Let the thread go."""
        if self._thread is not None:
            self._thread.shutdown(wait=True, cancel_futures=True)
            self._thread = None

    def identity(self) -> Identity:
        """Engine, version, tokenizer and law."""
        return Identity(self._identity)

    async def count_prompt_tokens(self, prompt: Prompt) -> PromptCount | None:
        """The texts' tokens: there is no chat template."""
        return PromptCount(self._tokens(prompt))

    def _tokens(self, prompt: Prompt) -> int:
        if prompt.document is None or prompt.outline is None:
            return sum(map(self._count, prompt.contents()))
        # As if cut at the document: the longest text of a prompt is then counted once for all.
        document = prompt.document.count(self._identity["tokenizer"], self._count)
        return document + sum(map(self._count, prompt.outline.contents()))

    def _count(self, text: str) -> int:
        assert self._tokenizer is not None, "start() comes first"
        return self._tokenizer.count(text)

    def stream(self, prompt: Prompt, decoding: Decoding) -> AsyncIterator[Delta]:
        """The answer in one piece.

        Raises:
            RejectedError: the prompt holds no question or no document of the benchmarks.
        """
        assert self._thread is not None, "start() comes first"
        return stream_from(self._thread, lambda: self._deltas(prompt, decoding))

    def _deltas(self, prompt: Prompt, decoding: Decoding) -> Iterator[Delta]:
        try:
            asking = read_prompt("\n".join(prompt.contents()))
        except NoDocumentError as error:
            raise RejectedError(
                f"engine {self._entry.engine!r} cannot read the prompt: {error}"
            ) from None
        answer = self.answer(asking, prompt.hash)
        if asking.reasons_first:
            answer = f"I looked it up in the document.\n{MARKER} {answer}"
        yield Delta(answer, at=time.perf_counter())
        usage = Usage(self._tokens(prompt), self._count(answer), cached_tokens=0)
        yield Delta(finish_reason="stop", usage=usage, at=time.perf_counter())

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
        tokens = document.count(self._identity["tokenizer"], self._count)
        if share("read", key) < law.right(document.format, tokens):
            return right
        wrong = [one for one in plausible(asking.about, document.text) if one != right]
        return pick(wrong, "guess", key) if wrong else _UNKNOWN
