"""What an engine is: start, give its identity, count a prompt, stream one answer, stop.

Engines started from a model's entry, with an event loop of their own, for code on any thread.

The loop lives in a thread, so that notebooks and Dagster (whose threads may have a loop already)
can measure, and so that Ctrl-C reaches the waiting caller and not the middle of a call.
"""

from __future__ import annotations

import asyncio
import operator
import os
import threading
import time
from collections.abc import (
    AsyncIterator,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from concurrent.futures import Executor, Future
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeVar

from contextcliff_dagster.contracts import EngineError
from contextcliff_dagster.inference.models.engine_table import engine_spec
from contextcliff_dagster.inference.models.entry import Identity
from contextcliff_dagster.inference.models.models_file import ModelEntry
from contextcliff_dagster.inference.requests.call_plan import Scalar
from contextcliff_dagster.inference.requests.recipe import Prompt, Sampling
from contextcliff_dagster.redaction import redact
from contextcliff_dagster.retry import TransientError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

REFUSED: Final = "rejected"
"""Kind of a refusal for reasons of the server's own."""
UNKNOWN_FINISH = "unknown"
"""The finish reason of an answer that has ended, where the server gives none that is a text."""
WHO_ANSWERED = ("model", "provider", "system_fingerprint")
"""Keys of a reply, and of a call's ``extra``, that say which server and which weights answered."""
MOST_TOKENS = 1 << 40
"""A larger count of tokens is no count."""


def token_count(value: object) -> int | None:
    """``value`` as a count of tokens: a whole number from 0 to `MOST_TOKENS`; else None."""
    if type(value) is int:
        return value if 0 <= value <= MOST_TOKENS else None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    with suppress(TypeError):
        if not isinstance(value, bool) and 0 <= (count := operator.index(value)) <= MOST_TOKENS:  # type: ignore[arg-type]
            return count
    return None


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts by the server; None where it reports none, or no valid count.

    ``reasoning_tokens`` are part of ``completion_tokens``, ``cached_tokens`` of ``prompt_tokens``:
    where one is larger than the whole it is not taken as reported either.
    """

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None

    def __post_init__(self) -> None:
        # Servers that do not count report 0 tokens of a prompt.
        read, written = token_count(self.prompt_tokens) or None, token_count(self.completion_tokens)
        for name, count, most in (
            ("prompt_tokens", read, None),
            ("completion_tokens", written, None),
            ("cached_tokens", token_count(self.cached_tokens), read),
            ("reasoning_tokens", token_count(self.reasoning_tokens), written),
        ):
            known = count if most is None or (count or 0) <= most else None
            object.__setattr__(self, name, known)


@dataclass(frozen=True, slots=True)
class Timing:
    """Times in ms by the engine's clock: until it took the call up, and then to the first token."""

    queue_ms: float
    ttft_ms: float


@dataclass(frozen=True, slots=True)
class Delta:
    """A piece of a streamed answer; ``at``: its `time.perf_counter()`, where known.

    ``timing`` comes with the last pieces, where the engine measures it, so that calls that waited
    inside the engine are not taken for slow ones. ``whole``: the answer came in one piece, so the
    time to its first token is not known. ``extra``: what the engine measures next to the answer,
    JSON scalars by name; kept with the answer, of each name the latest. ``instead``: the
    substitute for an answer (`contracts.ANSWER_IN`), and its text.
    """

    text: str = ""
    reasoning: str = ""
    finish_reason: str | None = None
    usage: Usage | None = None
    at: float | None = None
    timing: Timing | None = None
    whole: bool = False
    extra: Mapping[str, Scalar] | None = None
    instead: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Decoding:
    """How to generate the answer.

    ``prefix_cache`` False: reuse nothing of earlier calls, where the engine has a switch for it.
    ``sampling``: draw the tokens so, in one round, whose seed it is; None: take the likeliest.
    ``schema``: write JSON that fits it (JSON Schema) and nothing else; None: anything.
    ``attention``: report where the prompt's last token attends, as ``extra["attention"]``
    (`engines.attention`); of engines whose spec `shows_attention`.
    """

    max_output_tokens: int
    temperature: float = 0.0
    prefix_cache: bool = True
    sampling: Sampling | None = None
    schema: Mapping[str, Any] | None = None
    attention: bool = False


class TransportError(TransientError):
    """The model was not reached, or its answer not received; worth another attempt.

    ``kind`` names the error (connect, timeout, drop, http_429, ...). ``maybe_paid``: the model may
    have worked, and charged, before it. ``again`` False: another attempt would end alike. The
    message holds no secret.
    """

    def __init__(
        self,
        kind: str,
        message: str,
        *,
        maybe_paid: bool = False,
        again: bool = True,
        status: int | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message, status=status, retry_after_s=retry_after_s, again=again)
        self.kind, self.maybe_paid, self.loading = kind, maybe_paid, kind == "loading"


class RejectedError(Exception):
    """The server refused this one request for good (400, 413, 422).

    ``why``: ``context_overflow``, the prompt is longer than the window; ``quota``, it asks for more
    than the account may at once; ``content_filter``; ``rejected``, for reasons of its own.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        why: Literal["context_overflow", "content_filter", "quota", "rejected"] = REFUSED,
    ) -> None:
        super().__init__(message)
        self.status, self.why = status, why


@dataclass(frozen=True)
class PromptCount:
    """A prompt's tokens by the model's own count; ``exact``: with the chat template, otherwise of
    the texts alone, a lower bound of what the server should see."""

    tokens: int
    exact: bool = True


@dataclass(frozen=True, slots=True)
class Embeddings:
    """``vectors`` (texts, dimensions), in the order of the texts; tokens read, where reported."""

    vectors: NDArray[np.float32]
    prompt_tokens: int | None = None


class Engine(Protocol):
    """One way of reaching a model. All methods run on one event loop; calls may overlap."""

    @property
    def window_tokens(self) -> int | None:
        """The longest prompt + output (after `start`), or None where it is not known."""
        ...

    async def start(self) -> None:
        """Make ready: load weights, or reach the server and ask for its models.

        Raises:
            EngineError: unreachable, refused, or not there; one sentence.
        """
        ...

    def identity(self) -> Identity:
        """The serving identity (after `start`)."""
        ...

    async def count_prompt_tokens(self, prompt: Prompt) -> PromptCount | None:
        """The prompt's tokens by the model's own count, or None where there is none."""
        ...

    def stream(self, prompt: Prompt, decoding: Decoding) -> AsyncIterator[Delta]:
        """One answer, piece by piece; the last pieces carry ``finish_reason`` and ``usage``.

        Raises:
            TransportError: worth another attempt.
            RejectedError: this request is refused for good.
            EngineError: no further request makes sense (401, 403, 404, quota used up).
        """
        ...

    async def embed(self, texts: Sequence[str]) -> Embeddings:
        """One vector for each text, in one request.

        Raises:
            TransportError, RejectedError: as `stream`.
            EngineError: this engine has no embeddings; or as `stream`.
        """
        ...

    async def stop(self) -> None:
        """Free the resources of `start`; safe to call twice."""
        ...


class NoEmbeddings:
    """The `embed` of engines that have no embeddings."""

    _entry: ModelEntry

    async def embed(self, texts: Sequence[str]) -> Embeddings:
        """Raises EngineError."""
        raise EngineError(
            f"Model {self._entry.name!r}: engine {self._entry.engine!r} has no embeddings; name a "
            "model of engine 'openai' whose server has /v1/embeddings."
        )


def text_pieces(
    tokens: Iterable[int], decode: Callable[[list[int]], str], prompt_tokens: int, limit: int
) -> Iterator[Delta]:
    """The text of ``tokens`` piece by piece; the last piece has finish reason and usage.

    ``limit``: the most tokens that were asked for, which ends an answer of so many by ``length``.
    """
    read: list[int] = []
    shown = ""
    for token in tokens:
        read.append(token)
        text = decode(read)
        # A character may span tokens; its bytes are held back until they are whole.
        if not text.endswith("\ufffd"):
            yield Delta(text[len(shown) :], at=time.perf_counter())
            shown = text
    yield Delta(
        decode(read)[len(shown) :],
        finish_reason="length" if len(read) >= limit else "stop",
        usage=Usage(prompt_tokens, completion_tokens=len(read), cached_tokens=0),
        at=time.perf_counter(),
    )


async def stream_from(
    threads: Executor, generate: Callable[[], Iterator[Delta]]
) -> AsyncIterator[Delta]:
    """Yield the pieces as they come; errors of ``generate`` pass through. Left early, the generator
    ends at its next piece."""
    loop = asyncio.get_running_loop()
    pieces: asyncio.Queue[Delta | BaseException | None] = asyncio.Queue()
    given_up = threading.Event()

    def put(piece: Delta | BaseException | None) -> None:
        if not given_up.is_set():
            loop.call_soon_threadsafe(pieces.put_nowait, piece)

    def work() -> None:
        try:
            for delta in generate():
                if given_up.is_set():
                    return
                put(delta)
            put(None)
        except BaseException as error:
            put(error)

    threads.submit(work)
    try:
        while (piece := await pieces.get()) is not None:
            if isinstance(piece, BaseException):
                raise piece
            yield piece
    finally:
        given_up.set()


_TAIL_BYTES = 20_000


def last_words(path: Path, lines: int = 4) -> str:
    """The last lines of a log that hold a text, errors first, on one line and without secrets."""
    with path.open("rb") as log:
        log.seek(max(os.fstat(log.fileno()).st_size - _TAIL_BYTES, 0))
        text = log.read().decode(errors="replace")
    lines_logged = [line.strip() for line in text.splitlines() if line.strip(" \r\n^~|")]
    errors = [line for line in lines_logged if "Error" in line]
    # A traceback ends with the error of the outermost process, which only says that an inner one
    # failed.
    return redact(" | ".join((errors or lines_logged)[-lines:]), limit=1000) or "nothing"


def open_engine(entry: ModelEntry) -> Engine:
    """The engine of ``entry``, not yet started; EngineError where its software is missing."""
    engine: Engine = _resolved(engine_spec(entry.engine).load)(entry)
    return engine


def declared_identity(entry: ModelEntry) -> dict[str, Any]:
    """The serving identity as known without a start; raises EngineError like `open_engine`."""
    return dict(_resolved(engine_spec(entry.engine).declared_identity)(entry))


def _resolved(target: str | Callable[[ModelEntry], Any]) -> Callable[[ModelEntry], Any]:
    return resolve_name(target) if isinstance(target, str) else target


T = TypeVar("T")


class EngineSession:
    """Context manager: the engine of ``entry`` is started on enter and stopped on exit.

    Raises EngineError on enter, where the engine cannot start.
    """

    def __init__(self, entry: ModelEntry, engine: Engine | None = None) -> None:
        self.entry = entry
        self.engine = engine or open_engine(entry)
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run_loop, name="engine-loop", daemon=True)

    def _run_loop(self) -> None:
        asyncio.set_event_loop(self.loop)
        stopped = False
        while not stopped:
            # These two leave the loop when a task raises them, and its waiters would wait for ever.
            with suppress(SystemExit, KeyboardInterrupt):
                self.loop.run_forever()
                stopped = True

    def __enter__(self) -> EngineSession:
        self._thread.start()
        try:
            self.submit(self.engine.start()).result()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def identity(self) -> Identity:
        """The serving identity."""
        return self.engine.identity()

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run ``work`` on the engine's loop; an engine that exits fails the future as others do."""
        return asyncio.run_coroutine_threadsafe(self._without_exit(work), self.loop)

    async def _without_exit(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            return await work
        except SystemExit as error:
            raise EngineError(
                f"The engine of model {self.entry.name!r} tried to end the program (exit code "
                f"{error.code}); what is measured is kept, so repair it and run the same command."
            ) from error

    def close(self) -> None:
        """Stop the engine and its loop."""
        if self.loop.is_closed():
            return
        with suppress(Exception):
            self.submit(self.engine.stop()).result(timeout=30)
        with suppress(Exception):
            self.submit(_cancel_rest()).result(timeout=10)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(timeout=10)
        if not self.loop.is_running():
            self.loop.close()


async def _cancel_rest() -> None:
    rest = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in rest:
        task.cancel()
    await asyncio.gather(*rest, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()
