"""Outcome of a call: the row that the ledger keeps for good."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from contextcliff_dagster.thoughts import without_thoughts

ORIGIN = "origin"
"""Key of ``extra`` in tables: the archive that an answer comes from."""
Scalar = str | int | float | bool | None
"""JSON values without brackets."""
NoAnswer = Literal["context_overflow", "invalid_truncated", "content_filter"]


def utc_now() -> str:
    """Now, as ISO 8601 text in UTC with microseconds (sorts as it reads)."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


def valid_text(text: str) -> str:
    """``text`` as every database can keep it: halves of surrogate pairs are joined, and invalid
    characters (a half alone, NUL) become U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text.replace("\x00", "\ufffd")


def measurements(values: object) -> dict[str, Scalar] | None:
    """Return the names of ``values`` that hold JSON scalars; None where there are none.

    NumPy's and torch's numbers become Python's. Anything else (lists, NaN) is left out: a
    malformed measurement never costs the answer that it came with.
    """
    if not isinstance(values, Mapping):
        return None
    kept: dict[str, Scalar] = {}
    for name, value in values.items():
        with suppress(Exception):
            number = value if isinstance(value, Scalar) else value.item()
            if isinstance(name, str) and isinstance(number, Scalar):
                json.dumps([name, number], ensure_ascii=False, allow_nan=False).encode()
                kept[name] = number
    return kept or None


@dataclass(frozen=True, slots=True)
class Outcome:
    """A finished call. Times in ms, cost in USD, None where unknown.

    ``attempts`` counts the requests of the process that finished the call; requests of a process
    that died are orphans, counted apart. ``loop_lag_ms``: how late our own event loop ran meanwhile
    at worst, a bound on how much of the times is ours. ``queue_ms``: waiting inside the engine,
    which is in neither of the other times. ``reasoning_tokens`` are part of ``completion_tokens``.
    ``extra``: values that the engine measured next to the answer, by name.
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
    extra: Mapping[str, Scalar] | None = None

    @property
    def reasoned_out(self) -> bool:
        """Whether reasoning used up the output limit, so that there is no answer."""
        if self.no_answer is not None or self.finish_reason != "length":
            return False
        answer, unended = without_thoughts(self.raw_output or "")
        return unended or not answer.strip()


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

    def __post_init__(self) -> None:
        object.__setattr__(self, "message", valid_text(self.message))


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
