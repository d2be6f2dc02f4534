"""What a call takes by our own count; whether a server's usage can be believed; the charge."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from contextcliff_dagster.inference.engines.base import PromptCount, Usage
from contextcliff_dagster.inference.models.models_file import Price
from contextcliff_dagster.inference.requests.call_plan import PlannedCall
from contextcliff_dagster.inference.requests.outcome import Outcome
from contextcliff_dagster.inference.requests.recipe import Prompt
from contextcliff_dagster.inference.spending.budget import Spend, prompt_tokens_estimate

TRUNCATION_SHARE = 0.02
TRUNCATION_TOKENS = 8
"""Slack where our count is of the texts alone: they may merge with the template's tokens."""
TEMPLATE_TOKENS = 256
CHARS_A_TOKEN = 16
"""Of a whole text no tokenizer makes fewer tokens: English has four to five characters a token."""
MOST_TIMES = 10
PROMPT_MARGIN, OUTPUT_MARGIN = 4_096, 1 << 17
"""A report of up to `MOST_TIMES` our own count is kept, and on top of it a gateway's own system
text, or as much reasoning, which not every server counts against the limit, as the longest outputs
that models have today. What is charged of it is less: see `charge`."""


@dataclass(frozen=True, slots=True)
class CallSize:
    """Tokens of a call by our own count: of the prompt as reserved, as estimated before the
    campaign's correction and at least, the limit of its output, and the most that reasoning beyond
    it can have."""

    prompt_tokens: int
    estimated_tokens: int
    least_prompt_tokens: int
    output_tokens: int
    most_reasoning: int = OUTPUT_MARGIN

    def reserve(self, price: Price | None) -> Spend:
        """What to reserve for the call: no cache discount, output up to its limit."""
        usd = price.cost_usd(self.prompt_tokens, self.output_tokens) if price else 0.0
        return Spend(usd, self.prompt_tokens + self.output_tokens, 1)


def size_of(
    call: PlannedCall,
    prompt: Prompt,
    own: PromptCount | None,
    *,
    window_tokens: int | None = None,
    most_of_estimate: float = 1.0,
) -> CallSize:
    """The size of ``call``.

    Args:
        own: the model's own count of its prompt; exact, or a lower bound.
        window_tokens: the longest prompt and output.
        most_of_estimate: the most that the server counted of a prompt, as a share of our estimate.
    """
    chars = sum(map(len, prompt.contents()))
    least = max(least_seen(own), chars // CHARS_A_TOKEN)
    estimated = reserved = max(own.tokens if own else 0, least)
    if own is None or not own.exact:
        estimate = prompt_tokens_estimate(call.length_tokens, len(call.document), chars)
        estimated = max(estimated, estimate)
        reserved = math.ceil(estimated * min(max(1.0, most_of_estimate), MOST_TIMES))
    most = OUTPUT_MARGIN
    if window_tokens:
        reserved = max(min(reserved, window_tokens), estimated)
        most = max(min(window_tokens - least, OUTPUT_MARGIN), 0)
    return CallSize(reserved, estimated, least, call.recipe.max_output_tokens, most)


def least_seen(own: PromptCount | None) -> int:
    """Tokens that a server has to see of a prompt that is not cut; 0 where that is not known.

    An exact count must be met; a count of the texts alone is a lower bound, with a little slack.
    """
    if own is None or own.exact:
        return own.tokens if own else 0
    return max(0, -int(-(own.tokens * (1 - TRUNCATION_SHARE) - TRUNCATION_TOKENS) // 1))


def was_truncated(own: PromptCount | None, server_tokens: int | None) -> bool | None:
    """Whether the server saw fewer tokens than were sent; None where one of the counts is missing
    (see `least_seen`)."""
    if own is None or server_tokens is None:
        return None
    return server_tokens < least_seen(own)


def whole_prompt(usage: Usage, own: PromptCount | None) -> Usage:
    """``usage`` with the cached tokens in the prompt's, where the server counts them apart: without
    them it saw too little, and with them what was sent."""
    read, cached = usage.prompt_tokens, usage.cached_tokens
    if own is None or not cached or not was_truncated(own, read):
        return usage
    total = (read or 0) + cached
    most = own.tokens * (1 + TRUNCATION_SHARE) + TEMPLATE_TOKENS
    return replace(usage, prompt_tokens=total) if least_seen(own) <= total <= most else usage


def is_too_large(usage: Usage, size: CallSize) -> bool:
    """Whether a server reports far more than it can have read or written: such a usage is as good
    as none, and no single reply can use up a budget."""
    return (usage.prompt_tokens or 0) > MOST_TIMES * size.estimated_tokens + PROMPT_MARGIN or (
        usage.completion_tokens or 0
    ) > MOST_TIMES * size.output_tokens + OUTPUT_MARGIN


def believed(usage: Usage, size: CallSize, text: str) -> Usage:
    """``usage`` with no more output than there can have been: what was allowed or, if more, what
    came (``text``: a token has a byte at least), and reasoning as far as the window has room."""
    if usage.completion_tokens is None:
        return usage
    most = max(size.output_tokens, len(text.encode("utf-8", "surrogatepass"))) + min(
        usage.reasoning_tokens or 0, size.most_reasoning
    )
    return replace(usage, completion_tokens=min(usage.completion_tokens, most))


def charge(outcome: Outcome, size: CallSize, price: Price | None) -> Spend:
    """What a kept outcome is charged: the reported usage, as far as it `is believed <believed>`.

    Without a usage it is the reservation, and what an output beyond its limit has more than that.
    So it is where the report is less than the prompt and the output can have had: a server that
    reports too little does not spend more than it was given. A cache discount is believed.
    """
    reserved = size.reserve(price)
    written_at_least = len((outcome.raw_output or "") + (outcome.reasoning or "")) // CHARS_A_TOKEN
    if (beyond := written_at_least - size.output_tokens) > 0:
        usd = reserved.usd + (price.cost_usd(0, beyond) if price else 0.0)
        reserved = Spend(usd, reserved.tokens + beyond, 1)
    read, written = outcome.prompt_tokens, outcome.completion_tokens
    if read is None or written is None:
        return reserved
    usd = reserved.usd if outcome.cost_usd is None else outcome.cost_usd
    if read >= size.least_prompt_tokens and written >= written_at_least:
        return Spend(usd, read + written, 1)
    return Spend(max(usd, reserved.usd), max(read + written, reserved.tokens), 1)
