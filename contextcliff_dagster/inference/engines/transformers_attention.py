"""Reading a prompt with transformers so that the attention of its last token can be seen."""

from __future__ import annotations

from typing import Any

from contextcliff_dagster.contracts import EngineError
from contextcliff_dagster.inference.engines.last_attention import LastAttention


def read_prompt(model: Any, ids: list[int], cache: Any, attention: LastAttention) -> Any:
    """Fill ``cache`` with all of ``ids`` and return the logits (1, 1, vocabulary) after the last.

    All but the last token are read as ever. The last is read alone by the architecture's own eager
    attention, the one that hands out its weights: windows, biases and caps on scores are in them.
    Nothing else may read with ``model`` meanwhile.

    Raises:
        EngineError: the architecture has no eager attention, or hands out no weights.
    """
    import torch

    given = torch.tensor([ids], device=model.device)
    usual = model.config._attn_implementation
    with torch.inference_mode():
        if len(ids) > 1:
            model(given[:, :-1], past_key_values=cache, use_cache=True, logits_to_keep=1)
        try:
            if usual != "eager":
                model.set_attn_implementation("eager")
            out = model(
                given[:, -1:],
                past_key_values=cache,
                use_cache=True,
                logits_to_keep=1,
                output_attentions=True,
            )
        except ValueError as error:
            reason = " ".join(str(error).split())[:200]
            raise EngineError(f"{type(model).__name__} shows no attention: {reason}.") from error
        finally:
            if usual != "eager":
                model.set_attn_implementation(usual)
        layers = list(out.attentions or ())
        if all(weights is None for weights in layers):
            raise EngineError(f"{type(model).__name__} hands out no attention weights.")
        # Hybrids hand out the layers alone that attend.
        of_model = getattr(model.config.get_text_config(), "num_hidden_layers", 0)
        layers += [None] * max(0, of_model - len(layers))
        for weights in layers:
            attention.add(None if weights is None else weights[0, :, -1])
    return out.logits
