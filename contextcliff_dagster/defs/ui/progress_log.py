"""Progress of the calls for Dagster: log lines and observations, at a limited rate."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from contextcliff_dagster.defs.ui.calls import progress_metadata, summary_metadata
from contextcliff_dagster.inference.telemetry.progress import Progress, RunSummary

_LEAST_S, _MOST_S = 1.0, 10.0
"""Seconds between two lines, in the first minute and from the tenth on: every event log keeps every
line."""


class Narrator:
    """Takes every `Progress` of a model's calls, and passes on what is not too often.

    ``log`` gets a line, ``observe`` the same in numbers; ``on_progress`` gets everything.
    """

    def __init__(
        self,
        model: str,
        log: Callable[[str], None],
        observe: Callable[[dict[str, Any]], None],
        on_progress: Callable[[str, Progress], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._model, self._log, self._observe = model, log, observe
        self._on_progress, self._clock = on_progress, clock
        self._began = self._logged = clock()
        self.last: Progress | None = None

    def __call__(self, progress: Progress) -> None:
        """How far the calls have come now."""
        self.last = progress
        if self._on_progress is not None:
            self._on_progress(self._model, progress)
        now = self._clock()
        if now - self._logged < min(max((now - self._began) / 60, _LEAST_S), _MOST_S):
            return
        self._logged = now
        self._log(f"{self._model}: {line(progress)}")
        self._observe({"model": self._model, **progress_metadata(progress)})

    def end(self, summary: RunSummary) -> None:
        """What the calls came to; no observation where none was sent."""
        self._log(f"{self._model}: {json.dumps(summary.to_dict())}")
        if summary.sent:
            self._observe({"model": self._model, **summary_metadata(summary)})


def line(progress: Progress) -> str:
    """``40 of 200 calls, 4 in flight, 48,100 tokens (1,230/s), $0.1200, 2 retries, 80 s left``."""
    tokens = progress.prompt_tokens + progress.completion_tokens
    pace = progress.tokens_per_s
    parts = [
        f"{progress.done:,} of {progress.planned:,} calls",
        f"{progress.in_flight} in flight",
        f"{tokens:,} tokens" + (f" ({pace:,.0f}/s)" if pace else ""),
        f"${progress.cost_usd:.4f}",
    ]
    if progress.retries:
        parts.append(f"{progress.retries:,} retries")
    if progress.cached_tokens:
        parts.append(f"{progress.cached_tokens / max(progress.prompt_tokens, 1):.0%} from cache")
    if progress.seconds_left is not None and progress.done < progress.planned:
        parts.append(f"about {progress.seconds_left:.0f} s left")
    return ", ".join(parts)
