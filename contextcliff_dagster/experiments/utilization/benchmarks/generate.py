"""The data of one document, from its name, seed and parameters alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from contextcliff_dagster.experiments.utilization.benchmarks.asking import (
    Asked,
    Made,
    RetryError,
    questions_to_ask,
)
from contextcliff_dagster.experiments.utilization.benchmarks.constraints.generator import (
    make_constraints,
)
from contextcliff_dagster.experiments.utilization.benchmarks.data import (
    Benchmark,
    BenchmarkName,
    Evidence,
    QuestionKind,
)
from contextcliff_dagster.experiments.utilization.benchmarks.draws import Draws
from contextcliff_dagster.experiments.utilization.benchmarks.network.generator import make_network
from contextcliff_dagster.experiments.utilization.benchmarks.sizes import (
    records_of,
    require_parameters,
)
from contextcliff_dagster.experiments.utilization.benchmarks.warehouse.generator import (
    make_warehouse,
)

_MOST_ATTEMPTS = 200

_MAKERS: Mapping[
    BenchmarkName,
    Callable[[Draws, Mapping[str, int], Evidence, Sequence[Asked]], Made],
] = {
    "warehouse": make_warehouse,
    "constraints": make_constraints,
    "network": make_network,
}


def generate(
    name: BenchmarkName,
    seed: int,
    parameters: Mapping[str, int],
    *,
    evidence: Evidence = "growing",
    kinds: Sequence[QuestionKind] | None = None,
    hops: Sequence[int] = (1, 2, 4, 8),
    questions: int = 4,
) -> Benchmark:
    """Return the data of one document: the same for the same arguments, wherever it is made.

    Args:
        name: which benchmark.
        seed: of its draws.
        parameters: its sizes, `sizes.DEFAULTS` or `sizes.parameters_for`. Further keys: ``draw``
            (another document of the same seed and sizes), ``num_needed`` (records that matter to
            a sum).
        evidence: whether the records that matter to a sum grow with the document.
        kinds: of question; None: all of the benchmark.
        hops: of chains; longer ones than a document can hold become shorter.
        questions: how many. Where the document is too small for one more of a kind, a lookup takes
            its place.

    Raises:
        ValueError: parameters that no document has; kinds that the benchmark does not have.
    """
    require_parameters(name, parameters)
    asked = questions_to_ask(name, seed, kinds, hops, questions)
    make = _MAKERS[name]
    for attempt in range(_MOST_ATTEMPTS):
        draws = Draws(name, seed, parameters.get("draw", 0), attempt)
        try:
            records, found, notes = make(draws, parameters, evidence, asked)
        except RetryError:
            continue
        return Benchmark(
            name, seed, dict(parameters), tuple(records), tuple(found), evidence, notes=notes
        )
    raise ValueError(
        f"a {name} document of {records_of(name, parameters)} records is too small for {questions} "
        "questions; choose a larger scale or fewer questions"
    )
