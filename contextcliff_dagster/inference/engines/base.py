"""The interface of an engine: start, give its identity, count a prompt, stream an answer, stop.

`EngineSession` runs an engine on its own event loop, for code on any thread. The loop lives in a
thread, so that notebooks and Dagster (whose threads may already have a loop) can measure, and so
that Ctrl-C reaches the waiting caller and not the middle of a call.
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
"""Kind of a refusal for a reason that only the server knows."""
UNKNOWN_FINISH = "unknown"
"""Finish reason of a complete answer for which the server gives no textual reason."""
WHO_ANSWERED = ("model", "provider", "system_fingerprint")
"""Keys of a reply, and of a call's ``extra``, that identify the answering server and weights."""
MOST_TOKENS = 1 << 40
"""Largest number that is accepted as a token count."""


def token_count(value: object) -> int | None:
    """Return ``value`` as a token count from 0 to `MOST_TOKENS`, or None if it is not one."""
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
    """Token counts that the server reports; None if a count is missing or invalid.

    ``reasoning_tokens`` are part of ``completion_tokens``, and ``cached_tokens`` of
    ``prompt_tokens``: a part larger than its whole counts as invalid.
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
            valid_count = count if most is None or (count or 0) <= most else None
            object.__setattr__(self, name, valid_count)


@dataclass(frozen=True, slots=True)
class Timing:
    """Times in ms by the engine's clock: in its queue, and from there to the first token."""

    queue_ms: float
    ttft_ms: float


@dataclass(frozen=True, slots=True)
class Delta:
    """A piece of a streamed answer; ``at`` is its `time.perf_counter()` value, if known.

    ``timing`` comes with the last pieces if the engine measures it, so that calls that waited
    inside the engine do not count as slow. ``whole``: the answer came in one piece, so the time to
    its first token is unknown. ``extra``: the engine's other measurements, JSON scalars by name;
    the latest value of each name is stored with the answer. ``instead``: the kind of substitute for
    an answer (`contracts.ANSWER_IN`), and its text.
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
    """Settings for generating an answer.

    ``prefix_cache`` False: reuse nothing from earlier calls, if the engine has a switch for it.
    ``sampling``: draw tokens with these settings and this seed; None: take the likeliest token.
    ``schema``: write only JSON that fits this JSON Schema; None: write anything. ``attention``:
    report the prompt's last token's attention as ``extra["attention"]`` (`engines.attention`), if
    the engine's spec has `shows_attention`.
    """

    max_output_tokens: int
    temperature: float = 0.0
    prefix_cache: bool = True
    sampling: Sampling | None = None
    schema: Mapping[str, Any] | None = None
    attention: bool = False


class TransportError(TransientError):
    """The model was not reached, or its answer did not arrive; another attempt may succeed.

    ``kind`` names the error (connect, timeout, drop, http_429, ...). ``maybe_paid``: the model may
    have worked, and charged, before the error. ``again`` False: another attempt would fail too. The
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
    """The server refused this request for good (400, 413, 422).

    ``why``: ``context_overflow`` if the prompt is longer than the window; ``quota`` if the request
    exceeds what the account may ask for at once; ``content_filter``; else ``rejected``.
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
    """A prompt's token count by the model itself; ``exact``: with the chat template, otherwise for
    the texts alone, which is a lower bound on what the server should see."""

    tokens: int
    exact: bool = True


@dataclass(frozen=True, slots=True)
class Embeddings:
    """Embedding ``vectors`` (texts, dimensions) in the texts' order, and any reported tokens."""

    vectors: NDArray[np.float32]
    prompt_tokens: int | None = None


class Engine(Protocol):
    """An interface to a model. All methods run on one event loop; calls may overlap."""

    @property
    def window_tokens(self) -> int | None:
        """The longest prompt + output (after `start`), or None if unknown."""
        ...

    async def start(self) -> None:
        """Load the weights, or reach the server and ask for its models.

        Raises:
            EngineError: the model is unreachable, refused or missing; one sentence.
        """
        ...

    def identity(self) -> Identity:
        """Return the serving identity (after `start`)."""
        ...

    async def count_prompt_tokens(self, prompt: Prompt) -> PromptCount | None:
        """Return the prompt's token count from the model itself, or None if it cannot count."""
        ...

    def stream(self, prompt: Prompt, decoding: Decoding) -> AsyncIterator[Delta]:
        """Yield one answer in pieces; the last pieces carry ``finish_reason`` and ``usage``.

        Raises:
            TransportError: another attempt may succeed.
            RejectedError: the request is refused for good.
            EngineError: every further request would fail (401, 403, 404, quota used up).
        """
        ...

    async def embed(self, texts: Sequence[str]) -> Embeddings:
        """Return one vector for each text, from one request.

        Raises:
            TransportError, RejectedError: as `stream`.
            EngineError: the engine has no embeddings; or as `stream`.
        """
        ...

    async def stop(self) -> None:
        """Free the resources of `start`; calling it twice is safe."""
        ...


class NoEmbeddings:
    """Mixin that implements `embed` for engines without embeddings."""

    _entry: ModelEntry

    async def embed(self, texts: Sequence[str]) -> Embeddings:
        """Raise EngineError."""
        raise EngineError(
            f"Model {self._entry.name!r}: engine {self._entry.engine!r} has no embeddings; "
            "choose a model of engine 'openai' whose server has /v1/embeddings."
        )


def text_pieces(
    tokens: Iterable[int], decode: Callable[[list[int]], str], prompt_tokens: int, limit: int
) -> Iterator[Delta]:
    """Yield the text of ``tokens`` in pieces; the last piece has the finish reason and the usage.

    ``limit``: the maximum number of tokens; an answer that reaches it ends by ``length``.
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
    """Yield the pieces of ``generate``, and raise its errors. If the caller stops early,
    the generator ends at its next piece."""
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
    """Return a log's last error lines, or else its last lines, on one line and without secrets."""
    with path.open("rb") as log:
        log.seek(max(os.fstat(log.fileno()).st_size - _TAIL_BYTES, 0))
        text = log.read().decode(errors="replace")
    lines_logged = [line.strip() for line in text.splitlines() if line.strip(" \r\n^~|")]
    errors = [line for line in lines_logged if "Error" in line]
    # A traceback ends with the error of the outermost process, which only says that an inner one
    # failed.
    return redact(" | ".join((errors or lines_logged)[-lines:]), limit=1000) or "nothing"


def open_engine(entry: ModelEntry) -> Engine:
    """Return the engine of ``entry``, not yet started; raise EngineError if software is missing."""
    engine: Engine = _resolved(engine_spec(entry.engine).load)(entry)
    return engine


def declared_identity(entry: ModelEntry) -> dict[str, Any]:
    """Return the identity known before a start. Raises EngineError like `open_engine`."""
    return dict(_resolved(engine_spec(entry.engine).declared_identity)(entry))


def _resolved(target: str | Callable[[ModelEntry], Any]) -> Callable[[ModelEntry], Any]:
    return resolve_name(target) if isinstance(target, str) else target


T = TypeVar("T")


class EngineSession:
    """Context manager that starts the engine of ``entry`` on enter and stops it on exit.

    Raises EngineError on enter if the engine cannot start.
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
            # Both end the loop when a task raises them; its waiters would then wait for ever.
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
        return self.engine.identity()

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run ``work`` on the engine's loop; if the engine calls exit, the future fails."""
        return asyncio.run_coroutine_threadsafe(self._without_exit(work), self.loop)

    async def _without_exit(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            return await work
        except SystemExit as error:
            raise EngineError(
                f"The engine of model {self.entry.name!r} tried to end the program (exit code "
                f"{error.code}). Finished answers are kept: repair it and run the same command."
            ) from error

    def close(self) -> None:
        """Stop the engine and its loop."""
        if self.loop.is_closed():
            return
        with suppress(Exception):
            self.submit(self.engine.stop()).result(timeout=30)
        with suppress(Exception):
            self.submit(_cancel_tasks()).result(timeout=10)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(timeout=10)
        if not self.loop.is_running():
            self.loop.close()


async def _cancel_tasks() -> None:
    tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()
