"""The cap that both scores and times respect."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from contextcliff_dagster.analysis.slowdown import SlowdownTest

ERROR_SHARE = 0.5
"""Share of the error rate that the latency side spends: half of its alarms would be false caps at
no gain, since a slowdown worth a cap is found at far less (``benchmarks/latency_caps.py``)."""


def joint_cap(accuracy_cap: int | None, test: SlowdownTest | None) -> dict[str, Any] | None:
    """The ``joint_cap`` of ``cliffs.json``; ``None`` where no time to first token can be tested.

    The smaller of the certified cap of the scores and the longest length before the first likely
    place of a slowdown. Without a cap of the scores there is none: speed makes no length safe.
    """
    if test is None:
        return None
    slow = test.slowdown
    if accuracy_cap is not None and slow is not None and slow.earliest_tokens < accuracy_cap:
        return {"tokens": slow.earliest_tokens, "limited_by": "latency"}
    return {"tokens": accuracy_cap, "limited_by": "accuracy"}
