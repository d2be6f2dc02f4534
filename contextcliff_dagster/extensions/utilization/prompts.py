"""Prompts around each document: the design document's prompt, the arms that change it, the cells.

The instruction on the form of the answer is part of the question, because a document has questions
for numbers and for values. One recipe can therefore ask all of them in a row, and a prefix cache
serves them all.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from typing import TYPE_CHECKING, Literal

from contextcliff_dagster.experiments.common.documents import refuse_prompt_keys
from contextcliff_dagster.extensions.utilization.benchmarks.data import BenchmarkName, Evidence
from contextcliff_dagster.extensions.utilization.extraction import MARKER
from contextcliff_dagster.extensions.utilization.rendering.sentences import Format, Order, Verbosity
from contextcliff_dagster.extensions.utilization.scales import scale_tokens
from contextcliff_dagster.extensions.utilization.section import (
    Corruption,
    OnOff,
    QuestionPlace,
    UtilizationSection,
)
from contextcliff_dagster.store import slug

if TYPE_CHECKING:
    from contextcliff_dagster.inference.requests.recipe import Recipe
    from contextcliff_dagster.studies import Study

INTACT = Corruption(share=0)
ARM_KEYS = ("evidence", "verbosity", "order", "corruption", "thought", "question_place")
_SHORT = {"question_place": "question"}
BASE = "base"


@dataclass(frozen=True, slots=True)
class Arm:
    """An experimental condition: one level for each arm key."""

    evidence: Evidence = "growing"
    verbosity: Verbosity = "standard"
    order: Order = "chronological"
    corruption: Corruption = INTACT
    thought: OnOff = "off"
    question_place: QuestionPlace = "after"

    @property
    def of_document(self) -> Arm:
        """Return the arm with only the keys that affect a document's text."""
        return replace(self, thought="off", question_place="after")

    @property
    def levels(self) -> dict[str, str]:
        """Return each key's level as it appears in labels."""
        return {_SHORT.get(key, key): _level(self, key) for key in ARM_KEYS}

    def label(self, base: Arm) -> str:
        """Return "base", or the differences from it, such as ``order=shuffled+thought=on``."""
        differences = [
            f"{_SHORT.get(key, key)}={_level(self, key)}"
            for key in ARM_KEYS
            if getattr(self, key) != getattr(base, key)
        ]
        return "+".join(differences) or BASE

    def suffix(self, base: Arm) -> str:
        """Return the suffix of a cell's key, such as ``-shuffled``; empty for ``base``."""
        names = {
            "evidence": f"{self.evidence}-evidence",
            "verbosity": self.verbosity,
            "order": self.order,
            "corruption": _corrupted(self.corruption),
            "thought": "thought" if self.thought == "on" else "no-thought",
            "question_place": f"question-{self.question_place}",
        }
        parts = [names[key] for key in ARM_KEYS if getattr(self, key) != getattr(base, key)]
        return "".join(f"-{part}" for part in parts)


@dataclass(frozen=True, slots=True)
class Cell:
    """A partition: the calls of one benchmark, format, scale and arm, labelled as in records."""

    benchmark: BenchmarkName
    format: Format
    scale: str
    arm: Arm
    arm_label: str
    key: str

    @property
    def tokens(self) -> int:
        """Return the scale's number of tokens."""
        return scale_tokens(self.scale)


@lru_cache(maxsize=8)
def cells_of(section: UtilizationSection) -> tuple[Cell, ...]:
    """Return the cells of a study by benchmark, format, scale (smallest first) and arm."""
    arms = arms_of(section)
    return tuple(
        Cell(
            benchmark,
            format,
            scale,
            arm,
            arm.label(arms[0]),
            slug(f"{benchmark}-{format}-{scale}{arm.suffix(arms[0])}"),
        )
        for benchmark in section.benchmarks
        for format in section.formats
        for scale in section.scales
        for arm in arms
    )


def arms_of(section: UtilizationSection) -> list[Arm]:
    """Return the arms: the base, then one change at a time, or every combination."""
    levels = [getattr(section, key) for key in ARM_KEYS]
    if section.factorial:
        return [Arm(*combination) for combination in product(*levels)]
    base = Arm(*(level[0] for level in levels))
    changes = ({key: level} for key, of in zip(ARM_KEYS, levels, strict=True) for level in of[1:])
    return [base, *(replace(base, **change) for change in changes)]


def _level(arm: Arm, key: str) -> str:
    return arm.corruption.level if key == "corruption" else str(getattr(arm, key))


def _corrupted(corruption: Corruption) -> str:
    if not corruption.share:
        return "intact"
    suffix = "-recomputed" if corruption.of == "recomputed" else ""
    return f"corrupted-{corruption.share * 100:g}{suffix}"


QUESTION = "Question: "
TEMPLATES: dict[tuple[QuestionPlace, OnOff], str] = {
    ("after", "off"): "{document}\n\n" + QUESTION + "{question}:",
    ("after", "on"): "{document}\n\n" + QUESTION + "{question}",
    ("before", "off"): QUESTION + "{question}.\n\n{document}\n\n" + MARKER,
    ("before", "on"): QUESTION + "{question}\n\n{document}\n\nReasons, then the answer:",
}
_FORMS = {"number": "the number", "value": "the value"}


def asked(text: str, form: Literal["number", "value"], thought: OnOff) -> str:
    """Return the question with its instruction on the form of the answer."""
    if thought == "on":
        return (
            f"{text}\nReason step by step first. Then write a last line that begins with "
            f'"{MARKER}" and has just {_FORMS[form]} after it.'
        )
    return f"{text}\nAnswer with just {_FORMS[form]}"


def recipe_of(
    study: Study, thought: OnOff, question_place: QuestionPlace, thought_tokens: int
) -> Recipe:
    """Return the recipe of an arm; only mode, system text and cache come from the study.

    Raise StudyError for a key of `prompt` that would have no effect.
    """
    recipe = study.recipe()
    refuse_prompt_keys(study, "utilization", "seeds")
    limit = thought_tokens if thought == "on" else recipe.max_output_tokens
    return replace(
        recipe,
        template=TEMPLATES[question_place, thought],
        instructions=("{question}",),
        max_output_tokens=limit,
        temperature=0.0,
        output_schema=None,
    )
