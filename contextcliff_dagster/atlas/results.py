"""The result of each series, kept by what it was made of: what did not change is not made again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from contextcliff_dagster.contracts import RESULT_VERSION, ContextCliffError
from contextcliff_dagster.contracts.results import Cliffs, from_json, to_json
from contextcliff_dagster.store import write_atomic

if TYPE_CHECKING:
    from contextcliff_dagster.atlas.series import Series


def results_of(
    series: Sequence[Series], kept: Path, on_progress: Callable[[int], None] | None = None
) -> list[Cliffs | None]:
    """The result of each series, in order; ``None`` for those with too few answers.

    Args:
        kept: folder of results by their hash; those of other series are removed from it.
        on_progress: called with how many are done.

    Raises:
        StoreError: ``kept`` cannot be written.
    """
    found: list[Cliffs | None] = []
    names = set()
    for one in series:
        if one.few:
            found.append(None)
            continue
        file = kept / f"{_hash(one)}.json"
        names.add(file.name)
        if (result := _read(file)) is None:
            result = _analysed(one)
            write_atomic(file, json.dumps(to_json(result), ensure_ascii=False).encode())
        found.append(result)
        if on_progress:
            on_progress(len(found))
    for file in kept.glob("*.json"):
        if file.name not in names:
            file.unlink(missing_ok=True)
    return found


def _read(file: Path) -> Cliffs | None:
    try:
        return from_json(Cliffs, json.loads(file.read_bytes()))
    except (OSError, ValueError, ContextCliffError):
        return None


def _hash(series: Series) -> str:
    from contextcliff_dagster.analysis import METHOD_VERSION

    stated = json.dumps([RESULT_VERSION, METHOD_VERSION, series.key, series.chance, series.window])
    rows = series.records.to_csv(index=False)
    return hashlib.sha256(f"{stated}\n{rows}".encode()).hexdigest()[:24]


def _analysed(series: Series) -> Cliffs:
    from contextcliff_dagster.analysis.profile.context import ProfileContext
    from contextcliff_dagster.analysis.profile.model_profile import profile_model
    from contextcliff_dagster.analysis.records.settings import AnalysisSettings

    settings = AnalysisSettings(chance=series.chance, second_opinions=False)
    context = ProfileContext(
        series.model,
        task=series.task,
        window_tokens=series.window,
        created_at="2000-01-01T00:00:00+00:00",  # the same tables give the same atlas
    )
    return profile_model(series.records, [], settings, context).cliffs
