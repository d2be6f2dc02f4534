"""Registration of the experiment `utilization`: its command, engines and exports."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from contextcliff_dagster.contracts.extensions import Extension
from contextcliff_dagster.inference.models.engine_table import MADE_UP, EngineSpec

_READERS = f"{__package__}.readers"
_READER = EngineSpec(
    "utilization-perfect",
    load=f"{_READERS}:PerfectReader",
    declared_identity=f"{_READERS}:reader_identity",
    **MADE_UP,
)

EXTENSION = Extension(
    experiment=f"{__package__}.experiment:UTILIZATION",
    result=f"{__package__}.results:UtilizationResult",
    commands={
        "utilization": (
            "Measure whether structure lets a model use more context.",
            f"{__package__}.commands:utilization",
        )
    },
    engines=(
        _READER,
        replace(_READER, name="utilization-guess", load=f"{_READERS}:GuessingReader"),
        replace(_READER, name="utilization-planted", load=f"{_READERS}:PlantedReader"),
    ),
    exports={
        "ContextBenchmark": f"{__package__}.context_benchmark",
        "run_benchmark": f"{__package__}.context_benchmark",
    },
    folder=Path(__file__).parent,
)
