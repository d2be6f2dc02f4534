"""What a study may spend, checked before each call."""

from __future__ import annotations

import math
from dataclasses import dataclass

from contextcliff_dagster.contracts import BudgetError


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits for one campaign of one study, over all its models and runs; None means no limit.

    The most that a call may cost is reserved in the ledger before it is sent and settled after it,
    so that several processes share one budget, and a call whose process died stays charged.
    """

    usd: float | None = None
    tokens: int | None = None
    calls: int | None = None

    def check(self, spent: Spend, reserve: Spend) -> None:
        """
        Raises:
            BudgetError: ``spent`` + ``reserve`` exceeds a limit.
        """
        for limit, used, more, shown in (
            (self.usd, spent.usd, reserve.usd, "${:,.4f}"),
            (self.tokens, spent.tokens, reserve.tokens, "{:,.0f} tokens"),
            (self.calls, spent.calls, reserve.calls, "{:,.0f} calls"),
        ):
            # The small slack is for sums of floats: ten times 0.1 fits into 1.0.
            if limit is not None and used + more > limit * (1 + 1e-9):
                raise BudgetError(
                    f"The budget of {shown.format(limit)} is used up: {shown.format(used)} are "
                    "spent or reserved and the "
                    f"next call may take {shown.format(more)}; everything measured is kept, so "
                    "raise --budget and run "
                    "the same command to go on."
                )


@dataclass(frozen=True, slots=True)
class Spend:
    """Money, tokens (in and out) and calls."""

    usd: float = 0.0
    tokens: int = 0
    calls: int = 0


def careful_prompt_tokens(length_tokens: int, document_chars: int, prompt_chars: int) -> int:
    """Prompt tokens where the model's own tokenizer is not known, on the high side.

    A quarter above the study's count of the document, and two characters a token for the rest.
    """
    return math.ceil(1.25 * length_tokens) + math.ceil(max(prompt_chars - document_chars, 0) / 2)
