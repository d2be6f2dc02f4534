"""A result in one row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from contextcliff_dagster.experiments.continuation.results import ContinuationResult


def overview(result: ContinuationResult) -> dict[str, Any]:
    """Return the result as one row: verdict, and score and share without collapse at each end."""
    reference = result.arms[0]
    row: dict[str, Any] = {
        "model": result.model,
        "verdict": result.verdict.replace("_", " "),
        "of": reference.arm,
        "arms": len(result.arms),
    }
    for what, endpoint in (("score", reference.score), ("intact", reference.intact)):
        for one in (endpoint.sizes[0], endpoint.sizes[-1]):
            row[f"{what} at {one.context_tokens:,} tokens"] = one.mean
        place = endpoint.location
        row[f"half of the loss of {what} at (tokens)"] = place and place.tokens
    return {**row, "continuations": result.n, "without a text": result.missing}
