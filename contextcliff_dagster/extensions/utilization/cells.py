"""What is measured apart: benchmark, format, scale, and the arm with its levels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product

from contextcliff_dagster.extensions.utilization.benchmarks.data import BenchmarkName, Evidence
from contextcliff_dagster.extensions.utilization.rendering.formats import Format, Order, Verbosity
from contextcliff_dagster.extensions.utilization.scale_labels import scale_tokens
from contextcliff_dagster.extensions.utilization.section import (
    Corruption,
    OnOff,
    QuestionPlace,
    UtilizationSection,
)
from contextcliff_dagster.store import slug

INTACT = Corruption(share=0)
ARM_KEYS = ("evidence", "verbosity", "order", "corruption", "thought", "question_place")
_SHORT = {"question_place": "question"}
BASE = "base"


@dataclass(frozen=True, slots=True)
class Arm:
    """A level of each arm's key."""

    evidence: Evidence = "growing"
    verbosity: Verbosity = "standard"
    order: Order = "chronological"
    corruption: Corruption = INTACT
    thought: OnOff = "off"
    question_place: QuestionPlace = "after"

    @property
    def of_document(self) -> Arm:
        """The same without what is no part of a document: arms that share it share its text."""
        return replace(self, thought="off", question_place="after")

    @property
    def levels(self) -> dict[str, str]:
        """Its value of each key, as labels have it."""
        return {_SHORT.get(key, key): _level(self, key) for key in ARM_KEYS}

    def label(self, base: Arm) -> str:
        """Return ``base``, or what differs from it: ``order=shuffled+thought=on``."""
        changed = [
            f"{_SHORT.get(key, key)}={_level(self, key)}"
            for key in ARM_KEYS
            if getattr(self, key) != getattr(base, key)
        ]
        return "+".join(changed) or BASE

    def suffix(self, base: Arm) -> str:
        """Return what a cell's key has at its end: nothing for ``base``, else ``-shuffled``."""
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
    """One partition: what is asked of one benchmark, format, scale and arm. ``arm_label``: as in
    the records."""

    benchmark: BenchmarkName
    format: Format
    scale: str
    arm: Arm
    arm_label: str
    key: str

    @property
    def tokens(self) -> int:
        """Tokens of the scale."""
        return scale_tokens(self.scale)


@lru_cache(maxsize=8)
def cells_of(section: UtilizationSection) -> tuple[Cell, ...]:
    """Return the cells of a study: benchmark by benchmark and format by format from the smallest
    scale to the largest, its base first."""
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
    levels = [section.levels(key) for key in ARM_KEYS]
    if section.factorial:
        return [Arm(*combination) for combination in product(*levels)]
    base = Arm(*(level[0] for level in levels))
    return [base, *_one_at_a_time(base, section)]


def _one_at_a_time(base: Arm, section: UtilizationSection) -> Iterator[Arm]:
    for key in ARM_KEYS:
        for level in section.levels(key)[1:]:
            yield replace(base, **{key: level})


def _level(arm: Arm, key: str) -> str:
    return arm.corruption.level if key == "corruption" else str(getattr(arm, key))


def _corrupted(corruption: Corruption) -> str:
    if not corruption.share:
        return "intact"
    more = "-recomputed" if corruption.of == "recomputed" else ""
    return f"corrupted-{corruption.share * 100:g}{more}"
