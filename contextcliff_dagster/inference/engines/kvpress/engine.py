"""Local weights whose KV cache keeps a fraction of the document's entries, chosen by a policy.

Computation runs in a worker process (`worker`). If it dies, the next call restarts it.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Iterable
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any, NamedTuple

from contextcliff_dagster.contracts import EngineError
from contextcliff_dagster.inference.engines.attention import CacheShape, config_shape, gguf_shape
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
from contextcliff_dagster.inference.engines.kvpress.worker_process import WorkerProcess, kv_versions
from contextcliff_dagster.inference.engines.transformers import dtype_of, model_path, window_of
from contextcliff_dagster.inference.models.entry import Identity, KvOptions
from contextcliff_dagster.inference.models.kv_variants import kv_of
from contextcliff_dagster.inference.models.models_file import ModelEntry
from contextcliff_dagster.inference.requests.recipe import MARK, Prompt
from contextcliff_dagster.inference.weights import (
    file_sha256,
    folder_hashes,
    gguf_header,
    gguf_numbers,
)
from contextcliff_dagster.reference.card import REFERENCE_MODELS, weights_path
from contextcliff_dagster.retry import Backoff, retry
from contextcliff_dagster.store import Store

LIBRARY_BYTES = 600_000_000
"""Memory of a worker without weights: Python, torch, transformers and kvpress."""
_SIZES = {"float32": 4, "bfloat16": 2, "float16": 2}


class KvMemory(NamedTuple):
    """Upper bounds on a worker's memory and disk, in bytes.

    ``memory``: total with weights, libraries and stored documents; ``longest``: the cache of the
    longest document; ``disk``: all documents, stored for further policies and workers.
    """

    memory: int
    longest: int
    disk: int


class _Weights(NamedTuple):
    shape: CacheShape
    bytes: int
    hidden: int
    inner: int
    number_bytes: int


def kv_memory(entry: ModelEntry, documents: Iterable[int]) -> KvMemory | None:
    """Return the memory for documents with these token counts; None if the weights do not tell.

    Raises:
        EngineError: the weights are missing or damaged.
    """
    lengths = sorted(documents)
    weights = _weights(entry)
    if not lengths or weights is None:
        return None
    token = weights.shape.token_bytes(*2 * [f"float{8 * weights.number_bytes}"])
    assert token is not None
    # Scores of h2o and of expected attention, an entry and head each, are kept with the entries.
    kept = round(token) + 2 * 4 * weights.shape.layers * weights.shape.heads
    longest, total = kept * lengths[-1], kept * sum(lengths)
    reading = lengths[-1] * weights.number_bytes * (8 * weights.hidden + 3 * weights.inner)
    pressed = round(token) * lengths[-1]
    held = max(longest, min(KEPT_BYTES, total))
    memory = LIBRARY_BYTES + weights.bytes + held + longest + pressed + reading
    return KvMemory(memory, round(token) * lengths[-1], min(disk_bytes(), total))


class KvReads:
    """Documents that models of engine `kvpress` will read, and the memory for them.

    Variants of one base share their reads; `h2o` reads once more for its scores.
    """

    def __init__(self) -> None:
        self._entries: dict[str, ModelEntry] = {}
        self._tokens: dict[str, dict[str, int]] = {}
        self._scored: set[tuple[str, str]] = set()

    def add(self, entry: ModelEntry, document: str, tokens: int) -> bool:
        """Record a call on a document of ``tokens``; return False if it has been read before."""
        if entry.engine != "kvpress":
            return True
        variant = kv_of(entry)
        base = variant.base if variant else entry.name
        self._entries.setdefault(base, entry)
        counts = self._tokens.setdefault(base, {})
        new = document not in counts
        counts[document] = tokens
        if variant and variant.policy == "h2o":
            new = (base, document) not in self._scored
            self._scored.add((base, document))
        return new

    def notes(self) -> list[str]:
        """Return a sentence about memory and disk for each base whose weights give their size."""
        notes = []
        for base, entry in self._entries.items():
            lengths = self._tokens[base].values()
            needed = None
            with suppress(EngineError):  # measuring reports the problem
                needed = kv_memory(entry, lengths)
            if needed is not None:
                notes.append(
                    f"{base} on kvpress takes up to about {_size(needed.memory)} of memory, "
                    f"including {_size(needed.longest)} for the full cache of the longest document "
                    f"({max(lengths):,} tokens), and up to {_size(needed.disk)} of disk for "
                    f"the caches of all documents ({DISK_VARIABLE})."
                )
        return notes


def _size(count: int) -> str:
    return (
        f"{count / 1e9:.1f} GB" if count >= 950_000_000 else f"{float(f'{count / 1e6:.2g}'):g} MB"
    )


def _weights(entry: ModelEntry) -> _Weights | None:
    entry, path = kvpress_weights(entry)
    number_bytes = _SIZES[dtype_of(entry, path)]
    if path.is_file():
        header = gguf_header(path)
        kind = header.get("general.architecture")
        shape = gguf_shape(header)
        hidden, inner = (
            header.get(f"{kind}.{name}") for name in ("embedding_length", "feed_forward_length")
        )
        # All weights are dequantized to 32 bits before they get the compute type.
        stored = gguf_numbers(path) * (4 + number_bytes)
    else:
        try:
            config: dict[str, Any] = json.loads((path / "config.json").read_text("utf-8"))
        except (OSError, ValueError):
            return None
        shape = config_shape(config)
        hidden, inner = config.get("hidden_size"), config.get("intermediate_size")
        dtype = str(config.get("dtype") or config.get("torch_dtype") or "float32")
        in_file = sum(file.stat().st_size for file in path.glob("*.safetensors"))
        stored = in_file * number_bytes // _SIZES.get(dtype, number_bytes)
    if shape is None or not isinstance(hidden, int) or not isinstance(inner, int):
        return None
    return _Weights(shape, stored, hidden, inner, number_bytes)


KEPT_BYTES = 1 << 30
"""Memory limit for documents stored for further questions; one is stored whatever its size."""
DISK_VARIABLE = "CONTEXTCLIFF_KV_READS_GIB"
"""Variable with the GiB of disk for documents already read, shared by all policies, budgets and
workers; 0 means none."""
DISK_GIB = 8.0
RESTARTS = 3
_NOT_IN_ENTRIES = {"kv", "window_tokens"}
"""Identity fields that do not affect the cache entries of a text."""


def kvpress_identity(entry: ModelEntry) -> dict[str, Any]:
    """Return every setting that decides the answers, except the device; load nothing."""
    entry, path = kvpress_weights(entry)
    kv = _options(entry)
    versions = kv_versions(entry.name)
    fields = {
        "engine": "kvpress",
        "runtime": " ".join(f"{name} {version}" for name, version in versions.items()),
        **({"weights_sha256": file_sha256(path)} if path.is_file() else folder_hashes(path)),
        "dtype": dtype_of(entry, path),
        "kv": {"policy": kv.policy, "budget": kv.budget},
        "rope_scaling": entry.rope_scaling,
        "window_tokens": window_of(entry, path),
    }
    return {name: value for name, value in fields.items() if value is not None}


def _options(entry: ModelEntry) -> KvOptions:
    return entry.kv or KvOptions(policy="none")


def kvpress_weights(entry: ModelEntry) -> tuple[ModelEntry, Path]:
    """Return the entry with its weights filled in, and their path.

    Raises:
        EngineError: the entry names no weights, or they are missing.
    """
    if not entry.weights:
        if entry.model_id not in REFERENCE_MODELS:
            raise EngineError(
                f"Model {entry.name!r} has engine 'kvpress' but no weights: give `weights:` a "
                "folder of safetensors or a GGUF file in models.yaml, or as `model_id` one of "
                f"{', '.join(REFERENCE_MODELS)}."
            )
        entry = entry.model_copy(update={"weights": str(weights_path(entry.model_id))})
    return entry, model_path(entry)


def disk_bytes() -> int:
    """Return the disk limit for documents read. Raises EngineError on an invalid variable."""
    setting = os.environ.get(DISK_VARIABLE, "").strip() or DISK_GIB
    with suppress(ValueError, OverflowError):
        if (gib := float(setting)) >= 0:
            return int(gib * (1 << 30))
    raise EngineError(
        f"{DISK_VARIABLE} is {str(setting)[:40]!r}; set it to the most GiB of disk that read "
        f"documents may take, 0 for none, or unset it for {DISK_GIB:g}."
    )


def question_first(model: str) -> str:
    """Return why ``model`` cannot compress a prompt that puts the question first."""
    return (
        f"Model {model!r}: the prompt puts the question before the document, but the "
        "document is compressed first; put {document} first in the prompt's template."
    )


class KvpressEngine(NoEmbeddings):
    """An engine (see `base.Engine`) whose worker answers one call at a time."""

    def __init__(self, entry: ModelEntry) -> None:
        self._serve(entry)
        self._worker = WorkerProcess(entry.name, self._settings())
        self._device = ""
        self._lock = asyncio.Lock()

    def _serve(self, entry: ModelEntry) -> None:
        fields = kvpress_identity(entry)
        self._entry, self._path = kvpress_weights(entry)
        self._kv, self._fields = _options(entry), fields
        self._notes: dict[str, bool] = {}
        self._restarts = 0

    def _settings(self) -> dict[str, Any]:
        single = self._path.is_file()
        return {
            "folder": str(self._path.parent if single else self._path),
            "gguf_file": self._path.name if single else None,
            "dtype": dtype_of(self._entry, self._path),
            "rope_scaling": self._entry.rope_scaling,
            "threads": self._entry.threads,
            "memory_bytes": KEPT_BYTES,
            "disk_bytes": disk_bytes(),
            "reads_folder": str(Store.default().kv_reads_dir),
            "reads_of": {n: v for n, v in self._fields.items() if n not in _NOT_IN_ENTRIES},
        }

    def switch_to(self, entry: ModelEntry) -> bool:
        """Serve ``entry`` from now on if the worker's loaded weights fit; return whether they do.

        Raises:
            EngineError: ``entry`` cannot be served; see `kvpress_identity`.
        """
        if entry.engine != self._entry.engine:
            return False
        self._serve(entry)
        return self._worker.adopt(entry.name, self._settings())

    @property
    def window_tokens(self) -> int | None:
        """The entry's window, else the trained window."""
        return int(self._fields["window_tokens"])

    async def start(self) -> None:
        async with self._lock:
            self._device = await self._worker.start()

    async def stop(self) -> None:
        async with self._lock:
            await self._worker.stop()

    def identity(self) -> Identity:
        """Return the weights' hash, versions, policy, budget and, once known, the device."""
        device = {"server_device": self._device} if self._device else {}
        return Identity({**self._fields, **device})

    async def count_prompt_tokens(self, prompt: Prompt) -> PromptCount | None:
        async def once() -> int:
            await self._ready()
            async with aclosing(self._worker.ask({"op": "count", **_asked(prompt)})) as answers:  # type: ignore[type-var]
                async for message in answers:
                    self._raise_refusal(message)
                    return int(message["count"])
            raise AssertionError("the worker always answers")

        backoff = Backoff(attempts=self._entry.max_attempts, deadline_s=self._entry.longest_call_s)
        try:
            return PromptCount(await retry(once, backoff))
        except (TransportError, RejectedError) as error:
            raise EngineError(f"{error}") from error

    async def stream(self, prompt: Prompt, decoding: Decoding) -> AsyncIterator[Delta]:
        if prompt.question_first and self._kv.policy != "none":
            raise EngineError(question_first(self._entry.name))
        await self._ready()
        question = {
            "op": "answer",
            **_asked(prompt),
            "policy": self._kv.policy,
            "budget": self._kv.budget,
            "most": decoding.max_output_tokens,
            "reuse": decoding.prefix_cache,
        }
        async with aclosing(self._worker.ask(question)) as answers:  # type: ignore[type-var]
            async for message in answers:
                self._raise_refusal(message)
                if "finish_reason" not in message:
                    yield Delta(message["text"])
                    continue
                if message["problem"]:
                    self._notes.setdefault(
                        f"Note: Model {self._entry.name!r} may read some documents again for each "
                        f"policy and budget, because {message['problem']}.",
                        False,
                    )
                yield Delta(
                    message["text"],
                    finish_reason=message["finish_reason"],
                    usage=Usage(*message["usage"]),
                    timing=Timing(message["queue_ms"], message["ttft_ms"]),
                    extra=message["extra"],
                )

    def notes(self) -> list[str]:
        """Return a sentence for each new problem with storing documents."""
        new = [sentence for sentence, reported in self._notes.items() if not reported]
        self._notes.update(dict.fromkeys(new, True))
        return new

    def _raise_refusal(self, message: Any) -> None:
        if "refused" in message:
            raise RejectedError(f"Model {self._entry.name!r} cannot answer: {message['refused']}.")

    async def _ready(self) -> None:
        """Restart the worker if it has died."""
        async with self._lock:
            if self._worker.alive:
                return
            if self._restarts >= RESTARTS:
                raise EngineError(
                    f"Model {self._entry.name!r}: its kvpress worker died again after "
                    f"{self._restarts} restarts. Finished answers are kept: give it more memory "
                    "or a smaller window and run the same command. Its last messages: "
                    f"{self._worker.last_words()}"
                )
            self._restarts += 1
            await self._worker.stop()
            self._device = await self._worker.start()


def _asked(prompt: Prompt) -> dict[str, Any]:
    """Return the prompt in the worker's format; its outline shows where the document ends."""
    outline = None if prompt.outline is None else _texts(prompt.outline)
    return {"prompt": _texts(prompt), "outline": outline, "mark": MARK}


def _texts(prompt: Prompt) -> dict[str, Any]:
    return {"mode": prompt.mode, "messages": prompt.as_dicts(), "text": prompt.text}
