"""Output of commands: pipe-safe tables, answers, JSON, progress, and Dagster's log."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
import sys
import unicodedata
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TextIO, cast

import click

from contextcliff_dagster.cli.shell import note_state, pause
from contextcliff_dagster.contracts import UNSCORED_TAGS
from contextcliff_dagster.reporting import wording
from contextcliff_dagster.step_progress import listened

if TYPE_CHECKING:
    import pyarrow as pa
    from rich.progress import Progress as Bars
    from rich.progress import TaskID

    from contextcliff_dagster.inference.telemetry import Progress


def print_json(value: Mapping[str, Any] | Sequence[Any]) -> None:
    """Print one indented JSON value, keys in the given order; raise ValueError for NaN."""
    click.echo(json.dumps(value, indent=2, default=str, allow_nan=False, ensure_ascii=False))


def print_either(value: Mapping[str, Any], sentence: str, *, as_json: bool) -> None:
    """Print ``value`` as JSON if requested, else ``sentence``."""
    if as_json:
        print_json(value)
    else:
        click.echo(sentence)


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print aligned columns under their names; the last is cut to the terminal's width.

    Cells with words from right to left are isolated, so that the columns keep their order.
    """
    limit = max(shutil.get_terminal_size().columns, 60) if sys.stdout.isatty() else sys.maxsize
    lines = [list(columns), *([wording.isolated_whole(str(cell)) for cell in row] for row in rows)]
    widths = [max(map(wording.columns_of, column)) for column in zip(*lines, strict=True)]
    for cells in lines:
        line = "  ".join(map(wording.padded, cells, widths)).rstrip()
        click.echo(line if wording.columns_of(line) <= limit else _cut(line, limit))


def _cut(line: str, limit: int) -> str:
    kept = _beginning(line, limit)
    still_open = kept.count(wording.FIRST_STRONG_ISOLATE) > kept.count(wording.POP_ISOLATE)
    return kept + "…" + wording.POP_ISOLATE * still_open


def _beginning(line: str, columns: int) -> str:
    """Return the characters of ``line`` that fit in ``columns`` together with an ellipsis."""
    kept, used = [], 1
    for character in line:
        used += wording.columns_of(character)
        if used > columns:
            break
        kept.append(character)
    return "".join(kept)


_WRITTEN_PAST_ITS_LOGGERS = "Exception while writing logger call to event log"


class _WithoutAsides:
    """A stream that drops Dagster's direct writes to stderr about a failed event log.

    The user still sees the error as a sentence, because the next event of a step raises it.
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
    # A Ctrl-C while Dagster's database closes a connection is raised again there, after it logs a
    # traceback here.
    logging.getLogger("sqlalchemy.pool").setLevel(logging.CRITICAL)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with contextlib.redirect_stderr(cast("TextIO", _WithoutAsides(sys.stderr))):
            yield


class ProgressBar:
    """Context manager that shows one progress line per running task, until another step begins."""

    def __init__(self, *, transient: bool = False) -> None:
        self._transient = transient
        self._bars: Bars | None = None
        self._terminal: TextIO | None = None
        self._lines: dict[str, TaskID] = {}
        self._listening = listened(self._end_lines)

    def __enter__(self) -> ProgressBar:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

            # While a step runs, Dagster redirects file descriptors 1 and 2 to its log files, so
            # the bar keeps its own descriptor of the terminal.
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
        self._listening.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._listening.__exit__(None, None, None)
        self._end_lines()
        with suppress(OSError):
            if self._terminal is not None:
                self._terminal.close()

    def _end_lines(self, name: str = "", done: int = 0, total: int | None = None) -> None:
        if self._bars is None or not self._lines or done or total is not None:
            return
        with suppress(OSError):  # the terminal is closed: `nohup` lets the run go on
            self._bars.stop()
        while self._lines:
            self._bars.remove_task(self._lines.popitem()[1])
        pause(False)

    def __call__(self, model: str, progress: Progress) -> None:
        """Show the progress of the calls to ``model``."""
        self.show(f"asking {model}", progress.done, progress.planned, note(progress))

    def show(self, name: str, done: int, total: int | None, note: str = "") -> None:
        """Show ``done`` of ``total`` in the line ``name``."""
        if self._bars is None:
            of = "" if total is None else f" of {total:,}"
            note_state(f"{name}: {done:,}{of} {note}".rstrip())
            return
        with suppress(OSError):
            if not self._lines:
                pause(True)
                self._bars.start()
            if name not in self._lines:
                self._lines[name] = self._bars.add_task(name, total=total, note=note)
            self._bars.update(self._lines[name], completed=done, total=total, note=note)


def note(progress: Progress) -> str:
    """Return `calls (12 known) · 48,100 tokens · $0.12 · 1:20 min left`, without zero parts."""
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


def some(names: Sequence[str], most: int = 20) -> str:
    """Return the first names: ``a, b and 3 more``."""
    hidden = len(names) - most
    return ", ".join(names[:most]) + (f" and {hidden:,} more" if hidden > 0 else "")


def money(usd: float) -> str:
    """Format dollars; small sums get enough digits to differ from 0."""
    return f"${usd:,.2f}" if usd >= 1 or usd == 0 else f"${usd:.4f}"


def duration(seconds: float) -> str:
    """Format a duration as `45 s`, `3:20 min` or `2:05 h`."""
    whole = max(round(seconds), 0)
    if whole < 100:
        return f"{whole} s"
    if whole < 6000:
        return f"{whole // 60}:{whole % 60:02d} min"
    return f"{whole // 3600}:{whole % 3600 // 60:02d} h"


_GAP = "  "
_TEXTS = ("QUESTION", "ACCEPTED", "GOT")
_ROOM = 45
"""Minimum width in columns for the three texts to share a line with the numbers."""
_OR = " | "
_NO_SCORE = "not scored"
_SCORED = "scored"


def visible(text: str) -> str:
    """Return ``text`` with line breaks, terminal codes and direction marks escaped, and every kind
    of space as a plain space."""
    return "".join(c if c.isprintable() else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    if unicodedata.category(character) == "Zs":
        return " "
    return ascii(character)[1:-1]


def shortened(text: str, columns: int) -> str:
    """Return `visible` ``text`` cut to at most ``columns``, ending with … if it is cut."""
    # A character takes 0 to 10 columns; a prefix is enough, so a text of a megabyte is not scanned.
    start = text[: 4 * columns + 4]
    line = visible(start)
    if len(start) == len(text) and wording.columns_of(line) <= columns:
        return line
    return _beginning(line, columns) + "…"


@dataclass
class Survey:
    """Counts of all answers and widths of their columns, computed before any is shown."""

    shown: int = 0
    right: int = 0
    wrong: int = 0
    not_scored: int = 0
    is_graded: bool = False
    """Whether any answer was compared with an accepted one; prose, for example, only has scores."""
    models: set[str] = field(default_factory=set)
    replicates: int = 1
    widths: dict[str, int] = field(default_factory=dict)

    @property
    def answers(self) -> int:
        return self.right + self.wrong + self.not_scored

    def count(self, rows: pa.Table) -> None:
        """Add the answers of the chosen models and bins to the counts."""
        import pyarrow.compute as pc

        right = pc.sum(is_right(rows)).as_py() or 0
        wrong = pc.sum(is_wrong(rows)).as_py() or 0
        self.right, self.wrong = self.right + right, self.wrong + wrong
        self.not_scored += rows.num_rows - right - wrong
        self.is_graded |= bool(pc.any(pc.is_valid(rows["em"])).as_py())

    def measure(self, rows: pa.Table) -> None:
        """Widen the columns for the answers that are shown."""
        import pyarrow.compute as pc

        if not rows.num_rows:
            return
        self.shown += rows.num_rows
        self.models |= set(rows["model"].unique().to_pylist())
        self.replicates = max(self.replicates, 1 + pc.max(rows["replicate"]).as_py())
        texts = {
            "BIN": rows["bin"],
            "MODEL": rows["model"],
            "RESULT": pc.if_else(is_right(rows), _SCORED, pc.coalesce(rows["failure"], _NO_SCORE)),
            "QUESTION": rows["question"],
            "ACCEPTED": pc.binary_join(rows["accepted"], _OR),
            "GOT": pc.coalesce(
                rows["parsed_answer"],
                rows["answer"],
                pc.binary_join_element_wise("(", rows["error"], ")", ""),
            ),
        }
        longest = {name: pc.max(pc.utf8_length(column)).as_py() for name, column in texts.items()}
        if rows["document"].null_count < rows.num_rows:
            longest["DOCUMENT"] = pc.max(pc.utf8_length(rows["document"])).as_py()
        longest["TOKENS"] = len(f"{pc.max(rows['length_tokens']).as_py():,}")
        for name, width in longest.items():
            self.widths[name] = max(self.widths.get(name, len(name)), width or 1)


def _result(row: Mapping[str, Any]) -> str:
    if row["score"] is None:
        return _NO_SCORE
    return _SCORED if row["em"] is None else "right"


def is_right(rows: pa.Table) -> pa.ChunkedArray:
    """Return a mask of the `ANSWERS` that are scored and have no failure tag."""
    import pyarrow.compute as pc

    return pc.and_(pc.is_valid(rows["score"]), pc.is_null(rows["failure"]))


def is_wrong(rows: pa.Table) -> pa.ChunkedArray:
    """Return a mask of the `ANSWERS` with a failure tag other than the unscored ones."""
    import pyarrow as pa
    import pyarrow.compute as pc

    unscored = pa.array([tag.value for tag in UNSCORED_TAGS])
    return pc.and_not(pc.is_valid(rows["failure"]), pc.is_in(rows["failure"], value_set=unscored))


ID_SHOWN = 8
"""Characters of an example's id in the table of answers; `answers --show` takes a beginning."""


class AnswerTable:
    """A table of answers whose lines are at most ``width`` columns wide."""

    def __init__(self, survey: Survey, width: int) -> None:
        heads = ["ID", "BIN", "TOKENS", "AT", *(["#"] if survey.replicates > 1 else []), "SCORE"]
        heads += ["RESULT", *(["DOCUMENT"] if "DOCUMENT" in survey.widths else [])]
        heads += ["MODEL"] if len(survey.models) > 1 else []
        self._heads = heads
        numbers_of = {"ID": ID_SHOWN, "AT": 4, "SCORE": 5, "#": len(str(survey.replicates))}
        self._width = {**survey.widths, **numbers_of}
        for name in ("DOCUMENT", "MODEL"):
            if name in heads:
                self._width[name] = min(self._width[name], max(width // 5, 12))
        numbers = sum(self._width[name] + len(_GAP) for name in heads)
        needed = [survey.widths[name] for name in _TEXTS]
        gaps = len(_GAP) * (len(_TEXTS) - 1)
        room = width - numbers - gaps
        self._one_line = room >= min(_ROOM, sum(needed))
        rooms = shared_out(needed, room if self._one_line else width - len(_GAP) - gaps)
        self._width |= dict(zip(_TEXTS, rooms, strict=True))
        self._limit = width

    def head(self) -> Iterator[str]:
        """Yield the lines of column names."""
        yield from self._lines({name: name for name in (*self._heads, *_TEXTS)})

    def lines(self, row: Mapping[str, Any]) -> Iterator[str]:
        """Yield the lines that show one answer."""
        at, score = row["evidence_position"], row["score"]
        got = next((row[k] for k in ("parsed_answer", "answer") if row[k] is not None), None)
        yield from self._lines(
            {
                "ID": row["example_id"][:ID_SHOWN],
                "BIN": row["bin"],
                "TOKENS": f"{row['length_tokens']:,}",
                "AT": "-" if at is None else f"{at:.0%}",
                "#": str(row["replicate"]),
                "SCORE": "-" if score is None else f"{score:.2f}",
                "RESULT": row["failure"] or _result(row),
                "DOCUMENT": row["document"] or "-",
                "MODEL": row["model"],
                "QUESTION": row["question"] or "-",
                "ACCEPTED": "-" if row["accepted"] is None else _OR.join(row["accepted"]),
                "GOT": (f"({row['error']})" if row["error"] else "-") if got is None else got,
            }
        )

    def _lines(self, texts: Mapping[str, str]) -> Iterator[str]:
        cells = [self._cell(name, texts[name]) for name in self._heads]
        long = [self._cell(name, texts[name]) for name in _TEXTS]
        if self._one_line:
            yield _GAP.join([*map(wording.isolated, cells), *long]).rstrip()
        else:
            yield wording.isolated(shortened(_GAP.join(cells).rstrip(), self._limit))
            yield (_GAP + _GAP.join(long)).rstrip()

    def _cell(self, name: str, text: str) -> str:
        width = self._width[name]
        line = shortened(text, width)
        pad = " " * (width - wording.columns_of(line))
        if name in _TEXTS:
            return wording.isolated_whole(line) + pad
        return pad + line if name in ("TOKENS", "AT", "SCORE", "#") else line + pad


def shared_out(needed: Sequence[int], room: int) -> list[int]:
    """Divide ``room`` columns evenly among texts, giving none more than it needs."""
    widths = [0] * len(needed)
    for left, index in zip(
        range(len(needed), 0, -1), sorted(range(len(needed)), key=needed.__getitem__), strict=True
    ):
        widths[index] = max(min(needed[index], room // left), 1)
        room -= widths[index]
    return widths
