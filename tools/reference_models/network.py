"""The reference architecture in PyTorch (a small Llama), for training and measuring.

This is the one module of the room that imports torch; nothing imports it but the functions of
`train` and `measure`. Weights are a flat dict under the names of a `transformers` checkpoint.

Two shortcuts keep training on a CPU short, neither an approximation: the document is run once for
all its questions, each of which attends to the document and to itself; and the last layer is
computed only where an answer token is predicted.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from contextcliff_dagster.reference.tokenizer import END, WINDOW, vocabulary
from tools.reference_models.batches import Batch

OFFSETS = (1, 2, 3, 4)
"""Tokens back that the heads of the first layer attend to before training."""
CONSTANT_CHANNEL, SHARPNESS = 0.35, 10.0
"""Value of the embedding channel that all tokens share, and how sharp the warm start is."""
Weights = dict[str, Tensor]


@dataclass(frozen=True, slots=True)
class Architecture:
    """Sizes of the network; `config()` is its config.json."""

    vocab_size: int = len(vocabulary()[0])
    hidden_size: int = 96
    intermediate_size: int = 128
    num_hidden_layers: int = 2
    num_attention_heads: int = 4
    num_key_value_heads: int = 4
    head_dim: int = 32
    max_position_embeddings: int = WINDOW
    rms_norm_eps: float = 1e-5
    rope_theta: float = 50_000.0

    def config(self) -> dict[str, Any]:
        """config.json as `transformers` and vLLM read it."""
        end = vocabulary()[0][END]
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            **asdict(self),
            "rope_parameters": {"rope_type": "default", "rope_theta": self.rope_theta},
            "hidden_act": "silu",
            "attention_bias": False,
            "mlp_bias": False,
            "tie_word_embeddings": True,
            "bos_token_id": None,
            "eos_token_id": end,
            "pad_token_id": end,
            "initializer_range": 0.02,
            "dtype": "float32",
        }


def initial_weights(architecture: Architecture, seed: int) -> Weights:
    """Random weights, but for a warm start.

    The heads of the first layer begin by attending 1, 2, 3 and 4 tokens back: one embedding channel
    is the same for all tokens, and the query and key matrices turn it into a rotary phase that
    peaks at that offset. In the second layer the key matrix begins equal to the query matrix and
    the output matrix to the value matrix transposed, so that it begins by attending to what is
    alike and copying it. All are ordinary weights, trained like the others.
    """
    a, generator = architecture, torch.Generator().manual_seed(seed)

    def normal(rows: int, columns: int, scale: float) -> Tensor:
        return torch.randn(rows, columns, generator=generator) * scale

    d, width = a.hidden_size, a.num_attention_heads * a.head_dim
    kv_width = a.num_key_value_heads * a.head_dim
    weights = {"model.embed_tokens.weight": normal(a.vocab_size, d, d**-0.5)}
    for layer in range(a.num_hidden_layers):
        prefix = f"model.layers.{layer}."
        weights |= {
            prefix + "input_layernorm.weight": torch.ones(d),
            prefix + "self_attn.q_proj.weight": normal(width, d, d**-0.5),
            prefix + "self_attn.k_proj.weight": normal(kv_width, d, d**-0.5),
            prefix + "self_attn.v_proj.weight": normal(kv_width, d, d**-0.5),
            prefix + "self_attn.o_proj.weight": normal(d, width, 0.25 * width**-0.5),
            prefix + "post_attention_layernorm.weight": torch.ones(d),
            prefix + "mlp.gate_proj.weight": normal(a.intermediate_size, d, d**-0.5),
            prefix + "mlp.up_proj.weight": normal(a.intermediate_size, d, d**-0.5),
            prefix + "mlp.down_proj.weight": normal(d, a.intermediate_size, 0.1 * d**-0.5),
        }
    weights["model.norm.weight"] = torch.ones(d)
    _attend_to_offsets(weights, a)
    last = "model.layers.1.self_attn."
    weights[last + "k_proj.weight"].copy_(weights[last + "q_proj.weight"])
    weights[last + "o_proj.weight"].copy_(weights[last + "v_proj.weight"].T)
    return weights


def _attend_to_offsets(weights: Weights, a: Architecture) -> None:
    embed = weights["model.embed_tokens.weight"]
    # Rows of one norm: the normalised constant channel is then the same for every token.
    embed[:, 0] = 0.0
    embed *= math.sqrt(1 - CONSTANT_CHANNEL**2) / embed.norm(dim=1, keepdim=True)
    embed[:, 0] = CONSTANT_CHANNEL
    # The fastest rotary channels alone tell neighbouring offsets apart.
    half, fast = a.head_dim // 2, a.head_dim // 8
    amplitude = SHARPNESS / (CONSTANT_CHANNEL * math.sqrt(a.hidden_size))
    phase = _frequencies(a)[:fast]
    query = weights["model.layers.0.self_attn.q_proj.weight"]
    key = weights["model.layers.0.self_attn.k_proj.weight"]
    query *= 0.1
    key *= 0.1
    for head, offset in enumerate(OFFSETS):
        start = head * a.head_dim
        key[start : start + fast, 0] = amplitude
        query[start : start + fast, 0] = amplitude * torch.cos(phase * offset)
        query[start + half : start + half + fast, 0] = -amplitude * torch.sin(phase * offset)


def _frequencies(a: Architecture) -> Tensor:
    return a.rope_theta ** (-torch.arange(0, a.head_dim, 2, dtype=torch.float32) / a.head_dim)


def _rotate(x: Tensor, position: Tensor, a: Architecture) -> Tensor:
    """Rotary position of x (..., positions, head_dim)."""
    angle = position[:, None].float() * _frequencies(a)
    cos, sin = torch.cos(angle), torch.sin(angle)
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


class _Layer:
    """One layer's arithmetic over its slice of the weights."""

    def __init__(self, weights: Weights, a: Architecture, layer: int) -> None:
        self.weights, self.a, self.prefix = weights, a, f"model.layers.{layer}."

    def _linear(self, x: Tensor, name: str) -> Tensor:
        return F.linear(x, self.weights[f"{self.prefix}{name}.weight"])

    def norm(self, x: Tensor, name: str) -> Tensor:
        weight = self.weights[f"{self.prefix}{name}.weight"]
        return F.rms_norm(x, (self.a.hidden_size,), weight, self.a.rms_norm_eps)

    def heads(self, x: Tensor, name: str, position: Tensor | None) -> Tensor:
        """(..., s, d) -> (..., heads, s, head_dim), rotated where positions are given."""
        out = self._linear(x, f"self_attn.{name}_proj")
        out = out.unflatten(-1, (self.a.num_attention_heads, self.a.head_dim)).transpose(-3, -2)
        return out if position is None else _rotate(out, position, self.a)

    def finish(self, x: Tensor, attended: Tensor) -> Tensor:
        """Output projection, residual and feed-forward; attended is (..., heads, s, head_dim)."""
        x = x + self._linear(attended.transpose(-3, -2).flatten(-2), "self_attn.o_proj")
        h = self.norm(x, "post_attention_layernorm")
        gated = F.silu(self._linear(h, "mlp.gate_proj")) * self._linear(h, "mlp.up_proj")
        return x + self._linear(gated, "mlp.down_proj")


def _attend(query: Tensor, shared: tuple[Tensor, Tensor], own: tuple[Tensor, Tensor]) -> Tensor:
    """Attention of questions to the document and to themselves.

    query (b, n, h, q, e); shared keys and values (b, h, t, e); own (b, n, h, s, e): the q queries
    are at the last q of the s positions.
    """
    b, n, h, q, e = query.shape
    s, t = own[0].shape[-2], shared[0].shape[-2]
    query = query / math.sqrt(e)
    by_head = query.permute(0, 2, 1, 3, 4).reshape(b, h, n * q, e)
    to_document = (by_head @ shared[0].transpose(-1, -2)).view(b, h, n, q, t)
    to_self = (query @ own[0].transpose(-1, -2)).transpose(1, 2)
    future = torch.ones(q, s, dtype=torch.bool).triu(s - q + 1)
    to_self = to_self.masked_fill(future, -math.inf)
    weight = torch.cat([to_document, to_self], dim=-1).softmax(dim=-1)
    from_document = weight[..., :t].reshape(b, h, n * q, t) @ shared[1]
    from_self = weight[..., t:].transpose(1, 2) @ own[1]
    return from_document.view(b, h, n, q, e).transpose(1, 2) + from_self


def answer_logits(weights: Weights, a: Architecture, batch: Batch) -> list[Tensor]:
    """Logits (b, n, answer, vocabulary) that predict each answer token, by group of questions.

    Teacher-forced: the argmax at every position is right exactly where greedy decoding is.
    """
    embed = weights["model.embed_tokens.weight"]
    first, last = (_Layer(weights, a, layer) for layer in range(2))
    document = torch.from_numpy(batch.document)
    t = document.shape[1]
    place = torch.arange(t)
    x = F.embedding(document, embed)
    h = first.norm(x, "input_layernorm")
    shared = (first.heads(h, "k", place), first.heads(h, "v", None))
    attended = F.scaled_dot_product_attention(
        first.heads(h, "q", place), shared[0], shared[1], is_causal=True
    )
    h = last.norm(first.finish(x, attended), "input_layernorm")
    shared_last = (last.heads(h, "k", place), last.heads(h, "v", None))
    logits = []
    for group in batch.questions:
        answers = group.answer.shape[-1]
        tokens = torch.from_numpy(np.concatenate([group.prompt, group.answer[..., :-1]], axis=-1))
        place = torch.arange(t, t + tokens.shape[-1])
        x = F.embedding(tokens, embed)
        h = first.norm(x, "input_layernorm")
        own = (first.heads(h, "k", place), first.heads(h, "v", None))
        x = first.finish(x, _attend(first.heads(h, "q", place), shared, own))
        h = last.norm(x, "input_layernorm")
        own = (last.heads(h, "k", place), last.heads(h, "v", None))
        query = last.heads(h[..., -answers:, :], "q", place[-answers:])
        x = last.finish(x[..., -answers:, :], _attend(query, shared_last, own))
        norm = F.rms_norm(x, (a.hidden_size,), weights["model.norm.weight"], a.rms_norm_eps)
        logits.append(F.linear(norm, embed))
    return logits
