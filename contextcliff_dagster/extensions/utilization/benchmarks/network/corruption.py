"""Weights and events of a network changed."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from contextcliff_dagster.extensions.utilization.benchmarks.asking import Made, RetryError
from contextcliff_dagster.extensions.utilization.benchmarks.data import Benchmark, Record
from contextcliff_dagster.extensions.utilization.benchmarks.draws import Draws
from contextcliff_dagster.extensions.utilization.benchmarks.network.answers import Network

_VALUES: dict[str, Sequence[float]] = {
    "set": range(1, 101),
    "add": (*range(-20, 0), *range(1, 51)),
    "multiply": (0.5, 0.75, 1.25, 1.5, 2.0),
}
"""What the document draws from."""
_HEAVIEST = 100_000


def change_network(draws: Draws, data: Benchmark, count: int, recompute: bool) -> Made:
    """Change ``count`` weights or events, as many as can be.

    Where answers are to stay, no connection gets lighter at a time as of which paths or flows are
    asked: heavier ones open no shortcut, and what limits a flow is kept.

    Raises:
        RetryError: a question has no good answer any more.
    """
    records: list[Record] = list(data.records)
    network = Network(records)
    kept: set[int] = set()
    times: list[int | None] = []
    if not recompute:
        for question in data.questions:
            kept.update(question.evidence)
            if question.about["ask"] in ("distance", "max_flow"):
                times.append(question.about["at"])
    left = count
    for place in draws.shuffled(range(len(records))):
        if not left:
            break
        record = records[place]
        if record["type"] == "node" or place in kept:
            continue
        key = "weight" if record["type"] == "edge" else "value"
        edge = (record["from"], record["to"])
        story = [network.base[edge], *network.events.get(edge, ())]
        before = _weights(records, story)
        stops = [_count_until(records, story, at) for at in dict.fromkeys(times)]
        number = story.index(place)
        options = _VALUES["set" if record["type"] == "edge" else record["action"]]
        for value in draws.shuffled([one for one in options if one != record[key]]):
            after = _weights(records, story, number, value)
            if after and all(after[stop] >= before[stop] for stop in stops):
                records[place] = {**record, key: value}
                left -= 1
                break
    questions = list(data.questions)
    if recompute:
        changed = Network(records)
        try:
            questions = [changed.question(one.kind, one.about) for one in questions]
        except ValueError as error:  # now no record alone limits a flow
            raise RetryError from error
    return Made(records, questions, {})


def _count_until(records: Sequence[Record], story: Sequence[int], at: int | None) -> int:
    """The number of events of a connection up to a time."""
    if at is None:
        return len(story) - 1
    return bisect_right([records[place]["ts"] for place in story[1:]], at)


def _weights(
    records: Sequence[Record],
    story: Sequence[int],
    changed: int | None = None,
    changed_value: float = 0,
) -> list[float]:
    """A connection's weight after each of its records; none where one is not allowed."""
    weights: list[float] = []
    for number, place in enumerate(story):
        record = records[place]
        value = record["weight"] if number == 0 else record["value"]
        if number == changed:
            value = changed_value
        if number and record["action"] == "add":
            value = weights[-1] + value
        elif number and record["action"] == "multiply":
            value = weights[-1] * value
        if not 1 <= value <= _HEAVIEST or value % 1:
            return []
        weights.append(value)
    return weights
