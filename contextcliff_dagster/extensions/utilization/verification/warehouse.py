"""Warehouse questions by SQL in DuckDB, over a table of the records."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.extensions.utilization.benchmarks.data import Record
from contextcliff_dagster.extensions.utilization.verification.solution import (
    About,
    Solution,
    unknown_ask,
)

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

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
