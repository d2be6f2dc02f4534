"""The data of one document, from its name, seed and parameters alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import repeat

from contextcliff_dagster.extensions.utilization.benchmarks.asking import (
    KINDS,
    Asked,
    Made,
    RetryError,
    questions_to_ask,
)
from contextcliff_dagster.extensions.utilization.benchmarks.constraints.generator import (
    make_constraints,
)
from contextcliff_dagster.extensions.utilization.benchmarks.data import (
    Benchmark,
    BenchmarkName,
    Evidence,
    QuestionKind,
)
from contextcliff_dagster.extensions.utilization.benchmarks.draws import Draws
from contextcliff_dagster.extensions.utilization.benchmarks.network.generator import make_network
from contextcliff_dagster.extensions.utilization.benchmarks.sizes import (
    most_questions,
    records_of,
    require_parameters,
)
from contextcliff_dagster.extensions.utilization.benchmarks.warehouse.generator import (
    make_warehouse,
)

_MOST_ATTEMPTS = 200
_ATTEMPTS_WITH_LOOKUPS = 50

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
    if questions > (most := most_questions(name, parameters)):
        raise ValueError(
            f"a {name} document of {records_of(name, parameters)} records holds {most} questions "
            f"at most, not {questions}; choose a larger scale or fewer questions"
        )
    asked = questions_to_ask(name, seed, kinds, hops, questions)
    make = _MAKERS[name]
    for attempt, wanted in enumerate(_attempts(asked, len(set(kinds or KINDS[name])))):
        draws = Draws(name, seed, parameters.get("draw", 0), attempt)
        try:
            records, found, notes = make(draws, parameters, evidence, wanted)
        except RetryError:
            continue
        return Benchmark(
            name, seed, dict(parameters), tuple(records), tuple(found), evidence, notes=notes
        )
    raise ValueError(
        f"a {name} document of {records_of(name, parameters)} records is too small for {questions} "
        "questions; choose a larger scale or fewer questions"
    )


def _attempts(asked: Sequence[Asked], least: int) -> Iterator[Sequence[Asked]]:
    """Yield what to ask in each attempt: as wished, then more and more lookups instead.

    The first ``least`` questions stay: there is one of each kind among them. At last the counts are
    small ones: 11 facts on one attribute have no room among 10 entities, whatever is drawn.
    """
    yield from repeat(asked, _MOST_ATTEMPTS)
    kept = len(asked)
    while kept > least:
        kept = max(least, kept // 2)
        lookups = [one._replace(kind="lookup") for one in asked[kept:]]
        yield from repeat([*asked[:kept], *lookups], _ATTEMPTS_WITH_LOOKUPS)
    yield from repeat([question._replace(luck=0.0) for question in asked], _MOST_ATTEMPTS)
