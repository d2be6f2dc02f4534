"""Records or tables of one model to `metrics.json` and `cliffs.json`.

Belongs here: calling the other rooms in order and assembling their results.
Does not belong here: estimates of its own.
"""

from typing import Any

_MOVED = ("AnalysisSettings", "ModelProfile", "ProfileContext", "profile_model")


def __getattr__(name: str) -> Any:
    """Names that were imported from here before there was `contextcliff_dagster.api`."""
    if name not in _MOVED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib
    import warnings

    warnings.warn(
        f"import {name} from contextcliff_dagster.api instead", DeprecationWarning, stacklevel=2
    )
    return getattr(importlib.import_module("contextcliff_dagster.api"), name)
