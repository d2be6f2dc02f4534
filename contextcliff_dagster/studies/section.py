"""What every section of a study file refuses."""

from __future__ import annotations

from typing import Any, get_args

from pydantic import BaseModel, ConfigDict, ValidationInfo, field_validator
from pydantic.fields import FieldInfo


class Section(BaseModel):
    """Unknown keys are errors: a misspelt key must not silently fall back to its default."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _true_is_no_number(cls, value: Any, info: ValidationInfo) -> Any:
        if isinstance(value, bool) and _is_number(cls.model_fields[str(info.field_name)]):
            raise ValueError(f"should be a number, not {str(value).lower()}")
        return value


def listed(value: Any) -> Any:
    """A single value is a list of one."""
    return list(value) if isinstance(value, list | tuple) else [value]


def _is_number(field: FieldInfo) -> bool:
    kinds = set(get_args(field.annotation) or (field.annotation,))
    return bool(kinds & {int, float}) and bool not in kinds
