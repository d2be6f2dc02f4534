"""Answers to questions about a ledger, each with the records that it rests on.

Quantities of a ledger changed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from contextcliff_dagster.extensions.utilization.benchmarks.asking import Made, make_question
from contextcliff_dagster.extensions.utilization.benchmarks.data import (
    Benchmark,
    Question,
    QuestionKind,
    Record,
)
from contextcliff_dagster.extensions.utilization.benchmarks.draws import Draws

Pair = tuple[str, str]
"""A warehouse and a SKU."""


class Ledger:
    """The records of a ledger, by warehouse and SKU, in the order of time.

    Each record counts for the warehouse that it names: the two sides of a transfer are two
    records, one for each warehouse.
    """

    def __init__(self, records: Sequence[Record]) -> None:
        self.records = records
        self.of_pair: dict[Pair, list[int]] = defaultdict(list)
        self._transfers: dict[Pair, list[int]] = defaultdict(list)
        for place, record in enumerate(records):
            pair = (record["warehouse"], record["sku"])
            self.of_pair[pair].append(place)
            if record["action"] == "transfer_out":
                self._transfers[pair].append(place)
        self.warehouses = sorted({warehouse for warehouse, _ in self.of_pair})

    def question(self, kind: QuestionKind, about: Mapping[str, Any]) -> Question:
        """Return the question ``about`` with its answer and evidence.

        Raises:
            ValueError: the records have no answer.
        """
        if about["ask"] == "units":
            return self._units(kind, about)
        return self._stock(kind, about) if about["ask"] == "stock" else self._chain(kind, about)

    def _units(self, kind: QuestionKind, about: Mapping[str, Any]) -> Question:
        (place,) = [
            one
            for one in self.of_pair[about["warehouse"], about["sku"]]
            if all(self.records[one][key] == about[key] for key in ("action", "ts"))
        ]
        qty = self.records[place]["qty"]
        low, high = {
            "initial": (10, 100),
            "sale": (1, 10),
            "restock": (5, 50),
            "adjustment": (-5, 5),
        }.get(about["action"], (1, 20))
        answer = qty if about["action"] == "adjustment" else abs(qty)
        choices = (min(low, answer), max(high, answer))
        return make_question(kind, about, answer, [place], abs(qty), choices=choices)

    def _stock(self, kind: QuestionKind, about: Mapping[str, Any]) -> Question:
        at = about["at"]
        stocks = {
            pair: [one for one in places if at is None or self.records[one]["ts"] <= at]
            for pair, places in self.of_pair.items()
        }
        evidence = stocks[about["warehouse"], about["sku"]]
        totals = [sum(self.records[one]["qty"] for one in places) for places in stocks.values()]
        answer = sum(self.records[one]["qty"] for one in evidence)
        margin = min(abs(self.records[one]["qty"]) for one in evidence)
        choices = (min(totals), max(totals))
        return make_question(kind, about, answer, evidence, margin, choices=choices)

    def follow(
        self, sku: str, start: str, hops: int, missing: int | None = None
    ) -> tuple[list[int], str] | None:
        """Return the transfers of a chain and the warehouse it ends in; None where it breaks off.

        ``missing``: a record that is read over.
        """
        warehouse, after, path = start, -1, []
        for _ in range(hops):
            for place in self._transfers.get((warehouse, sku), ()):
                if place > after and place != missing:
                    break
            else:
                return None
            path.append(place)
            after, warehouse = place, self.records[place]["dest"]
        return path, warehouse

    def _chain(self, kind: QuestionKind, about: Mapping[str, Any]) -> Question:
        chain = (about["sku"], about["warehouse"], about["hops"])
        found = self.follow(*chain)
        if found is None:
            raise ValueError(f"the chain of transfers breaks off: {dict(about)!r}")
        path, end = found
        others = [self.follow(*chain, missing=place) for place in path]
        possible = [
            len(self.warehouses) - 1 if one is None else int(one[1] != end) for one in others
        ]
        return make_question(
            kind,
            about,
            end,
            path,
            min(possible),
            hops=about["hops"],
            choices=self.warehouses,
            form="value",
        )


QUANTITIES = {
    "initial": range(10, 101),
    "sale": range(-10, 0),
    "restock": range(5, 51),
    "transfer_out": range(-20, 0),
    "adjustment": (-5, -4, -3, -2, -1, 1, 2, 3, 4, 5),
}
"""What the document draws from."""


def change_warehouse(draws: Draws, data: Benchmark, count: int, recompute: bool) -> Made:
    """Change ``count`` quantities, as many as can be; both sides of a transfer together."""
    records: list[Record] = list(data.records)
    ledger = Ledger(data.records)
    kept: set[Pair] = set()
    kept_places: set[int] = set()
    if not recompute:
        for question in data.questions:
            kept_places.update(question.evidence)
            if question.about["ask"] == "stock":
                kept.add((question.about["warehouse"], question.about["sku"]))
    stocks = {pair: _Stock(places, records) for pair, places in ledger.of_pair.items()}
    left = count
    for place in draws.shuffled(range(len(records))):
        record = records[place]
        if record["action"] == "transfer_in":
            continue
        sides = [place]
        if record["action"] == "transfer_out":
            sides.append(place + 1)  # the other side is written next
        if len(sides) > left or kept_places.intersection(sides):
            continue
        pairs = [(records[side]["warehouse"], records[side]["sku"]) for side in sides]
        if kept.intersection(pairs):
            continue
        change = draws.pick(QUANTITIES[record["action"]]) - record["qty"]
        changes = [change, -change][: len(sides)]
        if change and all(
            stocks[pair].allows(side, by)
            for pair, side, by in zip(pairs, sides, changes, strict=True)
        ):
            for pair, side, by in zip(pairs, sides, changes, strict=True):
                stocks[pair].change(side, by)
                records[side] = {**records[side], "qty": records[side]["qty"] + by}
            left -= len(sides)
        if not left:
            break
    questions = list(data.questions)
    if recompute:
        changed = Ledger(records)
        questions = [changed.question(one.kind, one.about) for one in questions]
    return Made(records, questions, {})


class _Stock:
    """The stock of one pair after each of its records."""

    def __init__(self, places: list[int], records: list[Record]) -> None:
        self._order = {place: number for number, place in enumerate(places)}
        self._stocks: list[int] = []
        for place in places:
            before = self._stocks[-1] if self._stocks else 0
            self._stocks.append(before + records[place]["qty"])

    def allows(self, place: int, by: int) -> bool:
        """Whether the stock stays at 0 or more if this record is changed ``by`` so much."""
        return by >= 0 or min(self._stocks[self._order[place] :]) + by >= 0

    def change(self, place: int, by: int) -> None:
        """Count the change."""
        for number in range(self._order[place], len(self._stocks)):
            self._stocks[number] += by
