"""Components for the ``defs`` folder of any Dagster project: `StudyComponent`, a study, whose
attributes are the keys of a study file, and `ContextCliffComponent`, what all studies share.

The entry point ``dagster_dg_cli.registry_modules`` registers them with `dg`.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import dagster as dg
from dagster.components.core.component_tree import TestComponentTree
from pydantic import BaseModel, Field

from contextcliff_dagster.store import store_root

if TYPE_CHECKING:
    from contextcliff_dagster.studies import Study

SCAFFOLDED = "scaffolded"
"""Folder of this package into which `dg scaffold defs` writes in a checkout."""
_OURS = f"{__package__}.{SCAFFOLDED}"
"""Its module; `definitions` loads it, and has what its studies share with all others."""


class StudyParameters(BaseModel):
    """Parameters of `dg scaffold defs` for a study."""

    data: str | None = Field(
        default=None,
        description="Your examples (csv, jsonl, parquet) or a folder of documents, from the folder "
        "of the command",
    )
    model: str = Field(default="reference-short", description="Name of a model in models.yaml")


class StudyScaffolder(dg.Scaffolder[StudyParameters]):
    """Scaffolder of a ready-to-run study on generated documents or on ``data``."""

    @classmethod
    def get_scaffold_params(cls) -> type[StudyParameters]:
        return StudyParameters

    def scaffold(self, request: dg.ScaffoldRequest[StudyParameters]) -> None:
        """Write ``defs.yaml`` for a study named after its folder.

        Raises:
            StudyError: the folder's name is not a valid study name; there is no such data or model.
        """
        from contextcliff_dagster.contracts import StudyError
        from contextcliff_dagster.inference.models.models_file import get_model
        from contextcliff_dagster.studies.files import require_study_name

        name, data = request.target_path.name.lower().replace("_", "-"), request.params.data
        require_study_name(name)
        get_model(request.params.model)
        corpus = {"kind": "reference", "task": "lookup", "documents": 400, "max_tokens": 4_000}
        if data:
            path = Path(data).expanduser().absolute()
            if not path.exists():
                raise StudyError(f"There is no file or folder {path}; correct --data.")
            there = os.path.relpath(path, request.target_path.absolute())
            corpus = {"kind": "folder" if path.is_dir() else "file", "path": there}
        attributes = {
            "name": name,
            "description": "What this study measures.",
            "corpus": corpus,
            "tokenizer": "tiktoken:o200k_base" if data else "reference",
            "bins": {"count": 10},
            "sampling": {"samples_per_bin": 20},
            "models": [request.params.model],
        }
        dg.scaffold_component(request, attributes)


@dg.scaffold_with(StudyScaffolder)
class StudyComponent(dg.Component):
    """A ContextCliff study: at which input length does a model stop being reliable?

    The attributes are the keys of a study file (docs/studies.md). They define the assets from
    corpus to report, the job `profile_<study>`, and any schedules, sensors and alerts that the
    study asks for. Paths are relative to the component's folder. Results are written to the store
    (CONTEXTCLIFF_HOME); models are looked up in models.yaml (CONTEXTCLIFF_MODELS).
    """

    def __init__(self, study: Study) -> None:
        self.study = study

    @classmethod
    def get_spec(cls) -> dg.ComponentTypeSpec:
        """Return the description that `dg list components` shows."""
        return dg.ComponentTypeSpec(
            description="A ContextCliff study: the safe context cap of models on a task.",
            tags=["llm", "evaluation"],
            produces=["asset", "asset_check", "job", "schedule", "sensor"],
        )

    @classmethod
    def get_model_cls(cls) -> type[BaseModel]:
        """Return the pydantic model of a study file."""
        return _attributes()

    @classmethod
    def load(cls, attributes: BaseModel | None, context: dg.ComponentLoadContext) -> StudyComponent:
        """Return the component of one ``defs.yaml``, whose attributes are already validated."""
        from contextcliff_dagster.studies import Study
        from contextcliff_dagster.studies.files import in_folder

        if not isinstance(attributes, Study):
            raise TypeError(f"{context.path} has no study attributes")
        folder = context.path if context.path.is_dir() else context.path.parent
        return cls(in_folder(attributes, folder))

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Return the study's assets, jobs, schedules and sensors; nothing for a retired study.

        The first study of a project without a `ContextCliffComponent` brings its defaults.

        Raises:
            StudyError: a file that the study names is missing.
        """
        from contextcliff_dagster.defs.studies import study_parts

        own = study_parts(self.study)
        if context.defs_module_name == _OURS:
            return own
        common = dg.Definitions(resources=_resources(store_root()))
        if shared := _components(context, ContextCliffComponent):
            common = common if shared[0].resources else dg.Definitions()
        elif _components(context, StudyComponent)[:1] == [self]:
            common = ContextCliffComponent().build_defs(context)
        return dg.Definitions.merge(own, common)


class ContextCliffComponent(dg.Component, dg.Model, dg.Resolvable):
    """What all ContextCliff studies of a project share: sensors, database, executor, resources.

    A project without this component has its defaults.
    """

    executor: bool = Field(default=False, description="Run all steps as CONTEXTCLIFF_EXECUTOR says")
    database: bool = Field(default=True, description="Have the asset `contextcliff/database`")
    alerts: bool = Field(default=True, description="Have the sensor `alert_failed_runs`")
    resources: bool = Field(default=True, description="Define the resources `contextcliff_...`")

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Return the definitions that the project's studies share.

        Raises:
            StudyError: the chosen executor is unknown or cannot be used.
        """
        from contextcliff_dagster.defs.studies import shared_definitions

        if context.defs_module_name == _OURS:
            return dg.Definitions()
        shared = shared_definitions(
            [component.study for component in _components(context, StudyComponent)],
            "contextcliff",
            executor=self.executor,
            database=self.database,
            alerts=self.alerts,
        )
        resources = _resources(store_root()) if self.resources else {}
        return dg.Definitions.merge(shared, dg.Definitions(resources=resources))


_Kind = TypeVar("_Kind", StudyComponent, ContextCliffComponent)


def _components(context: dg.ComponentLoadContext, kind: type[_Kind]) -> list[_Kind]:
    """Return the project's components of a kind; none where a component is built on its own."""
    tree = context.component_tree
    return [] if isinstance(tree, TestComponentTree) else tree.get_all_components(kind)


@cache
def _resources(root: Path) -> dict[str, Any]:
    """Return the resources shared by all studies of the store at ``root``; Dagster merges only
    identical objects."""
    del root
    from contextcliff_dagster.defs.resources import default_resources

    return default_resources()


@cache
def _attributes() -> type[BaseModel]:
    """Return `Study` with a JSON Schema that also has the sections of all experiments."""
    from pydantic import GetJsonSchemaHandler, TypeAdapter
    from pydantic.json_schema import JsonSchemaValue

    from contextcliff_dagster.experiments.lookup import all_experiments
    from contextcliff_dagster.studies import Study

    class StudyAttributes(Study):
        __doc__ = Study.__doc__

        @classmethod
        def __get_pydantic_json_schema__(
            cls, core_schema: Any, handler: GetJsonSchemaHandler
        ) -> JsonSchemaValue:
            schema = handler.resolve_ref_schema(handler(core_schema))
            for experiment in all_experiments():
                if experiment.section is not None:
                    section = TypeAdapter(experiment.section).core_schema
                    schema["properties"][experiment.name] = handler(section)
            schema["properties"]["track"]["anyOf"].append({"type": "string"})  # its kind alone
            return {**schema, "additionalProperties": False}

    return StudyAttributes
