"""Engines without a model, in which code in this process answers by an experiment's rules.

They are controls with known behaviour. They count tokens with their entry's tokenizer and give the
same answer to a prompt on every machine.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from contextcliff_dagster.inference.engines.base import (
    Decoding,
    Delta,
    NoEmbeddings,
    PromptCount,
    Usage,
    stream_from,
)
from contextcliff_dagster.inference.models.entry import Identity
from contextcliff_dagster.inference.models.models_file import ModelEntry
from contextcliff_dagster.inference.requests.recipe import Prompt
from contextcliff_dagster.sampling.tokenizers.tokenizers import Tokenizer, open_tokenizer

UNLIMITED = 1 << 32
"""Window of an entry that declares none: larger than any prompt."""


class ScriptedEngine(NoEmbeddings):
    """An engine (see `base.Engine`); ``identity`` has ``tokenizer`` and ``window_tokens``."""

    def __init__(self, entry: ModelEntry, identity: dict[str, Any]) -> None:
        self._entry, self._identity = entry, identity
        self._thread: ThreadPoolExecutor | None = None
        self._tokenizer: Tokenizer | None = None

    @property
    def window_tokens(self) -> int | None:
        """The entry's window, else one larger than any prompt."""
        return int(self._identity["window_tokens"])

    async def start(self) -> None:
        self._tokenizer = open_tokenizer(self._identity["tokenizer"])
        # One thread, so that a reply's notes on a document serve the next question.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=self._entry.engine)

    async def stop(self) -> None:
        if self._thread is not None:
            self._thread.shutdown(wait=True, cancel_futures=True)
            self._thread = None

    def identity(self) -> Identity:
        return Identity(self._identity)

    async def count_prompt_tokens(self, prompt: Prompt) -> PromptCount | None:
        """Return the number of tokens in the texts; there is no chat template."""
        return PromptCount(self._tokens(prompt))

    def _tokens(self, prompt: Prompt) -> int:
        if prompt.document is None or prompt.outline is None:
            return sum(map(self.count, prompt.contents()))
        # Counted separately, so that the long document is tokenised only once.
        document = prompt.document.count(self._identity["tokenizer"], self.count)
        return document + sum(map(self.count, prompt.outline.contents()))

    def count(self, text: str) -> int:
        """Return the number of tokens in a text."""
        assert self._tokenizer is not None, "start() comes first"
        return self._tokenizer.count(text)

    def stream(self, prompt: Prompt, decoding: Decoding) -> AsyncIterator[Delta]:
        """Yield the answer in one piece, and raise the errors of `reply`."""
        assert self._thread is not None, "start() comes first"
        return stream_from(self._thread, lambda: self._deltas(prompt, decoding))

    def _deltas(self, prompt: Prompt, decoding: Decoding) -> Iterator[Delta]:
        text, finish_reason = self.reply(prompt, decoding)
        yield Delta(text, at=time.perf_counter())
        usage = Usage(self._tokens(prompt), self.count(text), cached_tokens=0)
        yield Delta(finish_reason=finish_reason, usage=usage, at=time.perf_counter())

    def reply(self, prompt: Prompt, decoding: Decoding) -> tuple[str, str]:
        """Return the answer and its finish reason.

        Raises:
            RejectedError: the rules have no answer to this prompt.
        """
        raise NotImplementedError
