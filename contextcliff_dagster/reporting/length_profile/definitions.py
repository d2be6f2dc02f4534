"""Plain threshold rules, and effective lengths by other definitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from contextcliff_dagster.reporting.length_profile.robustness import scatter_sentence
from contextcliff_dagster.reporting.sections import (
    Block,
    Cell,
    Code,
    DataTable,
    Paragraph,
    Section,
)
from contextcliff_dagster.reporting.wording.number_format import percent, score, tokens

if TYPE_CHECKING:
    from contextcliff_dagster.contracts.results import Cliffs
    from contextcliff_dagster.contracts.results.cliffs import Rule

RULE_WORDS = {
    "transition_sd": "transition: SD at least 2 x the first bin's",
    "variance": "transition: variance more than 2 x the first bin's",
    "mean_drop": "cliff: mean more than 30% below the first bin's",
    "failure_rate_spike": "failure rate at least 2 x the first bin's and .10 above it",
    "first_failing_edge": "cap by these rules: lower edge of the first failing bin, tokens",
    "critical_threshold": "that edge as a share of the window",
}


def rule_sections(result: Cliffs) -> list[Section]:
    """The plain rules with what they saw; a rule that cannot fire says so."""
    blocks: list[Block] = [Paragraph("Not evaluated.")]
    if result.rules:
        rows: list[list[Cell]] = [
            [
                RULE_WORDS.get(r.name, r.name),
                ("yes" if r.fired else "no") if r.reachable else "cannot fire on these data",
                Code(r.at_bin) if r.at_bin is not None else "none",
                _rule_value(r, r.value),
                _rule_value(r, r.threshold),
            ]
            for r in result.rules
        ]
        head = ["rule", "fired", "at bin", "value", "threshold"]
        note = (
            "The rules compare single bins with the first one and ignore chance; the verdict does "
            "not depend on them."
        )
        blocks = [DataTable(head, rows, right=(3, 4)), Paragraph(note)]
    if scatter := scatter_sentence(result):
        blocks.append(Paragraph(scatter))
    return [Section("Threshold rules", blocks, 3)]


def _rule_value(rule: Rule, value: float | None) -> str:
    if value is None:
        return "none"
    if rule.name == "first_failing_edge":
        return tokens(value)
    if rule.name in ("mean_drop", "critical_threshold", "failure_rate_spike"):
        return percent(value)
    return f"{value:.3f}"


def definition_sections(result: Cliffs) -> list[Section]:
    """Effective lengths of the literature on the same bins, and LongScore."""
    own, long_score = result.definitions, result.definitions.longscore
    named = {
        "RULER (arXiv 2404.06654): longest length with a score of at least the threshold": (
            own.ruler_85_6
        ),
        "NoLiMa (arXiv 2502.05167): longest length with at least .85 x the base score": (
            own.nolima_0_85
        ),
        "MECW (arXiv 2509.21361): longest length before a drop of more than 5% of the base score": (
            own.mecw_5pct
        ),
        "longest length before a drop of more than 30% of the measured baseline": own.drop_30pct,
    }
    rows = []
    for words, length in named.items():
        at = {
            "<": "below the shortest measured",
            ">": f"at least {tokens(length.tokens)}",
            None: tokens(length.tokens, "none"),
        }[length.censored]
        rows.append([words, at, "none" if length.threshold is None else f"{length.threshold:.3f}"])
    lengths = ", ".join(map(tokens, long_score.base_tokens)) or "unknown"
    values = ", ".join(f"{tokens(v.tokens)}: {score(v.value)}" for v in long_score.by_length)
    relative = (
        f"LongScore (arXiv 2505.19293), relative change against {score(long_score.base)} "
        f"at {lengths} tokens: mean {score(long_score.mean)}"
        f"{f' (by tokens {values})' if values else ''}."
    )
    note = "Read from the bins' means at their median lengths; these definitions have no intervals."
    table = DataTable(["definition", "tokens", "threshold"], rows, right=(1, 2))
    title = "Effective lengths by other definitions"
    return [Section(title, [table, Paragraph(relative), Paragraph(note)], 3)]
