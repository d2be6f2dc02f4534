"""Memory and times of two KV policies over length, and the windows of the claim of equal score."""

from __future__ import annotations

from typing import TYPE_CHECKING

from contextcliff_dagster.contracts.results.kv import KvPolicy
from contextcliff_dagster.reporting.sections import (
    Block,
    Bracketed,
    Cell,
    Code,
    DataTable,
    Paragraph,
    Section,
)
from contextcliff_dagster.reporting.wording.number_format import level, score

if TYPE_CHECKING:
    from contextcliff_dagster.contracts.results import Comparison
    from contextcliff_dagster.contracts.results.kv import KvComparison, Median, Quantity

QUANTITY_NAMES: dict[Quantity, str] = {
    "kv_bytes": "cache",
    "kv_prefill_ms": "reading the document",
    "kv_press_ms": "choosing entries",
    "kv_question_ms": "question to first token",
    "kv_decode_ms": "each further token",
}


def kv_sections(kv: KvComparison) -> list[Section]:
    """Return what a comparison of two KV policies says beside the score, level 3."""
    windows: list[list[Cell]] = [
        [
            f"{window.from_tokens:,} to {window.to_tokens:,}",
            window.n_documents,
            f"{window.drop:+.2f}",
            f"{window.p_value:.2g}",
            "yes" if window.equal else "no",
        ]
        for window in kv.equal.windows
    ]
    note = (
        f"Equal: a mean drop of {kv.equal.margin:g} or more is ruled out here and at all shorter "
        f"lengths, at {level(kv.equal.confidence)} for the whole table (an exact test of the "
        "documents, from the shortest window on until one fails, or until A itself scores no more "
        "than that)."
    )
    columns = ["tokens", "documents", "drop A - B", "p of a drop of the margin", "equal"]
    sections = [
        Section(
            "Equal score, up to which length",
            [Paragraph(kv.sentence), DataTable(columns, windows, right=()), Paragraph(note)],
            3,
        )
    ]
    if kv.costs:
        sections.append(Section("Memory and times", cost_blocks(kv), 3))
    return sections


def kv_sentences(comparison: Comparison) -> list[str]:
    """Return what a comparison of two KV policies says of memory and cap; none of another."""
    if comparison.kv is None:
        return []
    return [comparison.kv.sentence, *filter(None, [cap_sentence(comparison)])]


def cap_sentence(comparison: Comparison) -> str | None:
    """Return B's safe cap against A's baseline, and what its own is; None where it has neither."""
    kv, own = comparison.kv, comparison.caps.b_tokens
    if kv is None or kv.cap is None or own is None:
        return None
    a = KvPolicy("", kv.policy_a, kv.budget_a)
    whole = "the whole cache" if a.keeps_all else a.label
    against = f"Against the baseline of {whole} ({score(kv.cap.baseline)}), "
    if kv.cap.tokens == own:
        return f"{against}the safe cap is {own:,} tokens, the same as against its own baseline."
    safe = "no length is safe"
    if kv.cap.tokens is not None:
        safe = f"the safe cap is {kv.cap.tokens:,} tokens"
    return f"{against}{safe}; against its own baseline the cap is {own:,} tokens."


def cost_blocks(kv: KvComparison) -> list[Block]:
    """Return the table of medians by bin."""
    rows: list[list[Cell]] = [
        [
            QUANTITY_NAMES[cost.quantity],
            Code(cost.bin),
            f"{cost.edge_low:,} to {cost.edge_high:,}",
            Bracketed(median_words(cost.quantity, cost.a)),
            Bracketed(median_words(cost.quantity, cost.b)),
        ]
        for cost in kv.costs
    ]
    note = (
        "Medians over documents, with intervals by order statistics where there are enough "
        "documents. Policies of kvpress: the cache of the document, which is read once for all of "
        "them. Precisions of llama.cpp and vLLM: the cache of the prompt, which each reads itself."
    )
    columns = ["", "bin", "tokens", "A", "B"]
    return [DataTable(columns, rows, right=()), Paragraph(note)]


def median_words(quantity: Quantity, median: Median | None) -> str:
    """Return ``2.1 [2.0, 2.2] MB`` or ``31 [29, 40] ms``."""
    if median is None:
        return "not measured"
    unit, scale = ("MB", 1e6) if quantity == "kv_bytes" else ("ms", 1.0)
    middle, low, high = (
        None if value is None else f"{value / scale:,.3g}" if value < 1000 * scale
        else f"{value / scale:,.0f}"
        for value in (median.median, median.ci_low, median.ci_high)
    )  # fmt: skip
    interval = "" if low is None else f" [{low}, {high}]"
    return f"{middle}{interval} {unit}"
