"""KV-cache policies in reports: one policy against another, and all policies of a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from contextcliff_dagster.contracts import Verdict
from contextcliff_dagster.contracts.results.comparison import KvPolicy
from contextcliff_dagster.reporting.figures.comparison import plot_kv_caps
from contextcliff_dagster.reporting.sections import (
    Block,
    Bracketed,
    Bullets,
    Cell,
    Code,
    DataTable,
    Figure,
    Paragraph,
    Section,
    Text,
)
from contextcliff_dagster.reporting.wording import level, ratio_words, score, tokens
from contextcliff_dagster.store import slug

if TYPE_CHECKING:
    from contextcliff_dagster.analysis.kv_family import KvFamily, KvMember
    from contextcliff_dagster.contracts.results import Comparison
    from contextcliff_dagster.contracts.results.comparison import (
        KvComparison,
        KvCost,
        LossShift,
        Median,
        Quantity,
    )

QUANTITY_NAMES: dict[Quantity, str] = {
    "kv_bytes": "cache",
    "kv_prefill_ms": "reading the document",
    "kv_press_ms": "choosing entries",
    "kv_question_ms": "question to first token",
    "kv_decode_ms": "each further token",
}


def kv_sections(kv: KvComparison) -> list[Section]:
    """Return the level-3 sections of a KV comparison: equal score, memory and times."""
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
    """Return sentences on the score and cap of two KV policies; none for other comparisons."""
    if comparison.kv is None:
        return []
    return [comparison.kv.sentence, *filter(None, [cap_sentence(comparison)])]


def cap_sentence(comparison: Comparison) -> str | None:
    """Return a sentence on B's caps against both baselines; None if a cap is missing."""
    kv, own_cap = comparison.kv, comparison.caps.b_tokens
    if kv is None or kv.cap is None or own_cap is None:
        return None
    a = KvPolicy("", kv.policy_a, kv.budget_a)
    label = "the whole cache" if a.keeps_all else a.label
    against = f"Against the baseline of {label} ({score(kv.cap.baseline)}), "
    if kv.cap.tokens == own_cap:
        return f"{against}the safe cap is {own_cap:,} tokens, the same as against its own baseline."
    safe = "no length is safe"
    if kv.cap.tokens is not None:
        safe = f"the safe cap is {kv.cap.tokens:,} tokens"
    return f"{against}{safe}; against its own baseline the cap is {own_cap:,} tokens."


def cost_blocks(kv: KvComparison) -> list[Block]:
    """Return a table of the memory and time medians by bin, and a note."""
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


TITLE = "KV policies"


def policy_sections(families: Sequence[KvFamily]) -> list[Section]:
    """Return one section for each model that has several KV policies."""
    return [
        Section([f"{TITLE}: ", Code(family.base)], _blocks(family), first=True)
        for family in families
    ]


def _blocks(family: KvFamily) -> list[Block]:
    file = Path(f"kv-policies-{slug(family.base)}.png")
    alt = f"Safe cap of {family.base} by KV policy and budget"
    compared = [(m, m.comparison) for m in family.members if m.comparison is not None]
    blocks: list[Block] = [
        Figure(file, alt, plot_kv_caps(family)),
        Bullets(
            [
                *claims([(m, c.kv) for m, c in compared if c.kv is not None]),
                *control(family),
                *own_caps(family),
            ]
        ),
        _drops(compared, level(family.tolerance)),
    ]
    windows = [c.kv for _, c in compared if c.kv is not None and len(c.kv.equal.windows) > 1]
    if windows:
        blocks.append(_drops_over_length(windows))
    if costs := _costs(compared):
        blocks.append(costs)
    note = (
        "Each policy is measured on the same examples as what it is compared with. What kvpress "
        "keeps is chosen before the question is known. Drops are scores of the whole cache less "
        "those of the policy, with intervals over documents. A ratio below 1 means that the policy "
        "drops from its own baseline at a shorter length."
    )
    return [*blocks, Paragraph(note)]


def claims(compared: Sequence[tuple[KvMember, KvComparison]]) -> list[Text]:
    """Return a sentence for each policy shown to score equally, and one for all others."""
    others = [
        member.kv.label + ("" if kv.saved_share is None else f" (saves {kv.saved_share:.0%})")
        for member, kv in compared
        if kv.equal.tokens is None
    ]
    words: list[Text] = [kv.sentence for _, kv in compared if kv.equal.tokens is not None]
    if others:
        equal = compared[0][1].equal
        words.append(
            "Not shown to score as well as the whole cache at any length (mean drop below "
            f"{equal.margin:g} in every length window, {level(equal.confidence)} confidence): "
            f"{', '.join(others)}."
        )
    return words


def control(family: KvFamily) -> list[Text]:
    """Return sentences comparing the policies with `random`; empty if it was not measured."""
    tested = [(m.kv.label, m.against_random) for m in family.members if m.against_random]
    if not tested:
        return []
    better = [label for label, against in tested if against.better]
    others = [
        f"{label} ({against.difference:+.2f} [{against.ci_low:+.2f}, {against.ci_high:+.2f}])"
        for label, against in tested
        if not against.better
    ]
    words: list[Text] = ["The control, random, keeps randomly chosen entries."]
    if better:
        words.append(f"Better than random at the same budget: {', '.join(better)}.")
    if others:
        words.append(
            Bracketed(
                "Not shown to be better than random at the same budget, all policies tested "
                "together (difference of the mean scores, with the interval of each alone): "
                f"{', '.join(others)}."
            )
        )
    return words


def own_caps(family: KvFamily) -> list[Text]:
    """Return a sentence on policies whose caps are longer against their own baselines, if any."""
    longer = [
        f"{m.kv.label} ({m.comparison.caps.b_tokens:,} tokens)"
        for m in family.members
        if m.comparison is not None
        and m.comparison.caps.b_tokens is not None
        and m.comparison.caps.b_tokens > (m.cap_tokens or 0)
    ]
    if not longer:
        return []
    return [
        "Caps here are measured against the baseline of the whole cache. Against their own "
        f"baselines, these policies have longer caps: {', '.join(longer)}."
    ]


def _drops(compared: Sequence[tuple[KvMember, Comparison]], tolerance: str) -> DataTable:
    rows: list[list[Cell]] = []
    for member, comparison in compared:
        overall = comparison.overall
        drop = "not measured"
        if overall.difference is not None and overall.ci_low is not None:
            drop = f"{0.0 - overall.difference:+.2f} [{0.0 - (overall.ci_high or 0):+.2f}, "
            drop += f"{0.0 - overall.ci_low:+.2f}]"
        rows.append(
            [
                Code(member.kv.label),
                comparison.n or 0,
                score(overall.mean_b),
                Bracketed(drop),
                tokens(member.cap_tokens, "none"),
                Bracketed(_shift_words(member, comparison.loss_shift)),
                Bracketed(_shift_words(member, comparison.midpoint_shift)),
                tokens(comparison.kv.equal.tokens if comparison.kv else None, "none"),
            ]
        )
    columns: list[Text] = [
        "policy",
        "n",
        "mean score",
        "drop",
        "safe cap, tokens",
        f"length of a {tolerance} drop",
        "midpoint",
        "equal up to, tokens",
    ]
    return DataTable(columns, rows, "Against the whole cache, all lengths together.", right=())


def _shift_words(member: KvMember, shift: LossShift | None) -> str:
    if member.verdict == Verdict.FLOOR.value:
        return "at the floor"
    return "open" if shift is None else ratio_words(shift)


def _drops_over_length(compared: Sequence[KvComparison]) -> DataTable:
    windows = compared[0].equal.windows
    columns: list[Text] = [
        "policy",
        *(f"{w.from_tokens:,} to {w.to_tokens:,} (n = {w.n_documents})" for w in windows),
    ]
    rows: list[list[Cell]] = [
        [
            Code(KvPolicy(kv.base, kv.policy, kv.budget).label),
            *(f"{w.drop:+.2f}{' equal' if w.equal else ''}" for w in kv.equal.windows),
        ]
        for kv in compared
        if len(kv.equal.windows) == len(windows)
    ]
    margin = compared[0].equal.margin
    caption = f"Drop over length, tokens of the document; equal: below {margin:g} up to there."
    return DataTable(columns, rows, caption, right=())


def _costs(compared: Sequence[tuple[KvMember, Comparison]]) -> DataTable | None:
    """Return the medians in the longest bin, where savings matter most; None without costs."""
    rows: list[list[Cell]] = []
    quantities = list(QUANTITY_NAMES)
    span = ""
    for member, comparison in compared:
        costs = comparison.kv.costs if comparison.kv else ()
        if not costs:
            continue
        last = costs[-1].bin
        by_quantity = {cost.quantity: cost for cost in costs if cost.bin == last}
        edges = next(iter(by_quantity.values()))
        span = f"{edges.edge_low:,} to {edges.edge_high:,} tokens"
        base_policy = Code(comparison.kv.policy_a) if comparison.kv else None
        if all(row[0] != base_policy for row in rows):
            rows.insert(0, [base_policy, *_medians(by_quantity, quantities, "a")])
        rows.append([Code(member.kv.label), *_medians(by_quantity, quantities, "b")])
    if not rows:
        return None
    columns: list[Text] = ["policy", *(QUANTITY_NAMES[name] for name in quantities)]
    caption = f"Memory and times, medians of the documents of {span}."
    return DataTable(columns, rows, caption, right=())


def _medians(
    costs: Mapping[Quantity, KvCost], quantities: Sequence[Quantity], side: Literal["a", "b"]
) -> list[Cell]:
    return [
        Bracketed(median_words(name, getattr(costs[name], side) if name in costs else None))
        for name in quantities
    ]
