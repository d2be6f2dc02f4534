"""An engine for the reference models: a Llama decoder in NumPy, run in this process.

The decoder reads safetensors and yields greedy tokens, one at a time. It is small on purpose: it
needs no torch, starts in milliseconds, and belongs to the instrument's own standard, so it is
tested token for token against `transformers`. It reads any `model_type: llama` checkpoint with
plain RoPE (grouped-query attention and untied heads included); arithmetic is float32.

Memory stays flat over long prompts: queries are processed in blocks, only keys and values are kept
for the whole prompt, and the last layer and the vocabulary are computed only for the last position.

Generation runs in worker threads, so tokens arrive one by one while the event loop stays free, and
the time to the first token is the model's own. The chat template is that of the weights' tokenizer,
rendered without Jinja.
"""

from __future__ import annotations

import json
import math
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from contextcliff_dagster.contracts import EngineError
from contextcliff_dagster.inference.engines.attention import LastAttention, evidence_tokens
from contextcliff_dagster.inference.engines.base import (
    Decoding,
    Delta,
    NoEmbeddings,
    PromptCount,
    stream_from,
    text_pieces,
)
from contextcliff_dagster.inference.models.entry import Identity
from contextcliff_dagster.inference.models.models_file import ModelEntry
from contextcliff_dagster.inference.requests.recipe import Prompt
from contextcliff_dagster.inference.weights import file_sha256
from contextcliff_dagster.reference.card import REFERENCE_MODELS, weights_path
from contextcliff_dagster.reference.tokenizer import END, render_chat

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer

Array = NDArray[np.float32]
Watch = Callable[[Array], None]
"""Callback that gets the last token's attention (heads, tokens so far) layer by layer; the
weights of each head are proportional, not normalised."""

QUERY_BLOCK = 128
"""Queries per block: scores are (heads, block, keys so far), 16 MB at 8,192 keys."""
NEGLIGIBLE = np.float32(-80.0)
"""Lowest score relative to the maximum: exp(-80) vanishes in a float32 sum, while the denormal
numbers further down slow a CPU several times over."""


@dataclass(frozen=True, slots=True)
class LlamaConfig:
    """Fields of config.json that the arithmetic needs."""

    vocab_size: int
    hidden_size: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    window: int
    norm_eps: float
    rope_theta: float
    tied: bool

    @classmethod
    def load(cls, path: Path) -> LlamaConfig:
        """Read config.json. Raises ValueError for an architecture that is not a plain Llama."""
        raw = json.loads(path.read_text())
        rope = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
        scaling = rope.get("rope_type", "default")
        if raw.get("model_type") != "llama" or scaling != "default" or raw.get("attention_bias"):
            raise ValueError(
                f"{path} is not a plain Llama (model_type llama, default RoPE, no biases); "
                "serve such a model with vLLM or another OpenAI-compatible server."
            )
        heads = int(raw["num_attention_heads"])
        return cls(
            vocab_size=int(raw["vocab_size"]),
            hidden_size=int(raw["hidden_size"]),
            layers=int(raw["num_hidden_layers"]),
            heads=heads,
            kv_heads=int(raw.get("num_key_value_heads") or heads),
            head_dim=int(raw.get("head_dim") or raw["hidden_size"] // heads),
            window=int(raw["max_position_embeddings"]),
            norm_eps=float(raw["rms_norm_eps"]),
            rope_theta=float(rope.get("rope_theta") or raw.get("rope_theta") or 10_000.0),
            tied=bool(raw.get("tie_word_embeddings", False)),
        )


_PROJECTIONS = (
    *("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj"),
    *("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"),
)
_NORMS = ("input_layernorm", "post_attention_layernorm")


class LlamaModel:
    """Llama weights, read-only; `generate` may run in several threads at once."""

    def __init__(self, config: LlamaConfig, tensors: dict[str, NDArray[np.floating]]) -> None:
        """Copy a checkpoint's tensors. Raises ValueError if one is missing."""
        self.config = config

        def read(name: str) -> Array:
            if name not in tensors:
                raise ValueError(f"The weights have no tensor {name}.")
            return tensors[name].astype(np.float32)

        self._embedding = read("model.embed_tokens.weight")
        self._head = self._embedding if config.tied else read("lm_head.weight")
        self._norm = read("model.norm.weight")
        self._layers: list[dict[str, Array]] = []
        for n in range(config.layers):
            layer = {name: read(f"model.layers.{n}.{name}.weight") for name in _NORMS}
            for name in _PROJECTIONS:  # transposed to (in, out)
                layer[name] = np.ascontiguousarray(read(f"model.layers.{n}.{name}.weight").T)
            self._layers.append(layer)
        exponent = np.arange(0, config.head_dim, 2, dtype=np.float32) / config.head_dim
        self._frequency = (1.0 / config.rope_theta**exponent).astype(np.float32)

    @classmethod
    def load(cls, path: str | Path) -> LlamaModel:
        """Read `config.json` and `model.safetensors` from a folder.

        Raises FileNotFoundError if one is missing, ValueError if they are not a plain Llama.
        """
        from safetensors.numpy import load_file

        folder = Path(path)
        config = LlamaConfig.load(folder / "config.json")
        return cls(config, load_file(folder / "model.safetensors"))

    def generate(
        self,
        prompt_ids: Sequence[int],
        max_new_tokens: int,
        stop_ids: Collection[int],
        watch: Watch | None = None,
    ) -> Iterator[int]:
        """Yield the greedy answer to a prompt, each token as soon as it is known.

        ``watch`` receives the attention of the prompt's last token.

        Ends before the first of `stop_ids` (which is not yielded), after `max_new_tokens`, or at
        the end of the window. Raises ValueError for an empty prompt, a token id outside the
        vocabulary, or a prompt that leaves no room in the window; nothing is ever cut.
        """
        ids = np.asarray(prompt_ids, dtype=np.int64)
        window = self.config.window
        if ids.size == 0:
            raise ValueError("The prompt is empty.")
        if ids.size >= window:
            raise ValueError(f"The prompt has {ids.size} tokens; the model's window is {window}.")
        if ids.min() < 0 or ids.max() >= self.config.vocab_size:
            raise ValueError(f"Token ids run from 0 to {self.config.vocab_size - 1}.")
        return self._generate(ids, min(max_new_tokens, window - ids.size), stop_ids, watch)

    def _generate(
        self, ids: NDArray[np.int64], room: int, stop: Collection[int], watch: Watch | None
    ) -> Iterator[int]:
        cache = self.new_cache(ids.size + room)
        start = 0
        for _ in range(room):
            token = int(self._logits(ids, start, cache, watch).argmax())
            watch = None
            if token in stop:
                return
            yield token
            start += ids.size
            ids = np.array([token])

    def new_cache(self, capacity: int) -> Array:
        """Return empty space for keys and values: (layers, 2, kv_heads, capacity, head_dim)."""
        c = self.config
        return np.empty((c.layers, 2, c.kv_heads, capacity, c.head_dim), np.float32)

    def _logits(
        self, ids: NDArray[np.int64], start: int, cache: Array, watch: Watch | None = None
    ) -> Array:
        """Return logits (vocabulary,) after the tokens `ids`, whose positions begin at `start`."""
        x = self._embedding[ids]
        position = np.arange(start, start + ids.size, dtype=np.float32)
        angle = position[:, None] * self._frequency
        rotation = np.cos(angle), np.sin(angle)
        for n, layer in enumerate(self._layers):
            h = self._rms_norm(x, layer["input_layernorm"])
            keys, values = cache[n]
            end = start + ids.size
            keys[:, start:end] = self._rotate(self._split(h @ layer["self_attn.k_proj"]), rotation)
            values[:, start:end] = self._split(h @ layer["self_attn.v_proj"])
            # Of the last layer, only the last position is ever read.
            first = ids.size - 1 if n == len(self._layers) - 1 else 0
            out = np.empty_like(x[first:])
            for low in range(first, ids.size, QUERY_BLOCK):
                rows = slice(low, min(low + QUERY_BLOCK, ids.size))
                query = self._split(h[rows] @ layer["self_attn.q_proj"])
                query = self._rotate(query, (rotation[0][rows], rotation[1][rows]))
                seen = start + rows.stop
                if watch is not None and rows.stop == ids.size:
                    watch(self._weights(query[:, -1:], keys[:, :seen]).reshape(-1, seen))
                attended = self._attend(query, keys[:, :seen], values[:, :seen])
                out[low - first : rows.stop - first] = self._finish(x[rows], attended, layer)
            x = out
        logits: Array = self._head @ self._rms_norm(x[-1], self._norm)
        return logits

    def _attend(self, query: Array, keys: Array, values: Array) -> Array:
        """Return causal attention (q, heads * head_dim) of the last q positions to all."""
        heads, q, width = query.shape
        scores = self._weights(query, keys)
        attended: Array = scores @ values
        attended /= scores.sum(axis=-1, keepdims=True)
        by_position = attended.reshape(heads, q, width).transpose(1, 0, 2)
        result: Array = by_position.reshape(q, heads * width)
        return result

    def _weights(self, query: Array, keys: Array) -> Array:
        """Return unnormalised attention weights (kv_heads, group * q, positions)."""
        heads, q, width = query.shape
        seen = keys.shape[1]
        group = heads // self.config.kv_heads
        stacked = query.reshape(self.config.kv_heads, group * q, width)
        stacked = stacked * np.float32(1 / math.sqrt(width))
        scores: Array = stacked @ keys.transpose(0, 2, 1)
        if q > 1:
            future = np.triu(np.full((q, q), -np.inf, np.float32), 1)
            scores.reshape(heads, q, seen)[:, :, seen - q :] += future
        scores -= scores.max(axis=-1, keepdims=True)
        np.maximum(scores, NEGLIGIBLE, out=scores)
        np.exp(scores, out=scores)
        return scores

    def _finish(self, x: Array, attended: Array, layer: dict[str, Array]) -> Array:
        """Apply the output projection, the residual and the SwiGLU feed-forward."""
        x = x + attended @ layer["self_attn.o_proj"]
        h = self._rms_norm(x, layer["post_attention_layernorm"])
        gate = h @ layer["mlp.gate_proj"]
        # Uses exp(-|gate|) so that no large gate overflows.
        small = np.exp(-np.abs(gate))
        sigmoid = np.where(gate >= 0, np.float32(1), small) / (1 + small)
        result: Array = x + (gate * sigmoid * (h @ layer["mlp.up_proj"])) @ layer["mlp.down_proj"]
        return result

    def _rms_norm(self, x: Array, weight: Array) -> Array:
        mean_square = np.mean(x * x, axis=-1, keepdims=True)
        result: Array = x / np.sqrt(mean_square + np.float32(self.config.norm_eps)) * weight
        return result

    def _split(self, x: Array) -> Array:
        """Reshape (q, heads * head_dim) to (heads, q, head_dim)."""
        return x.reshape(x.shape[0], -1, self.config.head_dim).transpose(1, 0, 2)

    @staticmethod
    def _rotate(x: Array, rotation: tuple[Array, Array]) -> Array:
        """Return x (heads, q, head_dim) with its rotary positions."""
        cos, sin = rotation
        half = x.shape[-1] // 2
        first, second = x[..., :half], x[..., half:]
        return np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


RUNTIME = "numpy-llama/1"
"""Runtime version in the identity; increase it when a change in arithmetic changes an answer."""


def weights_folder(entry: ModelEntry) -> Path:
    """Return the folder with config, weights and tokenizer. Raises EngineError if incomplete."""
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
    """Return hashes of all files that decide the answers; load nothing."""
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
    """An engine (see `base.Engine`) that runs each concurrent call in its own thread."""

    def __init__(self, entry: ModelEntry) -> None:
        self._entry = entry
        self._folder = weights_folder(entry)
        self._model: LlamaModel | None = None
        self._tokenizer: Tokenizer | None = None
        self._threads: ThreadPoolExecutor | None = None
        self._counted: dict[str, list[int]] = {}

    @property
    def window_tokens(self) -> int | None:
        """The smaller of the weights' and the entry's windows."""
        return _window(self._entry, self._folder)

    async def start(self) -> None:
        """Load the weights and the tokenizer (about 50 ms)."""
        from threadpoolctl import threadpool_limits
        from tokenizers import Tokenizer

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
        # Matrices this small gain nothing from threads: on two busy cores OpenBLAS's threads
        # wait for each other, and 5,900 tokens take 11 s instead of 1.
        self._one_thread = threadpool_limits(1, user_api="blas")
        self._threads = ThreadPoolExecutor(
            self._entry.concurrency, thread_name_prefix="reference-engine"
        )

    async def stop(self) -> None:
        if self._threads is not None:
            self._threads.shutdown(wait=True, cancel_futures=True)
            self._threads = None
            self._one_thread.restore_original_limits()
        self._model = None

    def identity(self) -> Identity:
        """Return hashes of weights, configuration, tokenizer and template."""
        return Identity(reference_identity(self._entry))

    async def count_prompt_tokens(self, prompt: Prompt) -> PromptCount | None:
        ids = self.encode(prompt)
        if len(self._counted) > 2 * self._entry.concurrency + 8:
            self._counted.clear()  # calls that were counted and never sent
        self._counted[prompt.hash] = ids
        return PromptCount(len(ids))

    def encode(self, prompt: Prompt) -> list[int]:
        """Return the prompt's token ids under the model's chat template."""
        ids: list[int] = self._encoding(prompt).ids
        return ids

    def _encoding(self, prompt: Prompt) -> Encoding:
        assert self._tokenizer is not None, "start() comes first"
        return self._tokenizer.encode(_render(prompt), add_special_tokens=False)

    def stream(self, prompt: Prompt, decoding: Decoding) -> AsyncIterator[Delta]:
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
    """Return the prompt's text under the reference models' chat template."""
    if prompt.mode == "completion":
        return prompt.text
    return render_chat(prompt.as_dicts(), continue_final=prompt.mode == "chat_prefill")
