"""What became of a call: the row that the ledger keeps for good."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

NoAnswer = Literal["context_overflow", "invalid_truncated"]


def utc_now() -> str:
    """Now, as ISO 8601 text in UTC with microseconds (sorts as it reads)."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


@dataclass(frozen=True, slots=True)
class Outcome:
    """A finished call. Times in ms, cost in USD, None where nobody knows.

    ``attempts`` counts the requests of the process that finished the call; requests of a process
    that died are orphans, counted apart. ``loop_lag_ms``: how late our own event loop ran meanwhile
    at worst, a bound on how much of the times is ours. ``queue_ms``: waiting inside the engine,
    which is in neither of the other times. ``reasoning_tokens`` are part of ``completion_tokens``.
    """

    no_answer: NoAnswer | None = None
    raw_output: str | None = None
    reasoning: str | None = None
    finish_reason: str | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    completion_tokens: int | None = None
    reasoning_tokens: int | None = None
    own_prompt_tokens: int | None = None
    ttft_ms: float | None = None
    duration_ms: float | None = None
    queue_ms: float | None = None
    loop_lag_ms: float | None = None
    attempts: int = 0
    cost_usd: float | None = None
    error: str | None = None
    finished_at: str = ""

    @property
    def reasoned_out(self) -> bool:
        """Nothing was answered: the limit of the output was used up by reasoning."""
        return (
            self.no_answer is None
            and self.finish_reason == "length"
            and not (self.raw_output or "").strip()
            and bool(self.reasoning or self.reasoning_tokens)
        )


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an attempt brought no answer; ``final``: the run gave up (a later one tries again)."""

    kind: str
    message: str
    maybe_paid: bool = False
    status: int | None = None
    final: bool = False
    attempts: int = 1
    at: str = ""


@dataclass(frozen=True, slots=True)
class MaybePaid:
    """Requests without a kept answer that may have been paid all the same, and their charge."""

    requests: int = 0
    usd: float = 0.0


@dataclass(frozen=True, slots=True)
class Orphan:
    """A request whose process died before its answer was kept: perhaps paid, and charged."""

    call_key: str
    study: str
    campaign: str
    model: str
    started_at: str
    reserved_usd: float
