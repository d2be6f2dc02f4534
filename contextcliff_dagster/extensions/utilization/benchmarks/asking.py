"""Questions: which are asked on a document, how they are made and worded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date
from typing import Any, NamedTuple

from contextcliff_dagster.extensions.utilization.benchmarks.data import (
    BenchmarkName,
    Draws,
    Evidence,
    Question,
    QuestionKind,
    Record,
)

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
"""Question -> its pattern. ``units`` has one for each action, ``at`` one for a past time."""

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
    """Return the question ``about`` (`data.ASKS`) as a person asks it.

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


KINDS: Mapping[BenchmarkName, tuple[QuestionKind, ...]] = {
    "warehouse": ("lookup", "aggregate", "as_of", "chain"),
    "constraints": ("lookup", "aggregate", "chain"),
    "network": ("lookup", "aggregate", "as_of", "chain", "flow"),
}
"""Kinds of question of each benchmark, in the order in which they are asked."""

FIXED_RECORDS = 6
"""Records that matter to a sum where `Evidence` is fixed, at every scale that holds them."""
GROWING_SHARE = 0.01
"""Share of the records that matter to a sum where `Evidence` is growing, from `LEAST_RECORDS`."""
LEAST_RECORDS = 4


About = tuple[QuestionKind, dict[str, Any]]
"""A kind of question and what it is about."""


class RetryError(Exception):
    """These draws give no good question; other draws may."""


class Made(NamedTuple):
    """Records with their questions; ``notes``: facts that the records alone do not give."""

    records: list[Record]
    questions: list[Question]
    notes: Mapping[str, Any]


class Asked(NamedTuple):
    """A question to be made.

    ``hops``: of a chain, the most. ``luck``: a draw from 0 to 1, the same for a seed at every
    scale, by which questions of a kind vary.
    """

    kind: QuestionKind
    hops: int = 1
    luck: float = 0.0


def questions_to_ask(
    name: BenchmarkName,
    seed: int,
    kinds: Sequence[QuestionKind] | None,
    hops: Sequence[int],
    questions: int,
) -> list[Asked]:
    """Return the questions to ask: each kind, then chains of other lengths, then all again.

    With which length chains begin goes round with the seed, so that each is asked equally often.

    Raises:
        ValueError: a kind that the benchmark does not have, or no hops; none at all.
    """
    order = KINDS[name] if kinds is None else tuple(kinds)
    if unknown := [kind for kind in order if kind not in KINDS[name]]:
        raise ValueError(
            f"the {name} benchmark has no questions of kind {unknown[0]!r}; write some of "
            + ", ".join(KINDS[name])
        )
    lengths = sorted(set(hops)) if name != "constraints" else sorted({max(2, h) for h in hops})
    if not order or questions < 1 or not lengths or lengths[0] < 1:
        raise ValueError("ask at least one question; chains have at least one hop")
    asked: list[Asked] = []
    chains = 0
    while len(asked) < questions:
        again: list[QuestionKind] = [*order]
        again += ["chain"] * (len(lengths) - 1) if "chain" in order else []
        for kind in again:
            if kind == "chain":
                asked.append(Asked("chain", lengths[(seed + chains) % len(lengths)]))
                chains += 1
            else:
                asked.append(Asked(kind))
    draws = Draws("asked", name, seed)
    return [question._replace(luck=draws.random()) for question in asked[:questions]]


def needed_records(
    records: int, evidence: Evidence, parameters: Mapping[str, int], most: int
) -> int:
    """Return the number of records that should matter to a sum, from 2 to ``most``.

    The parameter ``num_needed``, where there is one, sets their number.
    """
    if "num_needed" in parameters:
        wanted = parameters["num_needed"]
    elif evidence == "fixed":
        wanted = FIXED_RECORDS
    else:
        wanted = max(LEAST_RECORDS, round(GROWING_SHARE * records))
    return max(2, min(wanted, most))


def longest_chain(hops: int, most: int) -> int:
    """Return ``hops`` if a chain may be that long, else the largest allowed power of two."""
    return hops if hops <= most else 1 << (max(1, most).bit_length() - 1)


def make_question(
    kind: QuestionKind,
    about: Mapping[str, Any],
    answer: object,
    evidence: Iterable[int],
    margin: float,
    *,
    hops: int = 1,
    choices: Iterable[object] = (),
    form: str = "number",
) -> Question:
    """Return a question, its text written by the pattern of its kind."""
    return Question(
        kind=kind,
        text=question_text(about),
        answer=str(answer),
        form="number" if form == "number" else "value",
        about=dict(about),
        evidence=tuple(sorted(evidence)),
        margin=float(margin),
        hops=hops,
        choices=tuple(map(str, choices)),
    )


def draw_lookup(draws: Draws, size: int, places: Sequence[int], used: Iterable[int]) -> int:
    """Return one of ``places`` that no other question uses: the next one to a place drawn.

    So records looked up are as likely anywhere in the document, of ``size`` records.
    """
    others = set(used)
    free = [place for place in places if place not in others]
    drawn = draws.below(size)
    return min(free or places, key=lambda place: abs(place - drawn))


def require_not_last(records: Sequence[Record], made: Mapping[str, Iterable[Question]]) -> None:
    """Refuse an answer that occurs in the last record: copying from there must be wrong.

    Raises:
        RetryError: there is one.
    """
    last = {str(abs(value)) for value in records[-1].values() if isinstance(value, int)}
    last |= {str(value) for value in records[-1].values()}
    if any(question.answer in last for some in made.values() for question in some):
        raise RetryError


def in_order(
    asked: Sequence[Asked],
    made: Mapping[str, Sequence[Question]],
    lookup: Callable[[], Question] | None = None,
) -> list[Question]:
    """Return the questions in the order in which they were asked, none of them twice.

    Where a document is too small for one more of a kind, a lookup takes its place.

    Raises:
        RetryError: missing a record that matters does not show in an answer; there are too few.
    """
    by_text: dict[str, Question] = {}
    left: dict[str, list[Question]] = {}
    for kind, some in made.items():
        left[kind] = list({candidate.text: candidate for candidate in some}.values())
    for wanted in asked:
        options = left.get(wanted.kind) or left.get("lookup")
        if options:
            question = options.pop(0)
        elif lookup is not None:
            question = lookup()
        else:
            raise RetryError
        if question.margin == 0 or question.text in by_text:
            raise RetryError
        by_text[question.text] = question
    return list(by_text.values())
