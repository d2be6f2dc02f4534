"""What `models.yaml` may say about vLLM, for the engines ``vllm`` and ``vllm_server``."""

from __future__ import annotations

import math
from typing import Annotated, Any, TypeVar

import pydantic
from pydantic import BeforeValidator, Field

T = TypeVar("T")


def _no_bool(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError(f"should be a number, not {str(value).lower()}")
    return value


Count = Annotated[int, BeforeValidator(_no_bool)]
Amount = Annotated[float, BeforeValidator(_no_bool)]
"""Numbers, for which pydantic would also take true and false."""


def finite(given: T) -> T:
    """``given``, a JSON value, as it is. Raises ValueError where NaN or an infinity is in it."""
    inner = given.values() if isinstance(given, dict) else given if isinstance(given, list) else ()
    for value in (given, *inner):
        if value is not given:
            finite(value)
        elif isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"should hold finite numbers, not {value}")
    return given


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
    """The block ``vllm:`` of a model, for the engines vllm and vllm_server."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    tensor_parallel: Count = Field(default=1, ge=1, le=64, description="GPUs that share a model")
    prefix_caching: bool = Field(default=True, description="A document is read once")
    eager: bool | None = Field(
        default=None,
        description="No compilation and no CUDA graphs; default: on the CPU, where they take a "
        "minute and gain little",
        examples=[True],
    )
    gpu_memory_utilization: Amount | None = Field(
        default=None, gt=0, le=1, description="Share of the memory to use at most", examples=[0.9]
    )
    kv_cache_gib: Amount | None = Field(
        default=None, gt=0, le=1 << 20, description="Memory of the KV cache", examples=[8]
    )
    start_timeout_s: Amount = Field(
        default=900.0, gt=0, le=7 * 86_400, description="How long vllm_server may take to start"
    )
    restarts: Count = Field(
        default=3, ge=0, le=100, description="How often vllm_server is started again after it died"
    )
    engine_args: dict[str, Any] = Field(
        default_factory=dict,
        description="Any other argument of vLLM, by its own name; part of the serving identity",
        examples=[{"max_num_batched_tokens": 8192}],
    )

    @pydantic.field_validator("engine_args")
    @classmethod
    def _not_ours(cls, given: dict[str, Any]) -> dict[str, Any]:
        for name in finite(given):
            argument = name.removeprefix("--").replace("-", "_")
            if key := _OURS.get(argument):
                raise ValueError(f"{name} is set by `{key}`")
            if argument in _FIXED:
                raise ValueError(f"{name} is set by the engine itself")
            if not name.isidentifier():
                raise ValueError(f"{name!r} is no argument of vLLM; write it with underscores")
        return given
