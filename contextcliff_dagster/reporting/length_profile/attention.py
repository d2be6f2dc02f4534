"""Attention of the last prompt token: what it says, by bin, and how to read it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from contextcliff_dagster.reporting.sections import (
    Bracketed,
    Bullets,
    Cell,
    Code,
    DataTable,
    Paragraph,
    Section,
)
from contextcliff_dagster.reporting.wording.number_format import count, estimate, tokens
from contextcliff_dagster.reporting.wording.sentences import attention_sentences, score_name

if TYPE_CHECKING:
    from contextcliff_dagster.contracts.results import Cliffs
    from contextcliff_dagster.contracts.results.fields import MeanScore

READING = (
    "Entropy is that of the last prompt token's attention over the prompt, divided by the "
    "logarithm of the prompt's tokens: 0 where one token has all attention, 1 where it is spread "
    "evenly. It is measured inside the model and describes it; verdict and cap rest on the scores "
    "alone."
)


def attention_sections(result: Cliffs) -> list[Section]:
    """Sentences, a table by bin, and how to read it; nothing where attention was not measured."""
    if (attention := result.attention) is None:
        return []
    scores = {b.bin: estimate(b.mean, b.ci_low, b.ci_high) for b in result.bins}
    rows: list[list[Cell]] = [
        [
            Code(b.bin),
            tokens(b.tokens),
            tokens(b.entropy.n),
            Bracketed(scores.get(b.bin, "not measured")),
            *(Bracketed(_mean(one)) for one in (b.entropy, b.evidence, b.sinks)),
        ]
        for b in attention.bins
    ]
    head = ["bin", "median tokens", "n", score_name(result), "entropy", "evidence", "first tokens"]
    of = f"{count(attention.n, 'example')} of {attention.n_all:,}"
    caption = f"Entropy, and shares of the attention: {of}, means over heads and layers"
    return [
        Section(
            "Attention of the last prompt token",
            [
                Bullets(attention_sentences(attention)),
                DataTable(head, rows, caption, right=(1, 2)),
                Paragraph(READING),
            ],
            3,
        )
    ]


def _mean(one: MeanScore) -> str:
    return "unknown" if one.mean is None else estimate(one.mean, one.ci_low, one.ci_high)
