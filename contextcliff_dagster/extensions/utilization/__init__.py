"""Utilization: do models use more of a long context if it is structured than if it is prose?

This package holds three benchmarks made of records, their renderings and verifiers, and the
analysis of a model's answers. Lengths are synthetic, not natural, and every report says so.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from contextcliff_dagster.extensions.utilization.context_benchmark import (
        CONSTRAINT_PARAMS,
        LEDGER_PARAMS,
        NETWORK_PARAMS,
        SCALE_PARAMS,
        ContextBenchmark,
        generate_constraints,
        generate_ledger,
        generate_network,
        run_benchmark,
        scale_params,
    )

__all__ = ["CONSTRAINT_PARAMS", "LEDGER_PARAMS", "NETWORK_PARAMS", "SCALE_PARAMS", "scale_params"]
__all__ += ["generate_constraints", "generate_ledger", "generate_network"]
__all__ += ["ContextBenchmark", "run_benchmark"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.context_benchmark"), name)
