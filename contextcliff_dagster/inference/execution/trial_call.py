"""One small call to a model before it is written into models.yaml, and the list of its server's
models: by the engine that measures, so that keys, limits and errors are treated alike."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from contextcliff_dagster.contracts import EngineError
from contextcliff_dagster.inference.engines.base import Decoding, Engine, RejectedError, token_count
from contextcliff_dagster.inference.engines.open_engine import open_engine
from contextcliff_dagster.inference.engines.openai.engine import OpenAIEngine
from contextcliff_dagster.inference.engines.openai.error_mapping import RefusedParameterError
from contextcliff_dagster.inference.engines.openai.local_servers import (
    address_error,
    listed_ids,
    loaded_window,
)
from contextcliff_dagster.inference.execution.single_request import Answer, ask
from contextcliff_dagster.inference.models.models_file import ModelEntry, Quirks
from contextcliff_dagster.inference.requests.recipe import Message, Prompt
from contextcliff_dagster.redaction import written_url
from contextcliff_dagster.retry import QUESTIONS, TransientError, retry

MOST_OUTPUT = 64
"""Tokens: what a study allows for an answer, too."""
_QUESTION = Prompt("chat", (Message("user", "Reply with the one word: ready"),))
_MOST_QUIRKS = 4


@dataclass(frozen=True, slots=True)
class Trial:
    """What the call has shown.

    ``entry``: with the quirks without which the server refuses calls. ``loaded_window``: tokens,
    of a server that does not report them at each start, so that they belong into the entry.
    ``reasons``: the model thought before it answered, which counts against the output limit.
    """

    entry: ModelEntry
    answer: Answer
    window_tokens: int | None
    loaded_window: int | None
    reasons: bool


async def try_model(entry: ModelEntry, within_s: float) -> Trial:
    """Ask ``entry`` for one word.

    Raises:
        EngineError: calls to it would fail, or no answer came within ``within_s``; one sentence.
    """
    for _ in range(_MOST_QUIRKS):
        try:
            return await _tried(entry, within_s)
        except RefusedParameterError as error:
            if error.quirk is None:
                raise
            quirks = entry.quirks.model_dump() | dict([error.quirk])
            entry = entry.model_copy(update={"quirks": Quirks(**quirks)})
    return await _tried(entry, within_s)


async def ask_prompts(
    entry: ModelEntry, prompts: Sequence[Prompt], max_output_tokens: int, within_s: float
) -> list[Answer]:
    """The answers of ``entry`` to a few prompts, one after the other.

    Raises:
        EngineError: as `try_model`.
    """
    decoding = Decoding(max_output_tokens)
    async with _started(entry, within_s) as engine:
        return [await retry(partial(ask, engine, p, decoding), QUESTIONS) for p in prompts]


async def listed_models(entry: ModelEntry, within_s: float) -> list[dict[str, Any]]:
    """What the server lists under /v1/models; [] where it has no list, or is not asked for one.

    Raises:
        EngineError: as `try_model`.
    """
    async with _started(entry, within_s) as engine:
        return engine.listed if isinstance(engine, OpenAIEngine) else []


@dataclass(frozen=True, slots=True)
class Served:
    """What a server reports without a call: the ids of its models, the window of the entry's model
    in tokens, and whether it counts tokens."""

    model_ids: tuple[str, ...]
    window_tokens: int | None
    counts: bool


async def ask_server(entry: ModelEntry, within_s: float) -> Served:
    """Ask the server of ``entry`` what it serves.

    Raises:
        EngineError: as `try_model`.
    """
    async with _started(entry, within_s) as engine:
        if not isinstance(engine, OpenAIEngine):
            return Served((), engine.window_tokens, False)
        window = engine.window_tokens or await _window_to_write(engine, entry)
        ids = tuple(listed_ids(engine.listed))
        return Served(ids, window, engine.server_count is not None)


async def _tried(entry: ModelEntry, within_s: float) -> Trial:
    async with _started(entry, within_s) as engine:
        remote = engine if isinstance(engine, OpenAIEngine) else None
        if remote and (wrong := await address_error(entry, remote)):
            raise EngineError(f"Model {entry.name!r}: {wrong}")
        answer = await retry(lambda: ask(engine, _QUESTION, Decoding(MOST_OUTPUT)), QUESTIONS)
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
    """A window that the server reports now and not at the start of a run."""
    if engine.window_tokens is not None:
        return None
    for item in engine.listed:
        window = token_count(item.get("context_length"))  # OpenRouter's list
        if window and item.get("id") == entry.model_id:
            return window
    known = entry.quirks.probes == "omit"
    return None if known else await loaded_window(engine.probes, entry.model_id)


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
            "server is up, or allow it more with --timeout."
        ) from None
    except TransientError as error:
        raise EngineError(
            f"Model {entry.name!r}: {where} gives no answer ({error}); check the server, and run "
            "the same command again."
        ) from None
    except RejectedError as error:
        raise EngineError(
            f"Model {entry.name!r}: {where} refuses the call ({error}); check the model id."
        ) from None
    finally:
        await engine.stop()
