"""One request: send it, time it, and judge whether the server read all of it."""

from __future__ import annotations

import time
from contextlib import aclosing
from dataclasses import dataclass, field, replace

from contextcliff_dagster.inference.engines.base import Decoding, Engine, PromptCount, Timing, Usage
from contextcliff_dagster.inference.models.models_file import Price
from contextcliff_dagster.inference.requests.call_plan import PlannedCall
from contextcliff_dagster.inference.requests.outcome import Outcome, Scalar, measurements, utc_now
from contextcliff_dagster.inference.requests.recipe import Prompt
from contextcliff_dagster.inference.spending.budget import Spend, prompt_tokens_upper_bound

TRUNCATION_SHARE = 0.02
TRUNCATION_TOKENS = 8
"""Slack where our count is of the texts alone: they may merge with the template's tokens."""
REASONED_OUT = (
    "reasoning used up the output limit before the answer began; raise `prompt: max_output_tokens` "
    "of the study"
)


@dataclass(slots=True)
class Answer:
    """What came back, with times in seconds of `time.perf_counter()`."""

    started: float
    ended: float
    first_token: float | None = None
    text: str = ""
    reasoning: str = ""
    finish_reason: str | None = None
    usage: Usage | None = None
    timing: Timing | None = None
    extra: dict[str, Scalar] = field(default_factory=dict)

    @property
    def queue_ms(self) -> float | None:
        """How long the engine let the call wait; None where it is not reported."""
        return self.timing.queue_ms if self.timing else None

    @property
    def ttft_ms(self) -> float | None:
        """To the first token, from when the engine took the call up; else from when it was sent."""
        if self.timing:
            return self.timing.ttft_ms
        return None if self.first_token is None else (self.first_token - self.started) * 1000

    @property
    def duration_ms(self) -> float:
        """To the last token, counted as `ttft_ms` is."""
        return (self.ended - self.started) * 1000 - (self.queue_ms or 0.0)


def reserve_for_call(
    call: PlannedCall, prompt: Prompt, own: PromptCount | None, price: Price | None
) -> Spend:
    """What to reserve for one call: no cache discount, output up to its limit."""
    tokens = own.tokens if own else 0
    if own is None or not own.exact:
        chars = sum(map(len, prompt.contents()))
        tokens = max(
            tokens, prompt_tokens_upper_bound(call.length_tokens, len(call.document), chars)
        )
    out = call.recipe.max_output_tokens
    return Spend(price.cost_usd(tokens, out) if price else 0.0, tokens + out, 1)


async def ask(engine: Engine, prompt: Prompt, decoding: Decoding) -> Answer:
    """Send one request and gather its stream. Raises what `Engine.stream` raises."""
    text: list[str] = []
    reasoning: list[str] = []
    started = time.perf_counter()
    answer = Answer(started, ended=started)
    async with aclosing(engine.stream(prompt, decoding)) as stream:  # type: ignore[type-var]
        async for delta in stream:
            answer.ended = delta.at or time.perf_counter()
            if answer.first_token is None and not delta.whole and (delta.text or delta.reasoning):
                answer.first_token = answer.ended
            text.append(delta.text)
            reasoning.append(delta.reasoning)
            answer.finish_reason = delta.finish_reason or answer.finish_reason
            answer.usage = delta.usage or answer.usage
            answer.timing = delta.timing or answer.timing
            if delta.extra is not None:
                answer.extra |= measurements(delta.extra) or {}
    answer.text, answer.reasoning = "".join(text), "".join(reasoning)
    return answer


def was_truncated(own: PromptCount | None, server_tokens: int | None) -> bool | None:
    """Whether the server saw fewer tokens than were sent; None where one of the counts is missing.

    An exact count must be met; a count of the texts alone is a lower bound, with a little slack.
    """
    if own is None or server_tokens is None:
        return None
    if own.exact:
        return server_tokens < own.tokens
    return server_tokens < own.tokens * (1 - TRUNCATION_SHARE) - TRUNCATION_TOKENS


def judge(
    answer: Answer, own: PromptCount | None, price: Price | None, attempts: int, lag_ms: float
) -> Outcome:
    """The outcome to keep. An answer to a silently shortened prompt is no answer."""
    usage = answer.usage or Usage()
    truncated = was_truncated(own, usage.prompt_tokens)
    cost = None
    if price and usage.prompt_tokens is not None and usage.completion_tokens is not None:
        cost = price.cost_usd(
            usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens or 0
        )
    outcome = Outcome(
        no_answer="invalid_truncated" if truncated else None,
        raw_output=answer.text,
        reasoning=answer.reasoning or None,
        finish_reason=answer.finish_reason,
        prompt_tokens=usage.prompt_tokens,
        cached_tokens=usage.cached_tokens,
        completion_tokens=usage.completion_tokens,
        reasoning_tokens=usage.reasoning_tokens,
        own_prompt_tokens=own.tokens if own else None,
        ttft_ms=answer.ttft_ms,
        duration_ms=answer.duration_ms,
        queue_ms=answer.queue_ms,
        loop_lag_ms=lag_ms,
        attempts=attempts,
        cost_usd=cost,
        error=f"the server read {usage.prompt_tokens} prompt tokens where {own.tokens} were sent"
        if truncated and own
        else None,
        finished_at=utc_now(),
        extra=answer.extra or None,
    )
    return replace(outcome, error=REASONED_OUT) if outcome.reasoned_out else outcome


def unanswered(own: PromptCount | None, why: str, *, attempts: int) -> Outcome:
    """The outcome of a call whose prompt is longer than the model takes."""
    return Outcome(
        no_answer="context_overflow",
        own_prompt_tokens=own.tokens if own else None,
        attempts=attempts,
        error=why,
        finished_at=utc_now(),
    )


def charge(outcome: Outcome, reserved: Spend) -> Spend:
    """What a kept outcome cost; where that is not reported, what was reserved."""
    if outcome.prompt_tokens is None or outcome.completion_tokens is None:
        return reserved
    usd = reserved.usd if outcome.cost_usd is None else outcome.cost_usd
    return Spend(usd, outcome.prompt_tokens + outcome.completion_tokens, 1)
