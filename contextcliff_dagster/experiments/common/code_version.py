"""Code versions of assets: what in a study file, and which version of the method, made them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.contracts import ContextCliffError

if TYPE_CHECKING:
    from contextcliff_dagster.experiments.common.documents import KeptDocuments
    from contextcliff_dagster.experiments.common.experiment import Experiment, Step
    from contextcliff_dagster.studies import Study

_SERVING = {
    *("engine", "model_id", "weights", "base_url", "revision", "tokenizer", "window_tokens"),
    *(
        "dtype",
        "quantization",
        "kv_cache_dtype",
        "rope_scaling",
        "attention",
        "quirks",
        "vllm",
        "kv",
    ),
}
"""Keys of models.yaml that change what is answered, or whether a prompt fits."""

METHODS = {
    "raw_corpus": "1",
    "length_map": "1",
    "distribution_audit": "1",
    "manifest": "1",
    "cost_estimate": "1",
}
"""Version of the method behind each asset that all experiments share; raised when the same study
would give another result."""


def preparation_version(study: Study, asset: str) -> str:
    """Return the code version of one of `METHODS`' assets."""
    depends: dict[str, dict[str, Any]] = {
        "raw_corpus": {"corpus": study.corpus.model_dump(mode="json")},
        "length_map": {"tokenizer": study.tokenizer},
        "distribution_audit": {
            **study.model_dump(mode="json", include={"bins", "target"}),
            "min_tokens": study.sampling.min_tokens,
            "windows": {
                name: entry and entry["window_tokens"] for name, entry in models_of(study).items()
            },
        },
        "manifest": study.model_dump(
            mode="json",
            include={"bins", "sampling", "target"},
            exclude={"sampling": {"pilot_per_bin"}},
        ),
        "cost_estimate": {
            "models": models_of(study),
            "recipe": _recipe_hash(study),
            "sampling": study.sampling.samples_per_bin,
            **{name: str(section) for name, section in study.sections.items()},
        },
    }
    return _hashed(METHODS[asset], depends[asset])


def documents_version(study: Study, documents: KeptDocuments) -> str:
    """Return the code version of an experiment's stored documents."""
    return _hashed(documents.version, documents.depends_on(study))


def experiment_version(study: Study, experiment: Experiment, step: Step) -> str:
    """Return the code version of the assets of one step of an experiment.

    That of predictions has the models' entries in it, as far as they change what is answered.
    """
    try:
        depends = dict(experiment.depends_on(study, step))
    except ContextCliffError as error:
        # A prompt file is missing: the run reports it, and a study that cannot run hides no other.
        depends = {"error": str(error)}
    if step == "predictions":
        depends["models"] = models_of(study)
    return _hashed(experiment.version, depends)


def models_of(study: Study) -> dict[str, Any]:
    """Return the models' entries in models.yaml, only with keys that change their answers."""
    from contextcliff_dagster.inference.models.models_file import load_models

    try:
        entries = load_models()
    except ContextCliffError:
        return {}  # reported where a model is asked; a misspelt entry must not hide every study
    return {
        name: entries[name].model_dump(mode="json", include=_SERVING) if name in entries else None
        for name in sorted(study.models)
    }


def _recipe_hash(study: Study) -> str:
    try:
        return study.recipe().hash
    except ContextCliffError as error:
        return str(error)


def _hashed(version: str, depends: Mapping[str, Any]) -> str:
    text = json.dumps([version, depends], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
