"""Which executor runs the steps, chosen by CONTEXTCLIFF_EXECUTOR when the definitions load."""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import Any

import dagster as dg

from contextcliff_dagster.contracts import StudyError
from contextcliff_dagster.defs.executors.device_tags import EXECUTOR_VARIABLE

CONFIG_VARIABLE = "CONTEXTCLIFF_EXECUTOR_CONFIG"
DEFAULT_EXECUTOR = "in_process"
"""A study is one chain with nothing to run side by side; a process per step costs seconds each."""

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
    """The executor named by CONTEXTCLIFF_EXECUTOR, ``in_process`` when it is not set, with the
    settings of the YAML file that CONTEXTCLIFF_EXECUTOR_CONFIG names.

    Raises:
        StudyError: there is none of that name, it is not installed, or the file is not for it.
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
            f"{EXECUTOR_VARIABLE} is {name!r}, which needs {needed}: install "
            f"contextcliff-dagster[{name}]."
        ) from error


def _configured(executor: dg.ExecutorDefinition, name: str, file: Path) -> dg.ExecutorDefinition:
    import yaml

    from contextcliff_dagster.defs.dagster_internals import resolve_to_config_type, validate_config

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
