"""Which transactions of a ledger are planned, so that what is asked has exact evidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from contextcliff_dagster.extensions.utilization.benchmarks.asking import (
    Asked,
    RetryError,
    longest_chain,
    needed_records,
)
from contextcliff_dagster.extensions.utilization.benchmarks.data import Evidence, QuestionKind
from contextcliff_dagster.extensions.utilization.benchmarks.draws import Draws

_DECOYS = 2
"""Pairs as busy as one that is asked about, where there is room."""


def num_transactions(parameters: Mapping[str, int]) -> int:
    """Return the number of records after the initial ones; a transfer has two."""
    if "num_transactions" in parameters:
        return parameters["num_transactions"]
    drawn = parameters["num_warehouses"] * parameters["transactions_per_wh"]
    return drawn + drawn // 4


class Busy(NamedTuple):
    """A pair that only planned slots change; ``until``: the slot as of which it is asked."""

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
        """Whether a transfer out of ``warehouse`` in ``slot`` would lead the chain elsewhere."""
        before = -1
        for giver, at in zip(self.path, self.slots, strict=False):
            if giver == warehouse and before < slot < at:
                return True
            before = at
        return False


class Plan:
    """What happens in which slot of a ledger.

    Attributes:
        actions: of each slot: sale, restock, adjustment, transfer; chain or decoy for the
            transfers of a chain and those that look like one.
        busy: pairs with planned records only; ``busy_slots``: slot -> index in it.
        chains: one for a SKU at most; ``hops``: of each question, index of its chain and length.
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
        lengths = [one.hops for one in asked if one.kind == "chain"]
        count = min(len(lengths), self.skus - 1)
        order = draws.shuffled(range(self.skus))
        most = max(1, transfers // (2 * max(1, count)))
        self.hops = [(one % count, longest_chain(hops, most)) for one, hops in enumerate(lengths)]
        longest = [max(h for of, h in self.hops if of == one) for one in range(count)]
        sums = [one.kind for one in asked if one.kind in ("aggregate", "as_of")]
        pairs = self._free_pairs(order[count:])
        share = (self._slots - sum(longest)) // max(1, len(sums[: len(pairs)]))
        size = self.warehouses * self.skus + records
        needed = needed_records(size, evidence, parameters, 1 + share)
        for kind, (warehouse, sku) in zip(sums, pairs, strict=False):
            self._plan_busy(kind, warehouse, sku, needed - 1, share)
        self.chains = [self._chain(sku, hops) for sku, hops in zip(order, longest, strict=False)]
        self.decoys = self._decoys(transfers - sum(longest))
        for warehouse, sku in pairs[len(sums) : len(sums) + _DECOYS]:
            if self._slots - len(self._taken) > 4 * needed:
                self._plan_busy(None, warehouse, sku, needed - 1, needed)
        self.chain_slots = {
            slot: (chain, step) for chain in self.chains for step, slot in enumerate(chain.slots)
        }
        self.actions = self._actions(transfers)

    def _free_pairs(self, skus: Sequence[int]) -> list[tuple[int, int]]:
        """Pairs that may be busy: all warehouses but one, which has what the others exchange."""
        of_sku = [(sku, self._draws.shuffled(range(self.warehouses))[1:]) for sku in skus]
        # Those with the first SKU come first: the same goods elsewhere are the best decoys.
        return [(warehouse, sku) for sku, some in of_sku for warehouse in some]

    def _spread(self, count: int, start: int, stop: int) -> list[int]:
        try:
            return self._draws.spread(count, start, stop, self._taken)
        except ValueError as error:
            raise RetryError from error

    def _plan_busy(
        self, kind: QuestionKind | None, warehouse: int, sku: int, count: int, room: int
    ) -> None:
        """Plan ``count`` changes, for `as_of` before its time, and some after it, in ``room``."""
        until = None
        if kind == "as_of":
            part = 0.4 + 0.5 * self._draws.random()
            until = min(self._slots - 2, int(part * self._slots))
            later = max(1, min(room // 3, round(count * (1 - part) / part)))
            slots = self._spread(later, until + 1, self._slots)
            slots += self._spread(min(count, room - later), 0, until + 1)
        else:
            slots = self._spread(min(count, room), 0, self._slots)
        self.busy_slots.update(dict.fromkeys(slots, len(self.busy)))
        self.busy.append(Busy(kind, warehouse, sku, until))

    def _chain(self, sku: int, hops: int) -> Chain:
        path = [self._draws.below(self.warehouses)]
        for step in range(hops):
            seen = set(path) if self.warehouses > hops else {path[-1]}
            if step == hops - 1 and self.warehouses > 2:
                seen.add(path[0])  # who guesses that it ends where it began is wrong
            path.append(
                self._draws.pick([one for one in range(self.warehouses) if one not in seen])
            )
        return Chain(sku, tuple(path), tuple(self._spread(hops, 0, self._slots)))

    def _decoys(self, transfers: int) -> dict[int, Chain]:
        """Further transfers of the SKUs of chains, in and out of the same warehouses."""
        found = {}
        for number, chain in enumerate(self.chains):
            most = transfers // (2 * (len(self.chains) - number))
            room = self._slots - len(self._taken)
            count = min(2 * len(chain.slots) + 2, most, room // 2)
            found.update(dict.fromkeys(self._spread(count, 0, self._slots), chain))
            transfers -= count
        return found

    def _actions(self, transfers: int) -> list[str]:
        planned = len(self.chain_slots) + len(self.decoys)
        open_slots = self._slots - planned
        kinds = ["transfer"] * (transfers - planned)
        others = ["sale", "restock", "adjustment"]
        kinds += [others[one % 3] for one in range(open_slots - len(kinds))]
        drawn = iter(self._draws.shuffled(kinds))
        return [
            "chain" if slot in self.chain_slots else "decoy" if slot in self.decoys else next(drawn)
            for slot in range(self._slots)
        ]
