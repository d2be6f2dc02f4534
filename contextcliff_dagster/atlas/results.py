"""The result of each series, kept by what it was made of: what did not change is not made again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from contextcliff_dagster.contracts import RESULT_VERSION, ContextCliffError
from contextcliff_dagster.contracts.results import Cliffs, from_json, to_json
from contextcliff_dagster.store import write_atomic

if TYPE_CHECKING:
    from contextcliff_dagster.atlas.series import Series

Result = TypeVar("Result")
MADE_AT = "2000-01-01T00:00:00+00:00"
"""The time in every result: the same tables give the same atlas."""


class Kept:
    """A folder of results, each by the hash of what it was made of."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._names: set[str] = set()

    def result(self, kind: type[Result], of: str, make: Callable[[], Result]) -> Result:
        """The result of ``kind`` of what ``of`` states, read or made.

        Raises:
            StoreError: the folder cannot be written.
        """
        from contextcliff_dagster.analysis import METHOD_VERSION

        stated = f"{kind.__name__} {RESULT_VERSION} {METHOD_VERSION} {of}"
        file = self._folder / f"{hashlib.sha256(stated.encode()).hexdigest()[:24]}.json"
        self._names.add(file.name)
        try:
            return from_json(kind, json.loads(file.read_bytes()))
        except (OSError, ValueError, ContextCliffError):
            result = make()
        write_atomic(file, json.dumps(to_json(result), ensure_ascii=False).encode())
        return result

    def forget_others(self) -> None:
        """Remove what was not asked for."""
        for file in self._folder.glob("*.json"):
            if file.name not in self._names:
                file.unlink(missing_ok=True)


def result_of(series: Series, kept: Kept) -> Cliffs | None:
    """The result of a series; ``None`` where it has too few answers.

    Raises:
        StoreError: ``kept`` cannot be written.
    """
    if series.few:
        return None
    return kept.result(Cliffs, series.state, lambda: _analysed(series))


def _analysed(series: Series) -> Cliffs:
    from contextcliff_dagster.analysis.profile.context import ProfileContext
    from contextcliff_dagster.analysis.profile.model_profile import profile_model
    from contextcliff_dagster.analysis.records.settings import AnalysisSettings

    settings = AnalysisSettings(chance=series.chance, second_opinions=False)
    context = ProfileContext(
        series.model, task=series.task, window_tokens=series.window, created_at=MADE_AT
    )
    return profile_model(series.records, [], settings, context).cliffs
