"""Questions solved again: warehouse by SQL, networks by paths."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, cached_property
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from contextcliff_dagster.extensions.utilization.benchmarks.data import BenchmarkName, Record

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa
    from scipy.sparse import csr_array


About = Mapping[str, Any]
"""A question for programs: ``ask`` and its arguments, see `benchmarks.schema.ASKS`."""


class Solution(NamedTuple):
    """The answers that are possible.

    ``values``: none where the document does not answer the question, one where it does, two where
    more than one answer is possible (no more are looked for). ``method``: how they were found.
    """

    values: tuple[str, ...]
    method: str


class Solver(Protocol):
    """The records of one document, ready for questions."""

    def faults(self) -> list[str]:
        """Return why the records are no valid document, a phrase each; empty for a valid one."""
        ...

    def solve(self, abouts: Sequence[About]) -> list[Solution]:
        """Return the possible answers to each question.

        Raises:
            ValueError: a question asks for what the benchmark does not have.
        """
        ...


def unknown_ask(benchmark: str, about: About) -> ValueError:
    """The error for a question that a benchmark does not have."""
    return ValueError(f"no question of the {benchmark} benchmark: {dict(about)!r}")


def solver_for(records: Sequence[Record], benchmark: BenchmarkName) -> Solver:
    """Return the solver of ``benchmark`` over ``records``.

    Raises:
        KeyError: a record lacks a field of its type.
    """
    if benchmark == "warehouse":
        return WarehouseSolver(records)
    if benchmark == "network":
        return NetworkSolver(records)
    from contextcliff_dagster.extensions.utilization.verification.constraints import (
        ConstraintsSolver,
    )

    return ConstraintsSolver(records)


def solve(records: Sequence[Record], benchmark: BenchmarkName, about: About) -> str:
    """Return the only possible answer to the question ``about``.

    Raises:
        ValueError: the records allow no answer, or more than one.
        StudyError: OR-tools is not installed (constraints only).
    """
    ((values, _),) = solver_for(records, benchmark).solve([about])
    if len(values) != 1:
        raise ValueError(f"{len(values) or 'no'} possible answers to {dict(about)!r}: {values}")
    return values[0]


_METHOD = "sql"
_TEXTS = ("ask", "action", "warehouse", "sku", "dest", "source")
_INTEGERS = ("id", "ts", "qty", "at", "hops")
_RECORD = ("ts", "warehouse", "sku", "action", "qty", "dest", "source")
_ASKED = ("id", "ask", "warehouse", "sku", "action", "ts", "at", "hops")
_ASKS = ("units", "stock", "transfers")

_FAULTS: Mapping[str, str] = {
    "{0} in {1} has no initial stock": """
        SELECT DISTINCT sku, warehouse FROM records
        ANTI JOIN (FROM records WHERE action = 'initial') USING (warehouse, sku)""",
    "{0} in {1} has {2} initial stocks": """
        SELECT sku, warehouse, count(*) FROM records WHERE action = 'initial'
        GROUP BY sku, warehouse HAVING count(*) > 1""",
    "the initial stock of {0} in {1} is dated after a transaction": """
        SELECT sku, warehouse FROM records GROUP BY sku, warehouse
        HAVING max(ts) FILTER (action = 'initial') > min(ts) FILTER (action <> 'initial')""",
    "a {0} of {1} in {2} has the quantity {3}": """
        SELECT action, sku, warehouse, qty FROM records
        WHERE (action IN ('sale', 'transfer_out') AND qty >= 0)
           OR (action IN ('restock', 'transfer_in') AND qty <= 0)""",
    "the stock of {0} in {1} falls to {2} at {3}": """
        SELECT sku, warehouse, stock, ts FROM (
            SELECT sku, warehouse, ts, sum(sum(qty)) OVER (
                PARTITION BY warehouse, sku ORDER BY ts) AS stock
            FROM records GROUP BY warehouse, sku, ts)
        WHERE stock < 0""",
    "the two records of the transfer of {0} from {1} to {2} at {3} disagree": """
        SELECT sku, giver, taker, ts FROM (
            SELECT sku, warehouse AS giver, dest AS taker, ts, -qty AS moved, 1 AS side
            FROM records WHERE action = 'transfer_out'
            UNION ALL
            SELECT sku, source, warehouse, ts, qty, -1 FROM records WHERE action = 'transfer_in')
        GROUP BY sku, giver, taker, ts, moved HAVING sum(side) <> 0""",
    "a transfer of {0} ends where it begins, in {1}": """
        SELECT sku, warehouse FROM records WHERE warehouse IN (dest, source)""",
    "{1} transactions have the time {0}": """
        SELECT ts, count(*) FROM records WHERE action NOT IN ('initial', 'transfer_in')
        GROUP BY ts HAVING count(*) > 1""",
}
"""What is wrong -> the rows of which it is true, their columns in the order of the places."""

_ANSWERS = """
    WITH RECURSIVE
    outs AS MATERIALIZED (
        SELECT row_number() OVER () AS id, warehouse, sku, dest, ts FROM records
        WHERE action = 'transfer_out'),
    later AS MATERIALIZED (
        SELECT one.id, next.id AS next
        FROM outs AS one ASOF JOIN outs AS next
        ON one.sku = next.sku AND one.dest = next.warehouse AND one.ts < next.ts),
    walk AS (
        SELECT asked.id, outs.id AS out, asked.hops - 1 AS to_go
        FROM asked JOIN outs USING (warehouse, sku) WHERE asked.ask = 'transfers'
        QUALIFY rank() OVER (PARTITION BY asked.id ORDER BY outs.ts) = 1
        UNION ALL
        SELECT walk.id, later.next, walk.to_go - 1
        FROM walk JOIN later ON later.id = walk.out WHERE walk.to_go > 0)
    SELECT asked.id, CAST(sum(qty) AS VARCHAR) AS answer
    FROM asked JOIN records USING (warehouse, sku)
    WHERE asked.ask = 'stock' AND (asked.at IS NULL OR records.ts <= asked.at)
    GROUP BY asked.id HAVING count_if(records.action = 'initial') > 0
    UNION
    SELECT asked.id, CAST(CASE asked.action WHEN 'adjustment' THEN qty ELSE abs(qty) END AS VARCHAR)
    FROM asked JOIN records USING (warehouse, sku, action, ts) WHERE asked.ask = 'units'
    UNION
    SELECT walk.id, dest FROM walk JOIN outs ON outs.id = walk.out WHERE walk.to_go = 0
    ORDER BY ALL
"""


class WarehouseSolver:
    """See `solution.Solver`. Not for several threads at once."""

    def __init__(self, records: Sequence[Record]) -> None:
        self._sql = _database().cursor()
        self._sql.register("given", _table(records, _RECORD))
        self._sql.execute("CREATE TEMP TABLE records AS FROM given")

    def faults(self) -> list[str]:
        """Return why the records are no valid document: one phrase for each kind of fault."""
        found = []
        for phrase, query in _FAULTS.items():
            row = self._sql.execute(f"{query} ORDER BY ALL LIMIT 1").fetchone()
            if row is not None:
                found.append(phrase.format(*row))
        return found

    def solve(self, abouts: Sequence[About]) -> list[Solution]:
        """Return the possible answers to each question, see `solution.Solver`."""
        for about in abouts:
            if about["ask"] not in _ASKS:
                raise unknown_ask("warehouse", about)
        rows = [{"id": number, **about} for number, about in enumerate(abouts)]
        self._sql.register("asked", _table(rows, _ASKED))
        values: dict[int, list[str]] = defaultdict(list)
        for number, answer in self._sql.execute(_ANSWERS).fetchall():
            values[number].append(answer)
        return [Solution(tuple(values[n][:2]), _METHOD) for n in range(len(abouts))]


@cache
def _database() -> duckdb.DuckDBPyConnection:
    import duckdb

    # One for all documents: each would start eight threads for reading files. One thread for
    # queries, which take milliseconds: documents are verified next to each other.
    return duckdb.connect(":memory:", config={"threads": 1})


def _table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> pa.Table:
    import pyarrow as pa

    types = {**dict.fromkeys(_TEXTS, pa.string()), **dict.fromkeys(_INTEGERS, pa.int64())}
    return pa.table(
        {name: pa.array([row.get(name) for row in rows], types[name]) for name in columns}
    )


Edge = tuple[str, str]

_MOST_CAPACITY = 2**31 - 1
"""scipy's maximum flow counts in 32 bits, and is silently wrong beyond."""
_MOST_LENGTH = 2**53
"""Its path lengths are doubles, exact up to here."""


class NetworkSolver:
    """See `solution.Solver`."""

    def __init__(self, records: Sequence[Record]) -> None:
        by_type: dict[str, list[Record]] = {"node": [], "edge": [], "event": []}
        for record in records:
            by_type[record["type"]].append(record)
        self._nodes = [record["id"] for record in by_type["node"]]
        self._edges = by_type["edge"]
        self._events = sorted(by_type["event"], key=itemgetter("ts"))
        self._base = {(one["from"], one["to"]): int(one["weight"]) for one in self._edges}
        self._weights_at: dict[int | None, dict[Edge, int]] = {}

    def faults(self) -> list[str]:
        """Return why the records are no valid document: one phrase for each kind of fault."""
        kinds = (self._identifiers(), self._base_weights(), self._replay_faults())
        return [phrase for found in kinds if (phrase := next(found, None)) is not None]

    def _identifiers(self) -> Iterator[str]:
        for name, times in Counter(self._nodes).items():
            if times > 1:
                yield f"node {name} is declared {times} times"
        nodes = set(self._nodes)
        for (one, other), times in Counter((e["from"], e["to"]) for e in self._edges).items():
            if times > 1:
                yield f"the connection from {one} to {other} is declared {times} times"
            if one == other:
                yield f"a connection of {one} leads to itself"
            for name in (one, other):
                if name not in nodes:
                    yield f"the connection from {one} to {other} has the undeclared node {name}"
        for event in self._events:
            if (event["from"], event["to"]) not in self._base:
                yield (
                    f"an event at {event['ts']} changes the undeclared connection from "
                    f"{event['from']} to {event['to']}"
                )

    def _base_weights(self) -> Iterator[str]:
        for edge in self._edges:
            if edge["weight"] != int(edge["weight"]) or edge["weight"] < 1:
                yield f"the connection {_named(edge)} has the initial weight {edge['weight']}"

    def _replay_faults(self) -> Iterator[str]:
        weights, last = dict(self._base), dict.fromkeys(self._base, -1)
        for event in self._events:
            edge = (event["from"], event["to"])
            if edge not in weights:
                continue
            if event["ts"] == last[edge]:
                yield f"two events change the connection {_named(event)} at {event['ts']}"
            last[edge] = event["ts"]
            after = _after(weights[edge], event)
            if after != int(after) or after < 1:
                yield f"the weight from {edge[0]} to {edge[1]} becomes {after} at {event['ts']}"
                after = max(1, int(after))
            weights[edge] = int(after)

    def solve(self, abouts: Sequence[About]) -> list[Solution]:
        """Return the possible answers to each question, see `solution.Solver`."""
        return [self._solve(about) for about in abouts]

    def _solve(self, about: About) -> Solution:
        edge = (about["from"], about["to"])
        if about["ask"] == "initial_weight":
            stated = {e["weight"] for e in self._edges if (e["from"], e["to"]) == edge}
            return Solution(tuple(map(str, sorted(stated)))[:2], "record")
        if about["ask"] == "weight":
            weight = self._weights(about["at"]).get(edge)
            return Solution(() if weight is None else (str(weight),), "replay")
        if about["ask"] not in ("distance", "max_flow"):
            raise unknown_ask("network", about)
        if edge[0] == edge[1] or not set(edge) <= self._numbers.keys():
            return Solution((), "replay")
        source, target = (self._numbers[node] for node in edge)
        if about["ask"] == "distance":
            graph = self._graph(about["at"], _MOST_LENGTH)
            return Solution(_distance(graph, source, target), "replay and shortest path")
        graph = self._graph(about["at"], _MOST_CAPACITY)
        return Solution(_max_flow(graph, source, target), "replay and maximum flow")

    @cached_property
    def _numbers(self) -> Mapping[str, int]:
        names = [*self._nodes, *chain.from_iterable(self._base)]
        return {name: number for number, name in enumerate(dict.fromkeys(names))}

    def _weights(self, at: int | None) -> Mapping[Edge, int]:
        if at not in self._weights_at:
            weights = dict(self._base)
            for event in self._events:
                if at is not None and event["ts"] > at:
                    break
                edge = (event["from"], event["to"])
                if edge in weights:
                    weights[edge] = int(_after(weights[edge], event))
            self._weights_at = {at: weights}  # questions of one time mostly follow each other
        return self._weights_at[at]

    def _graph(self, at: int | None, most: int) -> csr_array:
        import numpy as np
        from scipy.sparse import csr_array

        weights = self._weights(at)
        if (total := sum(weights.values())) > most:
            raise ValueError(f"the weights add up to {total}, more than scipy counts exactly")
        ends = [[self._numbers[edge[side]] for edge in weights] for side in (0, 1)]
        lengths = np.fromiter(weights.values(), np.int64, len(weights))
        count = len(self._numbers)
        return csr_array((lengths, (ends[0], ends[1])), shape=(count, count))


def _after(weight: int, event: Record) -> int | float:
    value: int | float = event["value"]
    if event["action"] == "set":
        return value
    return weight + value if event["action"] == "add" else weight * value


def _named(record: Record) -> str:
    return f"from {record['from']} to {record['to']}"


def _distance(graph: csr_array, source: int, target: int) -> tuple[str, ...]:
    from scipy.sparse.csgraph import dijkstra

    length = float(dijkstra(graph, indices=[source])[0, target])
    return (str(int(length)),) if length < float("inf") else ()


def _max_flow(graph: csr_array, source: int, target: int) -> tuple[str, ...]:
    """The value of the flow found and the capacity of the cut that it leaves: equal if maximal."""
    import numpy as np
    from scipy.sparse.csgraph import breadth_first_order, maximum_flow

    capacity = graph.astype(np.int32)
    found = maximum_flow(capacity, source, target)
    left = (capacity - found.flow).tocsr()
    left.eliminate_zeros()
    reached = np.zeros(graph.shape[0], dtype=bool)
    reached[breadth_first_order(left, source, return_predecessors=False)] = True
    cut = graph[reached][:, ~reached].sum()
    return tuple(map(str, sorted({int(found.flow_value), int(cut)})))
