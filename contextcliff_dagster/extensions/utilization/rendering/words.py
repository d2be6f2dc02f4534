"""Values as English writes them, and back: moments, identifiers, quantities, attributes.

A form is lossless: ``read(write(value)) == value``, and ``read`` refuses what ``write`` never
writes, such as ``January 2th``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import date
from functools import lru_cache
from typing import Any, NamedTuple

from contextcliff_dagster.extensions.utilization.benchmarks.schema import DOMAINS
from contextcliff_dagster.extensions.utilization.benchmarks.wording import MONTHS

_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_EPOCH = date(1970, 1, 1).toordinal()
_DAY_S = 86_400
LAST_SECOND = (date.max.toordinal() - _EPOCH + 1) * _DAY_S - 1
"""The last moment that has a date: the end of the year 9999."""

_CLOCK = re.compile(r"(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d")
_WHOLE = r"-?(?:0|[1-9]\d*)"
_NUMBER = rf"{_WHOLE}(?:\.\d+)?(?:e[+-]\d+)?"


class Form(NamedTuple):
    """One way to word a field, or two together; ``pattern`` has no groups."""

    pattern: str
    write: Callable[[Any], str]
    read: Callable[[str], Any]


def _one_of(words: tuple[Any, ...]) -> str:
    return "(?:" + "|".join(re.escape(str(word)) for word in words) + ")"


def _ordinal(number: int) -> str:
    if 10 < number < 14:
        return f"{number}th"
    return f"{number}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th') }"


def _moment(layout: str) -> Form:
    """Word Unix seconds, in UTC and on a clock of 24 hours: 12:00:00 is noon, never midnight."""
    parts = {
        "CLOCK": _CLOCK.pattern,
        "WEEKDAY": _one_of(_WEEKDAYS),
        "MONTH": _one_of(MONTHS),
        "ORDINAL": r"\d{1,2}(?:st|nd|rd|th)",
        "DAY": r"\d{1,2}",
        "YEAR": r"\d{4}",
        "ISO": r"\d{4}-\d\d-\d\d",
    }
    pattern = re.sub(r"\b[A-Z]{3,}\b", lambda word: parts.get(word[0], word[0]), layout)
    asked = re.compile(r"\b(WEEKDAY|MONTH|ORDINAL|DAY|YEAR|ISO)\b")

    @lru_cache(4096)
    def write_day(days: int) -> str:
        day = date.fromordinal(_EPOCH + days)
        words = {
            "WEEKDAY": _WEEKDAYS[day.weekday()],
            "MONTH": MONTHS[day.month - 1],
            "ORDINAL": _ordinal(day.day),
            "DAY": str(day.day),
            "YEAR": f"{day.year:04d}",
            "ISO": day.isoformat(),
        }
        return asked.sub(lambda word: words[word[1]], layout)

    @lru_cache(4096)
    def read_day(text: str) -> int:
        if iso := re.search(parts["ISO"], text):
            day = date.fromisoformat(iso[0])
        else:
            month = next(number for number, name in enumerate(MONTHS, 1) if name in text)
            numbers = [int(one) for one in re.findall(r"\d+", text)]
            day = date(max(numbers), month, min(numbers))
        days = day.toordinal() - _EPOCH
        if days < 0 or write_day(days) != text:
            raise ValueError(f"there is no such day: {text.replace('CLOCK', '').strip()}")
        return days

    def write(ts: int) -> str:
        days, second = divmod(ts, _DAY_S)
        clock = f"{second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}"
        return write_day(days).replace("CLOCK", clock)

    def read(text: str) -> int:
        clock = _CLOCK.search(text)
        assert clock is not None, text
        hours, minutes, seconds = clock[0].split(":")
        day = read_day(text.replace(clock[0], "CLOCK"))
        return day * _DAY_S + int(hours) * 3600 + int(minutes) * 60 + int(seconds)

    return Form(pattern, write, read)


def _identifier(prefix: str, words: str) -> Form:
    """``WH-0042`` as ``Warehouse 42``: ``words`` before the number."""

    @lru_cache(65_536)
    def write(identifier: str) -> str:
        return f"{words}{int(identifier.removeprefix(prefix))}"

    @lru_cache(65_536)
    def read(text: str) -> str:
        return f"{prefix}{int(text.removeprefix(words)):04d}"

    return Form(re.escape(words) + r"(?:0|[1-9]\d*)", write, read)


def _in_full(prefix: str, words: str) -> Form:
    """``the warehouse with identifier WH-0042``."""
    size = len(words)
    pattern = rf"{re.escape(words + prefix)}(?:\d{{4}}|[1-9]\d{{4,}})"
    return Form(pattern, lambda one: words + one, lambda text: text[size:])


def _units(sign: int) -> Form:
    """``3 units``: ``sign`` -1 for what goes out, which records hold as a negative quantity."""

    def write(quantity: int) -> str:
        number = sign * quantity
        return "1 unit" if number == 1 else f"{number} units"

    def read(text: str) -> int:
        return _whole(text.partition(" ")[0]) * sign

    return Form(rf"(?:1 unit|(?!1 ){_WHOLE} units)", write, read)


def _change(units: bool) -> Form:
    """A change up or down: ``reduced by 3``."""

    def write(change: int) -> str:
        if not change:
            return "left unchanged"
        unit = (" unit" if abs(change) == 1 else " units") if units else ""
        return f"{'increased' if change > 0 else 'reduced'} by {abs(change)}{unit}"

    def read(text: str) -> int:
        if text == "left unchanged":
            return 0
        way, _, number, *_ = text.split(" ")
        return int(number) if way == "increased" else -int(number)

    number = r"(?:1 unit|(?!1 )[1-9]\d* units)" if units else r"[1-9]\d*"
    return Form(rf"(?:left unchanged|(?:increased|reduced) by {number})", write, read)


def _whole(text: str) -> int:
    if text == "-0":
        raise ValueError("-0 is no quantity")
    return int(text)


def _write_number(value: float) -> str:
    return repr(value).removesuffix(".0")


def _an(word: object) -> str:
    """``word`` after its article; the x of ``xlarge`` is said like ``ex``."""
    return f"an {word}" if str(word)[0] in "aeiou" or word == "xlarge" else f"a {word}"


_POSITIVE = {
    "color": "is {0}",
    "accent": "has {1} accent",
    "size": "is {0} in size",
    "fit": "has {1} fit",
    "rating": "has a rating of {0}",
    "grade": "has a grade of {0}",
    "origin": "has its origin in {0}",
    "destination": "has {0} as its destination",
    "owner": "has {0} as its owner",
    "inspector": "has {0} as its inspector",
}
"""Attribute -> what an entity with value ``{0}`` is or has; ``{1}`` is the value with article."""


def _negative(clause: str) -> str:
    verb, _, rest = clause.partition(" ")
    return f"{'is not' if verb == 'is' else 'does not have'} {rest}"


def _clauses(words: Callable[[str], str]) -> Form:
    """An attribute and its value, together, after the name of an entity: ``is not purple``."""
    texts = {
        (attribute, value): words(_POSITIVE[attribute].format(value, _an(value)))
        for attribute, domain in DOMAINS.items()
        for value in domain
    }
    back = {text: pair for pair, text in texts.items()}
    return Form(_one_of(tuple(back)), texts.__getitem__, back.__getitem__)


def _shared(attributes: tuple[str, str]) -> str:
    """Two attributes that are the same one.

    Raises:
        ValueError: they are not.
    """
    first, second = attributes
    if first != second:
        raise ValueError(f"an eq record is about one attribute, not {first} and {second}")
    return first


def _value(text: str) -> str | int:
    return int(text) if text.isdigit() else text


_VALUES = tuple(dict.fromkeys(value for domain in DOMAINS.values() for value in domain))
_ATTRIBUTE = _one_of(tuple(DOMAINS))

FORMS: Mapping[str, Form] = {
    "warehouse": _identifier("WH-", "Warehouse "),
    "entity": _identifier("E-", "Entity "),
    "node": _identifier("N-", "Node "),
    "sku": _in_full("SKU-", ""),
    "full_warehouse": _in_full("WH-", "the warehouse with identifier "),
    "full_entity": _in_full("E-", "the entity with identifier "),
    "full_node": _in_full("N-", "the node with identifier "),
    "full_sku": _in_full("SKU-", "the item with stock-keeping unit "),
    "clock_first": _moment("CLOCK on MONTH ORDINAL, YEAR"),
    "date_first": _moment("DAY MONTH YEAR at CLOCK"),
    "digits": _moment("ISO CLOCK"),
    "weekday": _moment("CLOCK UTC on WEEKDAY, MONTH ORDINAL, YEAR"),
    "units": _units(1),
    "units_out": _units(-1),
    "stock_change": _change(units=True),
    "change": _change(units=False),
    "integer": Form(_WHOLE, str, _whole),
    "number": Form(_NUMBER, _write_number, float),
    "attribute": Form(_ATTRIBUTE, str, str),
    "same_attribute": Form(_ATTRIBUTE, _shared, lambda text: (text, text)),
    "value": Form(_one_of(_VALUES), str, _value),
    "holds": _clauses(str),
    "fails": _clauses(_negative),
}
"""Form -> how it is written and read. Those named like a `schema.FieldKind` are its default."""
