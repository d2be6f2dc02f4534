"""What a step needs of the machine, as tags: ours, and that of the executor in use."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from typing import Any

from contextcliff_dagster.contracts import ContextCliffError
from contextcliff_dagster.defs.dagster_internals import (
    ASSET_PARTITION_RANGE_END_TAG,
    ASSET_PARTITION_RANGE_START_TAG,
    MULTIDIMENSIONAL_PARTITION_PREFIX,
)
from contextcliff_dagster.defs.partitions import MODEL
from contextcliff_dagster.inference.devices.discovery import Gpus, most
from contextcliff_dagster.inference.models.models_file import load_models
from contextcliff_dagster.store import slug
from contextcliff_dagster.studies import Study

EXECUTOR_VARIABLE = "CONTEXTCLIFF_EXECUTOR"

STUDY_TAG = "contextcliff/study"
"""Whose models a step with :data:`GPUS_TAG` runs."""

GPUS_TAG = "contextcliff/gpus"
"""A number, ``auto``, or a JSON object of these by partition key of the dimension ``model``: the
step then needs what the most demanding of the models that its run is about needs."""

CELERY_QUEUE = "contextcliff-gpu"
"""Where Celery is used, steps that need devices go to workers on machines that have them."""


def device_tags(study: Study) -> dict[str, Any]:
    """Tags of the step that runs the study's models; none where no model needs a device."""
    try:
        models = load_models()
    except ContextCliffError:
        return {}  # reported where a model is asked; a misspelt entry must not hide every study
    wanted: dict[str, Gpus] = {
        slug(name): models[name].gpus_wanted if name in models else 0 for name in study.models
    }
    gpus = most(list(wanted.values()))
    if gpus == 0:
        return {}
    return {GPUS_TAG: json.dumps(wanted), STUDY_TAG: study.name, **_for_executor(gpus)}


def gpus_of_step(step_tags: Mapping[str, str], run_tags: Mapping[str, str]) -> Gpus:
    """How many devices a step needs in this run.

    Raises:
        ValueError: the tag is not what :data:`GPUS_TAG` says.
    """
    tag = step_tags.get(GPUS_TAG)
    if tag is None:
        return 0
    wanted = json.loads(tag) if tag != "auto" else tag
    if not isinstance(wanted, dict):
        return _checked(wanted)
    # The range of a run goes over the models in the order of their partition keys.
    names = (ASSET_PARTITION_RANGE_START_TAG, ASSET_PARTITION_RANGE_END_TAG)
    ends = {run_tags[name].split("|")[0] for name in names if name in run_tags}
    ends = ends or {run_tags.get(f"{MULTIDIMENSIONAL_PARTITION_PREFIX}{MODEL}", "")}
    ordered = list(wanted)
    places = [ordered.index(model) for model in (ends if ends <= wanted.keys() else ordered)]
    return gpus_of_models(step_tags, ordered[min(places) : max(places) + 1])


def gpus_of_models(step_tags: Mapping[str, str], models: Iterable[str]) -> Gpus:
    """How many devices serve each of these models (by partition key) of the step's.

    Raises:
        ValueError: the tag is not what :data:`GPUS_TAG` says.
    """
    wanted = json.loads(step_tags[GPUS_TAG])
    return most([_checked(wanted[model]) for model in models])


def _checked(value: Any) -> Gpus:
    if value == "auto" or (isinstance(value, int) and value >= 0):
        return value
    raise ValueError(f"tag {GPUS_TAG}: {value!r} is neither a number nor 'auto'")


def _for_executor(gpus: Gpus) -> dict[str, Any]:
    count = 1 if gpus == "auto" else gpus
    resources = {"limits": {"nvidia.com/gpu": str(count)}}
    # Nodes with GPUs are often tainted so that nothing else fills them.
    taint = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
    pod = {
        "container_config": {"resources": resources},
        "pod_spec_config": {"tolerations": [taint]},
    }
    tags: dict[str, dict[str, Any]] = {
        "k8s": {"dagster-k8s/config": pod},
        "celery": {"dagster-celery/queue": CELERY_QUEUE},
        "ray": {"dagster-ray/config": {"num_gpus": count}},
    }
    return tags.get(os.environ.get(EXECUTOR_VARIABLE, ""), {})
