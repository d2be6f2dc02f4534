"""What `models.yaml` may say about vLLM, for the engines ``vllm`` and ``vllm_server``."""

from __future__ import annotations

from typing import Any

import pydantic
from pydantic import Field

_OURS = {
    "model": "weights` or `model_id",
    "revision": "revision",
    "dtype": "dtype",
    "quantization": "quantization",
    "kv_cache_dtype": "kv_cache_dtype",
    "hf_overrides": "rope_scaling",
    "max_model_len": "window_tokens",
    "max_num_seqs": "concurrency",
    "tensor_parallel_size": "vllm: tensor_parallel",
    "enable_prefix_caching": "vllm: prefix_caching",
    "enforce_eager": "vllm: eager",
    "gpu_memory_utilization": "vllm: gpu_memory_utilization",
    "kv_cache_memory_bytes": "vllm: kv_cache_gib",
}
"""Arguments of vLLM that have a key of ours."""
_FIXED = (
    "seed generation_config disable_log_stats use_tqdm_on_load served_model_name host port".split()
)
"""Those that measuring needs as they are."""


class VllmOptions(pydantic.BaseModel):
    """The block ``vllm:`` of a model.

    ``eager``: no compilation and no CUDA graphs (default: on the CPU, where they take a minute
    and gain little). ``gpu_memory_utilization`` and ``kv_cache_gib`` bound the memory and
    are not part of the serving identity. ``engine_args`` go to vLLM unchanged, and all of them
    are. ``start_timeout_s``, ``restarts``: how long a server may take to start, and how
    often it is started again after it died (``vllm_server`` only).
    """

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)

    tensor_parallel: int = Field(default=1, ge=1, le=64)
    prefix_caching: bool = True
    eager: bool | None = None
    gpu_memory_utilization: float | None = Field(default=None, gt=0, le=1)
    kv_cache_gib: float | None = Field(default=None, gt=0)
    start_timeout_s: float = Field(default=900.0, gt=0)
    restarts: int = Field(default=3, ge=0, le=100)
    engine_args: dict[str, Any] = Field(default_factory=dict)

    @pydantic.field_validator("engine_args")
    @classmethod
    def _not_ours(cls, given: dict[str, Any]) -> dict[str, Any]:
        for name in given:
            argument = name.removeprefix("--").replace("-", "_")
            if key := _OURS.get(argument):
                raise ValueError(f"{name} is set by `{key}`")
            if argument in _FIXED:
                raise ValueError(f"{name} is set by the engine itself")
            if not name.isidentifier():
                raise ValueError(f"{name!r} is no argument of vLLM; write it with underscores")
        return given
