"""Warehouse benchmark: a ledger of stock through a long sequence of transactions.

This module draws the records, answers questions with their evidence, and changes quantities.

Differences from the design document: initial stocks are records of the document; sales and
transfers never exceed the stock; adjustments are recorded as applied; the four actions are equally
frequent instead of drawn, so that the number of records is known in advance.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from contextcliff_dagster.extensions.utilization.benchmarks.asking import (
    START,
    About,
    Asked,
    Made,
    draw_lookup,
    in_order,
    longest_chain,
    make_question,
    needed_records,
    require_not_last,
)
from contextcliff_dagster.extensions.utilization.benchmarks.data import (
    Benchmark,
    Draws,
    Evidence,
    Question,
    QuestionKind,
    Record,
    RetryError,
)

_DECOYS = 2
"""Number of decoy pairs as busy as a questioned pair, if there is room."""


def num_transactions(parameters: Mapping[str, int]) -> int:
    """Return the number of records after the initial stocks; a transfer counts as two."""
    if "num_transactions" in parameters:
        return parameters["num_transactions"]
    drawn = parameters["num_warehouses"] * parameters["transactions_per_wh"]
    return drawn + drawn // 4


class Busy(NamedTuple):
    """A pair that only planned slots change; ``until``: last slot of an `as_of` question."""

    kind: QuestionKind | None
    warehouse: int
    sku: int
    until: int | None = None


class Chain(NamedTuple):
    """Transfers of one SKU along ``path``, one in each of ``slots``."""

    sku: int
    path: tuple[int, ...]
    slots: tuple[int, ...]

    def holds(self, warehouse: int, slot: int) -> bool:
        """Return whether a transfer out of ``warehouse`` in ``slot`` would divert the chain."""
        before = -1
        for giver, at in zip(self.path, self.slots, strict=False):
            if giver == warehouse and before < slot < at:
                return True
            before = at
        return False


class Plan:
    """A plan of which transaction takes place in which slot of a ledger.

    Attributes:
        actions: the action of each slot: sale, restock, adjustment, transfer, chain (a transfer of
            a chain) or decoy (a transfer that resembles one).
        busy: pairs with planned records only; ``busy_slots`` maps slots to indices in ``busy``.
        chains: at most one per SKU; ``hops`` has the chain's index and length of each question.
    """

    def __init__(
        self,
        draws: Draws,
        parameters: Mapping[str, int],
        evidence: Evidence,
        asked: Sequence[Asked],
    ) -> None:
        self._draws = draws
        self.warehouses, self.skus = parameters["num_warehouses"], parameters["num_skus"]
        records = num_transactions(parameters)
        transfers = max(1, records // 5)
        self._slots = records - transfers
        self._taken: set[int] = set()
        self.busy: list[Busy] = []
        self.busy_slots: dict[int, int] = {}
        lengths = [question.hops for question in asked if question.kind == "chain"]
        count = min(len(lengths), self.skus - 1)
        order = draws.shuffled(range(self.skus))
        longest = max(1, transfers // (2 * max(1, count)))
        self.hops = [(i % count, longest_chain(hops, longest)) for i, hops in enumerate(lengths)]
        reach = [max(h for of, h in self.hops if of == chain) for chain in range(count)]
        sums = [question.kind for question in asked if question.kind in ("aggregate", "as_of")]
        pairs = self._free_pairs(order[count:])
        share = (self._slots - sum(reach)) // max(1, len(sums[: len(pairs)]))
        size = self.warehouses * self.skus + records
        needed = needed_records(size, evidence, parameters, 1 + share)
        for kind, (warehouse, sku) in zip(sums, pairs, strict=False):
            self._plan_busy(kind, warehouse, sku, needed - 1, share)
        self.chains = [self._chain(sku, hops) for sku, hops in zip(order, reach, strict=False)]
        self.decoys = self._decoys(transfers - sum(reach))
        for warehouse, sku in pairs[len(sums) : len(sums) + _DECOYS]:
            if self._slots - len(self._taken) > 4 * needed:
                self._plan_busy(None, warehouse, sku, needed - 1, needed)
        self.chain_slots = {
            slot: (chain, step) for chain in self.chains for step, slot in enumerate(chain.slots)
        }
        self.actions = self._actions(transfers)

    def _free_pairs(self, skus: Sequence[int]) -> list[tuple[int, int]]:
        """Return the pairs that may be busy; per SKU one warehouse stays free to exchange goods."""
        of_sku = [(sku, self._draws.shuffled(range(self.warehouses))[1:]) for sku in skus]
        # Pairs with the first SKU come first: the same goods elsewhere are the best decoys.
        return [(warehouse, sku) for sku, warehouses in of_sku for warehouse in warehouses]

    def _plan_busy(
        self, kind: QuestionKind | None, warehouse: int, sku: int, count: int, room: int
    ) -> None:
        """Plan ``count`` changes in ``room`` slots; `as_of` also has changes after its time."""
        until = None
        if kind == "as_of":
            part = 0.4 + 0.5 * self._draws.random()
            until = min(self._slots - 2, int(part * self._slots))
            later = max(1, min(room // 3, round(count * (1 - part) / part)))
            slots = self._draws.spread(self._taken, later, until + 1, self._slots)
            slots += self._draws.spread(self._taken, min(count, room - later), 0, until + 1)
        else:
            slots = self._draws.spread(self._taken, min(count, room), 0, self._slots)
        self.busy_slots.update(dict.fromkeys(slots, len(self.busy)))
        self.busy.append(Busy(kind, warehouse, sku, until))

    def _chain(self, sku: int, hops: int) -> Chain:
        path = [self._draws.below(self.warehouses)]
        for step in range(hops):
            seen = set(path) if self.warehouses > hops else {path[-1]}
            if step == hops - 1 and self.warehouses > 2:
                seen.add(path[0])  # guessing that it ends where it began must be wrong
            path.append(self._draws.pick([w for w in range(self.warehouses) if w not in seen]))
        return Chain(sku, tuple(path), tuple(self._draws.spread(self._taken, hops, 0, self._slots)))

    def _decoys(self, transfers: int) -> dict[int, Chain]:
        """Plan further transfers of the chains' SKUs through the same warehouses."""
        decoys = {}
        for number, chain in enumerate(self.chains):
            most = transfers // (2 * (len(self.chains) - number))
            room = self._slots - len(self._taken)
            count = min(2 * len(chain.slots) + 2, most, room // 2)
            decoys.update(
                dict.fromkeys(self._draws.spread(self._taken, count, 0, self._slots), chain)
            )
            transfers -= count
        return decoys

    def _actions(self, transfers: int) -> list[str]:
        planned = len(self.chain_slots) + len(self.decoys)
        open_slots = self._slots - planned
        kinds = ["transfer"] * (transfers - planned)
        others = ["sale", "restock", "adjustment"]
        kinds += [others[number % 3] for number in range(open_slots - len(kinds))]
        drawn = iter(self._draws.shuffled(kinds))
        return [
            "chain" if slot in self.chain_slots else "decoy" if slot in self.decoys else next(drawn)
            for slot in range(self._slots)
        ]


Pair = tuple[str, str]
"""A warehouse and a SKU."""


class Ledger:
    """The records of a ledger, grouped by warehouse and SKU and in time order.

    Each record counts for the warehouse that it names; a transfer has one record for each of its
    two warehouses.
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
        """Return the question ``about`` with answer and evidence; raise ValueError without one."""
        if about["ask"] == "units":
            return self._units(kind, about)
        return self._stock(kind, about) if about["ask"] == "stock" else self._chain(kind, about)

    def _units(self, kind: QuestionKind, about: Mapping[str, Any]) -> Question:
        (place,) = [
            candidate
            for candidate in self.of_pair[about["warehouse"], about["sku"]]
            if all(self.records[candidate][key] == about[key] for key in ("action", "ts"))
        ]
        qty = self.records[place]["qty"]
        action = about["action"]
        sizes = [qty, *QUANTITIES["transfer_out" if action == "transfer_in" else action]]
        if action != "adjustment":
            sizes = [abs(size) for size in sizes]
        choices = (min(sizes), max(sizes))
        return make_question(kind, about, sizes[0], [place], abs(qty), choices=choices)

    def _stock(self, kind: QuestionKind, about: Mapping[str, Any]) -> Question:
        at = about["at"]
        stocks = {
            pair: [place for place in places if at is None or self.records[place]["ts"] <= at]
            for pair, places in self.of_pair.items()
        }
        evidence = stocks[about["warehouse"], about["sku"]]
        totals = [sum(self.records[place]["qty"] for place in places) for places in stocks.values()]
        answer = sum(self.records[place]["qty"] for place in evidence)
        margin = min(abs(self.records[place]["qty"]) for place in evidence)
        choices = (min(totals), max(totals))
        return make_question(kind, about, answer, evidence, margin, choices=choices)

    def follow(
        self, sku: str, start: str, hops: int, missing: int | None = None
    ) -> tuple[list[int], str] | None:
        """Return the transfers of a chain and its last warehouse; None if the chain is broken.

        ``missing`` is the index of a record to ignore.
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
        followed = self.follow(*chain)
        if followed is None:
            raise ValueError(f"the chain of transfers breaks off: {dict(about)!r}")
        path, end = followed
        others = [self.follow(*chain, missing=place) for place in path]
        possible = [
            len(self.warehouses) - 1 if other is None else int(other[1] != end) for other in others
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
"""Action -> the quantities that the design document draws from."""


def change_warehouse(draws: Draws, data: Benchmark, count: int, recompute: bool) -> Made:
    """Change ``count`` quantities, or as many as possible; return the result."""
    records: list[Record] = list(data.records)
    ledger = Ledger(data.records)
    kept_pairs: set[Pair] = set()
    kept_places: set[int] = set()
    if not recompute:
        for question in data.questions:
            kept_places.update(question.evidence)
            if question.about["ask"] == "stock":
                kept_pairs.add((question.about["warehouse"], question.about["sku"]))
    stocks = {pair: _Stock(places, records) for pair, places in ledger.of_pair.items()}
    remaining = count
    for place in draws.shuffled(range(len(records))):
        record = records[place]
        if record["action"] == "transfer_in":
            continue
        sides = [place]
        if record["action"] == "transfer_out":
            sides.append(place + 1)  # the other side is written next
        if len(sides) > remaining or kept_places.intersection(sides):
            continue
        pairs = [(records[side]["warehouse"], records[side]["sku"]) for side in sides]
        if kept_pairs.intersection(pairs):
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
            remaining -= len(sides)
        if not remaining:
            break
    questions = list(data.questions)
    if recompute:
        changed = Ledger(records)
        questions = [changed.question(old.kind, old.about) for old in questions]
    return Made(records, questions, {})


class _Stock:
    """The stock of a pair after each of its records."""

    def __init__(self, places: list[int], records: list[Record]) -> None:
        self._order = {place: number for number, place in enumerate(places)}
        self._stocks: list[int] = []
        for place in places:
            before = self._stocks[-1] if self._stocks else 0
            self._stocks.append(before + records[place]["qty"])

    def allows(self, place: int, by: int) -> bool:
        """Return whether the stock never falls below 0 if record ``place`` changes by ``by``."""
        return by >= 0 or min(self._stocks[self._order[place] :]) + by >= 0

    def change(self, place: int, by: int) -> None:
        """Add ``by`` to the stock from the record ``place`` onward."""
        for number in range(self._order[place], len(self._stocks)):
            self._stocks[number] += by


_TRIES = 64


class _Ledger:
    """The stock and the records so far, while transactions are drawn."""

    def __init__(self, draws: Draws, parameters: Mapping[str, int]) -> None:
        self.draws = draws
        self.warehouses = [f"WH-{number:04d}" for number in range(parameters["num_warehouses"])]
        self.skus = [f"SKU-{number:04d}" for number in range(parameters["num_skus"])]
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
        """Write a sale, restock or adjustment; a sale becomes a restock if the stock is empty."""
        stock, draws = self.stock[warehouse][sku], self.draws
        if action == "sale" and stock:
            qty = -draws.between(1, min(10, stock))
        elif action == "adjustment":
            qty = draws.pick(QUANTITIES["adjustment"])
            qty = qty if stock + qty >= 0 else (-stock or -qty)
        else:
            action, qty = "restock", draws.between(5, 50)
        self.stock[warehouse][sku] += qty
        self._write(warehouse, sku, action, qty)

    def transfer(self, giver: int, taker: int, sku: int) -> None:
        """Write both records of a transfer; raise RetryError if the giver has no stock."""
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
    """Draw a ledger and questions about it; raise RetryError at a dead end."""
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
    """A writer of the planned transaction of each slot."""

    def __init__(self, ledger: _Ledger, plan: Plan) -> None:
        self._ledger, self._plan, self._draws = ledger, plan, ledger.draws
        self._busy = {(busy.warehouse, busy.sku) for busy in plan.busy}
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
            if (warehouse, sku) not in self._busy and (not stocked or self._stock(warehouse, sku)):
                return warehouse, sku
        raise RetryError

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
            any_warehouse = attempt > _TRIES // 2
            giver = self._draws.pick(range(self._plan.warehouses) if any_warehouse else chain.path)
            taker = self._draws.below(self._plan.warehouses)
            if giver != taker and not chain.holds(giver, slot) and self._stock(giver, chain.sku):
                return self._ledger.transfer(giver, taker, chain.sku)
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
    """Return the questions in the order of ``asked``, with lookups drawn here; raise RetryError."""
    ledger = Ledger(records)
    by_kind: dict[str, list[Question]] = {}
    for kind, about in abouts:
        by_kind.setdefault(kind, []).append(ledger.question(kind, about))
    require_not_last(records, by_kind)
    for question in by_kind.get("as_of", ()):
        if question.answer == ledger.question("as_of", {**question.about, "at": None}).answer:
            raise RetryError
    used = {place for questions in by_kind.values() for q in questions for place in q.evidence}

    def lookup() -> Question:
        place = draw_lookup(draws, len(records), range(len(records)), used)
        used.add(place)
        keys = ("warehouse", "sku", "action", "ts")
        about = {"ask": "units", **{key: records[place][key] for key in keys}}
        return ledger.question("lookup", about)

    return in_order(asked, by_kind, lookup)
