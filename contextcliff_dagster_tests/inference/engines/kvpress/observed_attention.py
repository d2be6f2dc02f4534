"""Run by the environment of kvpress: h2o's scores against those of attention written out whole.

Prints the largest difference over the layers, relative to the largest score, with blocks of a few
tokens, and the same for a model whose heads share keys; then the blocks of the first model.
"""

import json
import sys
import types
from typing import Any

package = types.ModuleType("contextcliff_dagster")
package.__path__ = [sys.argv[1]]
sys.modules[package.__name__] = package

import kvpress  # noqa: E402
import torch  # noqa: E402
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM  # noqa: E402

from contextcliff_dagster.inference.engines.kvpress import pressing  # noqa: E402

TOKENS = 237
torch.manual_seed(0)
pressing.BLOCK_BYTES["cpu"] = 4 * 4 * TOKENS * 50


def difference(keys: int) -> float:
    config = LlamaConfig(
        vocab_size=100,
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=keys,
    )
    model = LlamaForCausalLM(config).eval()
    for parameter in model.parameters():
        parameter.data *= 8  # attention that is far from even
    ids = torch.randint(0, 100, (TOKENS,)).tolist()
    ours = pressing.Reader(model).read(ids, ["h2o"], lambda: False).scores["h2o"]
    whole: list[Any] = []

    def after(module: Any, _: Any, kwargs: dict[str, Any], output: Any) -> None:
        entries = kwargs["past_key_values"].layers[module.layer_idx].keys
        whole.append(
            kvpress.ObservedAttentionPress().score(module, None, entries, None, output[1], kwargs)
        )

    for layer in model.model.layers:
        layer.self_attn.register_forward_hook(after, with_kwargs=True)
    model.set_attn_implementation("eager")
    with torch.inference_mode():
        model.model(torch.tensor([ids]), past_key_values=DynamicCache(), use_cache=True)
    assert len(ours) == len(whole) == 3
    assert all(a.shape == b.shape == (1, keys, TOKENS) for a, b in zip(ours, whole, strict=True))
    return max(
        float(((a - b).abs().max() / b.max()).item()) for a, b in zip(ours, whole, strict=True)
    )


print(json.dumps([difference(4), difference(2)]))
