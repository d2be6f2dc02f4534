"""Measure where a language model stops being reliable, and turn it into a safe context cap.

    from contextcliff_dagster import analyze, compare, profile

`contextcliff_dagster.api` exports every other public name.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:  # without `typing`: importing this package is part of every command's start
    from typing import Any

    from contextcliff_dagster.notebook.analyze import analyze as analyze
    from contextcliff_dagster.notebook.compare import compare as compare
    from contextcliff_dagster.notebook.profile import profile as profile

__all__ = ["analyze", "compare", "profile"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(f"{__name__}.notebook.{name}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
