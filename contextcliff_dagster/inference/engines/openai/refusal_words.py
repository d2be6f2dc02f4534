"""Words by which servers say why they refuse, sorted: they shorten the way to what would show
otherwise by evidence (`execution.refusals`)."""

from __future__ import annotations

import re
from typing import Literal

_OVERFLOW_SIGNS = (
    "maximum context length",
    "maximum input length",
    "context_length_exceeded",
    "exceed_context_size",
    "exceeds the available context",
    "context length exceeded",
    "context window",
    "prompt is too long",
    "too many tokens",
    "longer than the maximum model length",
)
_FILTER = re.compile(
    r"content[_ -]?filter|content[_ -](?:management[_ -])?policy|responsible ?_?ai|guardrail"
    r"|safety[_ ](?:system|filter|setting|check)|blocked by|prohibited_content|requires moderation"
    r"|\bflagged\b|violat\w* .{0,40}(?:polic|guideline|terms)|data_inspection"
    r"|inappropriate content|敏感"
)
_QUOTA = re.compile(
    r"insufficient_quota|insufficient (?:balance|credit|funds)|credit balance|billing|arrear"
    r"|exceeded_current_quota|all available credits|good standing|余额不足"
)
_BAD_KEY = re.compile(
    r"api[ _]key (?:not valid|invalid|is invalid)|api_key_invalid|incorrect api key"
)
_PASSES = re.compile(
    r"\boverload|\bbusy\b|time ?out|timed out|try again|rate[ _-]?limit|temporar|unavailable"
    r"|internal (?:server )?error|(?:at|over) capacity|out of memory"
)
_RATES = ("rate_limit", "tokens per", "requests per", "tpm", "tpd", "quota")
_TOO_MUCH_AT_ONCE = re.compile(r"limit:? ([\d,]+)\b.{0,80}?requested:? ([\d,]+)", re.DOTALL)
_WAIT = re.compile(
    r"(?:try again|retry|retry[_ ]?delay)\W{0,4}(?:in|after)?\W{0,4}(?:(\d+)h)?(?:(\d+)m(?!s))?"
    r"(?:([\d.]+)(ms|s)\b)?"
)


def known_refusal(message: str) -> Literal["content_filter", "context_overflow"] | None:
    """Why a request is refused, where the words are known; a filter comes first.

    All functions here take what the server says in lower case, its code and type before it.
    """
    if _FILTER.search(message):
        return "content_filter"
    return "context_overflow" if any(sign in message for sign in _OVERFLOW_SIGNS) else None


def is_used_up(message: str) -> bool:
    """Whether the account's money or quota is; an address to pay more at says nothing of that."""
    return bool(_QUOTA.search(re.sub(r"https?://\S+", "", message)))


def is_bad_key(message: str) -> bool:
    """Whether the key is refused."""
    return bool(_BAD_KEY.search(message))


def may_pass(message: str) -> bool:
    """Whether the same request may be answered later."""
    return bool(_PASSES.search(message))


def is_rate(message: str) -> bool:
    """Whether it is about how much may be sent in a time."""
    return any(sign in message for sign in _RATES)


def too_much_at_once(message: str) -> str | None:
    """The limit of a rate that the request alone exceeds, where the refusal gives both."""
    found = _TOO_MUCH_AT_ONCE.search(message) if is_rate(message) else None
    limit, asked = (int(number.replace(",", "")) for number in found.groups()) if found else (0, 0)
    unit = "a day" if "tpd" in message or "per day" in message else "a minute"
    return f"{limit:,} tokens {unit}" if asked > limit > 0 else None


def asked_wait_s(message: str) -> float | None:
    """Seconds that the words ask to wait ("try again in 1h2m", "retryDelay: 4s")."""
    for hours, minutes, number, unit in (found.groups() for found in _WAIT.finditer(message)):
        if hours or minutes or unit:
            seconds = float(number or 0) / (1000 if unit == "ms" else 1)
            return 3600 * int(hours or 0) + 60 * int(minutes or 0) + seconds
    return None
