"""The executor for GPUs (each step is a process with whole devices), and the choice of executor.

A step that needs devices is started by a small launcher, which waits for its turn, leases them and
becomes the step. The step itself holds the lease, so the devices of a killed step become free
without any process of ours. Steps that need no devices, or have nothing left to measure, start at
once.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dagster as dg
import yaml

from contextcliff_dagster.contracts import ContextCliffError, StudyError, install_command
from contextcliff_dagster.defs.asset_specs import group
from contextcliff_dagster.defs.dagster_internals import (
    CheckStepHealthResult,
    EngineEventData,
    RetryMode,
    StepDelegatingExecutor,
    StepHandler,
    StepHandlerContext,
    get_retries_config,
    resolve_to_config_type,
    validate_config,
)
from contextcliff_dagster.defs.partitions import every_cell, tagged_cells, tagged_models
from contextcliff_dagster.defs.resources import STORE, StoreResource
from contextcliff_dagster.experiments.common.measurement import models_left
from contextcliff_dagster.experiments.common.study_run import StudyRun
from contextcliff_dagster.experiments.lookup import asked_experiments
from contextcliff_dagster.inference.devices.discovery import Gpus, most, require_devices
from contextcliff_dagster.inference.models.models_file import load_models
from contextcliff_dagster.store import slug
from contextcliff_dagster.studies import Study, find_study

EXECUTOR_VARIABLE = "CONTEXTCLIFF_EXECUTOR"

STUDY_TAG = "contextcliff/study"
"""Tag that names the study whose models a step with :data:`GPUS_TAG` runs."""

GPUS_TAG = "contextcliff/gpus"
"""Tag with a number, ``auto``, or a JSON object that maps slugs of models to these; a step then
needs as many devices as the most demanding model of its run."""

CELERY_QUEUE = "contextcliff-gpu"
"""Celery queue for steps that need devices, served by workers on machines that have them."""


def device_tags(study: Study) -> dict[str, Any]:
    """Return tags for the step that runs the study's models; empty if no model needs a device."""
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
    """Return the number of devices that a step needs in this run.

    Raises:
        ValueError: the tag does not have the form of :data:`GPUS_TAG`.
    """
    tag = step_tags.get(GPUS_TAG)
    if tag is None:
        return 0
    wanted = json.loads(tag) if tag != "auto" else tag
    if not isinstance(wanted, dict):
        return _checked(wanted)
    return gpus_of_models(step_tags, tagged_models(run_tags, list(wanted)))


def gpus_of_models(step_tags: Mapping[str, str], models: Iterable[str]) -> Gpus:
    """Return the number of devices that the given models (slugs) of a step need.

    Raises:
        ValueError: the tag does not have the form of :data:`GPUS_TAG`.
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


_SECONDS_TO_END = 30
_LAUNCHER = "contextcliff_dagster.inference.devices.launch"


@dg.executor(
    name="gpu",
    config_schema={
        "retries": get_retries_config(),
        "max_concurrent": dg.Field(
            dg.IntSource,
            is_required=False,
            description="Maximum number of concurrent steps per run; no limit if empty.",
        ),
    },
    requirements=dg.multiple_process_executor_requirements(),
)
def gpu_executor(init: dg.InitExecutorContext) -> StepDelegatingExecutor:
    """Run steps as processes that lease whole devices by the tag ``contextcliff/gpus``."""
    config: Any = init.executor_config
    retries = RetryMode.from_config(config["retries"])
    assert retries is not None
    return GpuExecutor(
        LaunchedSteps(),
        retries=retries,
        max_concurrent=config.get("max_concurrent"),
        sleep_seconds=0.2,
        check_step_health_interval_seconds=1,
    )


class GpuExecutor(StepDelegatingExecutor):
    """Step-delegating executor that ends a run before its first step if the run needs more devices
    than exist."""

    def execute(self, plan_context: Any, execution_plan: Any) -> Iterator[dg.DagsterEvent]:
        run = plan_context.dagster_run
        for key in execution_plan.step_keys_to_execute:
            tags = execution_plan.get_step_by_key(key).tags
            require_devices(gpus_left(key, tags, run), f"Step {key}")
        yield from super().execute(plan_context, execution_plan)


@dataclass
class _Started:
    process: subprocess.Popen[bytes]
    messages: int
    sentences: list[str] = field(default_factory=list)
    ended: bool = False


class LaunchedSteps(StepHandler):
    """Handler that starts, watches and ends the processes of one run's steps."""

    name = "GPU executor"

    def __init__(self) -> None:
        super().__init__()
        self._started: dict[str, _Started] = {}

    def launch_step(self, step_handler_context: StepHandlerContext) -> Iterator[dg.DagsterEvent]:
        context, key = step_handler_context, _step_key(step_handler_context)
        run, arguments = context.dagster_run, context.execute_step_args
        gpus = gpus_left(key, context.step_tags[key], run)
        # By the environment, as the worker allows: uncompressed arguments may grow too long.
        variables = {v["name"]: v["value"] for v in arguments.get_command_env()}
        ours, theirs = os.pipe()
        os.set_blocking(ours, False)
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", _LAUNCHER, str(gpus), "--tell", str(theirs)),
                *("--with-parent", str(os.getpid()), "--for", f"Step {key} of run {run.run_id}"),
                *("--", sys.executable, "-m", "dagster", "api", "execute_step"),
            ],
            env=os.environ | variables,
            pass_fds=(theirs,),
        )
        os.close(theirs)
        self._started[key] = _Started(process, ours)
        yield dg.DagsterEvent.step_worker_starting(
            context.get_step_context(key),
            f'Launching a process for "{key}".',
            metadata={"pid": dg.MetadataValue.text(str(process.pid))},
        )

    def check_step_health(self, step_handler_context: StepHandlerContext) -> CheckStepHealthResult:
        key = _step_key(step_handler_context)
        if (started := self._started.get(key)) is None:
            return CheckStepHealthResult.unhealthy("its process belonged to an executor that ended")
        messages = b""
        with suppress(OSError):  # no message yet, or the process has ended
            messages = os.read(started.messages, 65536)
        for sentence in messages.decode(errors="replace").splitlines():
            started.sentences.append(sentence)
            step_context = step_handler_context.get_step_context(key)
            dg.DagsterEvent.engine_event(step_context, sentence, EngineEventData())
        code = started.process.poll()
        if code is None or code == 0:
            return CheckStepHealthResult.healthy()
        if not started.ended:
            # Its last events may be in the log and be read before the next look.
            started.ended = True
            return CheckStepHealthResult.healthy()
        return CheckStepHealthResult.unhealthy(_why(code, started.sentences))

    def terminate_step(self, step_handler_context: StepHandlerContext) -> Iterator[dg.DagsterEvent]:
        key = _step_key(step_handler_context)
        if (started := self._started.get(key)) is None or started.process.poll() is not None:
            return
        yield dg.DagsterEvent.engine_event(
            step_handler_context.get_step_context(key),
            f"Ending the process of step {key}.",
            EngineEventData(),
        )
        started.process.terminate()
        with suppress(subprocess.TimeoutExpired):
            started.process.wait(_SECONDS_TO_END)
        if started.process.poll() is None:
            started.process.kill()
            started.process.wait()


def _step_key(context: StepHandlerContext) -> str:
    (key,) = context.execute_step_args.step_keys_to_execute or ()
    return key


def _why(code: int, sentences: list[str]) -> str:
    if code < 0:
        return f"its process was ended by {signal.Signals(-code).name}"
    return sentences[-1] if sentences else f"its process ended with exit code {code}"


def gpus_left(key: str, step_tags: Mapping[str, str], run: dg.DagsterRun) -> Gpus:
    """Return `gpus_of_step`, counting only models of step ``key`` with calls left in this run.

    It is checked before the step's process starts, which would otherwise wait for devices that it
    never uses.

    Raises:
        ValueError: the tag does not have the form of :data:`GPUS_TAG`.
    """
    gpus = gpus_of_step(step_tags, run.tags)
    if gpus == 0 or STUDY_TAG not in step_tags:
        return gpus
    try:
        left = _left(find_study(step_tags[STUDY_TAG]), key, run)
    except ContextCliffError:  # the step reports the error itself
        return gpus
    return gpus if left is None else gpus_of_models(step_tags, left)


def _left(study: Study, key: str, run: dg.DagsterRun) -> list[str] | None:
    """Return the slugs of models with calls left; None if the run does not reveal them."""
    run_config: Any = run.run_config
    root = run_config.get("resources", {}).get(STORE, {}).get("config", {}).get("root", "")
    asked = {
        f"{group(study)}__{name}": experiment
        for experiment in asked_experiments(study)
        for name in experiment.asset_names("predictions")
    }
    experiment = asked.get(key)
    if experiment is None or not isinstance(root, str):  # the environment names the store
        return None
    tagged: dict[Any, Any] = {**tagged_cells(run.tags, study, experiment)}
    campaign, cells_of = next(iter(tagged.items()), (None, every_cell(study, experiment)))
    store = StoreResource(root=root).open()
    if not store.has_ledger:
        return None
    config = run_config.get("ops", {}).get(key, {}).get("config", {})
    if config.get("from_ledger_only"):
        return []
    with StudyRun.open(study, store, campaign, may_begin=True) as study_run:
        left = models_left(study_run, experiment, cells_of, config.get("samples_per_bin"))
    return [slug(model) for model in left]


CONFIG_VARIABLE = "CONTEXTCLIFF_EXECUTOR_CONFIG"
DEFAULT_EXECUTOR = "in_process"
"""Default, because a study is a chain without parallel steps, and processes cost seconds each."""

_EXECUTORS = {
    "in_process": ("dagster", "in_process_executor"),
    "multiprocess": ("dagster", "multiprocess_executor"),
    "gpu": ("contextcliff_dagster.defs.executors.gpu", "gpu_executor"),
    "docker": ("dagster_docker", "docker_executor"),
    "k8s": ("dagster_k8s", "k8s_job_executor"),
    "celery": ("contextcliff_dagster.defs.executors.celery_workers", "celery_executor"),
    "ray": ("dagster_ray", "ray_executor"),
}


def chosen_executor() -> dg.ExecutorDefinition:
    """Return the executor named by CONTEXTCLIFF_EXECUTOR, ``in_process`` if unset, with the
    settings of the YAML file that CONTEXTCLIFF_EXECUTOR_CONFIG names.

    Raises:
        StudyError: the executor is unknown or not installed, or the file does not fit it.
    """
    name = os.environ.get(EXECUTOR_VARIABLE) or DEFAULT_EXECUTOR
    executor = _find(name)
    file = os.environ.get(CONFIG_VARIABLE)
    return executor if not file else _configured(executor, name, Path(file).expanduser())


def _find(name: str) -> dg.ExecutorDefinition:
    if name not in _EXECUTORS:
        raise StudyError(
            f"{EXECUTOR_VARIABLE} is {name!r}; set it to one of {', '.join(_EXECUTORS)}, or leave "
            "it out."
        )
    module, attribute = _EXECUTORS[name]
    try:
        return getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as error:
        needed = (error.name or module).partition(".")[0].replace("_", "-")
        raise StudyError(
            f"{EXECUTOR_VARIABLE} is {name!r}, which needs {needed}: install it with "
            f"{install_command(name)}."
        ) from error


def _configured(executor: dg.ExecutorDefinition, name: str, file: Path) -> dg.ExecutorDefinition:
    try:
        settings: Any = yaml.safe_load(file.read_text(encoding="utf-8")) or {}
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise StudyError(
            f"{CONFIG_VARIABLE} names {file}, which cannot be read as YAML: "
            f"{' '.join(str(error).split())}."
        ) from error
    # The shape only: variables of the environment are read where and when the run starts.
    schema = executor.config_schema.as_field().config_type
    checked = validate_config(resolve_to_config_type(schema), settings)
    if not checked.success:
        problem = " ".join((checked.errors or [])[0].message.split()).rstrip(".")
        raise StudyError(f"{file} does not fit the executor {name!r}: {problem}; correct the file.")
    return executor.configured(settings, name=name)
