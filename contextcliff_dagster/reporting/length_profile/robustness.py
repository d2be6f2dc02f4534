"""How far the result depends on the method: other choices, rules and definitions, more data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from contextcliff_dagster.reporting.sections import Block, Cell, Code, DataTable, Paragraph, Section
from contextcliff_dagster.reporting.wording.number_format import (
    count,
    level,
    percent,
    score,
    tokens,
)
from contextcliff_dagster.reporting.wording.sentences import VERDICT_PHRASE, sentence

if TYPE_CHECKING:
    from contextcliff_dagster.contracts.results import Cliffs
    from contextcliff_dagster.contracts.results.cliffs import Rule


def confounds_sentence(result: Cliffs) -> str | None:
    """Whether a changing mix of questions explains the loss; ``None`` if not assessed."""
    confounds = result.confounds
    if confounds.identified == "no":
        return "Length is not shown to be the cause: see the warnings."
    if confounds.identified != "yes":
        return None
    return " ".join(["Is length the cause, or other questions?", *map(sentence, confounds.reasons)])


def sensitivity_sections(result: Cliffs) -> list[Section]:
    """Cap and verdict with one choice made otherwise; nothing where none was varied."""
    if not result.sensitivity:
        return []
    rows = [
        [
            r.factor,
            f"{r.value}{' (reported)' if r.reported and r.value else ''}",
            VERDICT_PHRASE[r.verdict],
            tokens(r.safe_cap_tokens, "none supported"),
            tokens(r.location_tokens, "none found"),
            tokens(r.n),
        ]
        for r in result.sensitivity
    ]
    head = ["choice", "value", "verdict", "safe cap, tokens", "midpoint of the drop", "examples"]
    note = (
        "One choice is changed at a time, with fewer permutations. No row is a better answer than "
        "the first, and the largest cap among them has no stated confidence."
    )
    table = DataTable(head, rows, right=(3, 4, 5))
    return [Section("Sensitivity of the cap", [table, Paragraph(note)], 3)]


def more_data_sections(result: Cliffs) -> list[Section]:
    """What more examples are expected to buy; nothing where it was not reckoned."""
    rows = []
    for more in result.certify.more:
        usd = "" if more.usd is None else f", {more.usd:,.2f} USD"
        rows.append(
            [
                f"{tokens(more.tokens)} tokens{usd}",
                f"{count(more.examples, 'example')}, about {tokens(more.per_bin)} per bin",
                tokens(more.expected_cap_tokens, "none"),
            ]
        )
    if not rows:
        return []
    head = ["extra tokens", "extra examples", "expected cap, tokens"]
    curve = "flat" if result.certify.assumes == "flat" else "as fitted"
    note = (
        f"Simulated, assuming that the curve is {curve}, examples are spread evenly over the bins "
        "and the corpus has enough of them: the median cap of eleven such data sets, which half "
        "of them do not reach."
    )
    table = DataTable(head, rows, right=(2,))
    return [Section("Expected cap with more data", [table, Paragraph(note)], 3)]


def scatter_sentence(result: Cliffs) -> str | None:
    """Whether scores scatter beyond what their mean explains; None where it was not tested."""
    signal = result.variance_signal
    if signal is None:
        return None
    head = "Scatter of the scores beyond what their mean explains"
    p = signal.p_value
    if p is None:
        return f"{head}: not tested; {signal.refused_because}."
    window = f"{tokens(signal.from_tokens)} to {tokens(signal.to_tokens)} tokens"
    outcome = "found" if p <= 0.05 else "none found"
    return f"{head}: {outcome} (the most at {window}, p = {p:.3f}, level {level(0.05)})."


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
