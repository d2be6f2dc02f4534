"""The registry of models: which serving configuration has a name.

``models.yaml`` maps a name to an engine, a model id, an endpoint, a window, prices and the quirks
that real endpoints have. The shipped file is overlaid, name by name, by the file that
``CONTEXTCLIFF_MODELS`` names, or else by ``models.yaml`` in the working folder.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

import pydantic
from pydantic import Field

from contextcliff_dagster.contracts import EngineError, StudyError
from contextcliff_dagster.inference.devices.discovery import Gpus
from contextcliff_dagster.inference.models.base_url import resolved
from contextcliff_dagster.inference.models.engine_table import EngineSpec, engine_names, engine_spec
from contextcliff_dagster.inference.models.vllm_options import Amount, Count, VllmOptions, finite
from contextcliff_dagster.store import PACKAGE
from contextcliff_dagster.yaml_config import load_validated

SHIPPED_MODELS = PACKAGE / "models.yaml"

_Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/:@+-]*$", max_length=120)]
_EnvName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
_MOST_USD, _MOST_TOKENS, _MOST_SECONDS, _MOST_A_MINUTE = 1e6, 1 << 32, 7 * 86_400, 1e9
"""A dollar a token, four billion tokens, a week, and a rate that is as good as none."""
_HeaderName = Annotated[str, Field(pattern=r"^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")]


class _Strict(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(
        extra="forbid", frozen=True, strict=False, allow_inf_nan=False
    )


class Price(_Strict):
    """US dollars per million tokens. ``as_of``: when they were last checked, ``source`` where."""

    input_usd_per_mtok: Amount = Field(ge=0, le=_MOST_USD)
    output_usd_per_mtok: Amount = Field(ge=0, le=_MOST_USD)
    cached_input_usd_per_mtok: Amount | None = Field(default=None, ge=0, le=_MOST_USD)
    as_of: str | None = None
    source: str | None = None

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


class Quirks(_Strict):
    """What real endpoints want different from the common interface.

    ``temperature``: ``omit`` for models that refuse the parameter. ``max_tokens_parameter``: the
    name under which the output limit is sent. ``prefill``: how a begun answer is handed over;
    ``continue_final_message`` is vLLM's way, ``last_message`` that of servers which go on from a
    final assistant message by themselves. ``stream_usage``: ``omit`` for servers that refuse
    ``stream_options``. ``probes``: ``omit`` where the server is not to be asked what kind it is.
    ``model_list``: ``omit`` for servers whose ``/v1/models`` refuses the key.
    """

    temperature: Literal["send", "omit"] = "send"
    max_tokens_parameter: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    prefill: Literal["continue_final_message", "last_message"] = "continue_final_message"
    stream_usage: Literal["send", "omit"] = "send"
    probes: Literal["send", "omit"] = "send"
    model_list: Literal["send", "omit"] = "send"


class ModelEntry(_Strict):
    """One serving configuration under a name.

    ``weights`` is a folder (engine ``reference``; default: the shipped weights of ``model_id``)
    a GGUF file (engine ``llamacpp``) or either (``transformers``).
    ``threads`` and ``attention`` are of these two: processor threads (default: torch's own, or the
    cores that are idle when ``llamacpp`` starts), and
    the attention implementation of ``transformers``.
    ``tokenizer`` names the model's own tokenizer where the endpoint is not asked for one:
    with it, prompts are counted before sending and silent truncation is noticed.
    ``revision`` names the weights of an endpoint; where it is given, the endpoint's
    address is not part of the serving identity (the server may move).
    ``base_url`` may hold ``${VARIABLE}`` or ``${VARIABLE:-default}``.

    ``concurrency`` is the most requests in flight: the server's 429s lower it, answers raise it
    again. ``requests_per_minute`` and ``tokens_per_minute`` (prompt and output limit together) are
    kept to by each process for itself. A request may take ``timeout_s``, a call with all its
    attempts and the waits between them ``call_deadline_s`` (default: three times ``timeout_s``).
    ``gpus``: how many whole devices the engine is leased while it runs here; ``auto``: one where
    the machine has any, else its CPU lane. Not part of the serving identity.
    """

    name: _Name
    engine: str
    model_id: str = Field(default="", max_length=300)
    description: str = ""
    weights: str | None = None
    base_url: str | None = None
    api_key_env: _EnvName | None = None
    headers_env: dict[_HeaderName, _EnvName] = Field(default_factory=dict)
    revision: str | None = None
    tokenizer: str | None = None
    window_tokens: Count | None = Field(default=None, gt=0, le=_MOST_TOKENS)
    dtype: str | None = None
    quantization: str | None = None
    kv_cache_dtype: str | None = None
    rope_scaling: dict[str, Any] | None = None
    attention: Literal["sdpa", "eager", "flash_attention_2"] | None = None
    threads: Count | None = Field(default=None, ge=1, le=1024)
    gpus: Annotated[Count, Field(ge=0, le=1024)] | Literal["auto"] | None = None
    price: Price | None = None
    quirks: Quirks = Quirks()
    vllm: VllmOptions = VllmOptions()
    concurrency: Count = Field(default=4, ge=1, le=512)
    timeout_s: Amount = Field(default=600.0, gt=0, le=_MOST_SECONDS)
    call_deadline_s: Amount | None = Field(default=None, gt=0, le=_MOST_SECONDS)
    requests_per_minute: Amount | None = Field(default=None, ge=0.01, le=_MOST_A_MINUTE)
    tokens_per_minute: Amount | None = Field(default=None, ge=100, le=_MOST_A_MINUTE)
    max_attempts: Count = Field(default=5, ge=1, le=20)
    breaker_failures: Count = Field(default=12, ge=1, le=1_000_000)

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

    _finite = pydantic.field_validator("rope_scaling")(finite)

    @pydantic.model_validator(mode="after")
    def _belongs_together(self) -> ModelEntry:
        engine = self.spec
        wrong = ""
        if engine.remote and not self.base_url:
            wrong = "needs `base_url`, for instance http://127.0.0.1:8000/v1"
        elif engine.in_process and self.base_url:
            wrong = "runs in process and takes no `base_url`; use engine 'openai'"
        elif self.base_url and not engine.remote:
            wrong = (
                "brings its own server and takes no `base_url`; for one that is running already, "
                "use engine 'openai'"
            )
        elif engine.needs_weights and not self.weights:
            wrong = "needs `weights`, a path on this machine"
        for name in engine.ignores:
            if not wrong and getattr(self, name) != type(self).model_fields[name].default:
                what = f"`{name}` block" if name == "vllm" else f"`{name}`"
                wrong = f"takes no {what}; leave it out"
        if wrong:
            raise ValueError(f"engine {self.engine!r} {wrong}")
        return self

    @property
    def spec(self) -> EngineSpec:
        """The engine's row in the table of engines."""
        return engine_spec(self.engine)

    @property
    def gpus_wanted(self) -> Gpus:
        """``gpus``, or where it is not given, for vLLM as many as share its tensors, for other
        engines that need devices one where there is any, else none."""
        if self.gpus is not None:
            return self.gpus
        if self.vllm.tensor_parallel > 1:
            return self.vllm.tensor_parallel
        return "auto" if self.spec.needs_devices else 0

    @property
    def longest_call_s(self) -> float:
        """``call_deadline_s`` or its default."""
        return self.call_deadline_s or 3 * self.timeout_s

    def resolved_base_url(self) -> str:
        """``base_url`` with its environment variables filled in; EngineError if that fails."""
        return resolved(self.name, self.base_url or "")


class _ModelsFile(_Strict):
    models: dict[_Name, ModelEntry]

    @pydantic.model_validator(mode="before")
    @classmethod
    def _names_from_keys(cls, data: Any) -> Any:
        models = data.get("models") if isinstance(data, Mapping) else None
        if not isinstance(models, Mapping):
            return data
        named = dict(models)
        for key, entry in models.items():
            if isinstance(entry, Mapping):
                named[key] = {"name": key, **entry}
                if (name := named[key]["name"]) != key:
                    raise ValueError(f"model {key!r} has `name: {name}`; leave `name` out")
        return {**data, "models": named}


def model_files(*, here: bool = True) -> list[Path]:
    """The files that make up the registry, the later overlaying the earlier.

    ``here``: that of the working folder, too.
    """
    if own := os.environ.get("CONTEXTCLIFF_MODELS"):
        return [SHIPPED_MODELS, Path(own).expanduser()]
    local = Path("models.yaml")
    return [SHIPPED_MODELS, local] if here and local.is_file() else [SHIPPED_MODELS]


def load_models(paths: Sequence[Path] | None = None) -> dict[str, ModelEntry]:
    """Name -> entry, of ``paths`` or of `model_files()`; a later file replaces whole entries.

    Raises:
        StudyError: naming file, line and key.
    """
    entries: dict[str, ModelEntry] = {}
    for path in model_files() if paths is None else paths:
        try:
            stat = path.stat()
            stamp = stat.st_mtime_ns, stat.st_size
        except OSError:
            stamp = 0, 0
        entries.update(_load_file(path.resolve(), stamp))
    return entries


def get_model(name: str, models: Mapping[str, ModelEntry] | None = None) -> ModelEntry:
    """The entry called ``name``; without one, a StudyError that lists those that there are."""
    models = load_models() if models is None else models
    if name not in models:
        raise StudyError(
            f"There is no model {name!r}; there are {', '.join(sorted(models))}. "
            "Add it to ./models.yaml (or the file that CONTEXTCLIFF_MODELS names)."
        )
    return models[name]


@cache
def _load_file(path: Path, stamp: tuple[int, int]) -> dict[str, ModelEntry]:
    """Cached by path and time of change: long-living processes ask often."""
    del stamp
    entries = load_validated(path, _ModelsFile).models
    for name, entry in entries.items():
        if weights := entry.weights:
            # Relative to the file that names them; a bare name may also be of a fetched model.
            place = path.parent / Path(weights).expanduser()
            if weights != place.name or place.exists():
                entries[name] = entry.model_copy(update={"weights": str(place)})
    return entries
