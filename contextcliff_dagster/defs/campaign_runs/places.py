"""Where a study's models run: those of one place are measured one after the other."""

from __future__ import annotations

import os
from itertools import groupby
from urllib.parse import urlsplit

from contextcliff_dagster.contracts import ContextCliffError
from contextcliff_dagster.defs.executors.device_tags import EXECUTOR_VARIABLE
from contextcliff_dagster.inference.devices.discovery import machine_devices
from contextcliff_dagster.inference.models.models_file import get_model
from contextcliff_dagster.studies import Study

PLACE_TAG = "contextcliff/place"
"""Of a run that measures models of one place; the queue of runs is limited by it."""

_THIS_MACHINE = "this machine"
_WITH_OTHER_DEVICES = ("celery", "k8s", "ray")


def model_groups(study: Study) -> list[list[str]]:
    """Return the study's models in groups of neighbours that share a place.

    Neighbours only: a run takes one range of partitions, which are in the order of the models.
    """
    return [list(models) for _, models in groupby(study.models, key=place_of)]


def place_of(model: str) -> str:
    """Return host and port of the model's endpoint, or what it takes of this machine.

    A model that is leased GPUs is a place of its own where there are more than one: the leases
    decide which models run at once. One that cannot be looked up, too: its own run says why.
    """
    try:
        entry = get_model(model)
        url = entry.resolved_base_url() if entry.spec.remote else None
    except ContextCliffError:
        return model
    if url is not None:
        address = urlsplit(url)
        return f"{address.hostname}:{address.port}" if address.port else f"{address.hostname}"
    elsewhere = os.environ.get(EXECUTOR_VARIABLE) in _WITH_OTHER_DEVICES
    if entry.gpus_wanted and (elsewhere or len(machine_devices()) > 1):
        return model
    return _THIS_MACHINE
