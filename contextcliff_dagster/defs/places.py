"""The places at which models are measured, and how many runs that Dagster launches measure at each.

A place is an endpoint or this machine. The limit is that of Dagster's pool of the same name. Where
a study has one place, its step is in the pool and its runs wait in the queue; else the step takes a
slot of the pool for each model in turn. Where models are leased GPUs of several, there is no pool.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
from urllib.parse import urlsplit

import dagster as dg

from contextcliff_dagster.contracts import ContextCliffError
from contextcliff_dagster.defs.dagster_internals import InstanceConcurrencyContext
from contextcliff_dagster.defs.executors.gpu import EXECUTOR_VARIABLE
from contextcliff_dagster.inference.devices.discovery import machine_devices
from contextcliff_dagster.inference.devices.leases import LEASED_VARIABLE
from contextcliff_dagster.inference.execution.run_control import RunControl
from contextcliff_dagster.inference.models.models_file import get_model
from contextcliff_dagster.studies import Study

_THIS_MACHINE = "this-machine"
_WITH_OTHER_DEVICES = ("celery", "k8s", "ray")


def place_of(model: str) -> str:
    """Return what the model occupies: the host and port of its endpoint, or devices here.

    If there are several GPUs, each model that leases GPUs is its own place, because the leases
    decide which models run at once; so is one whose steps run on other machines, and one that
    cannot be looked up (its run reports why).
    """
    try:
        entry = get_model(model)
        url = entry.resolved_base_url() if entry.spec.remote else None
    except ContextCliffError:
        return model
    if url is not None:
        address = urlsplit(url)
        return f"{address.hostname}:{address.port}" if address.port else f"{address.hostname}"
    if os.environ.get(EXECUTOR_VARIABLE) in _WITH_OTHER_DEVICES:
        return model
    # A process that has leased devices sees no others.
    leases = LEASED_VARIABLE in os.environ or len(machine_devices()) > 1
    return model if entry.gpus_wanted and leases else _THIS_MACHINE


def model_groups(study: Study) -> list[list[str]]:
    """Return the study's models in groups of adjacent models that share a place.

    Groups are adjacent because a run takes one range of partitions, in the order of the models.
    """
    return [list(models) for _, models in groupby(study.models, key=place_of)]


def pool_of(study: Study) -> str | None:
    """Return the pool of a step that measures the study; None if it has several places."""
    places = {place_of(model) for model in study.models}
    return places.pop() if len(places) == 1 and places.isdisjoint(study.models) else None


@contextmanager
def slot_taken(context: dg.OpExecutionContext, model: str, control: RunControl) -> Iterator[None]:
    """Hold a slot of the pool of the model's place, unless the step is in a pool itself.

    A slot of a killed run is freed by Dagster's run monitoring. A run that must end does not wait.
    """
    if context.op_def.pool is not None or (place := place_of(model)) == model:
        yield
        return
    step, told = context.op_def.name, False
    with InstanceConcurrencyContext(context.instance, context.run) as slots:
        while not slots.claim(place, step) and not control.must_end():
            if control.on_wait and not told:
                told = True
                control.on_wait(
                    f"{model} waits for a slot of the pool {place}, in which other runs measure; "
                    "the limit is set under Deployment > Concurrency."
                )
            time.sleep(0.2)
        try:
            yield
        finally:
            slots.free_step(step)
