"""The entry of one model in models.yaml, and its serving identity.

Prices, quirks, the KV cache and vLLM (engines ``vllm`` and ``vllm_server``) are parts of an entry
with their own keys.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import urlsplit

import pydantic
from pydantic import BeforeValidator, Field

from contextcliff_dagster.contracts import EngineError, StudyError
from contextcliff_dagster.inference.devices.discovery import Gpus
from contextcliff_dagster.inference.models.engine_table import EngineSpec, engine_names, engine_spec
from contextcliff_dagster.inference.requests.recipe import stable_hash

SET_BY_RECIPE = frozenset(
    "model messages prompt stream stream_options temperature top_p top_k min_p seed n max_tokens "
    "max_completion_tokens response_format continue_final_message add_generation_prompt cache_salt "
    "cache_prompt reasoning_effort chat_template_kwargs".split()
)
_VARIABLE = re.compile(r"\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\}")


def resolved(model: str, written: str) -> str:
    """Return ``written`` with its ``${VARIABLE}`` and ``${VARIABLE:-default}`` filled in.

    Raises:
        EngineError: a variable is not set and has no default, or the result is not an
                address. The message does not repeat it, because it may hold a password.
    """

    def fill(match: re.Match[str]) -> str:
        value = os.environ.get(match["name"]) or match["default"]
        if value is None:
            raise EngineError(
                f"Model {model!r} takes its address from the environment variable {match['name']}, "
                "which is not set; set it, or write the address into models.yaml."
            )
        return value

    url = _VARIABLE.sub(fill, written).rstrip("/")
    if not url.startswith(("http://", "https://")):
        raise EngineError(
            f"Model {model!r}: `base_url` must begin with http:// or https://; correct models.yaml."
        )
    try:
        parts = urlsplit(url)
        names_a_host = bool(parts.hostname) and parts.port != 0
    except ValueError:
        names_a_host = False
    if not names_a_host:
        raise EngineError(
            f"Model {model!r}: `base_url` has no host, or no valid port; correct models.yaml."
        )
    return url


def request_headers(
    entry: ModelEntry, subject: str, refusal: type[EngineError | StudyError]
) -> dict[str, str]:
    """Return the entry's headers with values from the environment; no other key is sent.

    Raises:
        EngineError, StudyError: (as ``refusal``) a variable that ``subject`` needs is not set.
    """

    def secret(variable: str, what: str) -> str:
        if value := os.environ.get(variable, "").strip():
            return value
        raise refusal(
            f"{subject} takes {what} from the environment variable {variable}, which is not set; "
            "set it."
        )

    headers = {name: secret(var, f"header {name}") for name, var in entry.headers_env.items()}
    headers |= entry.extra_headers
    if entry.api_key_env:
        headers.setdefault("Authorization", f"Bearer {secret(entry.api_key_env, 'its key')}")
    return headers


@dataclass(frozen=True)
class Identity:
    """The serving identity: settings that change outputs, without prices, secrets and speed."""

    fields: Mapping[str, Any]

    @property
    def hash(self) -> str:
        """SHA-256 of the fields; two identities are the same if and only if their hashes are."""
        return stable_hash(dict(self.fields))

    @property
    def window_tokens(self) -> int | None:
        """The smallest window stated by the entry, the weights or the server."""
        names = "window_tokens declared_window_tokens server_max_model_len server_window_tokens"
        windows = [self.fields.get(name) for name in names.split()]
        if isinstance(meta := self.fields.get("server_meta"), Mapping):
            windows.append(meta.get("n_ctx"))
        return min((n for n in windows if type(n) is int and n > 0), default=None)

    def differences(self, other: Identity) -> list[str]:
        """Return ``field: mine -> theirs`` for every field that differs."""
        return [
            f"{name}: {_short(mine)} -> {_short(theirs)}"
            for name, mine, theirs in differences(self.fields, other.fields)
        ]


def differences(mine: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    """Return name, value here and value there (None if missing) of the fields that differ.

    A nested field is named with a dot, so that only the differences are listed.
    """
    a, b = _flat(mine), _flat(theirs)
    both = [(name, a.get(name), b.get(name)) for name in sorted(a.keys() | b.keys())]
    return [(name, one, other) for name, one, other in both if one != other]


def _flat(fields: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in fields.items():
        if isinstance(value, Mapping) and value:
            flat |= _flat(value, f"{before}{name}.")
        else:
            flat[f"{before}{name}"] = value
    return flat


def _short(value: Any) -> str:
    text = "not given" if value is None else str(value)
    return text if len(text) <= 40 else text[:12] + "..." + text[-4:]


T = TypeVar("T")


def _no_bool(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError(f"should be a number, not {str(value).lower()}")
    return value


Count = Annotated[int, BeforeValidator(_no_bool)]
Amount = Annotated[float, BeforeValidator(_no_bool)]
"""Numbers that reject true and false, which pydantic would otherwise accept."""


def finite(given: T) -> T:
    """Return the JSON value ``given`` unchanged. Raises ValueError if it has NaN or an infinity."""
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
"""Arguments of vLLM that have a key in models.yaml."""
_FIXED = (
    "seed generation_config disable_log_stats use_tqdm_on_load served_model_name host port".split()
)
"""Arguments of vLLM that measuring needs unchanged."""


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
                raise ValueError(f"{name!r} is not a vLLM argument; write it with underscores")
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
        """Return the price of one call in USD; ``cached_tokens`` are part of ``prompt_tokens``."""
        cached_rate = self.cached_input_usd_per_mtok
        if cached_rate is None:
            cached_rate = self.input_usd_per_mtok
        cached_tokens = min(cached_tokens, prompt_tokens)
        return (
            (prompt_tokens - cached_tokens) * self.input_usd_per_mtok
            + cached_tokens * cached_rate
            + completion_tokens * self.output_usd_per_mtok
        ) / 1e6

    def discounted(self, discount: float) -> Price:
        """Return the price less the share ``discount``."""
        rates = "input_usd_per_mtok output_usd_per_mtok cached_input_usd_per_mtok".split()
        known = {name: usd for name in rates if (usd := getattr(self, name)) is not None}
        return self.model_copy(update={name: usd * (1 - discount) for name, usd in known.items()})


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


class BatchSettings(Strict):
    """The block ``batch:`` of a model, whose provider answers batches of calls at a discount."""

    discount: Amount = Field(
        ge=0,
        lt=1,
        description="Share by which calls are cheaper than streamed ones",
        examples=[0.5],
    )
    window: str = Field(
        default="24h",
        pattern=r"^[1-9]\d{0,3}[hd]$",
        description="Within which the provider answers: hours or days",
        json_schema_extra={"with": {"discount": 0.5}},
    )
    max_requests: Count = Field(
        default=50_000,
        ge=1,
        le=1_000_000,
        description="Most calls of one batch",
        json_schema_extra={"with": {"discount": 0.5}},
    )
    max_mb: Amount = Field(
        default=100.0,
        gt=0,
        le=10_000,
        description="Largest file of calls, in 10^6 bytes",
        json_schema_extra={"with": {"discount": 0.5}},
    )
    pool_batch: bool = Field(
        default=False,
        description="Answers from batches and streamed ones count as the same model's",
        json_schema_extra={"with": {"discount": 0.5}},
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


Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/:@+-]*$", max_length=120)]
_EnvName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
_HeaderName = Annotated[str, Field(pattern=r"^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")]
_SECRET = re.compile(r"auth|api[-_]?key|token|secret|cookie|password", re.IGNORECASE)
_MOST_TOKENS, _MOST_SECONDS, _MOST_A_MINUTE = 1 << 32, 7 * 86_400, 1e9
"""Upper limits: four billion tokens, a week, and a rate that limits nothing."""


class ModelEntry(Strict):
    """One serving configuration under a name."""

    name: Name
    engine: str = Field(
        description="What runs it: reference, openai, llamacpp, transformers, kvpress, vllm, "
        "vllm_server, or one of a package",
        examples=["openai"],
    )
    model_id: str = Field(
        default="",
        max_length=300,
        description="The model as the server calls it, or its name on a model hub; default: "
        "the entry's name",
        examples=["Qwen/Qwen2.5-7B-Instruct"],
    )
    description: str = Field(
        default="", description="Shown by `contextcliff models`", examples=["Our server"]
    )
    weights: str | None = Field(
        default=None,
        description="A folder (reference, transformers, kvpress, vllm) or a GGUF file (llamacpp, "
        "transformers, kvpress); from this file's folder",
        examples=["/models/m.gguf"],
        json_schema_extra={"with": {"engine": "llamacpp"}},
    )
    base_url: str | None = Field(
        default=None,
        description="Address of the server up to /v1; may hold ${VARIABLE} or ${VARIABLE:-default}",
        examples=["http://127.0.0.1:8000/v1"],
    )
    api_key_env: _EnvName | None = Field(
        default=None,
        description="Environment variable that holds the key, never the key itself",
        examples=["MY_KEY"],
    )
    headers_env: dict[_HeaderName, _EnvName] = Field(
        default_factory=dict,
        description="Further headers, from environment variables",
        examples=[{"X-Team": "MY_TEAM"}],
    )
    ca_bundle: str | None = Field(
        default=None,
        description="A file of the certificates to trust, in place of the system's; from this "
        "file's folder",
        examples=["our-ca.pem"],
    )
    verify: bool = Field(
        default=True, description="false: any certificate is trusted, and reports warn of it"
    )
    extra_headers: dict[_HeaderName, str] = Field(
        default_factory=dict,
        description="Further headers that are no secret; part of the serving identity",
        examples=[{"X-Tier": "batch"}],
    )
    extra_body: dict[str, Any] = Field(
        default_factory=dict,
        description="Further keys of each request; part of the serving identity",
        examples=[{"provider": {"order": ["a"]}}],
    )
    reasoning_effort: str | None = Field(
        default=None, description="Of models that think, sent as it is", examples=["low"]
    )
    chat_template_kwargs: dict[str, Any] | None = Field(
        default=None,
        description="Options of the server's chat template",
        examples=[{"enable_thinking": False}],
    )
    pin: bool = Field(
        default=False,
        description="Refuse answers of another model, provider or fingerprint than the first",
    )
    revision: str | None = Field(
        default=None,
        description="Which weights; of an endpoint, its address is then no part of the "
        "serving identity",
        examples=["a09a35458c70"],
    )
    tokenizer: str | None = Field(
        default=None,
        description="The model's own, where the server is not asked: prompts are counted "
        "before they are sent, and a silent cut is noticed",
        examples=["tiktoken:o200k_base"],
    )
    window_tokens: Count | None = Field(
        default=None,
        gt=0,
        le=_MOST_TOKENS,
        description="Context window of prompt and answer; the smaller of this and the "
        "server's counts",
        examples=[32768],
    )
    dtype: str | None = Field(
        default=None,
        description="Type of the weights; of an endpoint only declared",
        examples=["bfloat16"],
    )
    quantization: str | None = Field(
        default=None, description="Of the weights; of an endpoint only declared", examples=["awq"]
    )
    kv_cache_dtype: str | None = Field(
        default=None,
        description="Type of the KV cache; of an endpoint only declared",
        examples=["fp8"],
    )
    kv: KvOptions | None = Field(
        default=None, description="Entries of the KV cache that engine kvpress keeps"
    )
    rope_scaling: dict[str, Any] | None = Field(
        default=None,
        description="RoPE parameters instead of the model's own",
        examples=[{"rope_type": "yarn", "factor": 4.0}],
    )
    attention: Literal["sdpa", "eager", "flash_attention_2"] | None = Field(
        default=None,
        description="Attention implementation of transformers",
        examples=["sdpa"],
        json_schema_extra={"with": {"engine": "transformers", "weights": "/models/m"}},
    )
    threads: Count | None = Field(
        default=None,
        ge=1,
        le=1024,
        description="Processor threads; default: torch's own, or the cores that are idle when "
        "llamacpp starts",
        examples=[8],
        json_schema_extra={"with": {"engine": "transformers", "weights": "/models/m"}},
    )
    gpus: Annotated[Count, Field(ge=0, le=1024)] | Literal["auto"] | None = Field(
        default=None,
        description="Whole devices reserved for the engine; auto: one, if available",
        examples=["auto"],
        json_schema_extra={"with": {"engine": "transformers", "weights": "/models/m"}},
    )
    price: Price | None = Field(default=None, description="For the cost estimate and budgets")
    batch: BatchSettings | None = Field(
        default=None, description="Of a provider with a batch interface, for `profile --batch`"
    )
    quirks: Quirks = Quirks()
    vllm: VllmOptions = VllmOptions()
    concurrency: Count = Field(
        default=4,
        ge=1,
        le=512,
        description="Most requests in flight; 429s lower it, answers raise it again; 1 for "
        "clean times",
    )
    timeout_s: Amount = Field(
        default=600.0, gt=0, le=_MOST_SECONDS, description="Seconds that one request may take"
    )
    call_deadline_s: Amount | None = Field(
        default=None,
        gt=0,
        le=_MOST_SECONDS,
        description="Seconds of a call with all its attempts and waits; default: three times "
        "`timeout_s`",
        examples=[1800],
    )
    requests_per_minute: Amount | None = Field(
        default=None,
        ge=0.01,
        le=_MOST_A_MINUTE,
        description="Kept to by each process for itself",
        examples=[500],
    )
    tokens_per_minute: Amount | None = Field(
        default=None,
        ge=100,
        le=_MOST_A_MINUTE,
        description="Of prompt and output limit together, likewise",
        examples=[200000],
    )
    max_attempts: Count = Field(
        default=5, ge=1, le=20, description="Requests of one call, after errors that may pass"
    )
    breaker_failures: Count = Field(
        default=12,
        ge=1,
        le=1_000_000,
        description="Failed calls in a row after which the run stops",
    )

    @pydantic.model_validator(mode="before")
    @classmethod
    def _defaults(cls, data: Any) -> Any:
        if not isinstance(data, Mapping):
            return data
        given = dict(data)
        if not given.get("model_id") and isinstance(given.get("name"), str):
            given["model_id"] = given["name"]
        with suppress(EngineError):  # reported for the key `engine`
            if engine_spec(str(given.get("engine"))).serial:
                given.setdefault("concurrency", 1)
        return given

    @pydantic.field_validator("engine", mode="before")
    @classmethod
    def _known_engine(cls, value: Any) -> Any:
        try:
            return engine_spec(str(value)).name
        except EngineError as error:
            if value in (names := engine_names()):
                raise ValueError(str(error)) from error
        *first, last = map(repr, names)
        raise ValueError(f"should be {', '.join(first)} or {last}, not {value!r}")

    _finite = pydantic.field_validator("rope_scaling", "extra_body", "chat_template_kwargs")(finite)

    @pydantic.field_validator("extra_body")
    @classmethod
    def _not_ours(cls, given: dict[str, Any]) -> dict[str, Any]:
        if taken := sorted(given.keys() & SET_BY_RECIPE):
            raise ValueError(
                f"{taken[0]} is set by the study's prompt, or by a key of its own here"
            )
        return given

    @pydantic.field_validator("extra_headers")
    @classmethod
    def _no_secret(cls, given: dict[str, str]) -> dict[str, str]:
        if taken := [name for name in given if _SECRET.search(name)]:
            raise ValueError(f"{taken[0]} looks like a secret; put it into `headers_env`")
        return given

    @pydantic.model_validator(mode="after")
    def _belongs_together(self) -> ModelEntry:
        engine = self.spec
        problem = ""
        if engine.remote and not self.base_url:
            problem = "needs `base_url`, for instance http://127.0.0.1:8000/v1"
        elif engine.in_process and self.base_url:
            problem = "runs in process and takes no `base_url`; use engine 'openai'"
        elif self.base_url and not engine.remote:
            problem = (
                "brings its own server and takes no `base_url`; for one that is running already, "
                "use engine 'openai'"
            )
        elif engine.needs_weights and not self.weights:
            problem = "needs `weights`, a path on this machine"
        elif not engine.remote and self.asked_besides | self.extra_headers:
            problem = "takes no further keys or headers of requests; use engine 'openai'"
        batch = () if engine.remote else ("batch",)
        for name in (*engine.ignores, *(() if engine.compresses else ("kv",)), *batch):
            if not problem and getattr(self, name) != type(self).model_fields[name].default:
                setting = f"`{name}` block" if name in ("vllm", "kv", "batch") else f"`{name}`"
                problem = f"takes no {setting}; leave it out"
        if problem:
            raise ValueError(f"engine {self.engine!r} {problem}")
        return self

    @property
    def spec(self) -> EngineSpec:
        """The engine's row in the table of engines."""
        return engine_spec(self.engine)

    @property
    def asked_besides(self) -> dict[str, Any]:
        """Fields that each request has in addition to the recipe's."""
        effort, options = self.reasoning_effort, self.chat_template_kwargs
        fields = {"reasoning_effort": effort, "chat_template_kwargs": options}
        return {**self.extra_body, **{key: value for key, value in fields.items() if value}}

    @property
    def gpus_wanted(self) -> Gpus:
        """The entry's ``gpus``; if not set, as many as vLLM's tensor parallelism, one if there is
        any for other engines that need devices, else none."""
        if self.gpus is not None:
            return self.gpus
        if self.vllm.tensor_parallel > 1:
            return self.vllm.tensor_parallel
        return "auto" if self.spec.needs_devices else 0

    @property
    def longest_call_s(self) -> float:
        """The entry's ``call_deadline_s`` or its default."""
        return self.call_deadline_s or 3 * self.timeout_s

    def resolved_base_url(self) -> str:
        """Return ``base_url`` with its variables filled in. Raises EngineError if that fails."""
        return resolved(self.name, self.base_url or "")
