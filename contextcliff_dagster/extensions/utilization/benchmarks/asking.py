"""Questions about a document: which ones to ask, how to make them and how to word them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from contextcliff_dagster.extensions.utilization.benchmarks.data import (
    BenchmarkName,
    Draws,
    Evidence,
    Question,
    QuestionKind,
    Record,
    RetryError,
)
from contextcliff_dagster.extensions.utilization.rendering.sentences import FORMS

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
"""Question -> its text pattern; ``units`` has one per action, ``at`` one for a past time."""

START = 1704067200
"""Time of the first record: the first second of 2024."""
_KINDS = {"WH": "Warehouse", "E": "Entity", "N": "Node"}


def pattern_of(about: Mapping[str, Any]) -> str:
    """Return the key of the question ``about`` in `PATTERNS`."""
    ask: str = about["ask"]
    if ask == "units":
        return f"units {about['action']}"
    return ask if about.get("at") is None else f"{ask} at"


def question_text(about: Mapping[str, Any]) -> str:
    """Return the question ``about`` (see `data.ASKS`) in plain English.

    >>> question_text({"ask": "value", "entity": "E-0042", "attr": "color"})[:41]
    'What is the color of Entity 42 (E-0042)? '
    """
    words = {key: _words(key, value) for key, value in about.items()}
    text = PATTERNS[pattern_of(about)].format_map(words)
    return text.replace("after 1 such transfers", "after 1 such transfer")


def _words(key: str, value: Any) -> str:
    if key in ("ts", "at") and value is not None:
        return f"{FORMS['clock_first'].write(value)} (timestamp {value})"  # as in prose
    if key in ("warehouse", "entity", "from", "to"):
        kind, _, number = value.partition("-")
        return f"{_KINDS[kind]} {int(number)} ({value})"
    return str(value)


KINDS: Mapping[BenchmarkName, tuple[QuestionKind, ...]] = {
    "warehouse": ("lookup", "aggregate", "as_of", "chain"),
    "constraints": ("lookup", "aggregate", "chain"),
    "network": ("lookup", "aggregate", "as_of", "chain", "flow"),
}
"""Question kinds of each benchmark, in the order of asking."""

FIXED_RECORDS = 6
"""Number of records in a sum if `Evidence` is "fixed", at every scale large enough for them."""
GROWING_SHARE = 0.01
"""Share of all records in a sum if `Evidence` is "growing"; at least `LEAST_RECORDS`."""
LEAST_RECORDS = 4


About = tuple[QuestionKind, dict[str, Any]]
"""A question kind and its arguments."""


class Made(NamedTuple):
    """Generated records and questions; ``notes`` holds facts that the records do not contain."""

    records: list[Record]
    questions: list[Question]
    notes: Mapping[str, Any]


class Asked(NamedTuple):
    """A request for one question.

    ``hops``: the maximum length of a chain. ``luck``: a random number from 0 to 1 that varies the
    questions of a kind; it depends on the seed but not on the scale.
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
    """Return the questions to ask: one of each kind, then chains of other lengths, then repeat.

    The first chain length rotates with the seed, so that all lengths are asked equally often.
    Raise ValueError for an unknown kind, or without a question or hop.
    """
    order = KINDS[name] if kinds is None else tuple(kinds)
    if unknown := [kind for kind in order if kind not in KINDS[name]]:
        raise ValueError(
            f"the {name} benchmark has no questions of kind {unknown[0]!r}; use some of "
            + ", ".join(KINDS[name])
        )
    lengths = sorted(set(hops)) if name != "constraints" else sorted({max(2, h) for h in hops})
    if not order or questions < 1 or not lengths or lengths[0] < 1:
        raise ValueError("ask at least one question; chains have at least one hop")
    asks: list[Asked] = []
    chains = 0
    while len(asks) < questions:
        round_kinds: list[QuestionKind] = [*order]
        round_kinds += ["chain"] * (len(lengths) - 1) if "chain" in order else []
        for kind in round_kinds:
            if kind == "chain":
                asks.append(Asked("chain", lengths[(seed + chains) % len(lengths)]))
                chains += 1
            else:
                asks.append(Asked(kind))
    draws = Draws("asked", name, seed)
    return [question._replace(luck=draws.random()) for question in asks[:questions]]


def needed_records(
    records: int, evidence: Evidence, parameters: Mapping[str, int], most: int
) -> int:
    """Return how many records a sum should involve, from 2 to ``most``.

    The parameter ``num_needed``, if present, sets this number.
    """
    if "num_needed" in parameters:
        count = parameters["num_needed"]
    elif evidence == "fixed":
        count = FIXED_RECORDS
    else:
        count = max(LEAST_RECORDS, round(GROWING_SHARE * records))
    return max(2, min(count, most))


def longest_chain(hops: int, most: int) -> int:
    """Return ``hops`` if it is at most ``most``, else the largest power of two up to ``most``."""
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
    """Return a question; its text follows from ``about``."""
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
    """Return the unused one of ``places`` that is nearest to a randomly drawn place.

    The drawn place is uniform over the document's ``size`` records, so lookups are spread evenly.
    """
    taken = set(used)
    free = [place for place in places if place not in taken]
    drawn = draws.below(size)
    return min(free or places, key=lambda place: abs(place - drawn))


def require_not_last(records: Sequence[Record], made: Mapping[str, Iterable[Question]]) -> None:
    """Raise RetryError if the last record has an answer: copying from it must not be right."""
    last = {str(abs(value)) for value in records[-1].values() if isinstance(value, int)}
    last |= {str(value) for value in records[-1].values()}
    if any(question.answer in last for questions in made.values() for question in questions):
        raise RetryError


def in_order(
    asked: Sequence[Asked],
    made: Mapping[str, Sequence[Question]],
    lookup: Callable[[], Question] | None = None,
) -> list[Question]:
    """Return distinct questions in the order in which they were requested.

    A lookup replaces a question if the document is too small for another one of that kind. Raise
    RetryError with too few questions, if two are alike, or one has the margin 0.
    """
    by_text: dict[str, Question] = {}
    by_kind: dict[str, list[Question]] = {}
    for kind, candidates in made.items():
        by_kind[kind] = list({candidate.text: candidate for candidate in candidates}.values())
    for ask in asked:
        options = by_kind.get(ask.kind) or by_kind.get("lookup")
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
