"""Output of commands: tables that survive a pipe, JSON, progress, Dagster's own log."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TextIO, cast

import click

from contextcliff_dagster.cli.shell import note_state, pause
from contextcliff_dagster.reporting.wording.number_format import (
    FIRST_STRONG_ISOLATE,
    POP_ISOLATE,
    columns_of,
    isolated_whole,
    padded,
)

if TYPE_CHECKING:
    from rich.progress import Progress as Bars
    from rich.progress import TaskID

    from contextcliff_dagster.inference.telemetry import Progress


def print_json(value: Mapping[str, Any] | Sequence[Any]) -> None:
    """Print one indented JSON value, keys in the given order; NaN, no JSON, is never printed."""
    click.echo(json.dumps(value, indent=2, default=str, allow_nan=False, ensure_ascii=False))


def print_either(value: Mapping[str, Any], sentence: str, *, as_json: bool) -> None:
    """Print ``value`` as JSON if asked for, else ``sentence``."""
    if as_json:
        print_json(value)
    else:
        click.echo(sentence)


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print aligned columns under their names; the last is cut to the terminal's width.

    Cells with words from right to left are isolated, so that the columns keep their order.
    """
    limit = max(shutil.get_terminal_size().columns, 60) if sys.stdout.isatty() else sys.maxsize
    lines = [list(columns), *([isolated_whole(str(cell)) for cell in row] for row in rows)]
    widths = [max(map(columns_of, column)) for column in zip(*lines, strict=True)]
    for cells in lines:
        line = "  ".join(map(padded, cells, widths)).rstrip()
        click.echo(line if columns_of(line) <= limit else _cut(line, limit))


def _cut(line: str, limit: int) -> str:
    kept, used = [], 1
    for character in line:
        used += columns_of(character)
        if used > limit:
            break
        kept.append(character)
    still_open = kept.count(FIRST_STRONG_ISOLATE) > kept.count(POP_ISOLATE)
    return "".join(kept) + "…" + POP_ISOLATE * still_open


_WRITTEN_PAST_ITS_LOGGERS = "Exception while writing logger call to event log"


class _WithoutAsides:
    """A stream without what Dagster writes to stderr by hand when its event log cannot be written.

    The error itself reaches the person as a sentence: the next event of a step raises it.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        if text.startswith(_WRITTEN_PAST_ITS_LOGGERS):
            return len(text)
        return self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def dagster_log(shown: bool) -> Iterator[None]:
    """Mute Dagster's console log and notices of beta features while open, unless ``shown``."""
    if shown:
        # Read where the console logger's level is set: in `run.study`, and in child processes.
        os.environ["CONTEXTCLIFF_VERBOSE"] = "1"
        yield
        return
    # A Ctrl-C that comes while Dagster's database closes a connection is raised again there, after
    # a traceback in this log.
    logging.getLogger("sqlalchemy.pool").setLevel(logging.CRITICAL)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with contextlib.redirect_stderr(cast("TextIO", _WithoutAsides(sys.stderr))):
            yield


class ProgressBar:
    """One progress line per task under way; a context manager."""

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
        """Show ``done`` of ``total`` in the line ``name``."""
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
    """Format dollars; small sums get enough digits to differ from 0."""
    return f"${usd:,.2f}" if usd >= 1 or usd == 0 else f"${usd:.4f}"


def duration(seconds: float) -> str:
    """`45 s`, `3:20 min`, `2:05 h`."""
    whole = max(round(seconds), 0)
    if whole < 100:
        return f"{whole} s"
    if whole < 6000:
        return f"{whole // 60}:{whole % 60:02d} min"
    return f"{whole // 3600}:{whole % 3600 // 60:02d} h"
