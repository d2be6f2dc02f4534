"""Memory and times of a whole KV cache, by the model's shape and the times of an answer's pieces.

For engines that press nothing: what they add to `results.extra` has the names of engine `kvpress`,
so that caches of different types, and pressed ones, are compared alike.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any, NamedTuple

from contextcliff_dagster.inference.engines.base import Delta, Timing, Usage
from contextcliff_dagster.inference.requests.outcome import Scalar

_BYTES = {
    **dict.fromkeys(("f32", "float32", "float"), 4.0),
    **dict.fromkeys(("f16", "bf16", "float16", "bfloat16", "half"), 2.0),
    **dict.fromkeys(("fp8", "fp8_e4m3", "fp8_e5m2"), 1.0),
    # llama.cpp: 32 numbers with a scale of 16 bits, those ending in 1 with a smallest value, too.
    "q8_0": 34 / 32,
    "q5_1": 24 / 32,
    "q5_0": 22 / 32,
    "q4_1": 20 / 32,
    "q4_0": 18 / 32,
}
"""Of one number, by the type's name in llama.cpp or vLLM."""
_READ_ANEW = 0.9
"""Share of a prompt that was not in the cache, from which its time is that of reading all of it."""


class CacheShape(NamedTuple):
    """Numbers that a token has in the cache: of each layer and head a key and a value."""

    layers: int
    heads: int
    key_size: int
    value_size: int

    def token_bytes(self, key_type: str, value_type: str) -> float | None:
        """Bytes of a token; None for a type that is not known."""
        if key_type not in _BYTES or value_type not in _BYTES:
            return None
        sizes = self.key_size * _BYTES[key_type] + self.value_size * _BYTES[value_type]
        return self.layers * self.heads * sizes


def gguf_shape(header: Mapping[str, Any]) -> CacheShape | None:
    """From a GGUF file's header; None where layers differ, or see a sliding window alone."""
    kind = header.get("general.architecture")

    def number(name: str) -> Any:
        return header.get(f"{kind}.{name}")

    if number("attention.sliding_window"):
        return None
    return _shape(
        number("block_count"),
        number("attention.head_count_kv"),
        number("attention.key_length"),
        number("attention.value_length"),
        (number("embedding_length"), number("attention.head_count")),
    )


def config_shape(config: Mapping[str, Any]) -> CacheShape | None:
    """From a config.json, likewise."""
    kinds = set(config.get("layer_types") or ["full_attention"])
    if kinds != {"full_attention"} or config.get("kv_lora_rank"):
        return None
    size, heads = config.get("head_dim"), config.get("num_attention_heads")
    return _shape(
        config.get("num_hidden_layers"),
        config.get("num_key_value_heads") or heads,
        size,
        size,
        (config.get("hidden_size"), heads),
    )


def _shape(
    layers: Any, kv_heads: Any, key_size: Any, value_size: Any, width: tuple[Any, Any]
) -> CacheShape | None:
    if isinstance(width[0], int) and isinstance(width[1], int) and width[1] > 0:
        key_size, value_size = key_size or width[0] // width[1], value_size or width[0] // width[1]
    numbers = layers, kv_heads, key_size, value_size
    return CacheShape(*numbers) if all(type(n) is int and n > 0 for n in numbers) else None


async def with_cache_figures(
    pieces: AsyncIterator[Delta], token_bytes: float | None
) -> AsyncIterator[Delta]:
    """The pieces of an answer, and a last one with what its KV cache took.

    ``kv_tokens`` and ``kv_kept``: tokens of the prompt; ``kv_bytes``: their memory, where the bytes
    of a token are known; ``kv_ttft_ms``; ``kv_prefill_ms``: the same, where the prompt was not in
    the cache; ``kv_decode_ms``: of each further token.
    """
    started = ended = time.perf_counter()
    times: list[float] = []
    usage: Usage | None = None
    timing: Timing | None = None
    async with aclosing(pieces):  # type: ignore[type-var]
        async for piece in pieces:
            ended = piece.at or time.perf_counter()
            if (piece.text or piece.reasoning) and not piece.whole:
                times.append(ended)
            usage, timing = piece.usage or usage, piece.timing or timing
            yield piece
    if usage is None or usage.prompt_tokens is None:
        return
    read = usage.prompt_tokens
    extra: dict[str, Scalar] = {"kv_tokens": read, "kv_kept": read}
    if token_bytes is not None:
        extra["kv_bytes"] = round(token_bytes * read)
    if times:
        extra["kv_ttft_ms"] = ttft = timing.ttft_ms if timing else 1e3 * (times[0] - started)
        if usage.cached_tokens is not None and usage.cached_tokens <= (1 - _READ_ANEW) * read:
            extra["kv_prefill_ms"] = ttft
        if usage.completion_tokens and usage.completion_tokens > 1 and len(times) > 1:
            extra["kv_decode_ms"] = 1e3 * (times[-1] - times[0]) / (usage.completion_tokens - 1)
    yield Delta(at=ended, extra=extra)
