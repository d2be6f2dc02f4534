"""The table of engines: names, code locations, and capabilities for `models.yaml`.

A new engine is its own file plus a row here, or another package's entry point in the group
`contextcliff.engines` (docs/inference.md shows one).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.contracts import EngineError
from contextcliff_dagster.contracts.extensions import extensions

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from contextcliff_dagster.inference.engines.base import Engine
    from contextcliff_dagster.inference.models.entry import ModelEntry

ENTRY_POINT_GROUP = "contextcliff.engines"
"""Group of entry points for other packages' engines, each an `EngineSpec`."""


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """Declaration of an engine, without importing it.

    Parameters:
        name: value of `engine` of a model.
        load: callable that makes a model's engine, not yet started, or its ``module:name``.
        declared_identity: likewise; returns all that changes answers and is known before a start.
        package: distribution that the engine runs on; None if nothing more is needed.
        extra: extra of this project that installs ``package``.
        use: purpose of ``package``, in a few words.
        remote: it calls a server at the model's required `base_url`; calls may be billed.
        in_process: identity and context window are known completely before the engine starts.
        needs_weights: the model must set `weights`.
        needs_devices: it gets a GPU if the machine has one, unless the model sets `gpus`.
        serial: one call at a time unless the model sets `concurrency`; two slow each other.
        samples: it can draw tokens at random; others only take the likeliest.
        constrains: it can enforce a JSON Schema.
        compresses: it keeps a share of the KV cache's entries, as a model's `kv` sets.
        shows_attention: it can report where the prompt's last token attends (`Decoding.attention`).
        ignores: model settings without effect, which are refused.
        call_s, prompt_token_s: seconds per call and per prompt token, for a first cost estimate.
    """

    name: str
    load: str | Callable[[ModelEntry], Engine]
    declared_identity: str | Callable[[ModelEntry], Mapping[str, Any]]
    package: str | None = None
    extra: str | None = None
    use: str = ""
    remote: bool = False
    in_process: bool = False
    needs_weights: bool = False
    needs_devices: bool = False
    serial: bool = False
    samples: bool = False
    constrains: bool = False
    compresses: bool = False
    shows_attention: bool = False
    ignores: tuple[str, ...] = ()
    call_s: float = 1.0
    prompt_token_s: float = 2e-4


_ENGINES = "contextcliff_dagster.inference.engines"
_LOCAL_ONLY = ("attention", "threads", "vllm")
_VLLM = EngineSpec(
    "vllm",
    load=f"{_ENGINES}.vllm.in_process:VllmEngine",
    declared_identity=f"{_ENGINES}.vllm.engine_args:declared_vllm_identity",
    package="vllm",
    extra="vllm",
    use="serves models on this machine",
    needs_devices=True,
    samples=True,
    ignores=("attention", "threads"),
)
MADE_UP: Mapping[str, Any] = {
    "in_process": True,
    "serial": True,
    "ignores": (
        *("weights", "dtype", "quantization", "kv_cache_dtype", "rope_scaling", *_LOCAL_ONLY),
    ),
    "call_s": 0.05,
    "prompt_token_s": 2e-6,
}
"""Settings shared by engines without a model, which answer by rule."""
BUILT_IN: Mapping[str, EngineSpec] = {
    spec.name: spec
    for spec in (
        EngineSpec(
            "reference",
            load=f"{_ENGINES}.reference:ReferenceEngine",
            declared_identity=f"{_ENGINES}.reference:reference_identity",
            in_process=True,
            shows_attention=True,
            ignores=("quantization", "kv_cache_dtype", "rope_scaling", *_LOCAL_ONLY),
            # The NumPy runtime on one core, at some thousand tokens.
            call_s=0.01,
            prompt_token_s=6e-5,
        ),
        EngineSpec(
            "openai",
            load=f"{_ENGINES}.openai.engine:OpenAIEngine",
            declared_identity=f"{_ENGINES}.openai.engine:declared_openai_identity",
            remote=True,
            samples=True,
            constrains=True,
            ignores=("weights", *_LOCAL_ONLY),
        ),
        EngineSpec(
            "llamacpp",
            load=f"{_ENGINES}.llamacpp:LlamaCppEngine",
            declared_identity=f"{_ENGINES}.llamacpp:llamacpp_identity",
            package="xllamacpp",
            extra="local",
            use="runs GGUF models in process",
            in_process=True,
            needs_weights=True,
            serial=True,
            samples=True,
            constrains=True,
            ignores=("dtype", "quantization", "attention", "vllm"),
            # 135M parameters on two cores.
            call_s=0.5,
            prompt_token_s=3e-3,
        ),
        EngineSpec(
            "transformers",
            load=f"{_ENGINES}.transformers:TransformersEngine",
            declared_identity=f"{_ENGINES}.transformers:transformers_identity",
            package="transformers",
            extra="transformers",
            use="runs folders of safetensors and GGUF files in process",
            in_process=True,
            needs_weights=True,
            needs_devices=True,
            serial=True,
            shows_attention=True,
            ignores=("quantization", "kv_cache_dtype", "vllm"),
            call_s=0.5,
            prompt_token_s=3e-3,
        ),
        EngineSpec(
            "kvpress",
            load=f"{_ENGINES}.kvpress.engine:KvpressEngine",
            declared_identity=f"{_ENGINES}.kvpress.engine:kvpress_identity",
            in_process=True,
            needs_devices=True,
            serial=True,
            compresses=True,
            ignores=("quantization", "kv_cache_dtype", "attention", "vllm"),
            call_s=0.5,
            prompt_token_s=3e-3,
        ),
        _VLLM,
        replace(
            _VLLM,
            name="vllm_server",
            load=f"{_ENGINES}.vllm.managed_server:VllmServerEngine",
            constrains=True,
        ),
    )
}


def engine_spec(name: str) -> EngineSpec:
    """Return the engine called ``name``, built in or from another package, or raise EngineError."""
    if name in (ours := _ours()):
        return ours[name]
    point = engine_entry_points().get(name)
    if point is None:
        raise EngineError(f"Unknown engine {name!r}; choose one of {', '.join(engine_names())}.")
    where = f"Engine {point.name!r} ({point.value})"
    try:
        spec = point.load()
    except Exception as error:
        raise EngineError(
            f"{where} cannot be imported: {error}; fix or reinstall its package."
        ) from error
    if not isinstance(spec, EngineSpec) or spec.name != point.name:
        raise EngineError(f"{where} is not an EngineSpec with that name; fix its package.")
    return spec


def _ours() -> Mapping[str, EngineSpec]:
    """Return the built-in engines and those of extensions."""
    of_extensions = (spec for extension in extensions().values() for spec in extension.engines)
    return {**BUILT_IN, **{s.name: s for s in of_extensions if s.name not in BUILT_IN}}


def engine_names() -> list[str]:
    """Return the names of all engines: the built-in ones, then those of other packages."""
    return [*_ours(), *sorted(engine_entry_points().keys() - _ours().keys())]


def engine_entry_points() -> dict[str, EntryPoint]:
    """Return other packages' engines by name; one with a built-in's name is never used."""
    from importlib.metadata import entry_points

    return {entry.name: entry for entry in entry_points(group=ENTRY_POINT_GROUP)}
