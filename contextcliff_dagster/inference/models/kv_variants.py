"""Model variants with a compressed or lower-precision KV cache, derived from a model by name.

``BASE+POLICY@BUDGET`` is the model BASE of models.yaml with a fraction of its cache's entries
(`smollm2-135m+snapkv@0.2`), ``BASE+none`` is the same engine with every entry, and
``BASE+PRECISION`` is the model with keys and values in another type (`smollm2-135m+q4_0`). An entry
of models.yaml with exactly such a name takes precedence.
"""

from __future__ import annotations

import re
from collections import UserDict
from collections.abc import Mapping
from typing import Any, NamedTuple, get_args

import pydantic

from contextcliff_dagster.contracts import StudyError
from contextcliff_dagster.inference.models.entry import KvPolicy, ModelEntry
from contextcliff_dagster.reference.card import REFERENCE_MODELS

POLICIES: tuple[str, ...] = get_args(KvPolicy)
"""Policies of engine `kvpress` for choosing entries; all but ``none`` have a budget."""

PRECISIONS: Mapping[str, tuple[str, ...]] = {
    "llamacpp": ("f16", "q8_0", "q5_1", "q4_0"),
    "vllm": ("fp8",),
    "vllm_server": ("fp8",),
}
"""Cache types by engine."""

LOWEST_BUDGET = 0.1
_SYNONYMS = {"h20": "h2o"}
_NAME = re.compile(r"(?P<base>.+)\+(?P<policy>[A-Za-z0-9_]+)(?:@(?P<budget>\d+(?:\.\d*)?|\.\d+))?")
_CARRIED = (
    *("model_id", "weights", "tokenizer", "window_tokens", "dtype", "rope_scaling", "threads"),
    *("gpus", "price", "timeout_s", "call_deadline_s", "max_attempts", "breaker_failures"),
)
"""Fields that an entry of engine `kvpress` copies from its base."""


class KvVariant(NamedTuple):
    """A policy or precision of a model's cache; ``budget`` is the fraction of entries kept."""

    base: str
    policy: str
    budget: float = 1.0

    @property
    def has_budget(self) -> bool:
        """Whether the policy chooses entries."""
        return self.policy in POLICIES and self.policy != "none"

    @property
    def name(self) -> str:
        """The name under which the variant is measured."""
        budget = f"@{self.budget:g}" if self.has_budget else ""
        return f"{self.base}+{self.policy}{budget}"


def kv_policy(name: str) -> str | None:
    """Return the policy or precision in our spelling (any case, H20 for H2O), or None."""
    lower = name.lower()
    lower = _SYNONYMS.get(lower, lower)
    is_known = lower in POLICIES or any(lower in types for types in PRECISIONS.values())
    return lower if is_known else None


def parse_kv_variant(name: str) -> KvVariant | None:
    """Return the variant that ``name`` denotes, or None if it is not a variant's name.

    This does not check that the base exists or that the budget is allowed.
    """
    match = _NAME.fullmatch(name)
    policy = match and kv_policy(match["policy"])
    if not match or not policy:
        return None
    variant = KvVariant(match["base"], policy, float(match["budget"] or 1))
    return variant if variant.has_budget == (match["budget"] is not None) else None


def kv_entry(base: ModelEntry, policy: str, budget: float = 1.0) -> ModelEntry:
    """Return the entry of ``base`` under a policy or precision.

    Raises:
        StudyError: the engine does not support it, or the budget is not from 0.1 to 1.
    """
    spelling = kv_policy(policy)
    if spelling is None:
        types = dict.fromkeys(name for names in PRECISIONS.values() for name in names)
        raise StudyError(
            f"Unknown KV policy {policy!r}; choose one of {', '.join([*POLICIES, *types])}."
        )
    variant = KvVariant(base.name, spelling, float(f"{budget:g}"))
    if variant.has_budget and not LOWEST_BUDGET <= variant.budget <= 1:
        raise StudyError(
            f"Model {variant.name!r}: a budget is a share of the cache from {LOWEST_BUDGET:g} to "
            f"1, not {variant.budget:g}."
        )
    if spelling in POLICIES and not variant.has_budget and budget != 1:
        raise StudyError(f"Model {variant.name!r}: policy none keeps all; leave the budget out.")
    fields = _pressed(base, variant) if spelling in POLICIES else _in_type(base, variant)
    try:
        return ModelEntry.model_validate({**fields, "name": variant.name})
    except pydantic.ValidationError as error:
        raise StudyError(
            f"Model {variant.name!r} cannot be made of {base.name!r}: "
            f"{error.errors()[0]['msg']}; write a separate entry in models.yaml."
        ) from error


def _in_type(base: ModelEntry, variant: KvVariant) -> dict[str, Any]:
    able = [engine for engine, types in PRECISIONS.items() if variant.policy in types]
    if base.engine not in able:
        why = "its server decides that" if base.spec.remote else f"that needs {' or '.join(able)}"
        raise StudyError(
            f"Model {variant.name!r}: engine {base.engine!r} of {base.name!r} cannot keep the "
            f"cache in {variant.policy}; {why}."
        )
    fields = base.model_dump(exclude_unset=True)
    return {**fields, "kv_cache_dtype": variant.policy, "description": _description(variant)}


def _pressed(base: ModelEntry, variant: KvVariant) -> dict[str, Any]:
    local = base.weights is not None or base.model_id in REFERENCE_MODELS
    kvpress_reads = base.engine in ("reference", "transformers", "llamacpp", "kvpress")
    why = ""
    if base.spec.remote:
        why = "its server decides which entries of the cache are kept"
    elif not kvpress_reads and base.engine not in ("vllm", "vllm_server"):
        why = f"engine {base.engine!r} has no weights that kvpress reads"
    elif not local:
        why = "kvpress reads only weights on this machine, so set `weights` to a folder"
    elif base.quantization:
        why = f"kvpress cannot read weights with quantization {base.quantization!r}"
    elif base.kv_cache_dtype not in (None, "auto", "f16"):
        why = (
            f"its cache is {base.kv_cache_dtype}, which kvpress does not support; choose a "
            "model without it"
        )
    if why:
        raise StudyError(f"Model {variant.name!r} cannot be made of {base.name!r}: {why}.")
    fields = {name: value for name in _CARRIED if (value := getattr(base, name)) is not None}
    if fields.get("dtype") == "auto":
        del fields["dtype"]
    rope = fields.get("rope_scaling")
    if rope and "type" in rope:
        fields["rope_scaling"] = {"rope_type" if k == "type" else k: v for k, v in rope.items()}
    kv = {"policy": variant.policy}
    return {
        **fields,
        "engine": "kvpress",
        "kv": {**kv, "budget": variant.budget} if variant.has_budget else kv,
        "description": _description(variant),
    }


def _description(variant: KvVariant) -> str:
    if variant.has_budget:
        return (
            f"{variant.base} with {variant.budget:.0%} of its KV cache, chosen by {variant.policy}."
        )
    if variant.policy == "none":
        return f"{variant.base} with its whole KV cache, in the engine that others are pressed in."
    return f"{variant.base} with a KV cache of type {variant.policy}."


def kv_of(entry: ModelEntry) -> KvVariant | None:
    """Return the variant that ``entry`` is, derived or written in models.yaml.

    The base of a written entry is the entry itself. Returns None if it has neither a policy nor a
    known precision.
    """
    derived = parse_kv_variant(entry.name)
    if entry.kv is not None:
        written = KvVariant(entry.name, entry.kv.policy, entry.kv.budget)
    elif entry.kv_cache_dtype in PRECISIONS.get(entry.engine, ()):
        written = KvVariant(entry.name, str(entry.kv_cache_dtype))
    else:
        return None
    return derived if derived and derived[1:] == written[1:] else written


def kv_baseline(base: ModelEntry, policy: str) -> str:
    """Return the name of the model with which ``base`` under ``policy`` is compared.

    Raises:
        StudyError: the base's own cache precision cannot be undone.
    """
    if kv_policy(policy) in POLICIES:
        return base.name if base.engine == "kvpress" and base.kv is None else f"{base.name}+none"
    if base.kv_cache_dtype in (None, "auto", "f16"):
        return base.name
    if base.engine == "llamacpp":
        return f"{base.name}+f16"
    raise StudyError(
        f"Model {base.name!r} has `kv_cache_dtype: {base.kv_cache_dtype}`; a comparison needs a "
        "model of models.yaml without it."
    )


class Models(UserDict[str, ModelEntry]):
    """Entries by name, including the variants of each; only written entries are listed."""

    def __missing__(self, name: str) -> ModelEntry:
        variant = parse_kv_variant(name)
        if variant is None or variant.base not in self.data:
            raise KeyError(name)
        try:
            entry = kv_entry(self.data[variant.base], variant.policy, variant.budget)
        except StudyError as error:
            raise KeyError(name) from error
        return entry.model_copy(update={"name": name})

    def __contains__(self, name: object) -> bool:
        # Not by `get`, which calls this method from Python 3.12 on.
        try:
            return isinstance(name, str) and self[name] is not None
        except KeyError:
            return False
