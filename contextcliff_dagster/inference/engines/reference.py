"""The reference models, run in this process by the NumPy runtime.

Generation runs in worker threads, so that tokens arrive one by one while the event loop stays
free; the time to the first token is the model's own. The chat template is the one that the
weights' tokenizer carries, rendered without Jinja.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.contracts import EngineError
from contextcliff_dagster.inference.engines.base import Decoding, Delta, NoEmbeddings, PromptCount
from contextcliff_dagster.inference.engines.last_attention import LastAttention, evidence_tokens
from contextcliff_dagster.inference.engines.thread_stream import stream_from, text_pieces
from contextcliff_dagster.inference.models.identity import Identity
from contextcliff_dagster.inference.models.models_file import ModelEntry
from contextcliff_dagster.inference.requests.recipe import Prompt
from contextcliff_dagster.inference.weights.files import file_sha256
from contextcliff_dagster.reference.card import REFERENCE_MODELS, weights_path
from contextcliff_dagster.reference.tokenizer import END, render_chat

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer

    from contextcliff_dagster.inference.engines.numpy_llama import LlamaModel

RUNTIME = "numpy-llama/1"
"""Part of the identity: raised when the runtime's arithmetic changes an answer."""


def weights_folder(entry: ModelEntry) -> Path:
    """The folder with config.json, model.safetensors and tokenizer.json, else EngineError."""
    if entry.weights:
        folder = Path(entry.weights)
    elif entry.model_id in REFERENCE_MODELS:
        folder = weights_path(entry.model_id)
    else:
        raise EngineError(
            f"Model {entry.name!r} has engine 'reference' but no weights: give `weights:` a folder "
            f"in models.yaml, or as `model_id` one of {', '.join(REFERENCE_MODELS)}."
        )
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        if not (folder / name).is_file():
            raise EngineError(
                f"Model {entry.name!r}: {folder / name} is missing; reinstall, or correct "
                "`weights` in models.yaml."
            )
    return folder


def reference_identity(entry: ModelEntry) -> dict[str, Any]:
    """Hashes of all that decides the answers; nothing is loaded for it."""
    folder = weights_folder(entry)
    template = folder / "chat_template.jinja"
    return {
        "engine": "reference",
        "runtime": RUNTIME,
        "weights_sha256": file_sha256(folder / "model.safetensors"),
        "config_sha256": file_sha256(folder / "config.json"),
        "tokenizer_sha256": file_sha256(folder / "tokenizer.json"),
        "chat_template_sha256": file_sha256(template) if template.is_file() else None,
        "dtype": "float32",
        "window_tokens": _window(entry, folder),
    }


def _window(entry: ModelEntry, folder: Path) -> int:
    try:
        trained = int(json.loads((folder / "config.json").read_text())["max_position_embeddings"])
    except (OSError, ValueError, KeyError, TypeError):
        raise EngineError(
            f"Model {entry.name!r}: {folder / 'config.json'} is damaged; reinstall the weights."
        ) from None
    return min(trained, entry.window_tokens or trained)


class ReferenceEngine(NoEmbeddings):
    """See `base.Engine`. Concurrent calls run in as many threads, one token stream each."""

    def __init__(self, entry: ModelEntry) -> None:
        self._entry = entry
        self._folder = weights_folder(entry)
        self._model: LlamaModel | None = None
        self._tokenizer: Tokenizer | None = None
        self._threads: ThreadPoolExecutor | None = None
        self._counted: dict[str, list[int]] = {}

    @property
    def window_tokens(self) -> int | None:
        """The smaller of the weights' and the entry's window."""
        return _window(self._entry, self._folder)

    async def start(self) -> None:
        """Load weights and tokenizer (some 50 ms)."""
        from threadpoolctl import threadpool_limits
        from tokenizers import Tokenizer

        from contextcliff_dagster.inference.engines.numpy_llama import LlamaModel

        try:
            self._model = LlamaModel.load(self._folder)
            self._tokenizer = Tokenizer.from_file(str(self._folder / "tokenizer.json"))
        except Exception as error:
            raise EngineError(
                f"Model {self._entry.name!r}: {self._folder} cannot be loaded ({error}); "
                "reinstall the weights."
            ) from error
        end = self._tokenizer.token_to_id(END)
        if end is None:
            raise EngineError(
                f"Model {self._entry.name!r}: the tokenizer in {self._folder} has no {END} "
                "token; use other weights."
            )
        self._end = end
        # Matrices this small are not worth sharing out: on two busy cores OpenBLAS's own threads
        # wait for each other, and 5,900 tokens take 11 s instead of 1.
        self._one_thread = threadpool_limits(1, user_api="blas")
        self._threads = ThreadPoolExecutor(
            self._entry.concurrency, thread_name_prefix="reference-engine"
        )

    async def stop(self) -> None:
        """Let the worker threads go."""
        if self._threads is not None:
            self._threads.shutdown(wait=True, cancel_futures=True)
            self._threads = None
            self._one_thread.restore_original_limits()
        self._model = None

    def identity(self) -> Identity:
        """Weights, configuration, tokenizer and template by hash."""
        return Identity(reference_identity(self._entry))

    async def count_prompt_tokens(self, prompt: Prompt) -> PromptCount | None:
        """Exact: the prompt is tokenised as it will be read."""
        ids = self.encode(prompt)
        if len(self._counted) > 2 * self._entry.concurrency + 8:
            self._counted.clear()  # calls that were counted and never sent
        self._counted[prompt.hash] = ids
        return PromptCount(len(ids))

    def encode(self, prompt: Prompt) -> list[int]:
        """Token ids of the prompt under the model's chat template."""
        ids: list[int] = self._encoding(prompt).ids
        return ids

    def _encoding(self, prompt: Prompt) -> Encoding:
        assert self._tokenizer is not None, "start() comes first"
        return self._tokenizer.encode(_render(prompt), add_special_tokens=False)

    def stream(self, prompt: Prompt, decoding: Decoding) -> AsyncIterator[Delta]:
        """Greedy tokens as they come."""
        assert self._threads is not None, "start() comes first"
        return stream_from(self._threads, lambda: self._generate(prompt, decoding))

    def _generate(self, prompt: Prompt, decoding: Decoding) -> Iterator[Delta]:
        assert self._model is not None
        assert self._tokenizer is not None
        ids = self._counted.pop(prompt.hash, None) or self.encode(prompt)
        limit = decoding.max_output_tokens
        attention = None
        if decoding.attention:
            offsets = self._encoding(prompt).offsets if prompt.evidence else []
            attention = LastAttention(len(ids), evidence_tokens(prompt, _render, offsets))
        watch = None if attention is None else attention.add
        tokens = self._model.generate(ids, limit, {self._end}, watch)
        pieces = text_pieces(tokens, self._tokenizer.decode, len(ids), limit)
        return attention.with_pieces(pieces) if attention else pieces


def _render(prompt: Prompt) -> str:
    """The prompt's text under the reference models' chat template."""
    if prompt.mode == "completion":
        return prompt.text
    return render_chat(prompt.as_dicts(), continue_final=prompt.mode == "chat_prefill")
