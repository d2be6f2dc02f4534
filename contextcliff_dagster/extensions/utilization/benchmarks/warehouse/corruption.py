"""Quantities of a ledger changed."""

from __future__ import annotations

from contextcliff_dagster.extensions.utilization.benchmarks.asking import Made
from contextcliff_dagster.extensions.utilization.benchmarks.data import Benchmark, Record
from contextcliff_dagster.extensions.utilization.benchmarks.draws import Draws
from contextcliff_dagster.extensions.utilization.benchmarks.warehouse.answers import Ledger, Pair

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
