"""The section of a study file about how its assets are shown."""

from __future__ import annotations

import re

from pydantic import Field, field_validator

from contextcliff_dagster.studies.section import Section

_OWNER = re.compile(r"team:[A-Za-z0-9_]{1,60}|[^@\s]{1,60}@[^@\s]{1,60}\.[^@\s.]{1,20}")
_TAG = re.compile(r"[A-Za-z0-9_.-]{1,60}(/[A-Za-z0-9_.-]{1,60})?")
_TAG_VALUE = re.compile(r"[A-Za-z0-9_.-]{0,60}")


class AssetsSection(Section):
    """How the study's assets are shown in Dagster; no result depends on it."""

    group: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z0-9_]{1,60}$",
        description="Asset group, instead of the study's name",
        examples=["contracts_eu"],
    )
    owners: tuple[str, ...] = Field(
        default=(),
        description="`team:NAME` or an e-mail address each",
        examples=[["team:search"]],
    )
    tags: dict[str, str] = Field(
        default_factory=dict, description="Tags of every asset", examples=[{"domain": "legal"}]
    )
    kinds: tuple[str, ...] = Field(
        default=(), max_length=4, description="Kinds besides our own", examples=[["vllm"]]
    )

    @field_validator("owners")
    @classmethod
    def _owners_are_known_forms(cls, owners: tuple[str, ...]) -> tuple[str, ...]:
        for owner in owners:
            if not _OWNER.fullmatch(owner):
                raise ValueError(f"{owner!r} is neither team:NAME nor an e-mail address")
        return owners

    @field_validator("tags")
    @classmethod
    def _tags_are_short_words(cls, tags: dict[str, str]) -> dict[str, str]:
        for name, value in tags.items():
            if not _TAG.fullmatch(name) or not _TAG_VALUE.fullmatch(value):
                raise ValueError(
                    f"the tag {name!r}: {value!r} has more than letters, digits, '_', '.', '-'"
                )
        return tags

    @field_validator("kinds")
    @classmethod
    def _kinds_are_short_words(cls, kinds: tuple[str, ...]) -> tuple[str, ...]:
        for kind in kinds:
            if not _TAG_VALUE.fullmatch(kind) or not kind:
                raise ValueError(f"{kind!r} is no kind: letters, digits, '_', '.', '-'")
        return kinds
