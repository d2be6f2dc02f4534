"""Records written down: one record a line, in each of the four formats.

Prose has one sentence a line, as in the design document, so that formats differ in the form of a
record and not in how records are set apart. No format has a legend before its records; CSV and
Markdown begin with their header.
"""

from __future__ import annotations

import random
from itertools import accumulate
from typing import get_args

from contextcliff_dagster.extensions.utilization.benchmarks.data import Benchmark, Record
from contextcliff_dagster.extensions.utilization.rendering import structured
from contextcliff_dagster.extensions.utilization.rendering.formats import (
    FORMATS,
    Format,
    Order,
    Rendering,
    Verbosity,
)
from contextcliff_dagster.extensions.utilization.rendering.sentences import templates
from contextcliff_dagster.extensions.utilization.rendering.structured import shape_of


def render(
    data: Benchmark,
    format: Format,
    verbosity: Verbosity = "standard",
    order: Order = "chronological",
) -> Rendering:
    """Write the records of ``data`` down; `parse.parse` reads them back without loss.

    Args:
        data: its seed draws the sentence of each record, by the record's position in the data and
            not by what it holds, and the order if it is ``shuffled``: one permutation, the same
            for every format and verbosity.
        format: ``jsonl``: compact JSON, a record a line, keys in the schema's order. ``prose``: a
            sentence a line; ``standard`` draws it from several wordings, the design document's
            among them. ``csv``: one header of all the benchmark's keys, cells of other types
            empty. ``markdown``: the same as a table.
        verbosity: for prose short or long sentences, for the others short or long keys.
        order: ``chronological``: as in the data (constraints have no time: as drawn).

    Returns:
        The text, without a line end after the last record, and for each record of ``data.records``
        the position of its first character.

    Raises:
        ValueError: unknown format, verbosity or order, or an impossible record.
    """
    for name, given, known in (
        ("format", format, FORMATS),
        ("verbosity", verbosity, get_args(Verbosity)),
        ("order", order, get_args(Order)),
    ):
        if given not in known:
            raise ValueError(f"unknown {name} {given!r}: it is one of {', '.join(known)}")
    indices = permutation(data, order)
    match format:
        case "prose":
            lines = _sentences(data, verbosity, indices)
        case "jsonl":
            lines = structured.json_lines(data.name, verbosity, _chosen(data, indices))
        case "csv":
            lines = structured.csv_lines(data.name, verbosity, _chosen(data, indices))
        case "markdown":
            lines = structured.markdown_lines(data.name, verbosity, _chosen(data, indices))
    ends = accumulate((len(line) + 1 for line in lines), initial=0)
    first_of_lines = list(ends)[len(lines) - len(indices) : -1]
    starts = [0] * len(indices)
    for index, start in zip(indices, first_of_lines, strict=True):
        starts[index] = start
    return Rendering("\n".join(lines), tuple(starts))


def permutation(data: Benchmark, order: Order) -> list[int]:
    """Return the indices of the records in the order in which a document has them."""
    indices = list(range(len(data.records)))
    if order == "shuffled":
        random.Random(f"order:{data.name}:{data.seed}").shuffle(indices)
    return indices


def _chosen(data: Benchmark, indices: list[int]) -> list[Record]:
    return [data.records[index] for index in indices]


def _sentences(data: Benchmark, verbosity: Verbosity, indices: list[int]) -> list[str]:
    wordings = templates(data.name)
    draw = random.Random(f"wording:{data.name}:{data.seed}").random
    lines = []
    for record in data.records:
        fitting = wordings[shape_of(data.name, record).name, verbosity]
        lines.append(fitting[int(draw() * len(fitting))].write(record))
    return [lines[index] for index in indices]
