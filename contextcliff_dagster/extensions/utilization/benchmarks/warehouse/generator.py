"""The ledger: stock of warehouses through a long sequence of transactions.

Where it differs from the design document: initial stocks are records of the document; sales and
transfers draw only from stock that is there; adjustments are recorded as applied; the numbers of
the four actions are equal, not drawn, so that the number of records is known beforehand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from contextcliff_dagster.extensions.utilization.benchmarks.asking import (
    About,
    Asked,
    Made,
    RetryError,
    draw_lookup,
    in_order,
    require_not_last,
)
from contextcliff_dagster.extensions.utilization.benchmarks.data import Evidence, Question, Record
from contextcliff_dagster.extensions.utilization.benchmarks.draws import Draws
from contextcliff_dagster.extensions.utilization.benchmarks.warehouse.answers import Ledger
from contextcliff_dagster.extensions.utilization.benchmarks.warehouse.plan import Busy, Chain, Plan

START = 1704067200
"""The first second of 2024."""
_TRIES = 64


class _Ledger:
    """Stock and records while transactions are drawn."""

    def __init__(self, draws: Draws, parameters: Mapping[str, int]) -> None:
        self.draws = draws
        self.warehouses = [f"WH-{one:04d}" for one in range(parameters["num_warehouses"])]
        self.skus = [f"SKU-{one:04d}" for one in range(parameters["num_skus"])]
        self.ts = START
        self.stock = [[draws.between(10, 100) for _ in self.skus] for _ in self.warehouses]
        self.records: list[Record] = []
        for warehouse in range(len(self.warehouses)):
            for sku, qty in enumerate(self.stock[warehouse]):
                self._write(warehouse, sku, "initial", qty)

    def _write(self, warehouse: int, sku: int, action: str, qty: int, **more: str) -> None:
        self.records.append(
            {
                "ts": self.ts,
                "warehouse": self.warehouses[warehouse],
                "sku": self.skus[sku],
                "action": action,
                "qty": qty,
                **more,
            }
        )

    def change(self, warehouse: int, sku: int, action: str) -> None:
        """Write a sale, restock or adjustment; a restock where there is nothing to sell."""
        stock, draws = self.stock[warehouse][sku], self.draws
        if action == "sale" and stock:
            qty = -draws.between(1, min(10, stock))
        elif action == "adjustment":
            qty = draws.pick([-5, -4, -3, -2, -1, 1, 2, 3, 4, 5])
            qty = qty if stock + qty >= 0 else (-stock or -qty)
        else:
            action, qty = "restock", draws.between(5, 50)
        self.stock[warehouse][sku] += qty
        self._write(warehouse, sku, action, qty)

    def transfer(self, giver: int, taker: int, sku: int) -> None:
        """Write both records of a transfer.

        Raises:
            RetryError: there is nothing to give.
        """
        if not self.stock[giver][sku]:
            raise RetryError
        qty = self.draws.between(1, min(20, self.stock[giver][sku]))
        self.stock[giver][sku] -= qty
        self.stock[taker][sku] += qty
        self._write(giver, sku, "transfer_out", -qty, dest=self.warehouses[taker])
        self._write(taker, sku, "transfer_in", qty, source=self.warehouses[giver])


def make_warehouse(
    draws: Draws, parameters: Mapping[str, int], evidence: Evidence, asked: Sequence[Asked]
) -> Made:
    """Draw a ledger and what is asked of it.

    Raises:
        RetryError: these draws came to a dead end.
    """
    ledger = _Ledger(draws, parameters)
    plan = Plan(draws, parameters, evidence, asked)
    writer = _Writer(ledger, plan)
    times = []
    for slot, action in enumerate(plan.actions):
        ledger.ts += draws.between(60, 3600)
        times.append(ledger.ts)
        writer.write(slot, action)
    abouts: list[About] = []
    for busy in plan.busy:
        at = None if busy.until is None else times[busy.until]
        of = {"warehouse": ledger.warehouses[busy.warehouse], "sku": ledger.skus[busy.sku]}
        if busy.kind:
            abouts.append((busy.kind, {"ask": "stock", **of, "at": at}))
    for number, hops in plan.hops:
        chain = plan.chains[number]
        of = {"warehouse": ledger.warehouses[chain.path[0]], "sku": ledger.skus[chain.sku]}
        abouts.append(("chain", {"ask": "transfers", **of, "hops": hops}))
    return Made(ledger.records, _questions(draws, ledger.records, abouts, asked), {})


class _Writer:
    """Writes the transaction of each slot of a plan."""

    def __init__(self, ledger: _Ledger, plan: Plan) -> None:
        self._ledger, self._plan, self._draws = ledger, plan, ledger.draws
        self._busy = {(one.warehouse, one.sku) for one in plan.busy}
        self._chains = {chain.sku: chain for chain in plan.chains}

    def write(self, slot: int, action: str) -> None:
        ledger, plan = self._ledger, self._plan
        if action == "chain":
            chain, step = plan.chain_slots[slot]
            ledger.transfer(chain.path[step], chain.path[step + 1], chain.sku)
        elif action == "decoy":
            self._decoy(plan.decoys[slot], slot)
        elif slot in plan.busy_slots:
            self._busy_pair(plan.busy[plan.busy_slots[slot]], action)
        elif action == "transfer":
            self._transfer(slot)
        else:
            ledger.change(*self._pair(action == "sale"), action)

    def _pair(self, stocked: bool) -> tuple[int, int]:
        for _ in range(_TRIES):
            warehouse = self._draws.below(self._plan.warehouses)
            sku = self._draws.below(self._plan.skus)
            if (warehouse, sku) not in self._busy and (
                not stocked or self._ledger.stock[warehouse][sku]
            ):
                break
        else:
            raise RetryError
        return warehouse, sku

    def _transfer(self, slot: int) -> None:
        for _ in range(_TRIES):
            giver, sku = self._pair(stocked=True)
            chain = self._chains.get(sku)
            taker = self._draws.below(self._plan.warehouses)
            if (
                taker != giver
                and (taker, sku) not in self._busy
                and not (chain and chain.holds(giver, slot))
            ):
                return self._ledger.transfer(giver, taker, sku)
        raise RetryError

    def _decoy(self, chain: Chain, slot: int) -> None:
        for attempt in range(_TRIES):
            every = attempt > _TRIES // 2
            near = self._draws.pick(range(self._plan.warehouses) if every else chain.path)
            taker = self._draws.below(self._plan.warehouses)
            if near != taker and not chain.holds(near, slot) and self._stock(near, chain.sku):
                return self._ledger.transfer(near, taker, chain.sku)
        raise RetryError

    def _busy_pair(self, busy: Busy, action: str) -> None:
        warehouse, sku = busy.warehouse, busy.sku
        if action != "transfer":
            return self._ledger.change(warehouse, sku, action)
        for _ in range(_TRIES):
            other = self._draws.below(self._plan.warehouses)
            if (other, sku) in self._busy:
                continue
            giver, taker = self._draws.pick([(warehouse, other), (other, warehouse)])
            if self._stock(giver, sku):
                return self._ledger.transfer(giver, taker, sku)
        raise RetryError

    def _stock(self, warehouse: int, sku: int) -> int:
        return self._ledger.stock[warehouse][sku]


def _questions(
    draws: Draws, records: Sequence[Record], abouts: Sequence[About], asked: Sequence[Asked]
) -> list[Question]:
    """Return the questions in the order in which they were ``asked``, lookups drawn here.

    Raises:
        RetryError: an answer is the last number of the document, or is now what it was then.
    """
    ledger = Ledger(records)
    made: dict[str, list[Question]] = {}
    for kind, about in abouts:
        made.setdefault(kind, []).append(ledger.question(kind, about))
    require_not_last(records, made)
    for question in made.get("as_of", ()):
        if question.answer == ledger.question("as_of", {**question.about, "at": None}).answer:
            raise RetryError
    used = {place for some in made.values() for one in some for place in one.evidence}

    def lookup() -> Question:
        place = draw_lookup(draws, len(records), range(len(records)), used)
        used.add(place)
        keys = ("warehouse", "sku", "action", "ts")
        about = {"ask": "units", **{key: records[place][key] for key in keys}}
        return ledger.question("lookup", about)

    return in_order(asked, made, lookup)
