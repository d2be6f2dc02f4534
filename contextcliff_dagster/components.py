"""`StudyComponent`: a study in the ``defs`` folder of any Dagster project.

Its attributes are the keys of a study file. Registered with `dg` by the entry point
``dagster_dg_cli.registry_modules``.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import dagster as dg
from pydantic import BaseModel, Field

if TYPE_CHECKING:
    from contextcliff_dagster.studies import Study


class StudyParameters(BaseModel):
    """What `dg scaffold defs` takes for a study."""

    data: str | None = Field(
        default=None,
        description="Table of your own examples (csv, jsonl, parquet), from the component's folder",
    )
    model: str = Field(default="reference-short", description="Name of models.yaml")


class StudyScaffolder(dg.Scaffolder[StudyParameters]):
    """Writes a study that is measured as it is, on generated documents or on ``data``."""

    @classmethod
    def get_scaffold_params(cls) -> type[StudyParameters]:
        return StudyParameters

    def scaffold(self, request: dg.ScaffoldRequest[StudyParameters]) -> None:
        """Write ``defs.yaml``; the study is named after its folder.

        Raises:
            StudyError: the folder has no name that a study can have.
        """
        from contextcliff_dagster.studies.files import require_study_name

        name = request.target_path.name.lower().replace("_", "-")
        require_study_name(name)
        own = request.params.data
        generated = {"kind": "reference", "task": "lookup", "documents": 400, "max_tokens": 4_000}
        attributes = {
            "name": name,
            "description": "What it asks.",
            "corpus": {"kind": "file", "path": own} if own else generated,
            "tokenizer": "tiktoken:o200k_base" if own else "reference",
            "bins": {"count": 10},
            "sampling": {"samples_per_bin": 20},
            "models": [request.params.model],
        }
        dg.scaffold_component(request, attributes)


@dg.scaffold_with(StudyScaffolder)
class StudyComponent(dg.Component):
    """A ContextCliff study: at which length of its input does a model stop being reliable?

    The attributes are those of a study file (docs/studies.md). They give the chain of assets from
    corpus to report, the job `profile_<study>`, and schedules, sensors and alerts where the
    attributes ask for them. Paths go from the component's own folder. Results lie in the store
    (CONTEXTCLIFF_HOME), models are those of models.yaml (CONTEXTCLIFF_MODELS).
    """

    def __init__(self, study: Study) -> None:
        self.study = study

    @classmethod
    def get_spec(cls) -> dg.ComponentTypeSpec:
        """What `dg list components` shows."""
        return dg.ComponentTypeSpec(
            description="A ContextCliff study: the safe context cap of models on a task.",
            tags=["llm", "evaluation"],
            produces=["asset", "asset_check", "job", "schedule", "sensor"],
        )

    @classmethod
    def get_model_cls(cls) -> type[BaseModel]:
        """The declaration of a study file."""
        return _attributes()

    @classmethod
    def load(cls, attributes: BaseModel | None, context: dg.ComponentLoadContext) -> StudyComponent:
        """The component of one ``defs.yaml``; its attributes are validated before."""
        from contextcliff_dagster.studies import Study
        from contextcliff_dagster.studies.files import in_folder

        if not isinstance(attributes, Study):
            raise TypeError(f"{context.path} has no attributes of a study")
        folder = context.path if context.path.is_dir() else context.path.parent
        return cls(in_folder(attributes, folder))

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """The study's assets, jobs, schedules and sensors; none of a retired study.

        Raises:
            StudyError: a file that the study names is missing.
        """
        from contextcliff_dagster.defs.alerts import failed_runs_sensor
        from contextcliff_dagster.defs.automation import lost_runs_sensor
        from contextcliff_dagster.defs.campaign_runs import report_job, report_sensor
        from contextcliff_dagster.defs.studies import study_parts
        from contextcliff_dagster.defs.ui.results import with_token_ranges
        from contextcliff_dagster.store import Store
        from contextcliff_dagster.studies.files import is_retired

        store = Store.default()
        if is_retired(store, self.study.name):
            return dg.Definitions()
        parts, report = study_parts(self.study), report_job(self.study)
        return dg.Definitions(
            assets=with_token_ranges(parts.assets, self.study, store),
            jobs=[*parts.jobs, report],
            schedules=parts.schedules,
            sensors=[
                *parts.sensors,
                failed_runs_sensor([self.study], alone=True),
                lost_runs_sensor([self.study], alone=True),
                report_sensor([self.study], [report], alone=True),
            ],
            resources=_resources(),
        )


@cache
def _resources() -> dict[str, Any]:
    """The same objects for every study: Dagster merges no two that differ."""
    from contextcliff_dagster.defs.resources import default_resources

    return default_resources()


@cache
def _attributes() -> type[BaseModel]:
    """`Study`, whose JSON Schema also has the sections of all experiments."""
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
            for one in all_experiments():
                if one.section is not None:
                    section = TypeAdapter(one.section).core_schema
                    schema["properties"][one.name] = handler(section)
            schema["properties"]["track"]["anyOf"].append({"type": "string"})  # its kind alone
            return {**schema, "additionalProperties": False}

    return StudyAttributes
