"""Every fault that is planted into a valid document is found, and named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from contextcliff_dagster.contracts import VerificationError
from contextcliff_dagster.extensions.utilization.benchmarks.data import BENCHMARKS, BenchmarkName
from contextcliff_dagster.extensions.utilization.verification import (
    require_agreement,
    verify_records,
)
from contextcliff_dagster_tests.extensions.utilization.hand_made import document

Records = list[dict[str, Any]]


def change(number: int, **values: Any) -> Callable[[Records], object]:
    return lambda records: records[number].update(
        {key.rstrip("_"): value for key, value in values.items()}
    )


def drop(*numbers: int) -> Callable[[Records], object]:
    def without(records: Records) -> None:
        records[:] = [record for at, record in enumerate(records) if at not in numbers]

    return without


def again(number: int, **values: Any) -> Callable[[Records], object]:
    given = {key.rstrip("_"): value for key, value in values.items()}
    return lambda records: records.append({**records[number], **given})


WAREHOUSE = {
    "a changed quantity": (change(8, qty=-4), "the answer is 15, not 16"),
    "a changed initial stock": (change(0, qty=21), "the answer is 17, not 16"),
    "a missing sale": (drop(8), "the answer is 19, not 16"),
    "a missing restock": (drop(11), "the answer is 14, not 21"),
    "a missing initial record": (drop(0), "SKU-0000 in WH-0000 has no initial stock"),
    "a second initial record": (again(0), "SKU-0000 in WH-0000 has 2 initial stocks"),
    "an initial stock that comes late": (change(0, ts=1_704_067_300), "is dated after a trans"),
    "half of a transfer": (drop(10), "transfer of SKU-0000 from WH-0000 to WH-0001 at"),
    "halves of other sizes": (change(10, qty=6), "transfer of SKU-0000 from WH-0000 to WH-0001"),
    "halves of other times": (change(10, ts=1_704_067_330), "transfer of SKU-0000 from WH-0000"),
    "a transfer to itself": (change(9, dest="WH-0000"), "ends where it begins, in WH-0000"),
    "a transfer to nowhere": (change(9, dest="WH-0099"), "transfer of SKU-0000 from WH-0000 to"),
    "a sale that adds": (change(8, qty=3), "a sale of SKU-0000 in WH-0000 has the quantity 3"),
    "more sold than there is": (change(19, qty=-21), "SKU-0001 in WH-0000 falls to -1 at"),
    "two transactions of one time": (change(8, ts=1_704_067_320), "2 transactions have the time"),
    "a sale later than asked": (change(8, ts=1_704_067_350), "the answer is 15, not 12"),
    "another warehouse's sale": (change(8, warehouse="WH-0003"), "the answer is 19, not 16"),
    "an unknown product": (change(8, sku="SKU-0077"), "SKU-0077 in WH-0000 has no initial stock"),
}
CONSTRAINTS = {
    "a missing fact": (drop(0), "and .* are possible"),
    "a missing equality": (drop(1), "and .* are possible"),
    "a missing mutual constraint": (drop(2), "and .* are possible"),
    "a missing implication": (drop(3), "the text does not answer the"),
    "a second possible value": (drop(4), "both 1 and 6 are possible"),
    "another value implied": (change(3, then_value=8), "the answer is 8, not 7"),
    "another fact": (change(0, value="blue"), "the answer is blue, not red"),
    "a contradiction": (again(0, value="blue"), "contradict each other"),
    "a contradiction far from the questions": (again(14, type="fact"), "contradict each other"),
    "no value left": (again(4, value=6), "contradict each other"),
    "a value of no domain": (change(0, value="pink"), "'pink' is not a value of .* 'color'"),
    "an unknown attribute": (change(11, a2="colour", a1="colour"), "no attribute 'colour'"),
    "attributes of two domains": (change(2, a2="size"), "color and size are stated to be"),
    "a fact too many": (again(0, entity="E-0009"), "the answer is 3, not 2"),
    "a fact too few": (drop(12), "the answer is 1, not 2"),
}
NETWORK = {
    "another initial weight": (change(6, weight=5), "the answer is 5, not 4"),
    "a missing connection": (drop(8), "the answer is 25, not 21"),
    "a missing event": (drop(12), "the answer is .*, not 3"),
    "an event of another time": (change(12, ts=1_704_067_261), "the answer is 4, not 3"),
    "an event of another value": (change(14, value=32), "the answer is 16, not 15"),
    "a missing node": (drop(5, 4, 3), "has the undeclared node N-0003"),
    "a node twice": (again(0), "node N-0000 is declared 2 times"),
    "a connection twice": (again(6, weight=9), "from N-0000 to N-0001 is declared 2 times"),
    "a connection to itself": (change(10, to="N-0003"), "N-0003 leads to itself"),
    "an event on no connection": (change(12, from_="N-0005"), "changes the undeclared connection"),
    "a weight of zero": (change(12, value=-4), "from N-0000 to N-0001 becomes 0"),
    "an initial weight of zero": (change(9, weight=0), "has the initial weight 0"),
    "half a weight": (change(7, weight=7), "from N-0001 to N-0002 becomes 10.5"),
    "two events at once": (again(15), "two events change the connection from N-0000 to N-0001"),
    "the target cut off": (drop(9, 11), "the text does not answer the"),
}
CASES = [
    pytest.param(name, plant, phrase, id=f"{name}-{what}")
    for name, cases in (
        ("warehouse", WAREHOUSE), ("constraints", CONSTRAINTS), ("network", NETWORK),
    )
    for what, (plant, phrase) in cases.items()
]  # fmt: skip


@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_valid_document_supports_every_answer(name: BenchmarkName) -> None:
    records, questions = document(name)
    verdicts = verify_records(records, name, questions)
    assert [v.answer for v in verdicts] == [q.answer for q in questions]
    assert all(v.unique and v.agrees and v.method and not v.fault for v in verdicts)
    assert verify_records(records[::-1], name, questions) == verdicts, "order does not matter"
    require_agreement(verdicts, questions, name, seed=1)


@pytest.mark.parametrize(("name", "plant", "phrase"), CASES)
def test_a_planted_fault_is_found(
    name: BenchmarkName, plant: Callable[[Records], object], phrase: str
) -> None:
    records, questions = document(name)
    plant(records)
    verdicts = verify_records(records, name, questions)
    assert not all(verdict.agrees for verdict in verdicts)
    with pytest.raises(VerificationError, match=phrase) as caught:
        require_agreement(verdicts, questions, name, seed=42, where="prose, 8k")
    assert f"The {name} document of seed 42 (prose, 8k) fails" in str(caught.value)
    assert "this is a bug" in str(caught.value)


@pytest.mark.parametrize("name", BENCHMARKS)
def test_the_answer_is_compared_and_never_used(name: BenchmarkName) -> None:
    records, questions = document(name)
    wrong = [replace(question, answer="41") for question in questions]
    verdicts = verify_records(records, name, wrong)
    assert [verdict.answer for verdict in verdicts] == [question.answer for question in questions]
    assert all(verdict.unique and not verdict.agrees for verdict in verdicts)
