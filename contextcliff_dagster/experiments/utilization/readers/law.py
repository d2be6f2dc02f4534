"""The planted law: how probably a document of some format and length is still read right."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import get_args

from contextcliff_dagster.experiments.utilization.rendering.formats import FORMAT_ALIASES, Format

EXAMPLE = "jsonl=40000/4, prose=12000/4, top=1, chance=0"
_PART = re.compile(r"([a-z]+) *= *([0-9._]+)(?: */ *([0-9.]+))?")


@dataclass(frozen=True, slots=True)
class Loss:
    """``half_tokens``: length of the document at which half is lost; ``slope``: how steeply, as the
    exponent of a logistic law in log length."""

    half_tokens: float
    slope: float = 4.0


@dataclass(frozen=True, slots=True)
class PlantedLaw:
    """``top``: share of short documents that are read right; ``chance``: share of the lost ones
    that are answered right all the same. A format without a loss is read right at any length."""

    losses: Mapping[Format, Loss] = field(default_factory=dict)
    top: float = 1.0
    chance: float = 0.0

    def read(self, format: Format, tokens: float) -> float:
        """Return the probability that a document is read, not lost."""
        loss = self.losses.get(format)
        if loss is None or tokens <= 0:
            return self.top
        return float(self.top / (1 + (tokens / loss.half_tokens) ** loss.slope))

    def right(self, format: Format, tokens: float) -> float:
        """Return the probability of a right answer: read, or lost and met by chance."""
        read = self.read(format, tokens)
        return read + (1 - read) * self.chance


def parse_law(text: str) -> PlantedLaw:
    """Return the law that ``text`` words, such as `EXAMPLE`: per format tokens/slope.

    Raises:
        ValueError: a part of it is not understood or out of range.
    """
    losses: dict[Format, Loss] = {}
    shares = {"top": 1.0, "chance": 0.0}
    for part in filter(None, (one.strip() for one in text.split(","))):
        match = _PART.fullmatch(part)
        if match is None:
            raise ValueError(f"{part!r} is no NAME=NUMBER")
        name, number, slope = match[1], float(match[2]), float(match[3] or 4)
        format = FORMAT_ALIASES.get(name, name)
        if name in shares and not match[3] and 0 <= number <= 1:
            shares[name] = number
        elif format in get_args(Format) and number > 0 and slope > 0:
            losses[format] = Loss(number, slope)  # type: ignore[index]
        else:
            raise ValueError(f"{part!r} has an unknown name or a number out of range")
    return PlantedLaw(losses, **shares)
