"""Documents read back: the records of any format, verbosity and order."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, get_args

from contextcliff_dagster.extensions.utilization.benchmarks.data import BenchmarkName, Record
from contextcliff_dagster.extensions.utilization.rendering import structured
from contextcliff_dagster.extensions.utilization.rendering.formats import (
    FORMATS,
    Format,
    Verbosity,
)
from contextcliff_dagster.extensions.utilization.rendering.shapes import shape_of
from contextcliff_dagster.extensions.utilization.rendering.templates import sentence_reader

_SHOWN = 100


def parse(text: str, benchmark: BenchmarkName, format: Format | None = None) -> list[Record]:
    """Return the records of a document, in the order of its lines.

    Args:
        text: as `render.render` writes it, in any verbosity; empty lines are passed over.
        benchmark: whose records these are.
        format: None: detected by the first line.

    Raises:
        ValueError: unknown format, or a line that is no record of the benchmark; it is named.
    """
    if format is not None and format not in FORMATS:
        raise ValueError(f"unknown format {format!r}: it is one of {', '.join(FORMATS)}")
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    if not lines:
        return []
    format = format or detect(lines[0][1], benchmark)
    read, first = _line_reader(benchmark, format, [line for _, line in lines[:2]])
    records: list[Record] = []
    for number, line in lines[first:]:
        try:
            record = read(line.rstrip("\r"))
            shape_of(benchmark, record)
        except ValueError as error:
            shown = line if len(line) <= _SHOWN else f"{line[:_SHOWN]}..."
            raise ValueError(
                f"line {number} is no record of the {benchmark} benchmark in {format}, {error}: "
                f"{shown}"
            ) from None
        records.append(record)
    return records


def detect(first_line: str, benchmark: BenchmarkName) -> Format:
    """Return the format of the document that begins with ``first_line``."""
    if first_line.startswith("{"):
        return "jsonl"
    if first_line.startswith("|"):
        return "markdown"
    if tuple(first_line.strip().split(",")) in _headers(benchmark):
        return "csv"
    return "prose"


def _headers(benchmark: BenchmarkName) -> Iterable[tuple[str, ...]]:
    return [structured.columns(benchmark, verbosity) for verbosity in get_args(Verbosity)]


def _line_reader(
    benchmark: BenchmarkName, format: Format, lines: list[str]
) -> tuple[Callable[[str], dict[str, Any]], int]:
    """Return what reads a line, and how many lines come before the first record."""
    if format == "prose":
        return sentence_reader(benchmark).read, 0
    objects = structured.object_reader(benchmark)
    if format == "jsonl":
        return lambda line: objects.read(structured.json_object(line)), 0
    cells = structured.csv_cells if format == "csv" else structured.markdown_cells
    header = tuple(cells(lines[0]))
    if header not in _headers(benchmark):
        raise ValueError(
            f"line 1 is no header of the {benchmark} benchmark in {format}: {lines[0][:_SHOWN]}"
        )
    return lambda line: objects.read_cells(header, cells(line)), 1 if format == "csv" else 2
