"""Whether the five fields of a cron line name moments that come."""

from __future__ import annotations

import re

_FIELDS = (
    ("minute", 0, 59, ""),
    ("hour", 0, 23, ""),
    ("day", 1, 31, ""),
    ("month", 1, 12, "jan feb mar apr may jun jul aug sep oct nov dec"),
    ("weekday", 0, 7, "sun mon tue wed thu fri sat"),
)
_PART = re.compile(r"(?:\*|(\w{1,3})(?:-(\w{1,3}))?)(?:/(\d{1,2}))?")
_LONGEST_MONTH = (0, 31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


def check_cron(line: str) -> None:
    """Return if ``line`` is minute, hour, day, month and weekday, and such a moment comes.

    Raises:
        ValueError: it is not; the message names the field.
    """
    fields = line.split()
    if len(fields) != len(_FIELDS):
        raise ValueError("'cron' has five fields: minute, hour, day, month, weekday")
    _, _, days, months, _ = (
        _values(text, *field) for text, field in zip(fields, _FIELDS, strict=True)
    )
    comes = any(min(days) <= _LONGEST_MONTH[month] for month in months)
    if not comes and fields[4] == "*":
        raise ValueError(f"'cron' names day {min(days)} of months that have no such day")


def _values(text: str, name: str, low: int, high: int, words: str) -> set[int]:
    values: set[int] = set()
    for part in text.lower().split(","):
        if name == "day" and part == "l":  # the last of the month
            values.add(28)
            continue
        match = _PART.fullmatch(part)
        first, last, step = match.groups() if match else (None, None, None)
        if first is None:
            start, end = low, high
        else:
            start = _number(first, low, words)
            end = _number(last, low, words) if last else (high if step else start)
        if match is None or step == "0":
            raise ValueError(f"'cron' has {text[:40]!r} as {name}, which means nothing")
        if not low <= start <= end <= high:
            raise ValueError(f"'cron' has {text[:40]!r} as {name}, which goes from {low} to {high}")
        values.update(range(start, end + 1, int(step or 1)))
    return values


def _number(text: str, low: int, words: str) -> int:
    if text in words.split():
        return words.split().index(text) + low
    return int(text) if text.isdecimal() else -1
