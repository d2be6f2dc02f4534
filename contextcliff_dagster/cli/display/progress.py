"""Progress on stderr: bars on a terminal, elsewhere what the line of every minute says."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, TextIO

from contextcliff_dagster.cli.shell.sign_of_life import note_state, pause

if TYPE_CHECKING:
    from rich.progress import Progress as Bars
    from rich.progress import TaskID

    from contextcliff_dagster.inference.telemetry.progress import Progress


class ProgressBar:
    """A line for each of what is under way; a context manager."""

    def __init__(self, *, transient: bool = False) -> None:
        self._transient = transient
        self._bars: Bars | None = None
        self._terminal: TextIO | None = None
        self._lines: dict[str, TaskID] = {}

    def __enter__(self) -> ProgressBar:
        if sys.stderr.isatty():
            pause(True)
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
                transient=self._transient,
            )
            self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):  # the terminal is closed: `nohup` lets the run go on
            if self._bars is not None:
                self._bars.stop()
                pause(False)
        with suppress(OSError):
            if self._terminal is not None:
                self._terminal.close()

    def __call__(self, model: str, progress: Progress) -> None:
        """Show how far ``model`` has come."""
        self.show(model, progress.done, progress.planned, note(progress))

    def show(self, name: str, done: int, total: int | None, note: str = "") -> None:
        """Show that ``done`` of ``total`` are done in the line called ``name``."""
        if self._bars is None:
            of = "" if total is None else f" of {total:,}"
            note_state(f"{name}: {done:,}{of} {note}".rstrip())
            return
        with suppress(OSError):
            if name not in self._lines:
                self._lines[name] = self._bars.add_task(name, note=note)
            self._bars.update(self._lines[name], completed=done, total=total, note=note)


def note(progress: Progress) -> str:
    """`calls (12 known) · 48,100 tokens · $0.12 · 1:20 min left`, without the parts that are 0."""
    parts = [
        f"calls ({progress.cached:,} known)" if progress.cached else "calls",
        f"{progress.prompt_tokens + progress.completion_tokens:,} tokens",
    ]
    if progress.cost_usd:
        parts.append(money(progress.cost_usd))
    if progress.retries:
        parts.append(f"{progress.retries:,} retries")
    if progress.asked_to_wait:
        parts.append(progress.asked_to_wait)
    if progress.failed:
        parts.append(f"{progress.failed:,} without answer")
    if progress.done < progress.planned and progress.seconds_left is not None:
        parts.append(f"{duration(progress.seconds_left)} left")
    return " · ".join(parts)


def money(usd: float) -> str:
    """Dollars; small sums with enough digits to differ from 0."""
    return f"${usd:,.2f}" if usd >= 1 or usd == 0 else f"${usd:.4f}"


def duration(seconds: float) -> str:
    """`45 s`, `3:20 min`, `2:05 h`."""
    whole = max(round(seconds), 0)
    if whole < 100:
        return f"{whole} s"
    if whole < 6000:
        return f"{whole // 60}:{whole % 60:02d} min"
    return f"{whole // 3600}:{whole % 3600 // 60:02d} h"
