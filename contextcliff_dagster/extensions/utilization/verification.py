"""Verification that a text implies its answers, by methods other than the generator's."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, cached_property
from importlib.util import find_spec
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from contextcliff_dagster.contracts import StudyError, VerificationError, install_command
from contextcliff_dagster.extensions.utilization.benchmarks.data import (
    DOMAINS,
    BenchmarkName,
    Question,
    Record,
)
from contextcliff_dagster.extensions.utilization.rendering.sentences import Format

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa
    from ortools.sat.python import cp_model
    from scipy.sparse import csr_array

Variable = tuple[str, str]
"""An entity and one of its attributes."""

_COUNTED = "count"
_PROVED = "cp-sat"
_SECONDS = 60.0


def unproved_benchmark() -> BenchmarkName | None:
    """Return the benchmark whose verifier is not installed; None if all are."""
    return None if find_spec("ortools") else "constraints"


def unproved_sentence(fate: str) -> str:
    """Return why the benchmark ``fate``, such as "is left out", and the command that helps."""
    return (
        f"The benchmark constraints {fate}: OR-tools, which proves its answers, is not installed; "
        f"{install_command('utilization')} installs it."
    )


class ConstraintsSolver:
    """The `Solver` of constraints documents, with CP-SAT."""

    def __init__(self, records: Sequence[Record]) -> None:
        self._records = records
        self._of = [_variables(record) for record in records]
        self._component: _Component | None = None

    def faults(self) -> list[str]:
        """Return one phrase for each kind of fault in the records; empty for a valid document."""
        faults = [next(self._outside_domains(), None), next(self._of_other_domains(), None)]
        phrases = [phrase for phrase in faults if phrase is not None]
        if not phrases and _Model(self._records).values() is None:
            phrases.append("its constraints contradict each other")
        return phrases

    def _outside_domains(self) -> Iterator[str]:
        for record, variables in zip(self._records, self._of, strict=True):
            for _, attribute in variables:
                if attribute not in DOMAINS:
                    yield f"there is no attribute {attribute!r}"
            for attribute, value in _stated(record):
                if value not in DOMAINS.get(attribute, ()):
                    yield f"{value!r} is not a value of the attribute {attribute!r}"

    def _of_other_domains(self) -> Iterator[str]:
        for record, variables in zip(self._records, self._of, strict=True):
            if record["type"] in ("eq", "mut"):
                a, b = (attribute for _, attribute in variables)
                if DOMAINS.get(a) != DOMAINS.get(b):
                    yield f"{a} and {b} are stated to be equal but share no value"

    def solve(self, abouts: Sequence[About]) -> list[Solution]:
        """Return the possible answers to each question; see `Solver`."""
        cells = {(a["entity"], a["attr"]) for a in abouts if a["ask"] == "value"}
        values = self._values(cells) if cells else {}
        return [
            Solution((str(self._facts(about)),), _COUNTED)
            if about["ask"] == "facts"
            else Solution(values[about["entity"], about["attr"]], _PROVED)
            for about in abouts
        ]

    def _facts(self, about: About) -> int:
        key = (about["attr"], about["value"])
        facts = (record for record in self._records if record["type"] == "fact")
        return len({fact["entity"] for fact in facts if (fact["attr"], fact["value"]) == key})

    def _values(self, wanted: set[Variable]) -> Mapping[Variable, tuple[str, ...]]:
        """Return up to two possible values of each variable in ``wanted``."""
        if self._component is None or not wanted <= self._component.known:
            # Consecutive questions are mostly about the same records.
            component = self._connected(wanted)
            component_model = _Model([self._records[number] for number in component])
            variables = {variable for of in component for variable in self._of[of]}
            self._component = _Component(variables, component_model, component_model.values())
        variables, model, first = self._component
        if first is None:
            return dict.fromkeys(wanted, ())
        values: dict[Variable, tuple[str, ...]] = {
            cell: (str(first[cell]),) if cell in variables else () for cell in wanted
        }
        doubtful = sorted(wanted & variables)
        # All at once: if no solution differs in any of them, one proof is enough.
        while doubtful and (other := model.other_values({cell: first[cell] for cell in doubtful})):
            for cell in doubtful:
                if other[cell] != first[cell]:
                    values[cell] = tuple(sorted((str(first[cell]), str(other[cell]))))
            doubtful = [cell for cell in doubtful if other[cell] == first[cell]]
        return values

    def _connected(self, wanted: set[Variable]) -> list[int]:
        """Return the ascending indices of records linked with ``wanted`` by shared variables."""
        of_variable: dict[Variable, list[int]] = defaultdict(list)
        for number, variables in enumerate(self._of):
            for variable in variables:
                of_variable[variable].append(number)
        component: set[int] = set()
        visited, pending = set(wanted), list(wanted)
        while pending:
            for number in of_variable.get(pending.pop(), ()):
                if number not in component:
                    component.add(number)
                    neighbours = set(self._of[number]) - visited
                    visited |= neighbours
                    pending += neighbours
        return sorted(component)


class _Component(NamedTuple):
    """A group of linked records: their variables, their model, and one solution of the model."""

    known: set[Variable]
    model: _Model
    first: Mapping[Variable, Any] | None


class _Model:
    """A CP-SAT model of records; a value is its index in the attribute's domain."""

    def __init__(self, records: Sequence[Record]) -> None:
        try:
            from ortools.sat.python import cp_model
        except ImportError as error:
            raise StudyError(unproved_sentence("cannot be measured")) from error
        self._cp = cp_model
        self._model = cp_model.CpModel()
        self._integers: dict[Variable, cp_model.IntVar] = {}
        self._literals: dict[tuple[Variable, Any], cp_model.IntVar] = {}
        for record in records:
            self._add(record)

    def values(self) -> Mapping[Variable, Any] | None:
        """Return an assignment of values to all variables, or None if there is none."""
        return self._solve(self._model)

    def other_values(self, known: Mapping[Variable, Any]) -> Mapping[Variable, Any] | None:
        """Return an assignment that differs from ``known``, or None if there is none."""
        model = self._model.clone()
        differ = []
        for variable, value in known.items():
            differs = model.new_bool_var("")
            integer = model.get_int_var_from_proto_index(self._integers[variable].index)
            model.add(integer != _place(variable, value)).only_enforce_if(differs)
            differ.append(differs)
        model.add_bool_or(differ)
        return self._solve(model)

    def _solve(self, model: cp_model.CpModel) -> Mapping[Variable, Any] | None:
        solver = self._cp.CpSolver()
        # One worker gives the same solution every time, and leaves the other cores to others.
        solver.parameters.num_workers = 1
        # It would replace Python's signal handler: Ctrl-C would kill the process.
        solver.parameters.catch_sigint_signal = False
        solver.parameters.max_time_in_seconds = _SECONDS
        status = solver.solve(model)
        if status == self._cp.INFEASIBLE:
            return None
        if status not in (self._cp.OPTIMAL, self._cp.FEASIBLE):
            raise VerificationError(
                f"CP-SAT did not decide a document of the constraints benchmark within "
                f"{_SECONDS:.0f} s; try again on a less busy machine."
            )
        return {
            variable: DOMAINS[variable[1]][solver.value(integer)]
            for variable, integer in self._integers.items()
        }

    def _add(self, record: Record) -> None:
        first, *others = _variables(record)
        kind = record["type"]
        if kind in ("eq", "mut"):
            self._model.add(self._integer(first) == self._integer(others[0]))
        elif kind == "fact":
            self._model.add(self._integer(first) == _place(first, record["value"]))
        elif kind == "neq":
            self._model.add(self._integer(first) != _place(first, record["value"]))
        else:
            condition = self._literal(first, record["if_value"])
            self._model.add_implication(condition, self._literal(others[0], record["then_value"]))

    def _integer(self, variable: Variable) -> cp_model.IntVar:
        if variable not in self._integers:
            self._integers[variable] = self._model.new_int_var(0, len(DOMAINS[variable[1]]) - 1, "")
        return self._integers[variable]

    def _literal(self, variable: Variable, value: Any) -> cp_model.IntVar:
        if (variable, value) not in self._literals:
            integer, place = self._integer(variable), _place(variable, value)
            literal = self._literals[variable, value] = self._model.new_bool_var("")
            self._model.add(integer == place).only_enforce_if(literal)
            self._model.add(integer != place).only_enforce_if(~literal)
        return self._literals[variable, value]


def _place(variable: Variable, value: Any) -> int:
    return DOMAINS[variable[1]].index(value)


def _variables(record: Record) -> tuple[Variable, ...]:
    kind = record["type"]
    if kind in ("fact", "neq"):
        return ((record["entity"], record["attr"]),)
    if kind == "impl":
        condition = (record["if_entity"], record["if_attr"])
        return condition, (record["then_entity"], record["then_attr"])
    return (record["e1"], record["a1"]), (record["e2"], record["a2"])


def _stated(record: Record) -> tuple[tuple[str, Any], ...]:
    """Return the attribute-value pairs that the record names."""
    if record["type"] in ("fact", "neq"):
        return ((record["attr"], record["value"]),)
    if record["type"] == "impl":
        condition = (record["if_attr"], record["if_value"])
        return condition, (record["then_attr"], record["then_value"])
    return ()


About = Mapping[str, Any]
"""A question in machine-readable form: ``ask`` and its arguments (`benchmarks.data.ASKS`)."""


class Solution(NamedTuple):
    """The possible answers to a question.

    ``values``: empty if the document does not answer the question, one value if it does, two if
    several answers are possible (the search stops there). ``method``: how they were found.
    """

    values: tuple[str, ...]
    method: str


class Solver(Protocol):
    """A solver of questions about the records of one document."""

    def faults(self) -> list[str]:
        """Return one phrase for each kind of fault in the records; empty if they are valid."""
        ...

    def solve(self, abouts: Sequence[About]) -> list[Solution]:
        """Return the possible answers to each question, which is one of the benchmark's."""
        ...


def solver_for(records: Sequence[Record], benchmark: BenchmarkName) -> Solver:
    """Return the solver of ``benchmark``; raise KeyError if a record lacks a field of its type."""
    if benchmark == "warehouse":
        return WarehouseSolver(records)
    if benchmark == "network":
        return NetworkSolver(records)

    return ConstraintsSolver(records)


_METHOD = "sql"
_TEXTS = ("ask", "action", "warehouse", "sku", "dest", "source")
_INTEGERS = ("id", "ts", "qty", "at", "hops")
_RECORD = ("ts", "warehouse", "sku", "action", "qty", "dest", "source")
_ASKED = ("id", "ask", "warehouse", "sku", "action", "ts", "at", "hops")

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
"""Fault phrase -> the query for its rows, with columns in the order of the placeholders."""

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
    """The `Solver` of warehouse documents, with SQL; not thread-safe."""

    def __init__(self, records: Sequence[Record]) -> None:
        self._sql = _database().cursor()
        self._sql.register("given", _table(records, _RECORD))
        self._sql.execute("CREATE TEMP TABLE records AS FROM given")

    def faults(self) -> list[str]:
        """Return one phrase for each kind of fault in the records; empty for a valid document."""
        queries = ((phrase, f"{query} ORDER BY ALL LIMIT 1") for phrase, query in _FAULTS.items())
        rows = ((phrase, self._sql.execute(query).fetchone()) for phrase, query in queries)
        return [phrase.format(*row) for phrase, row in rows if row is not None]

    def solve(self, abouts: Sequence[About]) -> list[Solution]:
        """Return the possible answers to each question; see `Solver`."""
        rows = [{"id": number, **about} for number, about in enumerate(abouts)]
        self._sql.register("asked", _table(rows, _ASKED))
        values: dict[int, list[str]] = defaultdict(list)
        for number, answer in self._sql.execute(_ANSWERS).fetchall():
            values[number].append(answer)
        return [Solution(tuple(values[n][:2]), _METHOD) for n in range(len(abouts))]


@cache
def _database() -> duckdb.DuckDBPyConnection:
    import duckdb

    # One connection for all documents: each would start eight threads to read files. One thread for
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
"""Largest sum of capacities: scipy's maximum flow uses 32 bits and is silently wrong beyond."""
_MOST_LENGTH = 2**53
"""Largest sum of lengths: scipy's path lengths are doubles, which are exact up to here."""


class NetworkSolver:
    """The `Solver` of network documents, with scipy."""

    def __init__(self, records: Sequence[Record]) -> None:
        by_type: dict[str, list[Record]] = {"node": [], "edge": [], "event": []}
        for record in records:
            by_type[record["type"]].append(record)
        self._nodes = [record["id"] for record in by_type["node"]]
        self._edges = by_type["edge"]
        self._events = sorted(by_type["event"], key=itemgetter("ts"))
        self._base = {(edge["from"], edge["to"]): int(edge["weight"]) for edge in self._edges}
        self._weights_at: dict[int | None, dict[Edge, int]] = {}

    def faults(self) -> list[str]:
        """Return one phrase for each kind of fault in the records; empty for a valid document."""
        kinds = (self._identifiers(), self._base_weights(), self._replay_faults())
        return [phrase for phrases in kinds if (phrase := next(phrases, None)) is not None]

    def _identifiers(self) -> Iterator[str]:
        for name, times in Counter(self._nodes).items():
            if times > 1:
                yield f"node {name} is declared {times} times"
        nodes = set(self._nodes)
        for (start, end), times in Counter((e["from"], e["to"]) for e in self._edges).items():
            if times > 1:
                yield f"the connection from {start} to {end} is declared {times} times"
            if start == end:
                yield f"a connection of {start} leads to itself"
            for name in (start, end):
                if name not in nodes:
                    yield f"the connection from {start} to {end} has the undeclared node {name}"
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
        """Return the possible answers to each question; see `Solver`."""
        return [self._solve(about) for about in abouts]

    def _solve(self, about: About) -> Solution:
        edge = (about["from"], about["to"])
        if about["ask"] == "initial_weight":
            weights = {e["weight"] for e in self._edges if (e["from"], e["to"]) == edge}
            return Solution(tuple(map(str, sorted(weights)))[:2], "record")
        if about["ask"] == "weight":
            weight = self._weights(about["at"]).get(edge)
            return Solution(() if weight is None else (str(weight),), "replay")
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
    """Return the value of the flow and the capacity of its cut, as one value if they agree."""
    import numpy as np
    from scipy.sparse.csgraph import breadth_first_order, maximum_flow

    capacity = graph.astype(np.int32)
    flow = maximum_flow(capacity, source, target)
    residual = (capacity - flow.flow).tocsr()
    residual.eliminate_zeros()
    reachable = np.zeros(graph.shape[0], dtype=bool)
    reachable[breadth_first_order(residual, source, return_predecessors=False)] = True
    cut = graph[reachable][:, ~reachable].sum()
    return tuple(map(str, sorted({int(flow.flow_value), int(cut)})))


class Verdict(NamedTuple):
    """The verdict on one question, from the text alone.

    Attributes:
        answer: the answer that the text allows; None if it allows none or cannot be read.
        unique: whether the text allows no other answer.
        agrees: whether the answer is unique and equals the question's, in a valid document.
        method: how the answer was found.
        fault: a phrase on what is wrong if ``agrees`` is false.
    """

    answer: str | None
    unique: bool
    agrees: bool
    method: str
    fault: str = ""


class Verifier:
    """A verifier of a sequence of texts, such as the same records in several formats.

    Each text is parsed in full. If its records and questions equal those of the previous text, the
    verdicts are reused without solving again.
    """

    def __init__(self, benchmark: BenchmarkName) -> None:
        self.benchmark = benchmark
        self._before: tuple[list[Record], Sequence[Question], list[Verdict]] | None = None

    def verify(
        self, text: str, questions: Sequence[Question], format: Format | None = None
    ) -> list[Verdict]:
        """Return the verdict on each question, from the rendered ``text`` alone.

        Each `Question.about` is solved and the result is compared with `Question.answer`. If
        ``format`` is None, it is detected.

        Raises:
            StudyError: OR-tools is not installed (constraints only).
        """
        from contextcliff_dagster.extensions.utilization.rendering.structured import parse

        try:
            records = parse(text, self.benchmark, format)
        except ValueError as error:
            fault = f"the text cannot be parsed: {error}"
            return [Verdict(None, False, False, "parse", fault)] * len(questions)
        if self._before is None or self._before[:2] != (records, questions):
            verdicts = verify_records(records, self.benchmark, questions)
            self._before = (records, questions, verdicts)
        return self._before[2]


def verify_records(
    records: Sequence[Record], benchmark: BenchmarkName, questions: Sequence[Question]
) -> list[Verdict]:
    """Return the verdict on each question from parsed records; see `Verifier.verify`."""
    solver = solver_for(records, benchmark)
    if faults := solver.faults() if records else ["the text has no records"]:
        return [Verdict(None, False, False, "records", "; ".join(faults))] * len(questions)
    results = solver.solve([question.about for question in questions])
    return [_verdict(question, result) for question, result in zip(questions, results, strict=True)]


def _verdict(question: Question, solution: Solution) -> Verdict:
    values, method = solution
    if not values:
        return Verdict(None, False, False, method, "the text does not answer the question")
    if len(values) > 1:
        text = " and ".join(values)
        answer = question.answer if question.answer in values else values[0]
        return Verdict(answer, False, False, method, f"both {text} are possible")
    agrees = values[0] == question.answer
    fault = "" if agrees else f"the answer is {values[0]}, not {question.answer}"
    return Verdict(values[0], True, agrees, method, fault)


def require_agreement(
    verdicts: Sequence[Verdict],
    questions: Sequence[Question],
    benchmark: BenchmarkName,
    seed: int,
    where: str = "",
) -> None:
    """Raise VerificationError for the first question whose verdict disagrees.

    ``where`` names the rendering in the message, such as "prose, 8k".
    """
    for question, verdict in zip(questions, verdicts, strict=True):
        if not verdict.agrees:
            rendering = f" ({where})" if where else ""
            raise VerificationError(
                f"The {benchmark} document of seed {seed}{rendering} fails its own verification by "
                f"{verdict.method}: {verdict.fault} (question: {question.text!r}); this is a bug; "
                "please report it with this sentence."
            )
