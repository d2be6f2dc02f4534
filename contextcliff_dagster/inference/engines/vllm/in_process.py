"""An engine that runs vLLM in this process and stores each answer as soon as it is complete.

vLLM's step loop has its own thread: requests go in, pieces of answers come out one by one.
``LLM.generate`` would return nothing until every prompt is answered, and fail all of them for one
that is too long. Only one thread makes, steps and shuts down vLLM's engine.

The prompt is rendered and tokenised here, by the model's own tokenizer and chat template, and goes
to vLLM as token ids. So the count is exact, and a prompt that does not fit is noticed before it is
sent: vLLM itself would silently shorten the *answer* if prompt and answer exceed the window.
"""

from __future__ import annotations

import asyncio
import copy
import itertools
import os
import queue
import threading
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from contextcliff_dagster.contracts import EngineError
from contextcliff_dagster.inference.engines.attention import with_cache_figures
from contextcliff_dagster.inference.engines.base import (
    Decoding,
    Delta,
    NoEmbeddings,
    PromptCount,
    RejectedError,
    Timing,
    TransportError,
    Usage,
)
from contextcliff_dagster.inference.engines.vllm.engine_args import (
    cache_token_bytes,
    declared_vllm_identity,
    engine_args,
    environment,
    refused_cache_type,
    vllm_version,
)
from contextcliff_dagster.inference.models.entry import Identity
from contextcliff_dagster.inference.models.models_file import ModelEntry
from contextcliff_dagster.inference.requests.recipe import Prompt
from contextcliff_dagster.redaction import redact


@dataclass
class Request:
    """A prompt; ``report`` is called with each of vLLM's outputs, or with a final exception.

    ``asked_at`` is in seconds of `time.monotonic`, the clock of vLLM's own time stamps.
    """

    prompt_ids: list[int]
    sampling: Any
    report: Callable[[Any], None]
    key: str = ""
    asked_at: float = field(default_factory=time.monotonic)


class StepLoop:
    """A thread that creates an ``LLM`` with ``make`` and steps its engine while there is work."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._orders: queue.SimpleQueue[Callable[[Any], Any] | None] = queue.SimpleQueue()
        self._asked: dict[str, Request] = {}
        self._lock = threading.Lock()
        self._ended: BaseException | None = None
        self._numbers = itertools.count()
        self._ready: Future[Any] = Future()
        self._thread = threading.Thread(target=self._work, name="vllm-steps", daemon=True)

    def start(self) -> Future[Any]:
        """Begin to load the model; return a future with the ``LLM`` or the error."""
        self._thread.start()
        return self._ready

    def ask(self, request: Request) -> None:
        """Queue a request; may be called from any thread."""
        with self._lock:
            if self._ended is None:
                request.key = str(next(self._numbers))
                self._asked[request.key] = request
                self._orders.put(lambda engine: self._add(engine, request))
                return
        request.report(self._ended)

    def give_up(self, request: Request) -> None:
        """Drop a request that nobody waits for any more; may be called from any thread."""
        self._orders.put(
            lambda engine: self._take(request.key) and engine.abort_request([request.key])
        )

    def stop(self) -> None:
        """Shut vLLM down and wait until it has ended."""
        self._orders.put(None)
        if self._thread.ident is not None:
            self._thread.join()

    def _work(self) -> None:
        try:
            model = self._make()
        except BaseException as failure:
            self._end(failure)
            self._ready.set_exception(failure)
            return
        self._ready.set_result(model)
        engine = model.llm_engine
        del model
        error: BaseException = RuntimeError("vLLM was stopped")
        try:
            while self._follow_orders(engine):
                for output in engine.step():
                    key = output.request_id
                    request = self._take(key) if output.finished else self._asked.get(key)
                    if request is not None:
                        request.report(output)
        except BaseException as failure:
            error = failure
        finally:
            self._end(error)
            with suppress(Exception):  # unload what we can: another may start here
                from vllm.distributed import cleanup_dist_env_and_memory

                engine.engine_core.shutdown()
                cleanup_dist_env_and_memory()

    def _follow_orders(self, engine: Any) -> bool:
        """Run the queued orders, waiting if there is no other work; return False to stop."""
        while True:
            try:
                order = self._orders.get(block=not engine.has_unfinished_requests())
            except queue.Empty:
                return True
            if order is None:
                return False
            order(engine)

    def _add(self, engine: Any, request: Request) -> None:
        from vllm import TokensPrompt

        if request.key not in self._asked:
            return
        try:
            prompt = TokensPrompt(prompt_token_ids=request.prompt_ids)
            engine.add_request(request.key, prompt, request.sampling)
        except Exception as error:  # concerns only this prompt: the others go on
            self._take(request.key)
            request.report(error)

    def _take(self, key: str) -> Request | None:
        with self._lock:
            return self._asked.pop(key, None)

    def _end(self, error: BaseException) -> None:
        with self._lock:
            self._ended = error
            pending = list(self._asked.values())
            self._asked.clear()
        for request in pending:
            with suppress(Exception):  # one failing report must not block the others
                request.report(error)


class VllmEngine(NoEmbeddings):
    """An engine (see `base.Engine`) that runs up to ``concurrency`` sequences at once."""

    def __init__(self, entry: ModelEntry) -> None:
        self._entry = entry
        self._declared = declared_vllm_identity(entry)
        self._steps: StepLoop | None = None
        self._tokenizer: Any = None
        self._one_at_a_time = threading.Lock()  # threads must not share a tokenizer
        self._reported: dict[str, Any] = {}
        self._token_bytes: float | None = None
        self._counted: dict[str, list[int]] = {}

    @property
    def window_tokens(self) -> int | None:
        """The smaller of the entry's and the model's windows."""
        return self.identity().window_tokens

    async def start(self) -> None:
        """Import vLLM and load the weights: seconds on a CPU, up to minutes on a GPU."""
        args = engine_args(self._entry)
        for name, value in environment(vllm_version(self._entry.name), in_process=True).items():
            os.environ.setdefault(name, value)

        def make() -> Any:
            from vllm import LLM

            # The statistics hold the times of each request.
            return LLM(**args, disable_log_stats=False, use_tqdm_on_load=False)

        steps = self._steps = StepLoop(make)
        try:
            model = await asyncio.wrap_future(steps.start())
            self._tokenizer = copy.deepcopy(model.get_tokenizer())
            self._reported = _reported(model)
            config = model.llm_engine.vllm_config.model_config.hf_config.to_dict()
            self._token_bytes = cache_token_bytes(self._entry, config, self._reported)
        except Exception as error:
            reason = redact(f"{type(error).__name__}: {error}")
            raise EngineError(
                f"Model {self._entry.name!r}: vLLM cannot load {args['model']} ({reason}); correct "
                "its entry in models.yaml, or give it more memory"
                f"{refused_cache_type(self._entry)}."
            ) from error

    async def stop(self) -> None:
        steps, self._steps = self._steps, None
        if steps is not None:
            await asyncio.to_thread(steps.stop)

    def identity(self) -> Identity:
        """Return the fields that the entry declares, and the values that vLLM reports."""
        reported = {f"server_{name}": value for name, value in self._reported.items()}
        return Identity({**self._declared, **reported})

    async def count_prompt_tokens(self, prompt: Prompt) -> PromptCount | None:
        ids = await asyncio.to_thread(self.encode, prompt)
        if len(self._counted) > 2 * self._entry.concurrency + 8:
            self._counted.clear()  # calls that were counted and never sent
        self._counted[prompt.hash] = ids
        return PromptCount(len(ids))

    def encode(self, prompt: Prompt) -> list[int]:
        """Return the prompt's token ids. Raises EngineError if the template refuses it."""
        with self._one_at_a_time:
            if prompt.mode == "completion":
                return list(self._tokenizer.encode(prompt.text, add_special_tokens=True))
            prefill = prompt.mode == "chat_prefill"
            try:
                text = self._tokenizer.apply_chat_template(
                    prompt.as_dicts(),
                    tokenize=False,
                    add_generation_prompt=not prefill,
                    continue_final_message=prefill,
                )
            except Exception as error:
                raise EngineError(
                    f"Model {self._entry.name!r}: its chat template cannot be used "
                    f"({redact(str(error))}); base models need prompt mode 'completion', and some "
                    "models do not accept a system text."
                ) from error
            return list(self._tokenizer.encode(text, add_special_tokens=False))

    def stream(self, prompt: Prompt, decoding: Decoding) -> AsyncIterator[Delta]:
        """Yield greedy tokens as they come, then vLLM's times and the KV cache figures."""
        return with_cache_figures(self._answer(prompt, decoding), self._token_bytes)

    async def _answer(self, prompt: Prompt, decoding: Decoding) -> AsyncIterator[Delta]:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        steps = self._steps
        assert steps is not None, "start() comes first"
        ids = self._counted.pop(prompt.hash, []) or await asyncio.to_thread(self.encode, prompt)
        window = self.window_tokens
        if window is not None and len(ids) + decoding.max_output_tokens > window:
            raise RejectedError(
                f"{len(ids)} prompt tokens and up to {decoding.max_output_tokens} of output exceed "
                f"the window of {window}",
                why="context_overflow",
            )
        loop = asyncio.get_running_loop()
        pieces: asyncio.Queue[tuple[Any, float]] = asyncio.Queue()

        def put(piece: Any) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(pieces.put_nowait, (piece, time.perf_counter()))

        sampling = SamplingParams(
            temperature=decoding.temperature,
            **(
                {"seed": 0}
                if (draw := decoding.sampling) is None
                else {"seed": draw.seed, "top_k": draw.top_k or -1, "top_p": draw.top_p}
            ),
            max_tokens=decoding.max_output_tokens,
            **({} if decoding.prefix_cache else {"skip_reading_prefix_cache": True}),
            output_kind=RequestOutputKind.DELTA,
        )
        request = Request(ids, sampling, put)
        steps.ask(request)
        ended, output_tokens = False, 0
        try:
            while not ended:
                piece, at = await pieces.get()
                ended = isinstance(piece, BaseException) or piece.finished
                if isinstance(piece, BaseException):
                    raise self._sorted(piece)
                output_tokens += len(piece.outputs[0].token_ids)
                yield self._delta(piece, at, request, output_tokens)
        finally:
            if not ended:
                steps.give_up(request)

    def _delta(self, piece: Any, at: float, request: Request, output_tokens: int) -> Delta:
        answer = piece.outputs[0]
        if not piece.finished:
            return Delta(answer.text, at=at)
        if answer.finish_reason not in ("stop", "length"):
            raise TransportError(
                "server_error", f"vLLM ended the answer early ({answer.finish_reason})"
            )
        read = request.prompt_ids if piece.prompt_token_ids is None else piece.prompt_token_ids
        return Delta(
            answer.text,
            finish_reason=answer.finish_reason,
            usage=Usage(len(read), output_tokens, piece.num_cached_tokens or 0),
            at=at,
            timing=_timing(piece.metrics, request.asked_at),
        )

    def _sorted(self, error: BaseException) -> Exception:
        reason = redact(f"{type(error).__name__}: {error}")
        if isinstance(error, ValueError):  # how vLLM refuses one request
            return RejectedError(f"vLLM refuses the request ({reason})")
        return EngineError(
            f"Model {self._entry.name!r}: vLLM failed ({reason}). Finished answers are kept: run "
            "the same command again, with a smaller `concurrency` or window if memory ran out."
        )


def _timing(metrics: Any, asked_at: float) -> Timing | None:
    """Return times by the clock of the engine core, or None if it did not record them."""
    if metrics is None or not metrics.scheduled_ts or not metrics.first_token_ts:
        return None
    return Timing(
        queue_ms=(metrics.scheduled_ts - asked_at) * 1000,
        ttft_ms=(metrics.first_token_ts - metrics.scheduled_ts) * 1000,
    )


def _reported(model: Any) -> dict[str, Any]:
    """Return the settings that vLLM chose by itself and that affect answers."""
    from vllm.platforms import current_platform

    config = model.llm_engine.vllm_config
    reported = {
        "max_model_len": int(config.model_config.max_model_len),
        "dtype": str(config.model_config.dtype).removeprefix("torch."),
        "kv_cache_dtype": str(config.cache_config.cache_dtype),
        "quantization": config.model_config.quantization,
        "device": str(current_platform.get_device_name()),
        "commit": getattr(config.model_config.hf_config, "_commit_hash", None),
    }
    return {name: value for name, value in reported.items() if value is not None}
