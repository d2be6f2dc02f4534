"""Numbers in words, and texts of any script in a line: one spelling everywhere.

One spelling of tokens, scores, shares and intervals. Every function takes ``None`` (and any number
that is not finite) as "not measured or not supported" and says so instead of printing a number.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.contracts import level as written_level

if TYPE_CHECKING:
    from contextcliff_dagster.contracts.results.comparison import LossShift

FIRST_STRONG_ISOLATE, POP_ISOLATE = "\u2068", "\u2069"
_WORD = "[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\U00010800-\U00010fff\U0001e800-\U0001efff]+"
_RIGHT_TO_LEFT = re.compile(f"{_WORD}(?: {_WORD})*")


def isolated(text: str) -> str:
    """`text` with its words from right to left between Unicode's isolates (U+2068, U+2069, UAX #9):
    without them a number that follows is shown in front. Text without such words is unchanged.
    """
    return (
        text
        if text.isascii()
        else _RIGHT_TO_LEFT.sub(f"{FIRST_STRONG_ISOLATE}\\g<0>{POP_ISOLATE}", text)
    )


def isolated_whole(text: str) -> str:
    """`text` between isolates if any of it is written from right to left: for what is copied as it
    is, such as code."""
    if text.isascii() or not _RIGHT_TO_LEFT.search(text):
        return text
    return f"{FIRST_STRONG_ISOLATE}{text}{POP_ISOLATE}"


def columns_of(text: str) -> int:
    """How many columns of a terminal ``text`` takes: wide characters two, combining ones and
    isolates none."""
    return len(text) if text.isascii() else sum(map(_columns, text))


def padded(text: str, columns: int) -> str:
    """`text` with blanks after it up to so many columns."""
    return text + " " * (columns - columns_of(text))


def _columns(character: str) -> int:
    if character in (FIRST_STRONG_ISOLATE, POP_ISOLATE):
        return 0
    if unicodedata.category(character) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


NOT_MEASURED = "not measured"


def number(value: Any) -> float | None:
    """``value`` as a finite float, else None; booleans and text are no numbers."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None


def tokens(value: Any, missing: str = NOT_MEASURED) -> str:
    """A token count: ``1,234``."""
    finite = number(value)
    return missing if finite is None else f"{round(finite):,}"


def score(value: Any, missing: str = NOT_MEASURED) -> str:
    """A score, SD or variance to two digits: ``0.98``."""
    finite = number(value)
    return missing if finite is None else f"{finite:.2f}"


def difference(value: Any, missing: str = NOT_MEASURED) -> str:
    """A difference of scores with its sign: ``+0.31``, ``-0.05``; ``0.00`` without one."""
    finite = number(value)
    return missing if finite is None else f"{round(finite, 2) + 0.0:+.2f}".replace("+0.00", "0.00")


def limits(low: float | None, high: float | None) -> str:
    """The interval of a difference: ``[-0.05, +0.31]``, or ``(no interval)``."""
    if low is None or high is None:
        return "(no interval)"
    return f"[{difference(low)}, {difference(high)}]"


def percent(value: Any, missing: str = NOT_MEASURED) -> str:
    """A measured share 0..1: ``43.2%``."""
    finite = number(value)
    return missing if finite is None else f"{100 * finite:.1f}%"


def level(value: Any, missing: str = "unstated") -> str:
    """A chosen share as `contracts.level` writes it."""
    finite = number(value)
    return missing if finite is None else written_level(finite)


def milliseconds(value: Any, missing: str = NOT_MEASURED) -> str:
    """A duration: ``12 ms`` or ``3.4 s``."""
    finite = number(value)
    if finite is None:
        return missing
    return f"{finite / 1000:,.1f} s" if finite >= 1000 else f"{finite:.0f} ms"


def two_digits(tokens: float) -> int:
    """Rounded to two digits: more would feign a precision that no interval has."""
    return int(float(f"{tokens:.1e}"))


def located(at: Any, low: Any, high: Any) -> str:
    """A length in tokens with its interval: ``575 [477, 701]``; without one ``575 or less``."""
    if number(low) is None or number(high) is None:
        return f"{tokens(at)} or less"
    return f"{tokens(at)} [{tokens(low)}, {tokens(high)}]"


def estimate(mean: Any, low: Any, high: Any) -> str:
    """``0.98 [0.93, 0.99]``; says ``(no interval)`` where the mean has none."""
    if number(mean) is None:
        return NOT_MEASURED
    known = number(low) is not None and number(high) is not None
    return f"{score(mean)} {f'[{score(low)}, {score(high)}]' if known else '(no interval)'}"


def count(value: Any, noun: str) -> str:
    """``1 answer``, ``200 answers``; an unknown count is ``an unknown number of answers``."""
    finite = number(value)
    if finite is None:
        return f"an unknown number of {noun}s"
    return f"{round(finite):,} {noun}{'' if round(finite) == 1 else 's'}"


def named(noun: str, names: Sequence[str]) -> str:
    """``campaign 2026-11-21``, ``campaigns 2026-11-21, 2026-11-22``; the plural adds an s."""
    return f"{noun}{'' if len(names) == 1 else 's'} {', '.join(names)}"


def ratio_words(shift: LossShift) -> str:
    """Return ``x 0.51 [0.38, open]``, or ``open`` where neither end is known."""
    if not shift.is_bounded:
        return "open"
    low, high = (f"{end:.2f}" if end else "open" for end in (shift.ci_low, shift.ci_high))
    return f"x {score(shift.ratio, '?')} [{low}, {high}]"
