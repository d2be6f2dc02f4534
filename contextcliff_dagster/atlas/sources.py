"""A table of published outcomes, and the YAML file that describes it."""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Literal

import pandas as pd
from pydantic import BaseModel, ConfigDict, Field, field_validator

from contextcliff_dagster.contracts import ContextCliffError
from contextcliff_dagster.yaml_config import load_validated

COLUMNS = (
    "source", "model", "task", "sample", "length_tokens", "length_unit", "score", "document",
    "position", "prompt_variant",
)  # fmt: skip
_REPLIES = ("response", "output", "prediction")
"""Alternative names of the column `reply`."""
_NEEDED = ("model", "length_tokens", "score")
Names = tuple[str, ...]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Cut(_Part):
    """The length at which a harness cut prompts; text beyond it was not read.

    ``tokens`` is the cut, or ``pattern`` matches it in the condition's name (``max(\\d+)``). It
    applies to ``models`` and ``conditions``; to all if they are empty.
    """

    tokens: int | None = Field(default=None, ge=1)
    pattern: str | None = None
    where: Literal["tail", "middle", "head"]
    models: Names = ()
    conditions: Names = ()

    @field_validator("pattern")
    @classmethod
    def _has_a_group(cls, pattern: str | None) -> str | None:
        try:
            groups = re.compile(pattern).groups if pattern is not None else 1
        except re.error as error:
            raise ValueError(f"is not a regular expression ({error})") from None
        if groups != 1:
            raise ValueError("needs one group, the number of tokens, such as max(\\d+)")
        return pattern

    def at(self, condition: str) -> int | None:
        """Return the cut in this condition, in tokens, or None."""
        if self.conditions and condition not in self.conditions:
            return None
        if self.pattern is None:
            return self.tokens
        match = re.search(self.pattern, condition)
        return int(match[1]) if match else None


class Conditions(_Part):
    """Values of a column of ``series`` to compare: each of ``b`` with ``a``.

    Entries with the same ``name`` are a family, for which p-values are adjusted.
    """

    name: str = Field(min_length=1)
    a: str
    b: Names = Field(min_length=1)


class Source(_Part):
    """Description of a table: its origin, how its lengths were made, and its traps.

    Attributes:
        table: its CSV file, plain or gzip, in the tables' folder.
        licence: licence of the figures; ``None``: unknown, so that only results are shown.
        natural: tasks whose documents have natural lengths: all, none, or the named ones.
        made: how the other tasks' lengths were manufactured, as a clause.
        chance: mean score of guessing, by task where it differs (``"*"``: the others).
        aliases: a model's name here -> its common name; other keys accept both.
        windows: most tokens that a model accepts.
        tokens_a: most tokens per unit of a dense task (``"*"``: the others).
        tasks: task here -> its display name; names that agree up to ``pool`` are one task.
        series: columns besides model, task and unit that divide answers into series.
        conditions: values of ``prompt_variant`` -> words; with ``only``, others are left out.
        pairs: conditions of one table that are compared, model by model and task by task.
        failed: mark in ``prompt_variant`` of a call that failed or answered without a word.
        traps: sentences that every page of the source shows.
    """

    name: str = Field(min_length=1)
    table: str = Field(min_length=1)
    citation: str = Field(min_length=1)
    url: str | None = None
    licence: str | None = None
    natural: bool | Names = True
    made: str | None = None
    chance: dict[str, Annotated[float, Field(ge=0, le=0.9)]] = {}
    aliases: dict[str, str] = {}
    windows: dict[str, Annotated[int, Field(ge=1)]] = {}
    tokens_a: dict[str, Annotated[float, Field(gt=0, le=100)]] = {}
    tasks: dict[str, str] = {}
    pool: str | None = None
    series: Names = ("prompt_variant",)
    conditions: dict[str, str] = {}
    only: bool = False
    pairs: tuple[Conditions, ...] = ()
    failed: Names = ()
    cut: tuple[Cut, ...] = ()
    traps: Names = ()

    @field_validator("table")
    @classmethod
    def _is_a_name(cls, table: str) -> str:
        if Path(table).name != table:
            raise ValueError("is the name of a file, without a folder")
        return table

    @field_validator("series")
    @classmethod
    def _are_columns(cls, series: Names) -> Names:
        if unknown := sorted(set(series) - set(COLUMNS)):
            raise ValueError(f"has no column {unknown[0]!r}; choose of {', '.join(COLUMNS)}")
        return series

    def model(self, name: str) -> str:
        return self.aliases.get(name, name)

    def task(self, name: str) -> str:
        name = name.partition(self.pool)[0] if self.pool else name
        return self.tasks.get(name, name)

    def words(self, condition: str) -> str:
        return self.conditions.get(condition, condition)

    def is_natural(self, task: str) -> bool:
        """Return whether the documents of a task (display name) have natural lengths."""
        if isinstance(self.natural, bool):
            return self.natural
        return task in map(self.task, self.natural)

    def of_task(self, values: Mapping[str, float], task: str, otherwise: float) -> float:
        """Return the value of a task (display name) in ``values``, else "*", else ``otherwise``."""
        by_name = {self.task(name): value for name, value in values.items()}
        return by_name.get(task, values.get("*", otherwise))

    def window(self, model: str) -> int | None:
        """Return the most tokens that a model (common name) accepts."""
        return {self.model(name): most for name, most in self.windows.items()}.get(model)

    def cuts(self, model: str, conditions: Iterable[str]) -> list[int]:
        """Return the lengths in tokens at which a model's (common name) prompts were cut."""
        cuts = [cut for cut in self.cut if not cut.models or model in map(self.model, cut.models)]
        places = (cut.at(condition) for cut in cuts for condition in conditions)
        return [at for at in places if at is not None]

    def check(self, name: str, rows: pd.DataFrame) -> None:
        """Raise a ContextCliffError if a key names something that the source's table lacks."""
        models, tasks = {*rows["model"]}, {*rows["task"]}
        models |= {*map(self.model, models)}
        tasks |= {*map(self.task, tasks), "*"}
        values = {value for column in self.series for value in rows[column]}
        for key, names, valid in (
            ("windows", self.windows, models),
            ("cut.models", (model for cut in self.cut for model in cut.models), models),
            ("natural", () if isinstance(self.natural, bool) else self.natural, tasks),
            ("chance", self.chance, tasks),
            ("tokens_a", self.tokens_a, tasks),
            ("conditions", self.conditions if self.only else (), values),
        ):
            if unknown := sorted({*names} - valid):
                choices = ", ".join(sorted(valid - {"*", ""})[:12])
                raise ContextCliffError(
                    f"{name}.yaml: `{key}` names {unknown[0]!r}, which the table {self.table} does "
                    f"not have; it has {choices}."
                )


def load_sources(folder: Path) -> dict[str, Source]:
    """Load the sources from the YAML files of ``folder``, by file name.

    Raises:
        ContextCliffError: there is no file, or one does not match the schema.
    """
    files = sorted(folder.glob("*.yaml"))
    if not files:
        raise ContextCliffError(f"{folder} has no YAML file; give the folder of the sources.")
    return {file.stem: load_validated(file, Source) for file in files}


def read_table(path: Path) -> pd.DataFrame:
    """Return the table's rows; all columns are texts except length and score.

    Raises:
        ContextCliffError: the table cannot be read, lacks a column, or has a score outside 0..1.
    """
    try:
        rows = pd.read_csv(path, dtype=str, keep_default_na=False)
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise ContextCliffError(
            f"The table {path} cannot be read ({error}); give a CSV file, plain or gzip."
        ) from error
    for column in COLUMNS:
        if column not in rows:
            if column in _NEEDED:
                raise ContextCliffError(f"The table {path} has no column {column!r}.")
            rows[column] = ""
    for alias in _REPLIES:
        if alias in rows and "reply" not in rows:
            rows = rows.rename(columns={alias: "reply"})
    for column in ("length_tokens", "score"):
        plain = rows[column].str.strip().replace({"True": "1", "False": "0"})
        numbers = pd.to_numeric(plain, errors="coerce")
        rows[column] = numbers.where(numbers.abs() < math.inf)
    if outside := int((~rows["score"].dropna().between(0, 1)).sum()):
        raise ContextCliffError(
            f"The table {path} has {outside:,} scores outside 0..1; rescale them."
        )
    return rows
