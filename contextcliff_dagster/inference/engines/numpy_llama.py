"""A Llama decoder in NumPy: safetensors in, greedy tokens out, one at a time.

Small on purpose: it runs the reference models without torch, starts in milliseconds, and is part
of the instrument's own standard, so it is tested token for token against `transformers`. It reads
any `model_type: llama` checkpoint with plain RoPE (grouped-query attention and untied heads
included); arithmetic is float32.

Memory stays flat over long prompts: queries go through in blocks, only keys and values are kept
for the whole prompt, and the last layer and the vocabulary are computed for the last position
alone.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]
Watch = Callable[[Array], None]
"""Gets the last token's attention (heads, tokens so far) of one layer after the other; each head's
weights are in proportion, not normalised."""

QUERY_BLOCK = 128
"""Queries attended at once: scores are (heads, block, keys so far), 16 MB at 8,192 keys."""
NEGLIGIBLE = np.float32(-80.0)
"""Scores this far below the maximum are raised to it: exp(-80) vanishes in a float32 sum, while the
denormal numbers further down slow a CPU several times over."""


@dataclass(frozen=True, slots=True)
class LlamaConfig:
    """The fields of config.json that the arithmetic needs."""

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
    """Read-only weights; `generate` may run in several threads at once."""

    def __init__(self, config: LlamaConfig, tensors: dict[str, NDArray[np.floating]]) -> None:
        """Take over a checkpoint's tensors. Raises ValueError where one is missing."""
        self.config = config

        def read(name: str) -> Array:
            if name not in tensors:
                raise ValueError(f"The weights hold no tensor {name}.")
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

        Raises FileNotFoundError where one is missing, ValueError where they are not a plain Llama.
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
        """The greedy answer to a prompt, each token yielded as soon as it is known.

        ``watch`` gets where the prompt's last token attends.

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
        """Room for keys and values: (layers, 2, kv_heads, capacity, head_dim)."""
        c = self.config
        return np.empty((c.layers, 2, c.kv_heads, capacity, c.head_dim), np.float32)

    def _logits(
        self, ids: NDArray[np.int64], start: int, cache: Array, watch: Watch | None = None
    ) -> Array:
        """Logits (vocabulary,) after the tokens `ids`, whose positions begin at `start`."""
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
            # Of the last layer nothing but the last position is ever read.
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
        """Causal attention (q, heads * head_dim) of the last q positions to all positions."""
        heads, q, width = query.shape
        scores = self._weights(query, keys)
        attended: Array = scores @ values
        attended /= scores.sum(axis=-1, keepdims=True)
        by_position = attended.reshape(heads, q, width).transpose(1, 0, 2)
        result: Array = by_position.reshape(q, heads * width)
        return result

    def _weights(self, query: Array, keys: Array) -> Array:
        """Attention weights (kv_heads, group * q, positions) before they are normalised."""
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
        """Output projection, residual and SwiGLU feed-forward."""
        x = x + attended @ layer["self_attn.o_proj"]
        h = self._rms_norm(x, layer["post_attention_layernorm"])
        gate = h @ layer["mlp.gate_proj"]
        # Written over exp(-|gate|) so that no large gate overflows.
        small = np.exp(-np.abs(gate))
        sigmoid = np.where(gate >= 0, np.float32(1), small) / (1 + small)
        result: Array = x + (gate * sigmoid * (h @ layer["mlp.up_proj"])) @ layer["mlp.down_proj"]
        return result

    def _rms_norm(self, x: Array, weight: Array) -> Array:
        mean_square = np.mean(x * x, axis=-1, keepdims=True)
        result: Array = x / np.sqrt(mean_square + np.float32(self.config.norm_eps)) * weight
        return result

    def _split(self, x: Array) -> Array:
        """(q, heads * head_dim) -> (heads, q, head_dim)."""
        return x.reshape(x.shape[0], -1, self.config.head_dim).transpose(1, 0, 2)

    @staticmethod
    def _rotate(x: Array, rotation: tuple[Array, Array]) -> Array:
        """Rotary position of x (heads, q, head_dim)."""
        cos, sin = rotation
        half = x.shape[-1] // 2
        first, second = x[..., :half], x[..., half:]
        return np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)
