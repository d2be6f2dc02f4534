"""A few of the prompts of a study before any is sent: the very calls that measuring makes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

from contextcliff_dagster.experiments.common.measurement import recipe_of, sources_of
from contextcliff_dagster.inference.requests.call_plan import PlannedCall, plan_calls

if TYPE_CHECKING:
    from contextcliff_dagster.experiments.common.experiment import Experiment, Source
    from contextcliff_dagster.experiments.common.study_run import StudyRun


def spread_calls(
    run: StudyRun, experiments: Sequence[Experiment], examples: int
) -> list[PlannedCall]:
    """Return the calls of so many examples, from short to long: one of each cell, evenly spread
    over the cells; further ones of a cell where there are fewer cells than examples.

    All replicates of an example are there. The keys are of no serving identity, and of a
    conversation only the first question is there.

    Raises:
        StudyError: no sample is drawn.
    """
    cells = [
        (experiment, source, cell)
        for experiment in experiments
        for source in sources_of(run, experiment)
        for cell in experiment.cells(run.study)
        if source.samples.planned(cell, 1)
    ]
    order = [*_spread(len(cells), examples)]
    calls: list[PlannedCall] = []
    for index, places in groupby(order, itemgetter(0)):
        experiment, source, cell = cells[index]
        ranks = [rank for _, rank in places]
        calls += _calls(run, experiment, source, cell, ranks)
    return calls


def _spread(cells: int, examples: int) -> list[tuple[int, int]]:
    """Places of cells, each with the rank of an example in it, in order: one is of the shortest
    cell, two are of the shortest and the longest, and so on."""
    if not cells:
        return []
    whole, rest = divmod(examples, cells)
    last = max(rest - 1, 1)
    more = {round(place * (cells - 1) / last) for place in range(rest)}
    return [(cell, rank) for cell in range(cells) for rank in range(whole + (cell in more))]


def _calls(
    run: StudyRun, experiment: Experiment, source: Source, cell: str, ranks: Sequence[int]
) -> list[PlannedCall]:
    n, recipe = experiment.samples_per_cell(run.study), recipe_of(experiment, source, run.study)
    planned = plan_calls(source.samples, "", recipe, run.campaign, [cell], n)
    calls = (call for call in planned if call.rank in ranks)
    return sorted(calls, key=lambda call: (call.rank, call.replicate))
