"""A table of outcomes and the YAML file that says what it is."""

from __future__ import annotations

import math
import re
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from contextcliff_dagster.contracts import ContextCliffError
from contextcliff_dagster.yaml_config import load_validated

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = (
    "source", "model", "task", "sample", "length_tokens", "length_unit", "score", "document",
    "position", "prompt_variant",
)  # fmt: skip
_NEEDED = ("model", "length_tokens", "score")
Names = tuple[str, ...]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Cut(_Part):
    """Where a harness cut the prompts: what lies beyond was not read.

    ``tokens`` is the cut itself, or ``pattern`` finds it in the name of the condition
    (``max(\\d+)``). ``models`` and ``conditions``: those that it holds for; all by default.
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
            raise ValueError(f"is no regular expression ({error})") from None
        if groups != 1:
            raise ValueError("needs one group, the number of tokens, such as max(\\d+)")
        return pattern

    def at(self, model: str, condition: str) -> int | None:
        """The cut, tokens, of this model in this condition; None where there is none."""
        if (self.models and model not in self.models) or (
            self.conditions and condition not in self.conditions
        ):
            return None
        if self.pattern is None:
            return self.tokens
        found = re.search(self.pattern, condition)
        return int(found[1]) if found else None


class Conditions(_Part):
    """Values of a column of ``series`` to compare: each of ``b`` with ``a``.

    Those of one ``name`` are a family, for which p-values are adjusted.
    """

    name: str = Field(min_length=1)
    a: str
    b: Names = Field(min_length=1)


class Source(_Part):
    """What a table is: where it comes from, how its lengths were made, what to beware of.

    Attributes:
        table: its file, CSV, plain or gzip, beside others of its kind.
        licence: of the figures; ``None``: none was found, so that only results are shown.
        natural: tasks whose documents have their own lengths: all, none, or those named.
        made: how the lengths of the others were made, half a sentence.
        chance: mean score of guessing, by task where it differs (``"*"``: the others).
        aliases: a model's name here -> the name that it has everywhere.
        windows: tokens that a model (by its common name) takes at most.
        tasks: task here -> the name it is shown by; ``pool`` parts names of one task at its end.
        series: columns beside model, task and unit that part answers into series.
        conditions: values of ``prompt_variant`` -> words; with ``only``, others are left out.
        pairs: conditions of one table that are compared, model by model and task by task.
        failed: in ``prompt_variant``, what marks a call that failed or answered without a word.
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
        """The common name of a model."""
        return self.aliases.get(name, name)

    def task(self, name: str) -> str:
        """The name that a task is shown by."""
        name = name.partition(self.pool)[0] if self.pool else name
        return self.tasks.get(name, name)

    def words(self, condition: str) -> str:
        """What a condition is called."""
        return self.conditions.get(condition, condition)

    def is_natural(self, task: str) -> bool:
        """Whether the documents of this task (as it is shown) have their own lengths."""
        return self.natural if isinstance(self.natural, bool) else task in self.natural

    def guessing(self, task: str) -> float:
        """Mean score of guessing in this task."""
        return self.chance.get(task, self.chance.get("*", 0.0))


def load_sources(folder: Path) -> dict[str, Source]:
    """The sources in the YAML files of ``folder``, by the names of the files.

    Raises:
        ContextCliffError: there is none, or one is not of the declared shape.
    """
    files = sorted(folder.glob("*.yaml"))
    if not files:
        raise ContextCliffError(f"{folder} has no YAML file; name the folder of the sources.")
    return {file.stem: load_validated(file, Source) for file in files}


def read_table(path: Path) -> pd.DataFrame:
    """The table's rows: texts, but for length and score.

    Raises:
        ContextCliffError: it cannot be read, lacks a column, or has a score outside 0..1.
    """
    import pandas as pd

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
    for column in ("length_tokens", "score"):
        numbers = pd.to_numeric(rows[column], errors="coerce")
        rows[column] = numbers.where(numbers.abs() < math.inf)
    if outside := int((~rows["score"].dropna().between(0, 1)).sum()):
        raise ContextCliffError(
            f"The table {path} has {outside:,} scores outside 0..1; rescale them."
        )
    return rows
