"""What questions say: one fixed pattern for each thing that can be asked.

``{warehouse}``, ``{entity}`` and ``{node}`` places hold both forms of an identifier,
``Warehouse 42 (WH-0042)``; times are in UTC and hold both forms too,
``12:00:00 on January 1st, 2024 (timestamp 1704110400)``.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from typing import Any

PATTERNS: Mapping[str, str] = {
    "units initial": "How many units of {sku} were in the initial stock of {warehouse} at {ts}?",
    "units sale": "How many units of {sku} did {warehouse} sell at {ts}?",
    "units restock": "How many units of {sku} did {warehouse} receive as a restock at {ts}?",
    "units transfer_out": (
        "How many units of {sku} did {warehouse} transfer to another warehouse at {ts}?"
    ),
    "units transfer_in": (
        "How many units of {sku} did {warehouse} receive by transfer from another warehouse at "
        "{ts}?"
    ),
    "units adjustment": (
        "By how many units did an adjustment change the stock of {sku} at {warehouse} at {ts}? "
        "A reduction is a negative number."
    ),
    "stock": (
        "What is the current stock of {sku} at {warehouse}? It is the initial stock and all sales, "
        "restocks, transfers in, transfers out and adjustments of {sku} at this warehouse taken "
        "together."
    ),
    "stock at": (
        "What was the stock of {sku} at {warehouse} as of {at}? It is the initial stock and all "
        "sales, restocks, transfers in, transfers out and adjustments of {sku} at this warehouse "
        "up to and including that time taken together."
    ),
    "transfers": (
        "Follow {sku} from {warehouse}: take the earliest transfer of {sku} out of this warehouse, "
        "then, after that time, the earliest transfer of {sku} out of the warehouse reached, and "
        "so on. Which warehouse is reached after {hops} such transfers?"
    ),
    "value": (
        "What is the {attr} of {entity}? The statements taken together leave exactly one value."
    ),
    "facts": (
        "Of how many entities is it stated directly that their {attr} is {value}? Do not count "
        "entities of which this only follows from other statements."
    ),
    "initial_weight": (
        "What is the initial weight of the connection from {from} to {to}? Connections are "
        "directed."
    ),
    "weight": (
        "What is the weight of the connection from {from} to {to} after all events? Connections "
        "are directed."
    ),
    "weight at": (
        "What was the weight of the connection from {from} to {to} as of {at}, after all events up "
        "to and including that time? Connections are directed."
    ),
    "distance": (
        "What is the length of the shortest path from {from} to {to} after all events? Connections "
        "are directed, exist from the start, and their weights are lengths."
    ),
    "distance at": (
        "What was the length of the shortest path from {from} to {to} as of {at}, after all events "
        "up to and including that time? Connections are directed, exist from the start, and their "
        "weights are lengths."
    ),
    "max_flow": (
        "What is the maximum flow from {from} to {to} after all events? Connections are directed, "
        "exist from the start, and their weights are capacities."
    ),
    "max_flow at": (
        "What was the maximum flow from {from} to {to} as of {at}, after all events up to and "
        "including that time? Connections are directed, exist from the start, and their weights "
        "are capacities."
    ),
}
"""What is asked -> its pattern. ``units`` has one for each action, ``at`` one for a past time."""

_KINDS = {"WH": "Warehouse", "E": "Entity", "N": "Node"}
MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
_DAY_S = 86_400


def pattern_of(about: Mapping[str, Any]) -> str:
    """Return the key in `PATTERNS` of the question ``about``."""
    ask: str = about["ask"]
    if ask == "units":
        return f"units {about['action']}"
    return ask if about.get("at") is None else f"{ask} at"


def question_text(about: Mapping[str, Any]) -> str:
    """Return the question ``about`` (`schema.ASKS`) as a person asks it.

    >>> question_text({"ask": "value", "entity": "E-0042", "attr": "color"})[:41]
    'What is the color of Entity 42 (E-0042)? '
    """
    words = {key: _words(key, value) for key, value in about.items()}
    text = PATTERNS[pattern_of(about)].format_map(words)
    return text.replace("after 1 such transfers", "after 1 such transfer")


def time_in_words(ts: int) -> str:
    """Return Unix seconds as prose words them, in UTC.

    >>> time_in_words(1704067200)
    '00:00:00 on January 1st, 2024'
    """
    days, second = divmod(ts, _DAY_S)
    day = date.fromordinal(date(1970, 1, 1).toordinal() + days)
    ending = "th" if 10 < day.day < 14 else {1: "st", 2: "nd", 3: "rd"}.get(day.day % 10, "th")
    clock = f"{second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}"
    return f"{clock} on {MONTHS[day.month - 1]} {day.day}{ending}, {day.year}"


def _words(key: str, value: Any) -> str:
    if key in ("ts", "at") and value is not None:
        return f"{time_in_words(value)} (timestamp {value})"
    if key in ("warehouse", "entity", "from", "to"):
        kind, _, number = value.partition("-")
        return f"{_KINDS[kind]} {int(number)} ({value})"
    return str(value)
