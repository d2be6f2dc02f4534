"""One request: send it, time it, and judge whether the server read all of it.

This module also offers a model of models.yaml as a text-to-text function, without a ledger.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

from contextcliff_dagster.contracts import ANSWER_IN, EngineError
from contextcliff_dagster.inference.engines.base import (
    Decoding,
    Engine,
    EngineSession,
    PromptCount,
    RejectedError,
    Timing,
    TransportError,
    Usage,
    open_engine,
    token_count,
)
from contextcliff_dagster.inference.engines.openai.engine import OpenAIEngine
from contextcliff_dagster.inference.engines.openai.error_mapping import RefusedParameterError
from contextcliff_dagster.inference.execution.checks import (
    CallSize,
    believed,
    is_too_large,
    was_truncated,
    whole_prompt,
)
from contextcliff_dagster.inference.models.models_file import ModelEntry, Price, Quirks, get_model
from contextcliff_dagster.inference.requests.call_plan import (
    NoAnswer,
    Outcome,
    Scalar,
    measurements,
    utc_now,
    valid_text,
)
from contextcliff_dagster.inference.requests.recipe import Message, Prompt
from contextcliff_dagster.redaction import written_url
from contextcliff_dagster.retry import QUESTIONS, TransientError, retry

CHARS_A_TOKEN, MORE_CHARS, MORE_REASONING = 256, 4_096, 1 << 20
"""Bounds on an answer's stored text by its output limit, which some servers ignore; reasoning may
go beyond that limit."""
OVERLONG = (
    "the answer was cut after {:,} characters, more than {:,} output tokens can have: the "
    "server ignores the limit"
)
REASONED_OUT = (
    "reasoning used up the output limit before the answer began; raise `prompt: max_output_tokens` "
    "of the study"
)
_FILTERED = re.compile(
    r"content_?filter|safety|prohibited_content|blocklist|recitation|spii|guardrail", re.IGNORECASE
)
"""Finish reasons of content filters: OpenAI's and Azure's, Gemini's, Bedrock's."""


@dataclass(slots=True)
class Answer:
    """An answer, with times in seconds of `time.perf_counter()`."""

    started: float
    ended: float
    first_token: float | None = None
    text: str = ""
    reasoning: str = ""
    finish_reason: str | None = None
    usage: Usage | None = None
    timing: Timing | None = None
    extra: dict[str, Scalar] = field(default_factory=dict)
    overlong: bool = False

    @property
    def queue_ms(self) -> float | None:
        """The time the call waited in the engine, in ms; None if not reported."""
        return max(self.timing.queue_ms, 0.0) if self.timing else None

    @property
    def ttft_ms(self) -> float | None:
        """Time to first token in ms, from when the engine took the call, else from sending."""
        if self.timing:
            return max(self.timing.ttft_ms, 0.0)
        return None if self.first_token is None else (self.first_token - self.started) * 1000

    @property
    def duration_ms(self) -> float:
        """Time to the last token in ms, counted like `ttft_ms`."""
        # Two clocks: the engine's waiting time may be longer than the call.
        return max((self.ended - self.started) * 1000 - (self.queue_ms or 0.0), 0.0)


async def ask(engine: Engine, prompt: Prompt, decoding: Decoding) -> Answer:
    """Send one request and collect its stream, up to the longest text that the output limit allows.

    Raises the errors of `Engine.stream`.
    """
    text: list[str] = []
    reasoning: list[str] = []
    limit = CHARS_A_TOKEN * decoding.max_output_tokens
    room, room_to_think = limit + MORE_CHARS, limit + MORE_REASONING
    started = time.perf_counter()
    answer = Answer(started, ended=started)
    instead: dict[str, str] = {}
    async with aclosing(engine.stream(prompt, decoding)) as stream:  # type: ignore[type-var]
        async for delta in stream:
            answer.ended = delta.at or time.perf_counter()
            if answer.first_token is None and not delta.whole and (delta.text or delta.reasoning):
                answer.first_token = answer.ended
            text.append(delta.text)
            reasoning.append(delta.reasoning)
            room -= len(delta.text)
            room_to_think -= len(delta.reasoning)
            answer.finish_reason = delta.finish_reason or answer.finish_reason
            answer.usage = delta.usage or answer.usage
            answer.timing = delta.timing or answer.timing
            if delta.instead is not None:
                kind, piece = delta.instead
                instead[kind] = (instead.get(kind, "") + piece)[:room]
            if delta.extra is not None:
                answer.extra |= measurements(delta.extra) or {}
            if room < 0 or room_to_think < 0:
                # Another attempt would end alike, so the paid answer is kept and marked.
                answer.overlong, answer.finish_reason = True, "length"
                break
    answer.text = _joined_pairs("".join(text)[: limit + MORE_CHARS], answer.finish_reason)
    if instead and not answer.text.strip():
        kind, answer.text = next(iter(instead.items()))
        answer.extra[ANSWER_IN] = kind
    answer.reasoning = "".join(reasoning)[: limit + MORE_REASONING]
    return answer


def _joined_pairs(text: str, finish_reason: str | None) -> str:
    """Return ``text`` with surrogate pairs joined, without a half pair left by the output limit."""
    try:
        text.encode()
    except UnicodeEncodeError:
        if finish_reason == "length" and "\ud800" <= text[-1] <= "\udbff":
            text = text[:-1]
        try:
            return text.encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError:
            message = "the answer's text came damaged: half a character"
            raise TransportError("damaged", message, maybe_paid=True) from None
    return text


def judge(
    answer: Answer,
    own: PromptCount | None,
    size: CallSize,
    price: Price | None,
    attempts: int,
    lag_ms: float,
) -> Outcome:
    """Return the outcome to store. An answer to a silently shortened prompt does not count."""
    usage = answer.usage or Usage()
    if is_too_large(usage, size):
        usage = Usage()
    usage = believed(whole_prompt(usage, own), size, answer.text + answer.reasoning)
    truncated = was_truncated(own, usage.prompt_tokens)
    filtered = bool(_FILTERED.match(answer.finish_reason or ""))
    cost = None
    if price and usage.prompt_tokens is not None and usage.completion_tokens is not None:
        cost = price.cost_usd(
            usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens or 0
        )
    outcome = Outcome(
        no_answer="invalid_truncated" if truncated else "content_filter" if filtered else None,
        raw_output=valid_text(answer.text),
        reasoning=valid_text(answer.reasoning) or None,
        finish_reason=answer.finish_reason and valid_text(answer.finish_reason),
        prompt_tokens=usage.prompt_tokens,
        cached_tokens=usage.cached_tokens,
        completion_tokens=usage.completion_tokens,
        reasoning_tokens=usage.reasoning_tokens,
        own_prompt_tokens=own.tokens if own else None,
        ttft_ms=answer.ttft_ms,
        duration_ms=answer.duration_ms,
        queue_ms=answer.queue_ms,
        loop_lag_ms=lag_ms,
        attempts=attempts,
        cost_usd=cost,
        finished_at=utc_now(),
        extra=answer.extra or None,
    )
    if truncated and own:
        error = f"the server read {usage.prompt_tokens} of the {own.tokens} prompt tokens sent"
    elif filtered:
        error = f"the content filter stopped the answer ({answer.finish_reason})"
    elif outcome.reasoned_out:
        error = REASONED_OUT
    elif answer.overlong:
        error = OVERLONG.format(len(answer.text) + len(answer.reasoning), size.output_tokens)
    else:
        return outcome
    return replace(outcome, error=error)


def unanswered(
    own: PromptCount | None, why: str, no_answer: NoAnswer = "context_overflow", *, attempts: int
) -> Outcome:
    """Return the outcome of a call whose prompt is too long or was withheld from the model."""
    return Outcome(
        no_answer=no_answer,
        own_prompt_tokens=own.tokens if own else None,
        attempts=attempts,
        error=valid_text(why),
        finished_at=utc_now(),
    )


Mode = Literal["chat", "completion"]


class NamedModel:
    """A started model that completes one prompt at a time."""

    def __init__(self, session: EngineSession, max_output_tokens: int, mode: Mode) -> None:
        self._session, self._tokens, self._mode = session, max_output_tokens, mode

    def complete(self, prompt: str) -> str:
        """Return the model's reply.

        Raises:
            EngineError: the model refuses the prompt or does not answer; one sentence.
        """
        chat = self._mode == "chat"
        messages = (Message("user", prompt),) if chat else ()
        name, sent = self._session.entry.name, Prompt(self._mode, messages, "" if chat else prompt)
        try:
            return self._session.submit(self._answer(sent)).result()
        except RejectedError as error:
            raise EngineError(f"Model {name!r} refuses the prompt: {error}.") from None
        except TransientError as error:
            raise EngineError(f"Model {name!r} did not answer: {error}.") from None

    async def _answer(self, prompt: Prompt) -> str:
        engine = self._session.engine
        count, window = await engine.count_prompt_tokens(prompt), engine.window_tokens
        if count and window and count.tokens + self._tokens > window:
            raise RejectedError(
                f"its {count.tokens:,} tokens and {self._tokens} of output are more than the "
                f"window of {window:,}"
            )
        decoding = Decoding(self._tokens)
        return (await retry(lambda: ask(engine, prompt, decoding), QUESTIONS)).text


@contextmanager
def named_model(name: str, max_output_tokens: int, mode: Mode) -> Iterator[NamedModel]:
    """Start the model ``name``, yield it, and stop it on exit.

    Raises:
        StudyError: models.yaml has no such model.
        EngineError: the model cannot be started.
    """
    with EngineSession(get_model(name)) as session:
        yield NamedModel(session, max_output_tokens, mode)


MOST_OUTPUT = 64
"""Output limit of the trial call in tokens, which is also a study's limit for an answer."""
_QUESTION = Prompt("chat", (Message("user", "Reply with the one word: ready"),))
_MOST_QUIRKS = 4


@dataclass(frozen=True, slots=True)
class Trial:
    """Findings of the trial call.

    ``entry``: with the quirks that the server needs to accept calls. ``loaded_window``: in tokens,
    if the server does not report it at each start, so that it belongs in the entry. ``reasons``:
    the model thought before it answered, which counts against the output limit.
    """

    entry: ModelEntry
    answer: Answer
    window_tokens: int | None
    loaded_window: int | None
    reasons: bool


async def try_model(entry: ModelEntry, within_s: float, decoding: Decoding | None = None) -> Trial:
    """Ask ``entry`` for one word, by default without sampling, and return the findings.

    Raises:
        EngineError: calls would fail, or no answer came within ``within_s``; one sentence.
    """
    decoding = decoding or Decoding(MOST_OUTPUT)
    for _ in range(_MOST_QUIRKS):
        try:
            return await _trial_call(entry, within_s, decoding)
        except RefusedParameterError as error:
            if error.quirk is None:
                raise
            quirks = entry.quirks.model_dump() | dict([error.quirk])
            entry = entry.model_copy(update={"quirks": Quirks(**quirks)})
    return await _trial_call(entry, within_s, decoding)


async def ask_prompts(
    entry: ModelEntry, prompts: Sequence[Prompt], max_output_tokens: int, within_s: float
) -> list[Answer]:
    """Return the answers of ``entry`` to a few prompts, one by one; raises as `try_model`."""
    decoding = Decoding(max_output_tokens)
    async with _started(entry, within_s) as engine:
        return [await retry(partial(ask, engine, p, decoding), QUESTIONS) for p in prompts]


async def listed_models(entry: ModelEntry, within_s: float) -> list[dict[str, Any]]:
    """Return the models listed under /v1/models; [] if there is no list or the engine has none.

    Raises:
        EngineError: as `try_model`; also if nothing answers under the address.
    """
    from contextcliff_dagster.inference.engines.openai.local_servers import address_error

    async with _started(entry, within_s) as engine:
        if not isinstance(engine, OpenAIEngine):
            return []
        if not engine.listed and (problem := await address_error(entry, engine)):
            raise EngineError(f"Model {entry.name!r}: {problem}")
        return engine.listed


@dataclass(frozen=True, slots=True)
class Served:
    """What a server reports without a call: model ids, the window in tokens of the entry's model,
    and whether it counts tokens. ``knows_sampling``: its kind is known to take every parameter."""

    model_ids: tuple[str, ...]
    window_tokens: int | None
    counts: bool
    knows_sampling: bool = True


async def ask_server(entry: ModelEntry, within_s: float) -> Served:
    """Ask the server of ``entry`` for models, window and token counting; raises as `try_model`."""
    from contextcliff_dagster.inference.engines.openai.local_servers import listed_ids
    from contextcliff_dagster.inference.engines.openai.wire_format import KNOW_MIN_P

    async with _started(entry, within_s) as engine:
        if not isinstance(engine, OpenAIEngine):
            return Served((), engine.window_tokens, False)
        window = engine.window_tokens or await _window_to_write(engine, entry)
        ids = tuple(listed_ids(engine.listed))
        knows_sampling = engine.dialect.name in KNOW_MIN_P
        return Served(ids, window, engine.server_count is not None, knows_sampling)


async def _trial_call(entry: ModelEntry, within_s: float, decoding: Decoding) -> Trial:
    from contextcliff_dagster.inference.engines.openai.local_servers import address_error

    async with _started(entry, within_s) as engine:
        remote = engine if isinstance(engine, OpenAIEngine) else None
        if remote and (problem := await address_error(entry, remote)):
            raise EngineError(f"Model {entry.name!r}: {problem}")
        answer = await retry(lambda: ask(engine, _QUESTION, decoding), QUESTIONS)
        usage = answer.usage
        loaded = await _window_to_write(remote, entry) if remote else None
        return Trial(
            entry,
            answer,
            engine.window_tokens or loaded,
            loaded,
            bool(answer.reasoning or (usage and usage.reasoning_tokens)),
        )


async def _window_to_write(engine: OpenAIEngine, entry: ModelEntry) -> int | None:
    """Return a window that the server reports now but not at the start of a run."""
    from contextcliff_dagster.inference.engines.openai.local_servers import loaded_window

    if engine.window_tokens is not None:
        return None
    for item in engine.listed:
        window = token_count(item.get("context_length"))  # OpenRouter's list
        if window and item.get("id") == entry.model_id:
            return window
    is_omitted = entry.quirks.probes == "omit"
    return None if is_omitted else await loaded_window(engine.probes, entry.model_id)


@asynccontextmanager
async def _started(entry: ModelEntry, within_s: float) -> AsyncIterator[Engine]:
    where = written_url(entry.base_url or entry.engine)
    engine = open_engine(entry)
    try:
        async with asyncio.timeout(within_s):
            await engine.start()
            yield engine
    except TimeoutError:
        raise EngineError(
            f"Model {entry.name!r}: no answer from {where} within {within_s:g} s; check that the "
            "server is up, or raise --timeout."
        ) from None
    except TransientError as error:
        raise EngineError(
            f"Model {entry.name!r}: {where} did not answer ({error}); check the server, and run "
            "the same command again."
        ) from None
    except RejectedError as error:
        raise EngineError(
            f"Model {entry.name!r}: {where} refuses the call ({error}); change what it names, or "
            "the model id."
        ) from None
    finally:
        await engine.stop()
