"""From a model's entry to its engine, by the table of engines."""

from __future__ import annotations

from collections.abc import Callable
from pkgutil import resolve_name
from typing import Any

from contextcliff_dagster.inference.engines.base import Engine
from contextcliff_dagster.inference.models.engine_table import engine_spec
from contextcliff_dagster.inference.models.models_file import ModelEntry


def open_engine(entry: ModelEntry) -> Engine:
    """The engine of ``entry``, not yet started; EngineError where what it runs on is missing."""
    engine: Engine = _resolved(engine_spec(entry.engine).load)(entry)
    return engine


def declared_identity(entry: ModelEntry) -> dict[str, Any]:
    """What is known of the serving identity without a start; EngineError as `open_engine`."""
    return dict(_resolved(engine_spec(entry.engine).declared_identity)(entry))


def _resolved(target: str | Callable[[ModelEntry], Any]) -> Callable[[ModelEntry], Any]:
    return resolve_name(target) if isinstance(target, str) else target
