"""The key `track` of a study file."""

from __future__ import annotations

from typing import Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, model_validator

from contextcliff_dagster.studies.section import Section

_KEYS = {"mlflow": {"tracking_uri", "experiment"}, "wandb": {"project", "entity"}}


class TrackSection(Section):
    """The experiment tracker that every report is logged to (docs/tracking.md); its name alone, or
    with what it needs. Keys and passwords are in the tracker's own environment variables."""

    kind: Literal["mlflow", "wandb"] = Field(description="The tracker: mlflow or wandb")
    tracking_uri: str | None = Field(
        default=None,
        min_length=1,
        description="MLflow: address of its server, or of a database or folder (sqlite:///..., a "
        "path from the study file). Default: MLFLOW_TRACKING_URI, else mlflow/ in the store",
        examples=["http://127.0.0.1:5000"],
        json_schema_extra={"with": {"kind": "mlflow"}},
    )
    experiment: str | None = Field(
        default=None,
        min_length=1,
        description="MLflow: experiment that the runs belong to. Default: contextcliff/ and the "
        "study's name",
        examples=["leases"],
        json_schema_extra={"with": {"kind": "mlflow"}},
    )
    project: str | None = Field(
        default=None,
        min_length=1,
        description="Weights & Biases: project of the runs. Default: WANDB_PROJECT, else "
        "contextcliff",
        examples=["leases"],
        json_schema_extra={"with": {"kind": "wandb"}},
    )
    entity: str | None = Field(
        default=None,
        min_length=1,
        description="Weights & Biases: user or team. Default: WANDB_ENTITY, else your own",
        examples=["my-team"],
        json_schema_extra={"with": {"kind": "wandb"}},
    )

    @model_validator(mode="before")
    @classmethod
    def _name_alone(cls, given: Any) -> Any:
        return {"kind": given} if isinstance(given, str) else given

    @model_validator(mode="after")
    def _keys_belong_together(self) -> Self:
        for kind, keys in _KEYS.items():
            for key in sorted(keys):
                if kind != self.kind and getattr(self, key) is not None:
                    raise ValueError(f"'{key}' is for 'kind: {kind}'")
        if self.tracking_uri and urlsplit(self.tracking_uri).username is not None:
            raise ValueError(
                "'tracking_uri' has a user or password in it; put them into "
                "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD"
            )
        return self
