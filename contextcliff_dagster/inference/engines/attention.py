"""Attention of a prompt's last token, and the memory and time that a whole KV cache takes.

The cache's figures follow from the model's shape and the times of an answer's pieces, for engines
that do not compress it. Their entries in `results.extra` are named like those of engine `kvpress`.

Attention is summarised by layer and head as entropy and shares. The entropy of attention weights
follows Zhai et al. 2023 ("Stabilizing Transformer Training by Preventing Attention Entropy
Collapse"), here divided by its largest value, log(tokens). The first tokens are counted separately
because heads with nothing to look for rest on them (attention sinks, Xiao et al. 2024).
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from contextcliff_dagster.contracts import EngineError
from contextcliff_dagster.inference.engines.base import Delta, Timing, Usage
from contextcliff_dagster.inference.requests.call_plan import Scalar
from contextcliff_dagster.inference.requests.recipe import MARK, Prompt

if TYPE_CHECKING:
    from torch import Tensor

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
"""Bytes per number for each cache type, by its name in llama.cpp or vLLM."""
_READ_ANEW = 0.9
"""Fraction of prompt tokens that must be uncached for the time to count as that of a full read."""


class CacheShape(NamedTuple):
    """Size of a token's cache entries: one key and one value for each layer and head."""

    layers: int
    heads: int
    key_size: int
    value_size: int

    def token_bytes(self, key_type: str, value_type: str) -> float | None:
        """Return the bytes that a token takes, or None for an unknown type."""
        if key_type not in _BYTES or value_type not in _BYTES:
            return None
        sizes = self.key_size * _BYTES[key_type] + self.value_size * _BYTES[value_type]
        return self.layers * self.heads * sizes


def gguf_shape(header: Mapping[str, Any]) -> CacheShape | None:
    """Return the shape given by a GGUF header; None if layers differ or use a sliding window."""
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
    """Return the shape described by a config.json, with None as in `gguf_shape`."""
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
    """Yield the pieces of an answer, then one piece with the cost of its KV cache.

    ``kv_tokens`` and ``kv_kept``: the prompt's tokens; ``kv_bytes``: their memory, if the bytes per
    token are known; ``kv_ttft_ms``: time to first token; ``kv_prefill_ms``: the same, if the prompt
    was not in the cache; ``kv_decode_ms``: time for each further token.
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


SINK_TOKENS = 4
"""Number of first tokens of a prompt that count as attention sinks."""
_DIGITS = 6


class LastAttention:
    """Attention summary of one prompt's last token, collected layer by layer.

    ``tokens``: number of tokens in the prompt; ``evidence``: (tokens,) True for tokens with
    evidence, None if unknown. Sinks are not evidence, so the shares never count a token twice.
    """

    def __init__(self, tokens: int, evidence: NDArray[np.bool_] | None = None) -> None:
        self._tokens, self._evidence = tokens, evidence
        if evidence is not None:
            self._evidence = evidence & (np.arange(tokens) >= SINK_TOKENS)
        self.entropy: list[list[float]] = []
        self.sinks: list[list[float]] = []
        self.evidence: list[list[float]] = []

    def add(self, weights: NDArray[np.floating] | Tensor | None) -> None:
        """Add the next layer's weights (heads, seen), with any positive sum; None if absent.

        A layer with a sliding window gives weights for the prompt's last ``seen`` tokens. Layers
        may have different numbers of heads. Tensors are summed on their device.
        """
        if weights is None:  # such as a convolution or linear attention
            for measure in (self.entropy, self.sinks, self.evidence):
                measure.append([])
            return
        share: Any
        entr: Any
        if isinstance(weights, np.ndarray):
            import scipy.special

            share, entr = weights.astype(np.float64), scipy.special.entr
        else:
            import torch

            share, entr = weights.double(), torch.special.entr
        share = share / share.sum(-1)[:, None]
        first = self._tokens - share.shape[-1]
        most = math.log(self._tokens) if self._tokens > 1 else 1.0
        self.entropy.append(_rounded(entr(share).sum(-1) / most))
        self.sinks.append(_rounded(share[:, : max(0, SINK_TOKENS - first)].sum(-1)))
        if self._evidence is not None:
            held = np.flatnonzero(self._evidence[first:])
            self.evidence.append(_rounded(share[:, held].sum(-1)))

    def to_json(self) -> str:
        """Return ``entropy``, ``sinks`` and ``evidence`` (null: unknown) by layer and head.

        A layer without attention weights has an empty list.
        """
        evidence = None if self._evidence is None else self.evidence
        shown = {"entropy": self.entropy, "sinks": self.sinks, "evidence": evidence}
        return json.dumps(shown, separators=(",", ":"))

    def with_pieces(self, pieces: Iterable[Delta]) -> Iterator[Delta]:
        """Yield the answer's pieces, and attach this summary to the one that ends the answer."""
        for piece in pieces:
            ends = piece.finish_reason is not None
            yield replace(piece, extra={"attention": self.to_json()}) if ends else piece


def _rounded(values: NDArray[np.float64] | Tensor) -> list[float]:
    return [round(value, _DIGITS) for value in values.clip(0.0, 1.0).tolist()]


def evidence_tokens(
    prompt: Prompt, render: Callable[[Prompt], str], offsets: Sequence[tuple[int, int]]
) -> NDArray[np.bool_] | None:
    """Return (tokens,) True for tokens with a character of the evidence; None if unknown.

    ``render`` returns the text under the model's chat template, which must leave the document
    unchanged; ``offsets``: start and end of each token in that text, in characters.
    """
    if not prompt.evidence or prompt.document is None or prompt.outline is None:
        return None
    head, _, tail = render(prompt.outline).partition(MARK)
    if render(prompt) != head + prompt.document.text + tail:
        return None
    start, end = np.asarray(offsets, np.int64).reshape(-1, 2).T
    held = np.zeros(start.size, np.bool_)
    for first, last in prompt.evidence:
        held |= (start < len(head) + last) & (end > len(head) + first)
    return held if held.any() else None


def read_prompt(model: Any, ids: list[int], cache: Any, attention: LastAttention) -> Any:
    """Fill ``cache`` with all of ``ids`` and return the logits (1, 1, vocabulary) after the last.

    All tokens but the last are read as usual. The last is read by the architecture's own eager
    attention, which returns its weights: windows, biases and caps on scores are included. Nothing
    else may use ``model`` meanwhile.

    Raises:
        EngineError: the architecture has no eager attention, or returns no weights.
    """
    import torch

    tokens = torch.tensor([ids], device=model.device)
    implementation = model.config._attn_implementation
    with torch.inference_mode():
        if len(ids) > 1:
            model(tokens[:, :-1], past_key_values=cache, use_cache=True, logits_to_keep=1)
        try:
            if implementation != "eager":
                model.set_attn_implementation("eager")
            out = model(
                tokens[:, -1:],
                past_key_values=cache,
                use_cache=True,
                logits_to_keep=1,
                output_attentions=True,
            )
        except ValueError as error:
            reason = " ".join(str(error).split())[:200]
            raise EngineError(f"{type(model).__name__} shows no attention: {reason}.") from error
        finally:
            if implementation != "eager":
                model.set_attn_implementation(implementation)
        layers = list(out.attentions or ())
        if all(weights is None for weights in layers):
            raise EngineError(f"{type(model).__name__} returns no attention weights.")
        # Hybrid models return only the layers with attention.
        layer_count = getattr(model.config.get_text_config(), "num_hidden_layers", 0)
        layers += [None] * max(0, layer_count - len(layers))
        for weights in layers:
            attention.add(None if weights is None else weights[0, :, -1])
    return out.logits
