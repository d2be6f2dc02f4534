"""A result in one line: the cap, the drop, how many answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from contextcliff_dagster.contracts import Verdict
from contextcliff_dagster.reporting.wording.number_format import level, located, tokens
from contextcliff_dagster.reporting.wording.sentences import VERDICT_PHRASE, measured_range

if TYPE_CHECKING:
    from contextcliff_dagster.contracts.results import Cliffs


def deciding_cap(cliffs: Cliffs) -> int | None:
    """The cap in tokens of the document: of the scores and, where one is set, the time limit."""
    joint = cliffs.joint_cap
    if joint is not None and joint.limited_by == "latency_limit":
        return joint.tokens
    return cliffs.safe_cap_tokens


def one_line(cliffs: Cliffs) -> str:
    """``safe up to 12,300 tokens (95%); cliff at 15,000 [13,000, 17,400]; n=1,000``."""
    cap = deciding_cap(cliffs)
    words = "no safe cap" if cap is None else f"safe up to {tokens(cap)} tokens"
    if cap is None and (base := cliffs.baseline_cap_tokens) is not None:
        words = f"nothing longer than the baseline's own {tokens(base)} tokens shown"
    return f"{words} ({level(cliffs.confidence)}); {drop_clause(cliffs)}; n={cliffs.n:,}"


def drop_clause(cliffs: Cliffs) -> str:
    """What the length axis shows: ``cliff at 15,000 [13,000, 17,400]``."""
    verdict, drop = cliffs.verdict, cliffs.cliff
    words = VERDICT_PHRASE[verdict]
    if verdict is Verdict.STABLE:
        reach = measured_range(cliffs)
        return f"{words} up to {tokens(reach[1])}" if reach else words
    if drop is None:
        return words
    at = located(drop.location_tokens, drop.ci_low, drop.ci_high)
    return f"{words.partition(',')[0]} at {at}"
