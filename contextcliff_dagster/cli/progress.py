"""The progress bar: calls, tokens, money and time left, on stderr and only on a terminal."""

from __future__ import annotations

import os
import sys
from types import TracebackType
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from rich.progress import Progress as Bars
    from rich.progress import TaskID

    from contextcliff_dagster.inference.telemetry.progress import Progress


class ProgressBar:
    """One line per model while its calls run; a context manager, quiet off a terminal."""

    def __init__(self, *, shown: bool | None = None) -> None:
        self._shown = sys.stderr.isatty() if shown is None else shown
        self._bars: Bars | None = None
        self._terminal: TextIO | None = None
        self._lines: dict[str, TaskID] = {}

    def __enter__(self) -> ProgressBar:
        if self._shown:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

            # While a step runs, Dagster turns file descriptors 1 and 2 into log files of its own:
            # the bar keeps another way to the terminal.
            self._terminal = os.fdopen(os.dup(sys.stderr.fileno()), "w", encoding="utf-8")
            self._bars = Progress(
                TextColumn("{task.description}"),
                BarColumn(bar_width=24),
                MofNCompleteColumn(),
                TextColumn("{task.fields[note]}", style="dim"),
                console=Console(file=self._terminal),
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        fault: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bars is not None:
            self._bars.stop()
        if self._terminal is not None:
            self._terminal.close()

    def __call__(self, model: str, progress: Progress) -> None:
        """Show how far ``model`` has come."""
        if self._bars is None:
            return
        fields: dict[str, Any] = {
            "completed": progress.done,
            "total": progress.planned,
            "note": note(progress),
        }
        if model not in self._lines:
            self._lines[model] = self._bars.add_task(model, **fields)
        else:
            self._bars.update(self._lines[model], **fields)


def note(progress: Progress) -> str:
    """`calls (12 known) · 48,100 tokens · $0.12 · 1:20 min left`, without the parts that are 0."""
    said = ["calls"]
    if progress.cached:
        said[0] += f" ({progress.cached:,} known)"
    said.append(f"{progress.prompt_tokens + progress.completion_tokens:,} tokens")
    if progress.cost_usd:
        said.append(money(progress.cost_usd))
    if progress.retries:
        said.append(f"{progress.retries:,} retries")
    if progress.failed:
        said.append(f"{progress.failed:,} without answer")
    if progress.done < progress.planned and progress.seconds_left is not None:
        said.append(f"{duration(progress.seconds_left)} left")
    return " · ".join(said)


def money(usd: float) -> str:
    """Dollars; small sums with the digits that tell them apart from nothing."""
    return f"${usd:,.2f}" if usd >= 1 or usd == 0 else f"${usd:.4f}"


def duration(seconds: float) -> str:
    """`45 s`, `3:20 min`, `2:05 h`."""
    whole = max(round(seconds), 0)
    if whole < 100:
        return f"{whole} s"
    if whole < 6000:
        return f"{whole // 60}:{whole % 60:02d} min"
    return f"{whole // 3600}:{whole % 3600 // 60:02d} h"
