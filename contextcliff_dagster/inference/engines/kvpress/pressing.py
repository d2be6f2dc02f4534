"""Reading a text with a model, scoring the entries of its KV cache, and keeping the best of them.

It runs in the worker's environment: torch, transformers and kvpress, and nothing else.
"""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import kvpress
import torch
from transformers import DynamicCache

LONGEST_WINDOW = 64
SINKS = 4
SCORED_WHILE_READING = {
    "h2o": kvpress.ObservedAttentionPress,
    "tova": kvpress.TOVAPress,
    "expected_attention": kvpress.ExpectedAttentionPress,
}
"""Policies whose scores need what the layer computes on the way, but not the budget."""


class CancelledError(Exception):
    """Nobody waits for the answer any more."""


@dataclass
class Read:
    """A text that was read under one policy.

    ``layers``: (keys, values) of each layer, (1, heads, tokens, size); ``scores`` of their entries
    (1, heads, tokens); ``tails``: hidden states and rotations of the last tokens, for SnapKV.
    """

    layers: list[tuple[torch.Tensor, torch.Tensor]]
    read_ms: float
    scores: dict[int, torch.Tensor] = field(default_factory=dict)
    tails: dict[int, tuple[torch.Tensor, Any]] = field(default_factory=dict)

    @property
    def tokens(self) -> int:
        """Tokens that were read."""
        return int(self.layers[0][0].shape[2])

    @property
    def size_bytes(self) -> int:
        """Memory of keys and values."""
        return sum(t.numel() * t.element_size() for layer in self.layers for t in layer)


class Reader:
    """A model's layers, and what is measured of them while they read."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._attentions = [layer.self_attn for layer in model.model.layers]
        for attention in self._attentions:  # expected attention rotates queries of later positions
            attention.rotary_emb = model.model.rotary_emb

    def read(self, ids: list[int], policy: str, cancelled: Callable[[], bool]) -> Read:
        """The entries of ``ids``, scored for ``policy``. Raises CancelledError."""
        started = time.perf_counter()
        cache = DynamicCache()
        read = Read([], 0.0)
        with self._watched(read, policy, cancelled), torch.inference_mode():
            given = torch.tensor([ids], device=self._model.device)
            self._model.model(given, past_key_values=cache, use_cache=True)
        read.layers = [(layer.keys, layer.values) for layer in cache.layers]
        read.read_ms = 1e3 * (time.perf_counter() - started)
        return read

    @contextmanager
    def _watched(self, read: Read, policy: str, cancelled: Callable[[], bool]) -> Iterator[None]:
        """Each layer is scored as it is read, and a cancelled request ends there."""

        def after(module: Any, _: Any, kwargs: dict[str, Any], output: Any) -> None:
            if cancelled():
                raise CancelledError
            n, hidden, place = module.layer_idx, kwargs["hidden_states"], kwargs
            if policy == "snapkv":
                cos, sin = place["position_embeddings"]
                last = LONGEST_WINDOW + 1  # kvpress wants more states than its window has
                read.tails[n] = hidden[:, -last:].clone(), (cos[:, -last:], sin[:, -last:])
            elif policy in SCORED_WHILE_READING:
                press = SCORED_WHILE_READING[policy]()
                if policy == "expected_attention":
                    press.n_sink = min(SINKS, hidden.shape[1] // 2)
                layer = place["past_key_values"].layers[n]
                seen = output[1] if policy == "h2o" else None
                read.scores[n] = press.score(module, hidden, layer.keys, layer.values, seen, kwargs)

        hooks = [a.register_forward_hook(after, with_kwargs=True) for a in self._attentions]
        self._model.set_attn_implementation("eager" if policy == "h2o" else "sdpa")
        try:
            yield
        finally:
            self._model.set_attn_implementation("sdpa")
            for hook in hooks:
                hook.remove()

    def press(self, read: Read, ids: list[int], policy: str, kept: int) -> tuple[DynamicCache, int]:
        """A cache of the ``kept`` best entries of each head, and SnapKV's window (0 for others)."""
        cache, window = DynamicCache(), 0
        for n, (keys, values) in enumerate(read.layers):
            if kept < read.tokens:
                if policy == "snapkv":
                    window = max(1, min(LONGEST_WINDOW, read.tokens // 8, kept // 2))
                scores = self._scores(read, ids, policy, kept, n, window)
                best = scores.topk(kept, dim=-1).indices.sort(dim=-1).values
                index = best.unsqueeze(-1).expand(-1, -1, -1, keys.shape[-1])
                keys, values = keys.gather(2, index), values.gather(2, index)
            cache.update(keys, values, n)
        return cache, window

    def _scores(
        self, read: Read, ids: list[int], policy: str, kept: int, n: int, window: int
    ) -> torch.Tensor:
        if policy in SCORED_WHILE_READING:
            return read.scores[n]
        keys, values = read.layers[n]
        hidden, kwargs = None, {}
        if policy == "snapkv":
            press = kvpress.SnapKVPress(window_size=window)
            hidden, kwargs["position_embeddings"] = read.tails[n]
        elif policy == "streaming_llm":
            # Half an entry more, so that its rounding down ends at ``kept``.
            ratio = 1 - (kept + 0.5) / read.tokens
            press = kvpress.StreamingLLMPress(max(0.0, ratio), min(SINKS, kept))
        elif policy == "random":
            seed = zlib.crc32(json.dumps(ids).encode()) + n
            press = kvpress.RandomPress(seed=seed)
        else:
            press = kvpress.KnormPress()
        return press.score(self._attentions[n], hidden, keys, values, None, kwargs)
