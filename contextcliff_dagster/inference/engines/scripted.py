"""Engines without a model: code in this process answers, by rules of an experiment's own.

They are controls of known behaviour. They count tokens with the tokenizer of their entry and answer
the same prompt alike on every machine.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.inference.engines.base import (
    Decoding,
    Delta,
    NoEmbeddings,
    PromptCount,
    Usage,
    stream_from,
)
from contextcliff_dagster.inference.models.entry import Identity

if TYPE_CHECKING:
    from contextcliff_dagster.inference.models.models_file import ModelEntry
    from contextcliff_dagster.inference.requests.recipe import Prompt
    from contextcliff_dagster.sampling.tokenizers.tokenizers import Tokenizer

UNLIMITED = 1 << 32
"""The window of an entry that names none: more than any prompt has."""


class ScriptedEngine(NoEmbeddings):
    """See `base.Engine`; ``identity`` has the keys ``tokenizer`` and ``window_tokens``."""

    def __init__(self, entry: ModelEntry, identity: dict[str, Any]) -> None:
        self._entry, self._identity = entry, identity
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
        # One thread: state that a reply keeps of a document serves the question after it.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=self._entry.engine)

    async def stop(self) -> None:
        """Let the thread go."""
        if self._thread is not None:
            self._thread.shutdown(wait=True, cancel_futures=True)
            self._thread = None

    def identity(self) -> Identity:
        """All that decides the answers."""
        return Identity(self._identity)

    async def count_prompt_tokens(self, prompt: Prompt) -> PromptCount | None:
        """The texts' tokens: there is no chat template."""
        return PromptCount(self._tokens(prompt))

    def _tokens(self, prompt: Prompt) -> int:
        if prompt.document is None or prompt.outline is None:
            return sum(map(self.count, prompt.contents()))
        # As if cut at the document: the longest text of a prompt is then counted once for all.
        document = prompt.document.count(self._identity["tokenizer"], self.count)
        return document + sum(map(self.count, prompt.outline.contents()))

    def count(self, text: str) -> int:
        """Tokens of a text."""
        assert self._tokenizer is not None, "start() comes first"
        return self._tokenizer.count(text)

    def stream(self, prompt: Prompt, decoding: Decoding) -> AsyncIterator[Delta]:
        """Yield the answer in one piece; errors of `reply` pass through."""
        assert self._thread is not None, "start() comes first"
        return stream_from(self._thread, lambda: self._deltas(prompt, decoding))

    def _deltas(self, prompt: Prompt, decoding: Decoding) -> Iterator[Delta]:
        text, finish_reason = self.reply(prompt, decoding)
        yield Delta(text, at=time.perf_counter())
        usage = Usage(self._tokens(prompt), self.count(text), cached_tokens=0)
        yield Delta(finish_reason=finish_reason, usage=usage, at=time.perf_counter())

    def reply(self, prompt: Prompt, decoding: Decoding) -> tuple[str, str]:
        """Return the answer and the reason why it ends.

        Raises:
            RejectedError: there is no answer to such a prompt.
        """
        raise NotImplementedError
