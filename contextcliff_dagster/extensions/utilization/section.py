"""The key `utilization` of a study file."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BeforeValidator, Field, field_validator, model_validator

from contextcliff_dagster.experiments.common.documents import DEFAULT_TOKENIZER
from contextcliff_dagster.extensions.utilization.benchmarks.data import (
    ALIASES,
    BenchmarkName,
    Evidence,
)
from contextcliff_dagster.extensions.utilization.rendering.sentences import (
    FORMAT_ALIASES,
    Format,
    Order,
    Verbosity,
)
from contextcliff_dagster.extensions.utilization.scales import parse_scale, scale_tokens
from contextcliff_dagster.studies.sections import Section, listed

OnOff = Literal["off", "on"]
QuestionPlace = Literal["after", "before"]
CorruptedRecords = Literal["distractors", "recomputed"]
Match = Literal["content", "tokens"]
One = TypeVar("One")

MOST_SEEDS = 1000


def _on_off(value: Any) -> Any:
    """Return on/off words for a value or list; YAML reads a bare ``on`` as true."""
    words = {True: "on", False: "off"}
    return [words[item] if isinstance(item, bool) else item for item in listed(value)]


def _shares(value: Any) -> Any:
    """Return corruption levels, with text such as ``5%:recomputed`` split into its two keys."""
    return [item if isinstance(item, dict) else _share(str(item)) for item in listed(value)]


def _share(written: str) -> dict[str, str]:
    share, _, of = written.partition(":")
    return {"share": share, **({"of": of} if of else {})}


Levels = Annotated[
    tuple[One, ...],
    BeforeValidator(listed, json_schema_input_type=tuple[One, ...] | One),
    Field(min_length=1),
]


class Corruption(Section):
    """The share of changed records, and whether answers are recomputed."""

    share: float = Field(ge=0, lt=1, description="Share of the records", examples=[0.05])
    of: CorruptedRecords = Field(
        default="distractors",
        description="distractors: only irrelevant records, answers stay; recomputed: any record, "
        "answers are recomputed",
        json_schema_extra={"with": {"share": 0.05}},
    )

    @field_validator("share", mode="before", json_schema_input_type=float | str)
    @classmethod
    def _share_is_a_number(cls, value: Any) -> Any:
        if isinstance(value, str) and value.endswith("%"):
            try:
                return float(value[:-1]) / 100
            except ValueError:
                raise ValueError(f"{value!r} is not a share; use 0.05 or 5%") from None
        return value

    @property
    def level(self) -> str:
        """Return the level as in an arm's label: ``0.05``, ``0.05 recomputed``."""
        of = " recomputed" if self.of == "recomputed" and self.share else ""
        return f"{self.share:g}{of}"


class UtilizationSection(Section):
    """The same records as text in several formats and lengths, with questions about them.

    The keys ``evidence``, ``verbosity``, ``order``, ``corruption``, ``thought`` and
    ``question_place`` are arms: one value, or a list whose first value is the base. Each further
    value is measured with all other keys at their base, unless ``factorial`` requests every
    combination.
    """

    benchmarks: Levels[BenchmarkName] = Field(
        default=("warehouse", "constraints", "network"),
        description="warehouse (or ledger), constraints (or constraint), network",
        examples=[["warehouse"]],
    )
    formats: Levels[Format] = Field(
        default=("jsonl", "prose"),
        description="jsonl (or structured), prose, csv, markdown; the first is compared with each "
        "of the others",
        examples=[["jsonl", "prose", "csv"]],
    )
    scales: Levels[str] = Field(
        default=("1k", "2k", "4k", "8k"),
        description="Tokens of the JSON lines, 200 to 10M; `1k-64k` doubles from 1k to 64k",
        examples=[["100k", "500k", "1M", "2M"]],
    )
    seeds: int = Field(
        default=10, ge=1, le=MOST_SEEDS, description="Documents per benchmark and scale"
    )
    questions: int = Field(
        default=4, ge=1, le=64, description="Questions per document, the lookup first"
    )
    evidence: Levels[Evidence] = Field(
        default=("growing",),
        description="growing: longer documents have more relevant records; fixed: their number is "
        "the same at each scale",
        examples=[["growing", "fixed"]],
    )
    match: Match = Field(
        default="content",
        description="content: all formats hold the same records; tokens: each format has the "
        "scale's tokens, and documents are not paired",
    )
    verbosity: Levels[Verbosity] = Field(
        default=("standard",),
        description="Length of keys and sentences: standard, terse, descriptive",
        examples=[["standard", "terse", "descriptive"]],
    )
    order: Levels[Order] = Field(
        default=("chronological",),
        description="Order of the records: chronological or shuffled; their times stay",
        examples=[["chronological", "shuffled"]],
    )
    corruption: Annotated[
        tuple[Corruption, ...],
        BeforeValidator(_shares, json_schema_input_type=Corruption | float | str | list[Any]),
        Field(min_length=1),
    ] = Field(
        default=(Corruption(share=0),),
        description="Share of changed records; {share, of: recomputed} also recomputes the answers",
        examples=[
            [{"share": 0.0, "of": "distractors"}, {"share": 0.05, "of": "recomputed"}],
        ],
    )
    thought: Annotated[
        tuple[OnOff, ...],
        BeforeValidator(_on_off, json_schema_input_type=OnOff | bool | list[OnOff | bool]),
        Field(min_length=1),
    ] = Field(
        default=("off",),
        description="on: the model reasons first and answers on a last line",
        examples=[["off", "on"]],
    )
    question_place: Levels[QuestionPlace] = Field(
        default=("after",),
        description="Question after or before the document",
        examples=[["after", "before"]],
    )
    thought_tokens: int = Field(
        default=1024, ge=16, le=1_000_000, description="Output limit in tokens if `thought` is on"
    )
    margin: float = Field(
        default=0.1, gt=0, lt=1, description="Smallest accuracy difference that matters"
    )
    tokenizer: str = Field(
        default="",
        description=f"Tokenizer for scales and lengths; else the study's, else {DEFAULT_TOKENIZER}",
        examples=["tiktoken:cl100k_base"],
    )
    factorial: bool = Field(
        default=False,
        description="Measure all combinations of arm values, at higher cost",
    )

    @field_validator("benchmarks", mode="before", json_schema_input_type=list[str] | str)
    @classmethod
    def _benchmark_aliases(cls, value: Any) -> Any:
        return [ALIASES.get(item, item) for item in listed(value)]

    @field_validator("formats", mode="before", json_schema_input_type=list[str] | str)
    @classmethod
    def _format_aliases(cls, value: Any) -> Any:
        return [FORMAT_ALIASES.get(item, item) for item in listed(value)]

    @field_validator("scales", mode="before", json_schema_input_type=list[str | int] | str | int)
    @classmethod
    def _scale_labels(cls, value: Any) -> Any:
        parts = (part for item in listed(value) for part in re.split(r"\s*,\s*", str(item)))
        labels = [label for name in parts for label in parse_scale(name)]
        return sorted(labels, key=scale_tokens)

    @model_validator(mode="after")
    def _values_are_distinct(self) -> UtilizationSection:
        for key, value in self:
            if isinstance(value, tuple) and len(set(map(_hashable, value))) < len(value):
                raise ValueError(f"{key!r} lists a value twice; remove one")
        return self


def _hashable(value: Any) -> Any:
    return value.level if isinstance(value, Corruption) else value
