"""What a study may spend, checked before each call."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, replace

from contextcliff_dagster.contracts import BudgetError, StudyError

DAY_VARIABLE = "CONTEXTCLIFF_BUDGET_USD_PER_DAY"


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits for one campaign of one study, over all its models and runs; None means no limit.

    ``usd_per_day`` is a limit for all studies of one ledger together, by the day in UTC on which a
    request begins.

    The most that a call may cost is reserved in the ledger before it is sent and settled after it,
    so that several processes share one budget, and a call whose process died stays charged.

    A limit is never exceeded where the reservations cover what is billed: an exact count of the
    prompt, or `prompt_tokens_estimate`, and the whole output limit. A server that bills more
    than that (its tokenizer makes far more of a text, or output beyond the limit) exceeds it at
    most by the excess of the calls in flight when the limit was reached, concurrency x processes of
    them, and by the excess of each attempt whose usage is unknown (cut streams, killed processes):
    they are charged as reserved. An answer's own usage is charged, so that the next call knows: its
    output up to the limit or, if more, what came; one that is more than ten times our own count, or
    less than the text can have, is charged as reserved (`execution.usage_check`).
    (Measured by ``benchmarks/budget_trials.py``.)

    Raises:
        BudgetError: a limit is negative, or no number (which nothing would exceed).
    """

    usd: float | None = None
    tokens: int | None = None
    calls: int | None = None
    usd_per_day: float | None = None

    def __post_init__(self) -> None:
        for limit in (self.usd, self.tokens, self.calls, self.usd_per_day):
            if limit is not None and not limit >= 0:
                raise BudgetError(f"A budget of {limit} cannot be kept; give an amount from 0 on.")

    @property
    def limits_money(self) -> bool:
        """Whether prices must be known to keep to it."""
        return self.usd is not None or self.usd_per_day is not None

    def check(self, spent: Spend, reserve: Spend, today_usd: float = 0.0) -> None:
        """
        Args:
            spent: by the campaign so far, what is reserved included.
            today_usd: by all studies today, likewise.

        Raises:
            BudgetError: what is spent and ``reserve`` together exceed a limit.
        """
        campaign = ("The budget", "raise --budget")
        day = ("Today's budget", f"go on tomorrow (UTC), or raise {DAY_VARIABLE}")
        for limit, used, more, shown, (what, way_out) in (
            (self.usd, spent.usd, reserve.usd, "${:,.4f}", campaign),
            (self.usd_per_day, today_usd, reserve.usd, "${:,.4f}", day),
            (self.tokens, spent.tokens, reserve.tokens, "{:,.0f} tokens", campaign),
            (self.calls, spent.calls, reserve.calls, "{:,.0f} calls", campaign),
        ):
            # The small slack is for sums of floats: ten times 0.1 fits into 1.0.
            if limit is not None and used + more > limit * (1 + 1e-9):
                raise BudgetError(
                    f"{what} of {shown.format(limit)} is used up: {shown.format(used)} are spent "
                    f"or reserved and the next call may take {shown.format(more)}; everything "
                    f"measured is kept, so {way_out} and run the same command to go on."
                )


@dataclass(frozen=True, slots=True)
class Spend:
    """Money, tokens (in and out) and calls."""

    usd: float = 0.0
    tokens: int = 0
    calls: int = 0


def prompt_tokens_estimate(length_tokens: int, document_chars: int, prompt_chars: int) -> int:
    """Prompt tokens where the model's own tokenizer is not known: an estimate, mostly high.

    A quarter above the study's count of the document, and two characters a token for the rest. A
    model with another vocabulary may count more.
    """
    return math.ceil(1.25 * length_tokens) + math.ceil(max(prompt_chars - document_chars, 0) / 2)


def with_day_limit(budget: Budget) -> Budget:
    """``budget`` with the limit of ``CONTEXTCLIFF_BUDGET_USD_PER_DAY``, where it has none.

    Raises:
        StudyError: the variable holds no amount of money.
    """
    text = os.environ.get(DAY_VARIABLE, "").strip()
    if budget.usd_per_day is not None or not text:
        return budget
    try:
        usd = float(text)
    except ValueError:
        usd = math.nan
    if not 0 <= usd < math.inf:
        raise StudyError(f"{DAY_VARIABLE} is {text!r}; set it to an amount in USD, such as 25.")
    return replace(budget, usd_per_day=usd)
