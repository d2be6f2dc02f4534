"""The study's tokens against the model's own."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from contextcliff_dagster.reporting.sections import Cell, Code, DataTable, Paragraph, Section
from contextcliff_dagster.reporting.wording.number_format import percent, tokens

if TYPE_CHECKING:
    from contextcliff_dagster.contracts.results import Cliffs

_ALIKE = 0.01
"""Medians of the bins that differ by less than this are one number, not a table."""


def token_sections(bins: Section, result: Cliffs) -> list[Section]:
    """Return ``bins`` and how many tokens the server counts for one of the study's, where known.

    One number for all bins ends that section; numbers by bin are a section of their own.
    """
    ratio = result.token_ratio
    rows = [(row, row.median) for row in ratio.bins if row.median is not None] if ratio else []
    if ratio is None or not rows:
        return [bins]
    medians = [median for _, median in rows]
    tokenizer = Code(result.tokenizer or "the study's tokenizer")
    off = (
        "without the prompt around the document and "
        f"{tokens(ratio.template_tokens)} tokens for the chat template"
    )
    if max(medians) <= (1 + _ALIKE) * min(medians):
        middle = f"The server counts {sorted(medians)[len(medians) // 2]:.2f} tokens for one of "
        alike = Paragraph([middle, tokenizer, f" in every bin ({off})."])
        return [replace(bins, blocks=[*bins.blocks, alike])]
    cells: list[list[Cell]] = [
        [
            Code(row.bin),
            tokens(row.n),
            f"{median:.2f}",
            f"{_two(row.low)} to {_two(row.high)}",
        ]
        for row, median in rows
    ]
    head = ["bin", "calls", "server's tokens for one of the study's, median", "range"]
    differ = (
        f"Medians differ by {percent(ratio.spread)} at most, in bins of three calls or more."
        if ratio.spread is not None
        else "Too few calls to compare bins."
    )
    prompt = "Prompt tokens counted by the server per token of the document in "
    note = Paragraph([prompt, tokenizer, f", {off}. {differ}"])
    table = DataTable(head, cells, right=(1, 2, 3))
    return [bins, Section("Tokens of the study and of the model", [table, note], 3)]


def _two(value: float | None) -> str:
    return "?" if value is None else f"{value:.2f}"
