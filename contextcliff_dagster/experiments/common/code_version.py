"""Code versions of assets, from the relevant study settings and the method's version."""

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
"""Keys of models.yaml that affect the answers, or whether a prompt fits."""

METHODS = {
    "raw_corpus": "1",
    "length_map": "1",
    "distribution_audit": "1",
    "manifest": "1",
    "cost_estimate": "1",
}
"""Method version of each asset that all experiments share; raise it if the same study would give
another result."""


def preparation_version(study: Study, asset: str) -> str:
    """Return the code version of an asset in `METHODS`."""
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

    The version of predictions includes the models' entries, as far as they affect the answers.
    """
    try:
        depends = dict(experiment.depends_on(study, step))
    except ContextCliffError as error:
        # A prompt file is missing: the run reports it, and other studies must stay visible.
        depends = {"error": str(error)}
    if step == "predictions":
        depends["models"] = models_of(study)
    return _hashed(experiment.version, depends)


def models_of(study: Study) -> dict[str, Any]:
    """Return the models' entries in models.yaml, limited to keys that affect their answers."""
    from contextcliff_dagster.inference.models.models_file import load_models

    try:
        entries = load_models()
    except ContextCliffError:
        return {}  # reported when the model is asked; a misspelt entry must not hide every study
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
