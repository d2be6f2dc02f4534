"""Who looks on while calls run in this process: the command line's progress bar, or nobody."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from contextcliff_dagster.inference.spending.budget import Budget
from contextcliff_dagster.inference.telemetry.progress import Progress, RunSummary


@dataclass
class Watch:
    """What the caller of an in-process run wants to hear, and may say.

    Assets report to ``on_progress`` (model, progress), say to ``on_wait`` what keeps them from
    beginning, ask ``stop`` between calls, keep to ``budget`` and ``deadline_s`` where their config
    names none, and leave each model's summary in ``calls``.
    """

    on_progress: Callable[[str, Progress], None] | None = None
    stop: Callable[[], bool] | None = None
    budget: Budget | None = None
    on_wait: Callable[[str], None] | None = None
    deadline_s: float | None = None
    calls: dict[str, RunSummary] = field(default_factory=dict)
