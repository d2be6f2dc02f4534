"""Prices, quirks and the KV cache: the parts of a model's entry that have keys of their own."""

from __future__ import annotations

from typing import Any, Literal

import pydantic
from pydantic import Field

from contextcliff_dagster.inference.models.vllm_options import Amount

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
