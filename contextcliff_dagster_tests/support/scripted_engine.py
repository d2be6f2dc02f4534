"""An engine whose answers a test writes: a function of the prompt."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence

from contextcliff_dagster.inference.engines.base import (
    Decoding,
    Delta,
    Embeddings,
    Identity,
    PromptCount,
    Usage,
)
from contextcliff_dagster.inference.requests.recipe import Prompt


class ScriptedEngine:
    """Answers with the pieces that ``answer`` gives for a prompt, and counts characters."""

    window_tokens = None

    def __init__(self, answer: Callable[[Prompt], Sequence[Delta]]) -> None:
        self._answer = answer
        self.asked: list[Prompt] = []

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    def identity(self) -> Identity:
        return Identity({"engine": "scripted"})

    async def count_prompt_tokens(self, prompt: Prompt) -> PromptCount | None:
        return PromptCount(sum(map(len, prompt.contents())), exact=True)

    async def embed(self, texts: Sequence[str]) -> Embeddings:
        raise NotImplementedError

    async def stream(self, prompt: Prompt, decoding: Decoding) -> AsyncIterator[Delta]:
        self.asked.append(prompt)
        for piece in self._answer(prompt):
            yield piece
        tokens = sum(map(len, prompt.contents()))
        yield Delta(finish_reason="stop", usage=Usage(tokens, 1))
