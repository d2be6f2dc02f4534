"""An engine for any GGUF model, run in this process by llama.cpp through ``xllamacpp``.

Its native HTTP server listens on the loopback while the engine runs, and we call it like any other
OpenAI-compatible endpoint: this gives real streaming, its own token counts, and calls that stop
when cancelled, which the library's direct calls do not offer. The server's threads need no Python
lock, so the event loop stays free and the time to the first token is the model's.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

from contextcliff_dagster.contracts import EngineError
from contextcliff_dagster.inference.devices.discovery import idle_cores, usable_cores
from contextcliff_dagster.inference.engines.attention import gguf_shape, with_cache_figures
from contextcliff_dagster.inference.engines.base import (
    Decoding,
    Delta,
    NoEmbeddings,
    PromptCount,
    RejectedError,
    TransportError,
)
from contextcliff_dagster.inference.engines.openai.engine import OpenAIEngine
from contextcliff_dagster.inference.engines.openai.server_detection import Dialect
from contextcliff_dagster.inference.engines.transformers import window_of
from contextcliff_dagster.inference.models.entry import Identity
from contextcliff_dagster.inference.models.models_file import ModelEntry, Quirks
from contextcliff_dagster.inference.requests.recipe import Prompt
from contextcliff_dagster.inference.weights import (
    find_weights,
    gguf_header,
    gguf_parts,
    gguf_sha256,
    installed_version,
)

KV_TYPES = ("f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0")

_ROPE_TYPES = {"default": "NONE", "linear": "LINEAR", "yarn": "YARN"}
_ROPE_NUMBERS = {
    "rope_theta": "rope_freq_base",
    "original_max_position_embeddings": "yarn_orig_ctx",
    "attention_factor": "yarn_attn_factor",
    "beta_fast": "yarn_beta_fast",
    "beta_slow": "yarn_beta_slow",
}


def kv_types(entry: ModelEntry) -> tuple[str, str]:
    """Parse ``kv_cache_dtype`` (``q8_0`` or ``q8_0/q4_0``) into key and value types, or raise
    EngineError."""
    cache_type = (entry.kv_cache_dtype or "f16").lower()
    keys, _, values = cache_type.partition("/")
    values = values or keys
    if keys not in KV_TYPES or values not in KV_TYPES:
        raise EngineError(
            f"Model {entry.name!r}: llama.cpp has no KV cache of type {cache_type!r}; set "
            f"`kv_cache_dtype` to one of {', '.join(KV_TYPES)}, or to two as in q8_0/q4_0 (keys/"
            "values)."
        )
    return keys, values


def rope_settings(entry: ModelEntry) -> dict[str, str | int | float]:
    """Return llama.cpp's RoPE parameters; empty if the GGUF's own RoPE is used.

    ``rope_scaling`` has the keys of Hugging Face configurations.

    Raises:
        EngineError: a key or value is not supported.
    """
    scaling: Mapping[str, Any] = entry.rope_scaling or {}
    settings: dict[str, str | int | float] = {}
    for key, value in scaling.items():
        number = isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0
        if key in {"rope_type", "type"} and value in _ROPE_TYPES:
            settings["rope_scaling_type"] = _ROPE_TYPES[value]
        elif key == "factor" and number:
            settings["rope_freq_scale"] = 1.0 / value
        elif key in _ROPE_NUMBERS and number:
            settings[_ROPE_NUMBERS[key]] = value
        else:
            raise EngineError(
                f"Model {entry.name!r}: llama.cpp has no `rope_scaling` of {key}: {value}; use "
                f"rope_type ({', '.join(_ROPE_TYPES)}) and, above 0, factor, "
                f"{', '.join(_ROPE_NUMBERS)}."
            )
    if "rope_freq_scale" in settings and "rope_scaling_type" not in settings:
        raise EngineError(
            f"Model {entry.name!r}: `rope_scaling` has a factor but no rope_type; add "
            "`rope_type: linear` or `rope_type: yarn`."
        )
    return settings


BATCH_TOKENS = 512
"""Number of tokens read at a time; after Ctrl-C, at most this many more are read."""
SLOW_SECONDS, SLOW_SHARE = 5.0, 0.7
_ERRORS_ONLY = 1


def llamacpp_identity(entry: ModelEntry) -> dict[str, Any]:
    """Return every setting that decides the answers, without loading the model."""
    version = installed_version("xllamacpp", entry, "local")
    path = weights_file(entry)
    return {
        "engine": "llamacpp",
        "runtime": f"xllamacpp {version}",
        "weights_sha256": gguf_sha256(path),
        "kv_cache_dtype": "/".join(kv_types(entry)),
        "rope": rope_settings(entry) or "of the weights",
        "window_tokens": window_of(entry, path),
    }


def weights_file(entry: ModelEntry) -> Path:
    """Return the GGUF file, or its first part. Raises EngineError if it cannot be used."""
    path = find_weights(entry)
    if path.is_dir():
        raise EngineError(
            f"Model {entry.name!r}: {path} is a folder; give the GGUF file itself in `weights` of "
            "models.yaml."
        )
    gguf_parts(path)
    gguf_header(path)
    return path


class LlamaCppEngine(NoEmbeddings):
    """An engine (see `base.Engine`) that runs llama.cpp in this process."""

    def __init__(self, entry: ModelEntry) -> None:
        self._entry = entry
        self._path = weights_file(entry)
        installed_version("xllamacpp", entry, "local")
        rope_settings(entry), kv_types(entry)
        self._lock = asyncio.Lock()
        self._server: Any = None
        self._devices: str | None = None
        self._remote: OpenAIEngine | None = None
        shape = gguf_shape(gguf_header(self._path))
        self._token_bytes = shape and shape.token_bytes(*kv_types(entry))
        self.threads = 0
        self._notes: list[str] = []
        self._wall_s = self._cpu_s = 0.0

    @property
    def window_tokens(self) -> int | None:
        """The entry's window, else the trained window."""
        return window_of(self._entry, self._path)

    async def start(self) -> None:
        """Load the weights and listen on a free loopback port."""
        async with self._lock:  # a start that is given up goes on in its thread: `stop` waits
            self._server = await asyncio.to_thread(self._load)
            address = self._server.listening_address
            served = {
                "engine": "openai",
                "base_url": f"{address}/v1",
                "quirks": Quirks(prefill="last_message"),
            }
            entry = self._entry.model_copy(update=served)
            self._remote = OpenAIEngine(entry, own=Dialect("llamacpp"))
            await self._remote.start()
            try:
                props = await self._remote.probes.ask("/props")
            except TransportError as error:
                raise self._failed("/props", error) from error
        slot = int(props["default_generation_settings"]["n_ctx"])  # the window of one call
        if slot < (self.window_tokens or 0):
            raise EngineError(
                f"Model {self._entry.name!r}: llama.cpp gives each call {slot} tokens of the "
                f"{self.window_tokens} requested; set a smaller `window_tokens` or `concurrency` "
                "in models.yaml."
            )

    def _load(self) -> Any:
        import xllamacpp

        entry, slots = self._entry, self._entry.concurrency
        params = xllamacpp.CommonParams()
        params.verbosity = _ERRORS_ONLY
        params.model.path = str(self._path)
        params.model_alias = {entry.model_id}
        params.n_ctx = (self.window_tokens or 0) * slots  # shared out among the slots
        params.n_parallel = slots
        params.kv_unified = False
        params.n_batch = params.n_ubatch = BATCH_TOKENS
        params.ctx_shift = False  # if on, it silently drops the start of a long context
        params.fit_params = False  # if on, it shortens the window to the free memory
        params.cache_ram_mib = 0  # no copies of earlier prompts but the slot's own: up to 8 GB
        # Nothing of a prompt is shown to another user of the machine or a page in a browser.
        params.ui = params.endpoint_slots = params.endpoint_metrics = False
        params.cors_origins = "http://127.0.0.1"
        params.hostnames = ["127.0.0.1"]
        params.port = 0
        self.threads = entry.threads or idle_cores()
        if not entry.threads and self.threads < (usable := usable_cores()):
            self._notes.append(
                f"Note: llama.cpp runs model {entry.name!r} on {self.threads} of {usable} cores, "
                "because other programs use the rest; `threads` in models.yaml sets another number."
            )
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = self.threads
        keys, values = kv_types(entry)
        params.cache_type_k = getattr(xllamacpp.ggml_type, f"GGML_TYPE_{keys.upper()}")
        params.cache_type_v = getattr(xllamacpp.ggml_type, f"GGML_TYPE_{values.upper()}")
        for name, value in rope_settings(entry).items():
            if name == "rope_scaling_type":
                rope_types = xllamacpp.llama_rope_scaling_type
                value = getattr(rope_types, f"LLAMA_ROPE_SCALING_TYPE_{value}")
            setattr(params, name, value)
        try:
            server = xllamacpp.Server(params)
            devices = xllamacpp.get_device_info()
        except RuntimeError as error:
            raise EngineError(
                f"Model {entry.name!r}: llama.cpp cannot load {self._path} with a window of "
                f"{self.window_tokens} tokens ({error}); see its messages above, and correct "
                "models.yaml."
            ) from error
        gpus = [str(d["description"]) for d in devices if not d["type"].name.endswith("_CPU")]
        self._devices = ", ".join(gpus) or "cpu"
        return server

    async def stop(self) -> None:
        async with self._lock:
            if self._remote is not None:
                await self._remote.stop()
                self._remote = None
            # In a thread, because its destructor ends the native threads.
            await asyncio.to_thread(setattr, self, "_server", None)

    def identity(self) -> Identity:
        """Return the weights' hash, runtime, cache, RoPE, window and, once known, the devices."""
        fields = llamacpp_identity(self._entry)
        if self._devices:
            fields["server_devices"] = self._devices
        return Identity(fields)

    async def count_prompt_tokens(self, prompt: Prompt) -> PromptCount | None:
        assert self._remote is not None, "start() comes first"
        assert self._remote.server_count is not None
        try:
            return await self._remote.server_count.once(prompt)
        except (TransportError, RejectedError) as error:  # in process nothing fails in passing
            raise self._failed("/apply-template", error) from error

    def _failed(self, path: str, error: Exception) -> EngineError:
        return EngineError(
            f"Model {self._entry.name!r}: llama.cpp fails at {path} ({error}); its chat "
            "template may not know these turns, so try another prompt mode."
        )

    async def stream(self, prompt: Prompt, decoding: Decoding) -> AsyncIterator[Delta]:
        """Yield greedy tokens as they come, then the thread count and KV cache figures."""
        assert self._remote is not None, "start() comes first"
        wall, cpu = time.perf_counter(), time.process_time()
        stream = self._remote.stream(prompt, decoding)
        async with aclosing(with_cache_figures(stream, self._token_bytes)) as pieces:  # type: ignore[type-var]
            async for piece in pieces:
                last = piece.finish_reason is not None
                yield replace(piece, extra={"threads": self.threads}) if last else piece
        self._wall_s += time.perf_counter() - wall
        self._cpu_s += time.process_time() - cpu

    def notes(self) -> list[str]:
        """Return new sentences about the last calls, one if threads had to wait for other programs.

        A thread of llama.cpp computes or spins, so an undisturbed one takes its whole core; the
        calls were slower by the fraction of the core that it did not get.
        """
        share = self._cpu_s / max(self._wall_s * self.threads, 1e-9)
        if self._entry.concurrency == 1 and self._wall_s > SLOW_SECONDS and share < SLOW_SHARE:
            fewer = "" if self.threads == 1 else ", or set fewer `threads` in models.yaml"
            self._notes.append(
                f"Note: calls of model {self._entry.name!r} were slow: its {self.threads} threads "
                f"got {share:.0%} of the processor time that they could use, because other "
                f"programs use the cores; measure when these are idle{fewer}."
            )
        self._wall_s = self._cpu_s = 0.0
        notes, self._notes = self._notes, []
        return notes
