"""The page's lines on the study's tokens against the model's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from contextcliff_dagster.reporting.markdown.escaping import code, plain, table
from contextcliff_dagster.reporting.wording.number_format import number, percent, tokens
from contextcliff_dagster.reporting.wording.sentences import part, parts

_ALIKE = 0.01
"""Medians of the bins that differ by less than this are one number, not a table."""


def token_lines(result: Mapping[str, Any]) -> list[str]:
    """How many tokens the server counts for one of the study's, by bin; nothing where unknown."""
    ratio = part(result, "token_ratio")
    rows = [row for row in parts(ratio, "bins") if number(row.get("median")) is not None]
    if not rows:
        return []
    medians = [float(row["median"]) for row in rows]
    named = str(result.get("tokenizer") or "the study's tokenizer")
    off = (
        "the words around the document, and "
        f"{tokens(ratio.get('template_tokens'), '0')} tokens for the chat template, taken off"
    )
    if max(medians) <= (1 + _ALIKE) * min(medians):
        middle = sorted(medians)[len(medians) // 2]
        return [
            "",
            f"The server counts {middle:.2f} tokens for one of {code(named)} in every bin ({off}).",
        ]
    cells = [
        [
            code(row.get("bin")),
            tokens(row.get("n"), "unknown"),
            f"{float(row['median']):.2f}",
            f"{_two(row.get('low'))} to {_two(row.get('high'))}",
        ]
        for row in rows
    ]
    head = ["bin", "calls", "server's tokens for one of the study's, median", "range"]
    apart = ratio.get("spread")
    said = (
        f"Medians differ by {percent(apart)} at most, in bins of three calls or more."
        if number(apart) is not None
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


def _two(value: Any) -> str:
    found = number(value)
    return "?" if found is None else f"{found:.2f}"
