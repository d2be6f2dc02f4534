"""How far a measurement has come, and what it came to."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any


@dataclass(frozen=True, slots=True)
class Progress:
    """A snapshot while calls run; ``done`` counts planned calls with an outcome, old or new.

    ``concurrency``: how many requests may be in flight just now.
    """

    planned: int
    done: int
    cached: int
    in_flight: int
    waiting: int
    retries: int
    failed: int
    concurrency: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    cost_usd: float
    elapsed_s: float
    seconds_left: float | None

    @property
    def tokens_per_s(self) -> float | None:
        """Prompt and output tokens of this run's own answers a second; None before the first."""
        return _pace(self.prompt_tokens + self.completion_tokens, self.elapsed_s)


@dataclass(frozen=True, slots=True)
class RunSummary:
    """What one run of calls did. ``sent`` counts requests, retries included.

    ``cached``: outcomes that the ledger had before; ``by_others``: outcomes that another process
    delivered meanwhile. ``orphans``: calls sent by processes that died before an answer was kept
    (charged to the budget, sent again). ``maybe_paid``: requests of this run that died after they
    were sent, perhaps paid (charged, too); ``_usd``: what either was charged with.
    ``unchecked_truncation``: answers whose prompt tokens could not be compared, for want of our own
    count or the server's. ``reasoning_tokens`` are part of ``completion_tokens``; ``reasoned_out``:
    answers that are empty, because reasoning used up the output limit. ``concurrency``: how many
    requests the server took at once in the end (0: none was sent). ``stopped``: ended on request.
    """

    planned: int
    cached: int = 0
    by_others: int = 0
    sent: int = 0
    answered: int = 0
    context_overflow: int = 0
    invalid_truncated: int = 0
    transport_errors: int = 0
    retries: int = 0
    orphans: int = 0
    orphans_usd: float = 0.0
    maybe_paid: int = 0
    maybe_paid_usd: float = 0.0
    unchecked_truncation: int = 0
    concurrency: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    reasoning_tokens: int = 0
    reasoned_out: int = 0
    cost_usd: float = 0.0
    seconds: float = 0.0
    stopped: bool = False

    @property
    def tokens_per_s(self) -> float | None:
        """Prompt and output tokens of this run's own answers a second; None without any."""
        return _pace(self.prompt_tokens + self.completion_tokens, self.seconds)

    def plus(self, other: RunSummary) -> RunSummary:
        """Two runs of one model as one: sums, the later's concurrency if it sent anything."""
        sums = {f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)}
        return RunSummary(
            **{
                **sums,
                # Either run sees all that an earlier one left behind.
                "orphans": max(self.orphans, other.orphans),
                "orphans_usd": max(self.orphans_usd, other.orphans_usd),
                "concurrency": other.concurrency or self.concurrency,
                "stopped": self.stopped or other.stopped,
            }
        )

    def to_dict(self) -> dict[str, Any]:
        """The fields, JSON-ready."""
        return asdict(self)


def _pace(tokens: int, seconds: float) -> float | None:
    return tokens / seconds if tokens and seconds > 0 else None
