"""Memory of a whole KV cache by shape and type, and its times by the pieces of an answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextcliff_dagster.inference.engines.attention import (
    CacheShape,
    config_shape,
    gguf_shape,
    with_cache_figures,
)
from contextcliff_dagster.inference.engines.base import Delta, Timing, Usage
from contextcliff_dagster.reference.card import weights_path

SMALL = {
    "general.architecture": "llama",
    "llama.block_count": 30,
    "llama.embedding_length": 576,
    "llama.attention.head_count": 9,
    "llama.attention.head_count_kv": 3,
}


def figures(usage: Usage | None, *pieces: Delta, token_bytes: float | None = 4.0) -> Any:
    """What follows the pieces."""

    async def answer() -> AsyncIterator[Delta]:
        for piece in pieces:
            yield piece
        yield Delta(finish_reason="stop", usage=usage, at=pieces[-1].at)

    async def work() -> list[Delta]:
        return [piece async for piece in with_cache_figures(answer(), token_bytes)]

    came = asyncio.run(work())
    assert came[: len(pieces)] == list(pieces)
    return came[-1].extra


def test_shapes_of_headers_and_configurations() -> None:
    assert gguf_shape(SMALL) == (30, 3, 64, 64)
    assert gguf_shape({**SMALL, "llama.attention.key_length": 96}) == (30, 3, 96, 64)
    config = json.loads((weights_path("reference-short") / "config.json").read_text())
    assert config_shape(config) == (2, 4, 32, 32)
    del config["head_dim"]
    assert config_shape(config) == (2, 4, 24, 24)


@pytest.mark.parametrize(
    "change",
    [
        {"llama.attention.sliding_window": 4096},
        {"llama.block_count": None},
        {"llama.attention.head_count_kv": None},  # an array, of layers that differ
    ],
)
def test_a_cache_that_is_not_so_simple_has_no_size(change: dict[str, Any]) -> None:
    assert gguf_shape({**SMALL, **change}) is None


def test_configurations_of_other_caches_have_no_size() -> None:
    config = {"num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 64}
    assert config_shape(config) == (2, 4, 16, 16)
    assert config_shape({**config, "layer_types": ["full_attention", "sliding_attention"]}) is None
    assert config_shape({**config, "kv_lora_rank": 512}) is None
    assert config_shape({}) is None


def test_bytes_of_a_token_by_type() -> None:
    shape = CacheShape(30, 3, 64, 64)
    bits = {"f32": 32, "f16": 16, "q8_0": 8.5, "q5_1": 6, "q4_0": 4.5, "fp8": 8}
    assert {name: shape.token_bytes(name, name) for name in bits} == {
        name: 30 * 3 * 128 * n / 8 for name, n in bits.items()
    }
    assert shape.token_bytes("q8_0", "f16") == 30 * 3 * 64 * (8.5 + 16) / 8
    assert shape.token_bytes("int3", "f16") is None


@given(st.integers(1, 10_000), st.integers(0, 10_000), st.integers(2, 50))
def test_times_are_those_of_the_pieces(read: int, cached: int, written: int) -> None:
    cached = min(cached, read)
    pieces = [Delta("a", at=1e9 + n) for n in range(written)]
    pieces[-1] = Delta("b", timing=Timing(5.0, 20.0), at=1e9 + written - 1)
    extra = figures(Usage(read, written, cached), *pieces)
    assert extra["kv_decode_ms"] == pytest.approx(1000)
    assert (extra["kv_tokens"], extra["kv_kept"], extra["kv_bytes"]) == (read, read, 4 * read)
    assert extra["kv_ttft_ms"] == 20
    assert extra.get("kv_prefill_ms") == (20 if cached <= 0.1 * read else None)


def test_what_is_not_known_is_left_out() -> None:
    assert figures(None, Delta("a", at=2.0)) is None
    assert figures(Usage(7, 1), Delta("a", whole=True, at=2.0), token_bytes=None) == {
        "kv_tokens": 7,
        "kv_kept": 7,
    }
