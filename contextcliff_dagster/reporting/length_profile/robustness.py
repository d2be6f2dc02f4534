"""How far the result depends on the method: other choices, more data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from contextcliff_dagster.reporting.sections import DataTable, Paragraph, Section
from contextcliff_dagster.reporting.wording.number_format import count, level, tokens
from contextcliff_dagster.reporting.wording.sentences import VERDICT_PHRASE, sentence

if TYPE_CHECKING:
    from contextcliff_dagster.contracts.results import Cliffs


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
