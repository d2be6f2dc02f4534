"""Constraint questions by CP-SAT: a value is the answer once every other is proved impossible."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from contextcliff_dagster.contracts import StudyError, VerificationError
from contextcliff_dagster.extensions.utilization.benchmarks.data import Record
from contextcliff_dagster.extensions.utilization.benchmarks.schema import DOMAINS
from contextcliff_dagster.extensions.utilization.verification.solution import (
    About,
    Solution,
    unknown_ask,
)

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

Variable = tuple[str, str]
"""An entity and one of its attributes."""

_COUNTED = "count"
_PROVED = "cp-sat"
_SECONDS = 60.0


class ConstraintsSolver:
    """See `solution.Solver`."""

    def __init__(self, records: Sequence[Record]) -> None:
        self._records = records
        self._of = [_variables(record) for record in records]
        self._component: _Component | None = None

    def faults(self) -> list[str]:
        """Return why the records are no valid document: one phrase for each kind of fault."""
        found = [next(self._outside_domains(), None), next(self._of_other_domains(), None)]
        phrases = [phrase for phrase in found if phrase is not None]
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
                    yield f"{value!r} is no value of the attribute {attribute!r}"

    def _of_other_domains(self) -> Iterator[str]:
        for record, variables in zip(self._records, self._of, strict=True):
            if record["type"] in ("eq", "mut"):
                one, other = (attribute for _, attribute in variables)
                if DOMAINS.get(one) != DOMAINS.get(other):
                    yield f"{one} and {other} are called equal, and have no value in common"

    def solve(self, abouts: Sequence[About]) -> list[Solution]:
        """Return the possible answers to each question, see `solution.Solver`."""
        for about in abouts:
            if about["ask"] not in ("value", "facts"):
                raise unknown_ask("constraints", about)
        wanted = {(a["entity"], a["attr"]) for a in abouts if a["ask"] == "value"}
        values = self._values(wanted) if wanted else {}
        return [
            Solution((str(self._facts(about)),), _COUNTED)
            if about["ask"] == "facts"
            else Solution(values[about["entity"], about["attr"]], _PROVED)
            for about in abouts
        ]

    def _facts(self, about: About) -> int:
        named = (about["attr"], about["value"])
        facts = (one for one in self._records if one["type"] == "fact")
        return len({one["entity"] for one in facts if (one["attr"], one["value"]) == named})

    def _values(self, wanted: set[Variable]) -> Mapping[Variable, tuple[str, ...]]:
        """At most two possible values of each of the ``wanted`` variables."""
        if self._component is None or not wanted <= self._component.known:
            # Questions asked one by one are mostly about the same records.
            near = self._connected(wanted)
            made = _Model([self._records[number] for number in near])
            known = {variable for of in near for variable in self._of[of]}
            self._component = _Component(known, made, made.values())
        known, model, first = self._component
        if first is None:
            return dict.fromkeys(wanted, ())
        values: dict[Variable, tuple[str, ...]] = {
            variable: (str(first[variable]),) if variable in known else () for variable in wanted
        }
        asked = sorted(wanted & known)
        # All at once: where no solution differs in any of them, one proof is enough.
        while asked and (other := model.other_values({one: first[one] for one in asked})):
            for one in asked:
                if other[one] != first[one]:
                    values[one] = tuple(sorted((str(first[one]), str(other[one]))))
            asked = [one for one in asked if other[one] == first[one]]
        return values

    def _connected(self, wanted: set[Variable]) -> list[int]:
        """Numbers, ascending, of the records that a chain of records links with ``wanted``."""
        of_variable: dict[Variable, list[int]] = defaultdict(list)
        for number, variables in enumerate(self._of):
            for variable in variables:
                of_variable[variable].append(number)
        near: set[int] = set()
        seen, ahead = set(wanted), list(wanted)
        while ahead:
            for number in of_variable.get(ahead.pop(), ()):
                if number not in near:
                    near.add(number)
                    more = set(self._of[number]) - seen
                    seen |= more
                    ahead += more
        return sorted(near)


class _Component(NamedTuple):
    """Records that are linked: their variables, the model, and one solution of it."""

    known: set[Variable]
    model: _Model
    first: Mapping[Variable, Any] | None


class _Model:
    """Records as a CP-SAT model; a value is its place in its attribute's domain."""

    def __init__(self, records: Sequence[Record]) -> None:
        try:
            from ortools.sat.python import cp_model
        except ImportError as error:
            raise StudyError(
                "The constraints benchmark is verified with OR-tools, which is not installed: "
                "`pip install 'contextcliff-dagster[utilization]'`."
            ) from error
        self._cp = cp_model
        self._model = cp_model.CpModel()
        self._integers: dict[Variable, cp_model.IntVar] = {}
        self._literals: dict[tuple[Variable, Any], cp_model.IntVar] = {}
        for record in records:
            self._add(record)

    def values(self) -> Mapping[Variable, Any] | None:
        """Return one assignment of values to all variables, None where there is none."""
        return self._solve(self._model)

    def other_values(self, known: Mapping[Variable, Any]) -> Mapping[Variable, Any] | None:
        """Return an assignment that differs from ``known`` somewhere, None where none does."""
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
        # It would put the system's own handler in Python's place: Ctrl-C would kill the process.
        solver.parameters.catch_sigint_signal = False
        solver.parameters.max_time_in_seconds = _SECONDS
        status = solver.solve(model)
        if status == self._cp.INFEASIBLE:
            return None
        if status not in (self._cp.OPTIMAL, self._cp.FEASIBLE):
            raise VerificationError(
                f"CP-SAT has not decided a document of the constraints benchmark in {_SECONDS:.0f} "
                "s; try again on a machine that is less busy."
            )
        return {
            variable: DOMAINS[variable[1]][solver.value(integer)]
            for variable, integer in self._integers.items()
        }

    def _add(self, record: Record) -> None:
        one, *other = _variables(record)
        kind = record["type"]
        if kind in ("eq", "mut"):
            self._model.add(self._integer(one) == self._integer(other[0]))
        elif kind == "fact":
            self._model.add(self._integer(one) == _place(one, record["value"]))
        elif kind == "neq":
            self._model.add(self._integer(one) != _place(one, record["value"]))
        else:
            condition = self._literal(one, record["if_value"])
            self._model.add_implication(condition, self._literal(other[0], record["then_value"]))

    def _integer(self, variable: Variable) -> cp_model.IntVar:
        if variable not in self._integers:
            largest = len(DOMAINS[variable[1]]) - 1
            self._integers[variable] = self._model.new_int_var(0, largest, "")
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
    """Attributes with the values that the record names."""
    if record["type"] in ("fact", "neq"):
        return ((record["attr"], record["value"]),)
    if record["type"] == "impl":
        condition = (record["if_attr"], record["if_value"])
        return condition, (record["then_attr"], record["then_value"])
    return ()
