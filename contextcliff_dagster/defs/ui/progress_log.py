"""Progress of a step's calls for Dagster: observations that grow rarer as the step goes on."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from contextcliff_dagster.defs.ui import rendering
from contextcliff_dagster.defs.ui.calls import progress_metadata, summary_metadata
from contextcliff_dagster.inference.telemetry.progress import Progress, RunSummary

Observe = Callable[[str, dict[str, Any]], None]
"""Takes a line, and the same in numbers."""
_LEAST_S, _PARTS = 1.0, 6
"""Seconds between two observations: at least so many, and a sixth of what the step has taken. An
event log keeps each of them: some 40 of the first hour, 60 of the first day."""


class StepProgress:
    """What a step tells of its models' calls, one after the other.

    ``on_progress`` gets everything, ``observe`` what is not too often. ``last``: of the model that
    is measured.
    """

    def __init__(
        self,
        observe: Observe,
        on_progress: Callable[[str, Progress], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._observe, self._on_progress, self._clock = observe, on_progress, clock
        self._began = self._observed = clock()
        self._summaries: dict[str, RunSummary] = {}
        self.last: Progress | None = None

    def of(self, model: str) -> Callable[[Progress], None]:
        """Return what takes every `Progress` of the calls of ``model``."""
        self.last = None

        def take(progress: Progress) -> None:
            self.last = progress
            if self._on_progress is not None:
                self._on_progress(model, progress)
            now = self._clock()
            if now - self._observed < max((now - self._began) / _PARTS, _LEAST_S):
                return
            self._observed = now
            shown = {"model": model, **progress_metadata(progress)}
            self._observe(f"{model}: {line(progress)}", shown)

        return take

    def ended(self, model: str, summary: RunSummary) -> None:
        """Note what the calls of ``model`` came to."""
        self._summaries[model] = summary

    def conclude(self) -> None:
        """Tell what the calls of all models came to, once; nothing where none was sent."""
        sent = {model: one for model, one in self._summaries.items() if one.sent}
        if not sent:
            return
        if len(sent) == 1:
            ((model, summary),) = sent.items()
            text = f"{model}: {json.dumps(summary.to_dict())}"
            self._observe(text, {"model": model, **summary_metadata(summary)})
            return
        rows = [{"model": model, **summary_metadata(one)} for model, one in sent.items()]
        common = [name for name in rows[0] if all(name in row for row in rows)]
        names = ("calls", "calls_sent", "retries", "calls_without_answer", "tokens", "cost_usd")
        sums = {name: sum(row[name] for row in rows) for name in names}
        text = f"{len(sent)} models: {sums['calls_sent']:,} calls sent, {sums['tokens']:,} tokens"
        table = rendering.table([{name: row[name] for name in common} for row in rows])
        self._observe(text, {"models": len(sent), **sums, "by_model": table})


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
