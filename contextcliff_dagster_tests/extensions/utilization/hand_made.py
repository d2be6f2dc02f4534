"""Small documents that a person can check: their records, and questions with their answers."""

from __future__ import annotations

from typing import Any

from contextcliff_dagster.extensions.utilization.benchmarks.data import BenchmarkName, Question
from contextcliff_dagster_tests.extensions.utilization.records import make_record

START = 1_704_067_200
A, B, C, D = (f"WH-{number:04d}" for number in range(4))
X, Y = "SKU-0000", "SKU-0001"


def question(answer: str, **about: Any) -> Question:
    form = "number" if answer.lstrip("-").isdigit() else "value"
    given = {key.rstrip("_"): value for key, value in about.items()}
    return Question(
        kind="lookup", text=f"What of {given}?", answer=answer, form=form, about=given,  # type: ignore[arg-type]
        evidence=(0,), margin=1.0,
    )  # fmt: skip


def _stock(name: str, ts: int, warehouse: str, sku: str, qty: int, **more: str) -> dict[str, Any]:
    values = {"ts": START + ts, "warehouse": warehouse, "sku": sku, "qty": qty}
    return make_record("warehouse", name, **values, **more)


def _transfer(ts: int, giver: str, taker: str, sku: str, qty: int) -> list[dict[str, Any]]:
    return [
        _stock("transfer_out", ts, giver, sku, -qty, dest=taker),
        _stock("transfer_in", ts, taker, sku, qty, source=giver),
    ]


def warehouse() -> tuple[list[dict[str, Any]], list[Question]]:
    records = [
        *(_stock("initial", 0, place, sku, 20) for place in (A, B, C, D) for sku in (X, Y)),
        _stock("sale", 60, A, X, -3),
        *_transfer(120, A, B, X, 5),
        _stock("restock", 180, B, X, 7),
        *_transfer(240, B, C, X, 10),
        _stock("adjustment", 300, C, X, -2),
        *_transfer(360, B, D, X, 1),
        *_transfer(420, C, A, X, 4),
        _stock("sale", 480, A, Y, -20),
    ]
    questions = [
        question("16", ask="stock", warehouse=A, sku=X, at=None),
        question("12", ask="stock", warehouse=A, sku=X, at=START + 120),
        question("17", ask="stock", warehouse=A, sku=X, at=START + 119),
        question("0", ask="stock", warehouse=A, sku=Y, at=None),
        question("21", ask="stock", warehouse=B, sku=X, at=None),
        question("3", ask="units", warehouse=A, sku=X, action="sale", ts=START + 60),
        question("-2", ask="units", warehouse=C, sku=X, action="adjustment", ts=START + 300),
        question(B, ask="transfers", warehouse=A, sku=X, hops=1),
        question(C, ask="transfers", warehouse=A, sku=X, hops=2),
        question(A, ask="transfers", warehouse=A, sku=X, hops=3),
    ]
    return records, questions


def constraints() -> tuple[list[dict[str, Any]], list[Question]]:
    def make(name: str, **values: Any) -> dict[str, Any]:
        return make_record("constraints", name, **values)

    e = [f"E-{number:04d}" for number in range(6)]
    records = [
        make("fact", entity=e[0], attr="color", value="red"),
        make("eq", e1=e[0], a1="color", e2=e[1], a2="color"),
        make("mut", e1=e[1], a1="color", e2=e[2], a2="accent"),
        make(
            "impl", if_entity=e[2], if_attr="accent", if_value="red",
            then_entity=e[3], then_attr="rating", then_value=7,
        ),
        *(make("neq", entity=e[4], attr="grade", value=n) for n in (1, 2, 3, 4, 5, 7, 8)),
        make("eq", e1=e[4], a1="grade", e2=e[5], a2="grade"),
        make("fact", entity=e[5], attr="color", value="red"),
        make("fact", entity=e[5], attr="owner", value="Ada"),
        make("neq", entity=e[5], attr="size", value="huge"),
    ]  # fmt: skip
    questions = [
        question("red", ask="value", entity=e[0], attr="color"),
        question("red", ask="value", entity=e[2], attr="accent"),
        question("7", ask="value", entity=e[3], attr="rating"),
        question("6", ask="value", entity=e[5], attr="grade"),
        question("2", ask="facts", attr="color", value="red"),
        question("0", ask="facts", attr="color", value="blue"),
    ]
    return records, questions


def network() -> tuple[list[dict[str, Any]], list[Question]]:
    def make(name: str, **values: Any) -> dict[str, Any]:
        return make_record("network", name, **values)

    def event(action: str, ts: int, one: int, other: int, value: float) -> dict[str, Any]:
        return make(action, ts=START + ts, from_=n[one], to=n[other], value=value)

    n = [f"N-{number:04d}" for number in range(6)]
    edges = [(0, 1, 4), (1, 2, 6), (0, 2, 20), (2, 3, 1), (3, 0, 5), (1, 3, 50)]
    records = [
        *(make("node", id=name) for name in n),
        *(make("edge", from_=n[one], to=n[two], weight=weight) for one, two, weight in edges),
        event("add", 60, 0, 1, -1),
        event("multiply", 120, 1, 2, 1.5),
        event("set", 180, 0, 1, 30),
        event("multiply", 240, 0, 1, 0.5),
    ]
    ends = {"from_": n[0], "to": n[3]}
    questions = [
        question("4", ask="initial_weight", from_=n[0], to=n[1]),
        question("15", ask="weight", from_=n[0], to=n[1], at=None),
        question("3", ask="weight", from_=n[0], to=n[1], at=START + 60),
        question("21", ask="distance", **ends, at=None),  # by 2: 20 + 1; by 1: 15 + 9 + 1
        question("13", ask="distance", **ends, at=START + 120),  # 3 + 9 + 1
        question("16", ask="max_flow", **ends, at=None),  # 1 by node 2, 15 by node 1
        question("4", ask="max_flow", **ends, at=START + 60),  # 1 by node 2, 3 by node 1
    ]
    return records, questions


def document(name: BenchmarkName) -> tuple[list[dict[str, Any]], list[Question]]:
    """The records and questions of a benchmark's small document."""
    return {"warehouse": warehouse, "constraints": constraints, "network": network}[name]()
