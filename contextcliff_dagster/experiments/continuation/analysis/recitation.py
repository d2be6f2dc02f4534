"""Which continuations are the author's own next text, from the overlap that the records hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.experiments.continuation.prose.memorisation import (
    ChanceOverlap,
    Overlap,
)
from contextcliff_dagster.experiments.continuation.results import (
    ArmRecitation,
    Recitation,
    RecitedSize,
)
from contextcliff_dagster.reporting.wording.number_format import count, percent, tokens

if TYPE_CHECKING:
    import pandas as pd

    from contextcliff_dagster.experiments.continuation.results import ContinuationResult

COMMON = 0.05
"""Share of recited continuations at a context size from which on the report warns."""
_LEAST = 2


def recitation_of(
    rows: pd.DataFrame, result: ContinuationResult, chance: ChanceOverlap
) -> Recitation | None:
    """Count the recited continuations of each arm and size; None where nothing can be compared.

    ``rows``: with the columns `longest_run` and `shared_runs` of the records. ``chance``: measured
    on human passages of the study.
    """
    if not chance.pairs or not {"longest_run", "shared_runs"} <= set(rows.columns):
        return None
    measured = rows[rows["longest_run"].notna()]
    recited = [
        chance.is_recited(Overlap(int(run), None if share != share else float(share)))
        for run, share in zip(
            measured["longest_run"], measured["shared_runs"].astype("float64"), strict=True
        )
    ]
    cells = measured.assign(recited=recited).groupby(["arm", "context_tokens"])["recited"]
    counts: dict[Any, Any] = cells.agg(["size", "sum"]).to_dict("index")
    return Recitation(
        chance_run=chance.longest_run,
        chance_share=chance.shared_runs,
        chance_pairs=chance.pairs,
        arms=[
            ArmRecitation(
                arm=arm.arm,
                sizes=[_size(size, counts.get((arm.arm, size), {})) for size in result.sizes],
            )
            for arm in result.arms
        ],
    )


def _size(tokens: int, counts: Mapping[Any, int]) -> RecitedSize:
    n, recited = int(counts.get("size", 0)), int(counts.get("sum", 0))
    return RecitedSize(context_tokens=tokens, n=n, recited=recited)


def recitation_warnings(found: Recitation | None) -> Sequence[str]:
    """A sentence for each arm that recites commonly at some size."""
    if found is None:
        return []
    pairs = count(found.chance_pairs, "pair")
    warnings = []
    for arm in found.arms:
        shares = [(one.recited / one.n, one) for one in arm.sizes if one.recited >= _LEAST]
        share, most = max(shares, key=lambda one: one[0], default=(0.0, None))
        if most is None or share < COMMON:
            continue
        warnings.append(
            f"Arm {arm.arm} recites: {most.recited:,} of {most.n:,} continuations ({percent(share)}"
            f") at {tokens(most.context_tokens)} tokens share more with the author's own next text "
            f"than any of {pairs} of human passages do. The model knows the text: nearness to the "
            "author is then memory and says little of what the context does."
        )
    return warnings
