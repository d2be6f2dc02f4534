"""The formats and the other ways in which the same records can be written down."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

Format = Literal["jsonl", "prose", "csv", "markdown"]
Verbosity = Literal["standard", "terse", "descriptive"]
Order = Literal["chronological", "shuffled"]

FORMATS: tuple[Format, ...] = ("jsonl", "prose", "csv", "markdown")
FORMAT_ALIASES: Mapping[str, Format] = {"structured": "jsonl", "json": "jsonl", "md": "markdown"}


class Rendering(NamedTuple):
    """A document. ``starts``: for each record of the data its first character in ``text``."""

    text: str
    starts: tuple[int, ...]
