"""Reading a text with a model, scoring its KV cache entries, and keeping the best of them.

This runs in the worker's environment: torch, transformers and kvpress, and nothing else.
"""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import kvpress
import torch
from kvpress.utils import get_prerope_query_states
from transformers import DynamicCache
from transformers.models.llama.modeling_llama import rotate_half

LONGEST_WINDOW = 64
SINKS = 4
SCORED_WHILE_READING = ("h2o", "expected_attention")
"""Policies whose scores need values from inside the layer but do not depend on the budget."""
BLOCK_BYTES = {"cpu": 8 << 20, "cuda": 256 << 20}
"""Memory for one block of h2o's attention sums, in 32-bit numbers: small enough for a CPU's cache,
large enough to keep a GPU busy."""


class CancelledError(Exception):
    """Raised if nobody waits for the answer any more."""


@dataclass
class Read:
    """The cache entries of a text that was read, and the scores of these entries.

    ``layers``: (keys, values) of each layer, (1, heads, tokens, size); ``tails``: hidden states of
    the last tokens before each layer; ``place``: their rotations; ``scores``: by policy, the scores
    of each layer's entries (1, heads, tokens). ``read_ms`` excludes ``score_ms``.
    """

    layers: list[tuple[torch.Tensor, torch.Tensor]] = field(default_factory=list)
    tails: list[torch.Tensor] = field(default_factory=list)
    place: tuple[torch.Tensor, ...] = ()
    scores: dict[str, list[torch.Tensor]] = field(default_factory=dict)
    read_ms: float = 0.0
    score_ms: dict[str, float] = field(default_factory=dict)
    peak_bytes: int = 0

    @property
    def tokens(self) -> int:
        return int(self.layers[0][0].shape[2])

    @property
    def size_bytes(self) -> int:
        return sum(t.numel() * t.element_size() for t in self.tensors().values())

    def tensors(self) -> dict[str, torch.Tensor]:
        by_layer = {
            "keys": [keys for keys, _ in self.layers],
            "values": [values for _, values in self.layers],
            "tails": self.tails,
            "place": self.place,
            **{f"score {policy}": scores for policy, scores in self.scores.items()},
        }
        return {f"{name}/{n}": t for name, ts in by_layer.items() for n, t in enumerate(ts)}

    def about(self) -> dict[str, Any]:
        """Return the values that are not tensors, ready for JSON."""
        return {name: getattr(self, name) for name in ("read_ms", "score_ms", "peak_bytes")}

    @classmethod
    def of_tensors(cls, tensors: Mapping[str, torch.Tensor], about: Mapping[str, Any]) -> Read:
        """Rebuild a Read from `tensors` and `about`; raise an error if something is missing."""

        def all_of(name: str) -> list[torch.Tensor]:
            return [
                tensors[f"{name}/{n}"]
                for n in range(sum(k.startswith(f"{name}/") for k in tensors))
            ]

        return cls(
            list(zip(all_of("keys"), all_of("values"), strict=True)),
            all_of("tails"),
            tuple(all_of("place")),
            {policy: all_of(f"score {policy}") for policy in about["score_ms"]},
            **about,
        )


class Reader:
    """A model whose layers are scored and timed while they read."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._attentions = [layer.self_attn for layer in model.model.layers]
        for attention in self._attentions:  # expected attention rotates queries of later positions
            attention.rotary_emb = model.model.rotary_emb

    def read(self, ids: list[int], scored: Collection[str], cancelled: Callable[[], bool]) -> Read:
        """Return the entries of ``ids``, scored for ``scored``. Raises CancelledError."""
        started = self.now_ms()
        cache = DynamicCache()
        read = Read(scores={p: [] for p in scored}, score_ms=dict.fromkeys(scored, 0.0))
        with self._watched(read, cancelled), torch.inference_mode():
            tokens = torch.tensor([ids], device=self._model.device)
            self._model.model(tokens, past_key_values=cache, use_cache=True)
        read.layers = [(layer.keys, layer.values) for layer in cache.layers]
        read.read_ms = self.now_ms() - started - sum(read.score_ms.values())
        return read

    def now_ms(self) -> float:
        """Return the time in ms, after all pending work on the device has ended."""
        if self._model.device.type == "cuda":
            torch.cuda.synchronize()
        return 1e3 * time.perf_counter()

    @contextmanager
    def _watched(self, read: Read, cancelled: Callable[[], bool]) -> Iterator[None]:
        """Score each layer as it is read, and stop at that layer if the request is cancelled."""

        def after(module: Any, _: Any, kwargs: dict[str, Any], __: Any) -> None:
            if cancelled():
                raise CancelledError
            hidden = kwargs["hidden_states"]
            last = LONGEST_WINDOW + 1  # kvpress wants more states than SnapKV's window has
            read.tails.append(hidden[:, -last:].clone())
            read.place = tuple(t[:, -last:].clone() for t in kwargs["position_embeddings"])
            layer = kwargs["past_key_values"].layers[module.layer_idx]
            for policy, scores in read.scores.items():
                started = self.now_ms()
                if policy == "h2o":
                    score = mean_attention(module, hidden, layer.keys, kwargs)
                else:
                    press = kvpress.ExpectedAttentionPress()
                    press.n_sink = min(SINKS, hidden.shape[1] // 2)
                    score = press.score(module, hidden, layer.keys, layer.values, None, kwargs)
                scores.append(score)
                read.score_ms[policy] += self.now_ms() - started

        hooks = [a.register_forward_hook(after, with_kwargs=True) for a in self._attentions]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def press(self, read: Read, ids: list[int], policy: str, kept: int) -> tuple[DynamicCache, int]:
        """Return a cache with each head's ``kept`` best entries, and SnapKV's window (else 0)."""
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
            return read.scores[policy][n]
        keys, values = read.layers[n]
        hidden, kwargs = None, {}
        if policy == "snapkv":
            press = kvpress.SnapKVPress(window_size=window)
            hidden, kwargs["position_embeddings"] = read.tails[n], read.place
        elif policy == "tova":
            press = kvpress.TOVAPress()
            hidden, kwargs["position_embeddings"] = read.tails[n], read.place
        elif policy == "streaming_llm":
            # Half an entry more, so that its rounding down ends at ``kept``.
            ratio = 1 - (kept + 0.5) / read.tokens
            press = kvpress.StreamingLLMPress(max(0.0, ratio), min(SINKS, kept))
        elif policy == "random":
            # As `kvpress.RandomPress`, but drawn on the CPU: the same entries on every device.
            seed = zlib.crc32(json.dumps(ids).encode()) + n
            drawn = torch.rand(*keys.shape[:-1], generator=torch.Generator().manual_seed(seed))
            return drawn.to(keys.device)
        else:
            press = kvpress.KnormPress()
        return press.score(self._attentions[n], hidden, keys, values, None, kwargs)


def mean_attention(
    module: Any, hidden: torch.Tensor, keys: torch.Tensor, kwargs: Mapping[str, Any]
) -> torch.Tensor:
    """Return each entry's mean attention from itself and later tokens (1, key heads, tokens).

    `kvpress.ObservedAttentionPress` stores the attention between all pairs of tokens. This handles
    a few tokens at a time, so memory grows linearly with the length, not quadratically.
    """
    tokens, heads = keys.shape[2], module.config.num_attention_heads
    rows = max(1, BLOCK_BYTES[keys.device.type] // (4 * heads * tokens))
    sums = torch.zeros(1, heads, tokens, device=keys.device)
    for start in range(0, tokens, rows):
        stop = min(start + rows, tokens)
        cos, sin = (t[:, start:stop].unsqueeze(1) for t in kwargs["position_embeddings"])
        queries = get_prerope_query_states(module, hidden[:, start:stop])
        queries = queries * cos + rotate_half(queries) * sin
        grouped = queries.reshape(1, keys.shape[1], -1, queries.shape[-1])
        weights = grouped @ keys[:, :, :stop].transpose(2, 3) * module.scaling
        weights = weights.view(1, heads, stop - start, stop)
        later = torch.ones(stop - start, stop - start, device=keys.device).triu(1).bool()
        weights[..., start:].masked_fill_(later, float("-inf"))
        sums[..., :stop] += weights.softmax(-1, torch.float32).sum(2)
    means = sums / torch.arange(tokens, 0, -1, device=keys.device)
    return means.view(1, keys.shape[1], -1, tokens).mean(2)
