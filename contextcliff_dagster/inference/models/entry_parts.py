"""Prices, quirks and the KV cache: the parts of a model's entry that have keys of their own.

What `models.yaml` may say about vLLM, for the engines ``vllm`` and ``vllm_server``.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal, TypeVar

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


_MOST_USD = 1e6


class Strict(pydantic.BaseModel):
    """Unknown keys are errors."""

    model_config = pydantic.ConfigDict(
        extra="forbid", frozen=True, strict=False, allow_inf_nan=False
    )


class Price(Strict):
    """US dollars per million tokens."""

    input_usd_per_mtok: Amount = Field(
        ge=0,
        le=_MOST_USD,
        description="Of the prompt",
        examples=[0.15],
        json_schema_extra={"with": {"output_usd_per_mtok": 0.6}},
    )
    output_usd_per_mtok: Amount = Field(
        ge=0,
        le=_MOST_USD,
        description="Of the answer, reasoning included",
        examples=[0.6],
        json_schema_extra={"with": {"input_usd_per_mtok": 0.15}},
    )
    cached_input_usd_per_mtok: Amount | None = Field(
        default=None,
        ge=0,
        le=_MOST_USD,
        description="Of prompt tokens from the server's cache",
        examples=[0.075],
        json_schema_extra={"with": {"input_usd_per_mtok": 0.15, "output_usd_per_mtok": 0.6}},
    )
    as_of: str | None = Field(
        default=None,
        description="When they were last checked",
        examples=["2026-11-21"],
        json_schema_extra={"with": {"input_usd_per_mtok": 0.15, "output_usd_per_mtok": 0.6}},
    )
    source: str | None = Field(
        default=None,
        description="Where",
        examples=["the price list"],
        json_schema_extra={"with": {"input_usd_per_mtok": 0.15, "output_usd_per_mtok": 0.6}},
    )

    @pydantic.field_validator("as_of", mode="before")
    @classmethod
    def _date_as_text(cls, value: Any) -> Any:
        # YAML reads 2026-01-31 as a date.
        return value.isoformat() if hasattr(value, "isoformat") else value

    def cost_usd(self, prompt_tokens: int, completion_tokens: int, cached_tokens: int = 0) -> float:
        """Price of one call in USD; ``cached_tokens`` are part of ``prompt_tokens``."""
        cached_rate = self.cached_input_usd_per_mtok
        if cached_rate is None:
            cached_rate = self.input_usd_per_mtok
        cached_tokens = min(cached_tokens, prompt_tokens)
        return (
            (prompt_tokens - cached_tokens) * self.input_usd_per_mtok
            + cached_tokens * cached_rate
            + completion_tokens * self.output_usd_per_mtok
        ) / 1e6


class Quirks(Strict):
    """What real endpoints want different from the common interface."""

    temperature: Literal["send", "omit"] = Field(
        default="send", description="omit: for models that refuse a temperature of 0"
    )
    top_k: Literal["send", "omit"] = Field(
        default="send", description="omit: for endpoints that refuse `top_k`, as OpenAI's does"
    )
    seed: Literal["send", "omit"] = Field(
        default="send", description="omit: for endpoints that refuse `seed`"
    )
    max_tokens_parameter: Literal["max_tokens", "max_completion_tokens"] = Field(
        default="max_tokens", description="The name under which the output limit is sent"
    )
    prefill: Literal["continue_final_message", "last_message"] = Field(
        default="continue_final_message",
        description="How a begun answer is handed over: vLLM's way, or by a final message alone",
    )
    stream_usage: Literal["send", "omit"] = Field(
        default="send", description="omit: for servers that refuse `stream_options`"
    )
    probes: Literal["send", "omit"] = Field(
        default="send", description="omit: do not ask the server what kind it is"
    )
    model_list: Literal["send", "omit"] = Field(
        default="send", description="omit: for servers whose `/v1/models` refuses the key"
    )


KvPolicy = Literal[
    "none", "snapkv", "h2o", "streaming_llm", "knorm", "tova", "expected_attention", "random"
]


class KvOptions(Strict):
    """Which entries of the KV cache are kept once the document is read."""

    policy: KvPolicy = Field(
        description="How the entries to keep are chosen",
        examples=["snapkv"],
        json_schema_extra={"with": {"budget": 0.2}},
    )
    budget: Amount = Field(
        default=1.0,
        ge=0.1,
        le=1,
        description="Share of the document's entries that is kept",
        examples=[0.2],
        json_schema_extra={"with": {"policy": "snapkv"}},
    )

    @pydantic.field_validator("policy", mode="before")
    @classmethod
    def _lower_case(cls, given: Any) -> Any:
        return given.lower() if isinstance(given, str) else given

    @pydantic.model_validator(mode="after")
    def _belongs_together(self) -> KvOptions:
        if self.policy == "none" and self.budget < 1:
            raise ValueError("policy none keeps every entry; leave `budget` out, or name a policy")
        if self.policy != "none" and "budget" not in self.model_fields_set:
            raise ValueError(f"policy {self.policy} needs a `budget` from 0.1 to 1")
        return self
