"""Local weights whose KV cache keeps a share of the document's entries, chosen by a policy.

A worker process computes (`worker`); one that dies is started again by the next call, and the call
that it interrupted is a TransportError, tried again like others.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any

from contextcliff_dagster.contracts import EngineError
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
from contextcliff_dagster.inference.models.models_file import ModelEntry
from contextcliff_dagster.inference.requests.recipe import MARK, Prompt
from contextcliff_dagster.inference.weights import file_sha256, folder_hashes
from contextcliff_dagster.reference.card import REFERENCE_MODELS, weights_path
from contextcliff_dagster.retry import Backoff, retry
from contextcliff_dagster.store import Store

KEPT_BYTES = 1 << 30
"""Most memory of the documents that are kept for further questions; one is kept whatever it has."""
DISK_VARIABLE = "CONTEXTCLIFF_KV_READS_GIB"
"""GiB of disk for documents that were read, for further policies, budgets and workers; 0: none."""
DISK_GIB = 8.0
RESTARTS = 3
_OF_NO_ENTRY = {"kv", "window_tokens"}
"""Fields of the identity on which the entries of a text do not depend."""


def kvpress_identity(entry: ModelEntry) -> dict[str, Any]:
    """Identity of all that decides the answers, but for the device; loads nothing."""
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
    """The entry with its weights named, and where they are.

    Raises:
        EngineError: it names none, or they are missing.
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
    """Most disk for documents that were read; EngineError where the variable is no number."""
    given = os.environ.get(DISK_VARIABLE, "").strip() or DISK_GIB
    with suppress(ValueError, OverflowError):
        if (gib := float(given)) >= 0:
            return int(gib * (1 << 30))
    raise EngineError(
        f"{DISK_VARIABLE} is {str(given)[:40]!r}; set it to the GiB of disk that documents which "
        f"were read may take, 0 for none, or leave it out for {DISK_GIB:g}."
    )


def question_first(model: str) -> str:
    """Why ``model``, of a policy that chooses, cannot answer where the question comes first."""
    return (
        f"Model {model!r}: the prompt puts the question before the document, which is to be "
        "compressed before the question is known; put {document} first in the prompt's template."
    )


class KvpressEngine(NoEmbeddings):
    """See `base.Engine`. The worker answers one call after the other."""

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
            "reads_of": {n: v for n, v in self._fields.items() if n not in _OF_NO_ENTRY},
        }

    def switch_to(self, entry: ModelEntry) -> bool:
        """Serve ``entry`` from now on, if it needs the weights that the worker has loaded.

        Raises:
            EngineError: ``entry`` cannot be served; see `kvpress_identity`.
        """
        if entry.engine != self._entry.engine:
            return False
        self._serve(entry)
        return self._worker.adopt(entry.name, self._settings())

    @property
    def window_tokens(self) -> int | None:
        """The entry's window, else the trained one."""
        return int(self._fields["window_tokens"])

    async def start(self) -> None:
        """Start the worker, which loads the weights (seconds)."""
        async with self._lock:
            self._device = await self._worker.start()

    async def stop(self) -> None:
        """End the worker."""
        async with self._lock:
            await self._worker.stop()

    def identity(self) -> Identity:
        """Weights by hash, versions, policy and budget; and the device, once it is known."""
        device = {"server_device": self._device} if self._device else {}
        return Identity({**self._fields, **device})

    async def count_prompt_tokens(self, prompt: Prompt) -> PromptCount | None:
        """Exact: the weights' own chat template and tokenizer."""

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
        """Greedy tokens as they come.

        Raises:
            TransportError: the worker died; the next call starts it again.
            RejectedError: the prompt cannot be read so.
            EngineError: the worker died too often, or the question precedes the document.
        """
        if prompt.question_first and self._kv.policy != "none":
            raise EngineError(question_first(self._entry.name))
        await self._ready()
        asked = {
            "op": "answer",
            **_asked(prompt),
            "policy": self._kv.policy,
            "budget": self._kv.budget,
            "most": decoding.max_output_tokens,
            "reuse": decoding.prefix_cache,
        }
        async with aclosing(self._worker.ask(asked)) as answers:  # type: ignore[type-var]
            async for message in answers:
                self._raise_refusal(message)
                if "finish_reason" not in message:
                    yield Delta(message["text"])
                    continue
                if message["problem"]:
                    self._notes.setdefault(
                        f"Note: model {self._entry.name!r} may read some documents again for each "
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
        """Sentences about documents that were not kept, each once."""
        new = [sentence for sentence, known in self._notes.items() if not known]
        self._notes.update(dict.fromkeys(new, True))
        return new

    def _raise_refusal(self, message: Any) -> None:
        if "refused" in message:
            raise RejectedError(f"Model {self._entry.name!r} cannot answer: {message['refused']}.")

    async def _ready(self) -> None:
        """Start the worker again where it died."""
        async with self._lock:
            if self._worker.alive:
                return
            if self._restarts >= RESTARTS:
                raise EngineError(
                    f"Model {self._entry.name!r}: its kvpress worker died, and was started again "
                    f"{self._restarts} times already; everything measured is kept, so give it more "
                    "memory or a smaller window and run the same command to go on. Its last "
                    f"messages: {self._worker.last_words()}"
                )
            self._restarts += 1
            await self._worker.stop()
            self._device = await self._worker.start()


def _asked(prompt: Prompt) -> dict[str, Any]:
    """The prompt as the worker reads it; its outline shows where the document ends."""
    outline = None if prompt.outline is None else _texts(prompt.outline)
    return {"prompt": _texts(prompt), "outline": outline, "mark": MARK}


def _texts(prompt: Prompt) -> dict[str, Any]:
    return {"mode": prompt.mode, "messages": prompt.as_dicts(), "text": prompt.text}
