"""Registration of the experiment `visibility`: its command and engines."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from contextcliff_dagster.contracts.extensions import Extension
from contextcliff_dagster.inference.models.engine_table import MADE_UP, EngineSpec

_AGENTS = f"{__package__}.controls"
_AGENT = EngineSpec(
    "visibility-attentive",
    load=f"{_AGENTS}:Agent",
    declared_identity=f"{_AGENTS}:agent_identity",
    samples=True,
    constrains=True,
    **MADE_UP,
)

EXTENSION = Extension(
    experiment=f"{__package__}.experiment:VISIBILITY",
    result=f"{__package__}.results:VisibilityResult",
    commands={
        "visibility": (
            "Measure how shown information affects an agent's search.",
            f"{__package__}.commands:visibility",
        )
    },
    engines=(
        _AGENT,
        replace(_AGENT, name="visibility-random"),
    ),
    exports={"StabilityMetric": f"{__package__}.behaviour"},
    folder=Path(__file__).parent,
)
