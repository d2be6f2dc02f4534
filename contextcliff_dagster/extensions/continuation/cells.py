"""What is measured apart: a size of the window, at a temperature."""

from __future__ import annotations

from dataclasses import dataclass

from contextcliff_dagster.extensions.continuation.section import ContinuationSection

BASE = "base"


@dataclass(frozen=True, slots=True)
class Cell:
    """One partition. ``arm``: as in the records, `BASE` or what differs from it."""

    tokens: int
    temperature: float
    arm: str

    @property
    def key(self) -> str:
        """The partition's key: ``c004096``, ``c004096-t0_7``; keys sort as sizes do."""
        hot = "" if self.arm == BASE else f"-t{self.temperature:g}".replace(".", "_")
        return f"c{self.tokens:06d}{hot}"


def cells_of(section: ContinuationSection) -> tuple[Cell, ...]:
    """Return the cells of a study, those of the first temperature first, the smallest first."""
    first = section.temperature[0]
    return tuple(
        Cell(size, hot, BASE if hot == first else f"temperature {hot:g}")
        for hot in section.temperature
        for size in section.sizes
    )
