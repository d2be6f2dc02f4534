"""Utilization: is more of a long context used where it is structured than where it is prose?

Belongs here: three benchmarks made of records, their renderings and verifiers, and what follows
from a model's answers. Lengths are made here, not natural, and every report of it says so.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from contextcliff_dagster.extensions.utilization.context_benchmark import (
        SCALE_PARAMS as SCALE_PARAMS,
    )
    from contextcliff_dagster.extensions.utilization.context_benchmark import (
        ContextBenchmark as ContextBenchmark,
    )
    from contextcliff_dagster.extensions.utilization.context_benchmark import (
        run_benchmark as run_benchmark,
    )

__all__ = ["SCALE_PARAMS", "ContextBenchmark", "run_benchmark"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"{__name__}.context_benchmark")
    return getattr(module, name)
