"""The page's lines on the study's tokens against the model's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from contextcliff_dagster.reporting.markdown.escaping import code, plain, table
from contextcliff_dagster.reporting.wording.number_format import percent, tokens

if TYPE_CHECKING:
    from contextcliff_dagster.contracts.results import Cliffs

_ALIKE = 0.01
"""Medians of the bins that differ by less than this are one number, not a table."""


def token_lines(result: Cliffs) -> list[str]:
    """How many tokens the server counts for one of the study's, by bin; nothing where unknown."""
    ratio = result.token_ratio
    if ratio is None:
        return []
    rows = [(row, row.median) for row in ratio.bins if row.median is not None]
    if not rows:
        return []
    medians = [median for _, median in rows]
    named = result.tokenizer or "the study's tokenizer"
    off = (
        "the words around the document, and "
        f"{tokens(ratio.template_tokens)} tokens for the chat template, taken off"
    )
    if max(medians) <= (1 + _ALIKE) * min(medians):
        middle = sorted(medians)[len(medians) // 2]
        return [
            "",
            f"The server counts {middle:.2f} tokens for one of {code(named)} in every bin ({off}).",
        ]
    cells = [
        [
            code(row.bin),
            tokens(row.n),
            f"{median:.2f}",
            f"{_two(row.low)} to {_two(row.high)}",
        ]
        for row, median in rows
    ]
    head = ["bin", "calls", "server's tokens for one of the study's, median", "range"]
    said = (
        f"Medians differ by {percent(ratio.spread)} at most, in bins of three calls or more."
        if ratio.spread is not None
        else "Too few calls to hold bins against each other."
    )
    return [
        "",
        "### Tokens of the study and of the model",
        "",
        *table(head, cells, right=(1, 2, 3)),
        "",
        f"Prompt tokens by the server over tokens of the document in {code(named)}, {plain(off)}. "
        f"{said}",
    ]


def _two(value: float | None) -> str:
    return "?" if value is None else f"{value:.2f}"
