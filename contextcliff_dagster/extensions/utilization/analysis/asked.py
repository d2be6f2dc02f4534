"""What is asked of two formats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from contextcliff_dagster.extensions.utilization.benchmarks.data import BENCHMARKS, BenchmarkName
from contextcliff_dagster.extensions.utilization.rendering.formats import FORMATS, Format

if TYPE_CHECKING:
    from contextcliff_dagster.analysis.records.settings import AnalysisSettings


class Scale(NamedTuple):
    """A scale of the study: its label, and the tokens of the JSON rendering."""

    label: str
    tokens: int


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of two formats; ``margin``: the difference up to which they count as alike."""

    a: Format
    b: Format
    benchmark: BenchmarkName | None
    scales: Sequence[Scale]
    margin: float
    settings: AnalysisSettings

    @property
    def key(self) -> tuple[int, int]:
        """Names random streams, whichever format comes first."""
        formats = sorted(FORMATS.index(one) for one in (self.a, self.b))
        place = 0 if self.benchmark is None else 1 + BENCHMARKS.index(self.benchmark)
        return place, formats[0] * len(FORMATS) + formats[1]
