"""models.yaml's words for the KV cache and RoPE, in llama.cpp's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from contextcliff_dagster.contracts import EngineError
from contextcliff_dagster.inference.models.models_file import ModelEntry

KV_TYPES = ("f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0")

_ROPE_TYPES = {"default": "NONE", "linear": "LINEAR", "yarn": "YARN"}
_ROPE_NUMBERS = {
    "rope_theta": "rope_freq_base",
    "original_max_position_embeddings": "yarn_orig_ctx",
    "attention_factor": "yarn_attn_factor",
    "beta_fast": "yarn_beta_fast",
    "beta_slow": "yarn_beta_slow",
}


def kv_types(entry: ModelEntry) -> tuple[str, str]:
    """Types of the keys' and the values' cache, of ``q8_0`` or ``q8_0/q4_0``; else EngineError."""
    given = (entry.kv_cache_dtype or "f16").lower()
    keys, _, values = given.partition("/")
    values = values or keys
    if keys not in KV_TYPES or values not in KV_TYPES:
        raise EngineError(
            f"Model {entry.name!r}: llama.cpp has no KV cache of type {given!r}; set "
            f"`kv_cache_dtype` to one of {', '.join(KV_TYPES)}, or to two as in q8_0/q4_0 (keys/"
            "values)."
        )
    return keys, values


def rope_settings(entry: ModelEntry) -> dict[str, str | int | float]:
    """Parameter of llama.cpp -> value; empty where the GGUF's own RoPE is kept.

    ``rope_scaling`` has the keys of Hugging Face configurations: ``rope_type`` (default, linear,
    yarn), ``factor``, ``rope_theta``, ``original_max_position_embeddings``, ``attention_factor``,
    ``beta_fast``, ``beta_slow``.

    Raises:
        EngineError: another key or value.
    """
    given: Mapping[str, Any] = entry.rope_scaling or {}
    settings: dict[str, str | int | float] = {}
    for key, value in given.items():
        number = isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0
        if key in {"rope_type", "type"} and value in _ROPE_TYPES:
            settings["rope_scaling_type"] = _ROPE_TYPES[value]
        elif key == "factor" and number:
            settings["rope_freq_scale"] = 1.0 / value
        elif key in _ROPE_NUMBERS and number:
            settings[_ROPE_NUMBERS[key]] = value
        else:
            raise EngineError(
                f"Model {entry.name!r}: llama.cpp takes no `rope_scaling` of {key}: {value}; use "
                f"rope_type ({', '.join(_ROPE_TYPES)}) and, above 0, factor, "
                f"{', '.join(_ROPE_NUMBERS)}."
            )
    if "rope_freq_scale" in settings and "rope_scaling_type" not in settings:
        raise EngineError(
            f"Model {entry.name!r}: `rope_scaling` has a factor and no rope_type; add linear or "
            "yarn."
        )
    return settings


def apply_settings(params: Any, entry: ModelEntry) -> None:
    """Write both into an ``xllamacpp.CommonParams``."""
    import xllamacpp

    keys, values = kv_types(entry)
    params.cache_type_k = getattr(xllamacpp.ggml_type, f"GGML_TYPE_{keys.upper()}")
    params.cache_type_v = getattr(xllamacpp.ggml_type, f"GGML_TYPE_{values.upper()}")
    for name, value in rope_settings(entry).items():
        if name == "rope_scaling_type":
            value = getattr(xllamacpp.llama_rope_scaling_type, f"LLAMA_ROPE_SCALING_TYPE_{value}")
        setattr(params, name, value)
