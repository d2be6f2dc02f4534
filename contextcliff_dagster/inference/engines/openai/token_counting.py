"""A prompt's tokens as the server that will read it counts them, before it is sent."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal

from contextcliff_dagster.contracts import EngineError
from contextcliff_dagster.inference.engines.base import (
    PromptCount,
    RejectedError,
    TransportError,
    token_count,
)
from contextcliff_dagster.inference.engines.openai.http_client import MOST_OF_A_REPLY, StatusError
from contextcliff_dagster.inference.engines.openai.server_detection import Dialect, Probes
from contextcliff_dagster.inference.engines.openai.wire_format import GO_ON, encoded, goes_on
from contextcliff_dagster.inference.models.models_file import ModelEntry
from contextcliff_dagster.inference.requests.recipe import Message, Prompt
from contextcliff_dagster.retry import Backoff, retry

Way = Literal["tokenize", "template", "tokencount"]
"""``tokenize``: vLLM's /tokenize, which applies the chat template; ``template``: llama.cpp's
/apply-template and /tokenize; ``tokencount``: KoboldCpp's, which counts texts without template."""

_TRIALS = (Prompt("chat", (Message("user", "x"),)), Prompt("completion", text="x"))
"""Base models have no chat template, and can be asked for completions only."""

_BYTES_A_BYTE = 32
"""Of the reply, for each that is counted: its token's number and text."""
_TOKENS_BESIDES = 1 << 17
"""As many as no template adds."""

_Ask = Callable[[str, Sequence[bytes]], Awaitable[dict[str, Any]]]


class ServerCount:
    """Counts by asking the server, in one or two requests a prompt."""

    def __init__(self, way: Way, entry: ModelEntry, probes: Probes) -> None:
        self._way, self._entry, self._probes = way, entry, probes

    async def tokens(self, prompt: Prompt) -> PromptCount | None:
        """The count; None where the server says that so long a prompt is too long to count.

        Raises:
            EngineError: it fails, time after time, or refuses.
        """
        name = self._entry.name
        backoff = Backoff(attempts=self._entry.max_attempts, deadline_s=self._entry.longest_call_s)
        try:
            return await retry(lambda: self.once(prompt), backoff)
        except TransportError as error:
            raise EngineError(
                f"Model {name!r}: the server does not count prompts any more ({error}); "
                "everything measured is kept, so see to it and run the same command again."
            ) from None
        except RejectedError as error:
            raise EngineError(
                f"Model {name!r}: the server cannot count a prompt ({error}); its chat "
                "template may not know these turns, so try another prompt mode, or name the "
                "model's `tokenizer` in models.yaml."
            ) from None

    async def once(self, prompt: Prompt) -> PromptCount | None:
        """As `tokens`, in one attempt; raises as `base.Engine.stream`."""
        try:
            return await _count(self._way, self._entry, prompt, self._ask)
        except Exception as raised:
            error = self._probes.errors.sort(raised)
        if isinstance(error, RejectedError) and error.why == "context_overflow":
            return None
        raise error

    async def _ask(self, path: str, parts: Sequence[bytes]) -> dict[str, Any]:
        reply = await self._probes.endpoint.ask(
            path,
            parts,
            within_s=self._entry.timeout_s,
            under_v1=False,
            most=MOST_OF_A_REPLY + _BYTES_A_BYTE * sum(map(len, parts)),
        )
        if reply.status != 200:
            raise StatusError(reply)
        return reply.json()


def counting_way(dialect: Dialect, listed: Mapping[str, Any]) -> Way | None:
    """How such a server counts, whose /v1/models has ``listed``; None for one that does not."""
    if dialect.name == "koboldcpp":
        return "tokencount"
    if dialect.name == "llamacpp":
        return "template"
    if dialect.name in ("vllm", "nim") or token_count(listed.get("max_model_len")):
        return "tokenize"
    return None


async def find_server_count(
    dialect: Dialect, listed: Mapping[str, Any], entry: ModelEntry, probes: Probes
) -> ServerCount | None:
    """How to have prompts counted there, tried out on one letter; None where that cannot be."""
    if (way := counting_way(dialect, listed)) is None:
        return None
    for trial in _TRIALS:
        try:
            await _count(way, entry, trial, probes.ask)
            return ServerCount(way, entry, probes)
        except _NoCount:
            continue
    return None


class _NoCount(TransportError):
    """An answer without a count."""

    def __init__(self) -> None:
        super().__init__("bad_answer", "the answer holds no count of tokens")


async def _count(way: Way, entry: ModelEntry, prompt: Prompt, ask: _Ask) -> PromptCount:
    # The messages with what a call says about them, so that the same template is applied.
    def messages(part: Prompt) -> dict[str, Any]:
        return {"messages": part.as_dicts(), **(GO_ON if goes_on(entry, part) else {})}

    is_text = prompt.mode == "completion"
    if way == "tokenize":
        parts = encoded(
            prompt,
            lambda part: {
                "model": entry.model_id,
                **({"prompt": part.text} if is_text else messages(part)),
            },
        )
        return PromptCount(_counted((await ask("/tokenize", parts)).get("count"), prompt))
    if way == "tokencount":
        # Roles and template come on top. Texts that are counted together may merge at the seams,
        # a token each: well within the slack that is left where a count is not exact.
        parts = encoded(prompt, lambda part: {"prompt": "\n".join(part.contents())})
        counted = await ask("/api/extra/tokencount", parts)
        return PromptCount(_counted(counted.get("value"), prompt), exact=False)
    if not is_text:
        text = (await ask("/apply-template", encoded(prompt, messages))).get("prompt")
        if not isinstance(text, str):
            raise _NoCount
        prompt = Prompt("completion", text=text)
    parts = encoded(
        prompt, lambda part: {"content": part.text, "add_special": True, "parse_special": True}
    )
    tokens = (await ask("/tokenize", parts)).get("tokens")
    return PromptCount(_counted(len(tokens) if isinstance(tokens, list) else None, prompt))


def _counted(value: Any, prompt: Prompt) -> int:
    """A server's count of a prompt. No tokenizer makes more tokens of a text than it has bytes."""
    count = token_count(value)
    if not count or count > 4 * sum(map(len, prompt.contents())) + _TOKENS_BESIDES:
        raise _NoCount
    return count
