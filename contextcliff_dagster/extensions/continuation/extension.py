"""Registration of the experiment `continuation` with the core."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from contextcliff_dagster.contracts.extensions import Extension
from contextcliff_dagster.inference.models.engine_table import MADE_UP, EngineSpec

_WRITERS = f"{__package__}.writers"
_WRITER = EngineSpec(
    "continuation-human",
    load=f"{_WRITERS}:HumanWriter",
    declared_identity=f"{_WRITERS}:writer_identity",
    samples=True,
    **MADE_UP,
)

EXTENSION = Extension(
    experiment=f"{__package__}.experiment:CONTINUATION",
    result=f"{__package__}.results:ContinuationResult",
    commands={
        "continuation": (
            "Measure how a model's writing changes as its context grows.",
            f"{__package__}.commands:continuation",
        )
    },
    engines=(
        _WRITER,
        replace(_WRITER, name="continuation-planted", load=f"{_WRITERS}:PlantedWriter"),
    ),
    folder=Path(__file__).parent,
)
