"""A prompt's tokens as the server that will read it counts them, before it is sent."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from contextcliff_dagster.contracts import EngineError
from contextcliff_dagster.inference.engines.base import PromptCount, RejectedError, TransportError
from contextcliff_dagster.inference.engines.openai.error_mapping import ErrorMapper
from contextcliff_dagster.inference.engines.openai.http_client import Endpoint, StatusError
from contextcliff_dagster.inference.engines.openai.server_detection import Dialect, Probes
from contextcliff_dagster.inference.engines.openai.wire_format import GO_ON, encoded, goes_on
from contextcliff_dagster.inference.models.registry import ModelEntry
from contextcliff_dagster.inference.requests.recipe import Message, Prompt
from contextcliff_dagster.retry import Backoff, retry

Way = Literal["tokenize", "template", "tokencount"]
"""``tokenize``: vLLM's /tokenize, which applies the chat template; ``template``: llama.cpp's
/apply-template and /tokenize; ``tokencount``: KoboldCpp's, which counts texts without template."""

_TRIALS = (Prompt("chat", (Message("user", "x"),)), Prompt("completion", text="x"))
"""Base models have no chat template, and can be asked for completions only."""


class ServerCount:
    """Counts by asking the server, in one or two requests a prompt."""

    def __init__(self, way: Way, entry: ModelEntry, endpoint: Endpoint, errors: ErrorMapper):
        self._way, self._entry, self._endpoint, self._errors = way, entry, endpoint, errors

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
        """As `tokens`, in one attempt.

        Raises:
            TransportError: worth another attempt.
            RejectedError: it refuses this prompt.
            EngineError: no further request makes sense.
        """
        try:
            return await _count(self._way, self._entry, prompt, self._ask)
        except Exception as raised:
            error = self._errors.sort(raised, sent=False)
        if isinstance(error, RejectedError) and error.overflow:
            return None
        raise error

    async def _ask(self, path: str, parts: Sequence[bytes]) -> Any:
        within_s = self._entry.timeout_s
        reply = await self._endpoint.ask("POST", path, parts, within_s=within_s, beside=True)
        if reply.status != 200:
            raise StatusError(reply)
        return reply.json()


def counting_way(dialect: Dialect, listed: Mapping[str, Any]) -> Way | None:
    """Return how such a server counts; None for one that does not.

    ``listed``: what its /v1/models says of the model.
    """
    if dialect.name == "koboldcpp":
        return "tokencount"
    if dialect.name == "llamacpp":
        return "template"
    if dialect.name in ("vllm", "nim") or isinstance(listed.get("max_model_len"), int):
        return "tokenize"
    return None


async def find_server_count(
    dialect: Dialect,
    listed: dict[str, Any],
    entry: ModelEntry,
    endpoint: Endpoint,
    errors: ErrorMapper,
    probes: Probes,
) -> ServerCount | None:
    """How to have prompts counted there, tried out on one letter; None where that cannot be.

    Raises:
        TransportError, EngineError: see `Probes.ask`.
    """
    way = counting_way(dialect, listed)
    if way is None:
        return None

    async def ask(path: str, parts: Sequence[bytes]) -> Any:
        return await probes.ask("POST", path, parts)

    for trial in _TRIALS:
        try:
            await _count(way, entry, trial, ask)
            return ServerCount(way, entry, endpoint, errors)
        except _NoCount:
            continue
    return None


class _NoCount(TransportError):
    """An answer without a count."""

    def __init__(self) -> None:
        super().__init__("bad_answer", "the answer holds no count of tokens")


_Ask = Callable[[str, Sequence[bytes]], Any]


async def _count(way: Way, entry: ModelEntry, prompt: Prompt, ask: _Ask) -> PromptCount:
    if way == "tokenize":
        parts = encoded(prompt, lambda part: _tokenize_body(entry, part))
        return PromptCount(_positive(await ask("/tokenize", parts), "count"))
    if way == "tokencount":
        # Roles and template come on top. Texts that are counted together may merge at the seams,
        # a token each: well within the slack that is left where a count is not exact.
        parts = encoded(prompt, lambda part: {"prompt": "\n".join(part.contents())})
        return PromptCount(_positive(await ask("/api/extra/tokencount", parts), "value"), False)
    if prompt.mode != "completion":
        parts = encoded(prompt, lambda part: _template_body(entry, part))
        answer = await ask("/apply-template", parts)
        text = answer.get("prompt") if isinstance(answer, dict) else None
        if not isinstance(text, str):
            raise _NoCount
        prompt = Prompt("completion", text=text)
    parts = encoded(
        prompt, lambda part: {"content": part.text, "add_special": True, "parse_special": True}
    )
    answer = await ask("/tokenize", parts)
    tokens = answer.get("tokens") if isinstance(answer, dict) else None
    if not isinstance(tokens, list) or not tokens:
        raise _NoCount
    return PromptCount(len(tokens))


def _tokenize_body(entry: ModelEntry, prompt: Prompt) -> dict[str, Any]:
    if prompt.mode == "completion":
        return {"model": entry.model_id, "prompt": prompt.text}
    return {"model": entry.model_id, **_template_body(entry, prompt)}


def _template_body(entry: ModelEntry, prompt: Prompt) -> dict[str, Any]:
    """The messages with what a call says about them, so that the same template is applied."""
    return {"messages": prompt.as_dicts(), **(GO_ON if goes_on(entry, prompt) else {})}


def _positive(answer: Any, name: str) -> int:
    value = answer.get(name) if isinstance(answer, dict) else None
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise _NoCount
    return value
