"""One run of Context-Tester: what its files hold, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import PureWindowsPath
from typing import Any

from contextcliff_dagster.extensions.continuation.compat.statistics import Round, averaged


@dataclass(frozen=True)
class ContextResult:
    """What was generated at one context size.

    ``info``: the context and the author's continuation, as `context_info` of the files. Without
    ``rounds`` only the averages of a CSV file are known, and are ``known_average``.
    """

    context_tokens: int
    rounds: tuple[Round, ...] = ()
    info: Mapping[str, Any] = field(default_factory=dict)
    known_average: Round | None = None

    @cached_property
    def average(self) -> Round:
        """The averages of the rounds; those of the file where it has some."""
        return averaged(self.rounds) if self.known_average is None else self.known_average


@dataclass(frozen=True)
class Run:
    """A run: ``metadata`` of the experiment, the author's figures, and a result a context size."""

    metadata: Mapping[str, Any]
    contexts: Mapping[int, ContextResult]
    author: Round = field(default_factory=dict)
    context_lengths: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        """Model and id, for a legend."""
        parts = (self.metadata.get("model_name"), self.metadata.get("model_id"))
        return " ".join(str(part) for part in parts if part not in (None, "")) or "unnamed"

    @property
    def averages(self) -> dict[int, Round]:
        """Averages by context size, ascending."""
        return {size: self.contexts[size].average for size in sorted(self.contexts)}

    @property
    def rounds(self) -> dict[int, tuple[Round, ...]]:
        """Rounds by context size, ascending; without sizes of which only averages are known."""
        return {size: one.rounds for size, one in sorted(self.contexts.items()) if one.rounds}

    @property
    def folder_name(self) -> str:
        """`model-text-id`, without what a path cannot have."""
        stem = PureWindowsPath(str(self.metadata.get("source_text_name", "text"))).stem
        return file_name(self.metadata.get("model_name"), stem, self.metadata.get("model_id"))

    @property
    def file_stem(self) -> str:
        """The same with the text's whole name, for the CSV file, the texts and the picture."""
        text = self.metadata.get("source_text_name", "text")
        return file_name(self.metadata.get("model_name"), text, self.metadata.get("model_id"))


def file_name(*parts: object) -> str:
    """Join names by hyphens: ``/ \\ :`` become hyphens, spaces ``_``; ``<>"|?*`` are dropped."""
    joined = "-".join(str(part) for part in parts)
    return joined.translate(str.maketrans("/\\: ", "---_", '<>"|?*'))
