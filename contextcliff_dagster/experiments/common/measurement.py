"""Measurement of one campaign of a study: cost estimate, prompts and calls.

Answers in the store's tables may be missing from the call ledger, if it was lost or replaced. They
are neither paid for again nor overwritten without consent.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

from contextcliff_dagster.contracts import StoreError, StudyError
from contextcliff_dagster.experiments.common.study_run import StudyRun
from contextcliff_dagster.inference.execution.cost_estimate import CostEstimate
from contextcliff_dagster.inference.execution.measure import finished, measure
from contextcliff_dagster.inference.execution.prediction_rows import prediction_rows
from contextcliff_dagster.inference.execution.run_control import RunControl
from contextcliff_dagster.inference.ledger.campaigns import list_campaigns
from contextcliff_dagster.inference.ledger.ledger import Ledger
from contextcliff_dagster.inference.models.models_file import get_model
from contextcliff_dagster.inference.requests.call_plan import (
    ORIGIN,
    CallPlan,
    Outcomes,
    PlannedCall,
    plan_calls,
)
from contextcliff_dagster.inference.requests.recipe import Recipe
from contextcliff_dagster.inference.spending import Budget
from contextcliff_dagster.inference.telemetry import RunSummary
from contextcliff_dagster.sampling.manifest import PlannedExample, SampleSource
from contextcliff_dagster.store import Store, slug, write_json, write_table
from contextcliff_dagster.studies import Study

if TYPE_CHECKING:
    from contextcliff_dagster.experiments.common.experiment import Experiment, Rows, Source


EVERYTHING = sys.maxsize
"""Number of examples that means all examples of a source."""


@dataclass(frozen=True)
class Asked:
    """The cells of one model to measure in a run, and the number of examples per cell.

    ``samples_per_cell`` None uses the study's number; ``samples`` gives numbers by cell instead.
    """

    model: str
    cells: Sequence[str]
    samples_per_cell: int | None = None
    samples: Mapping[str, int] | None = None


def sources_of(run: StudyRun, experiment: Experiment, *, known: bool = False) -> Sequence[Source]:
    """Return the experiment's sources (``known``: also earlier sources), made once per run.

    Generated documents are expensive, and each cell requests its sources.
    """
    make = experiment.known_sources if known else experiment.sources
    return run.once((experiment.name, known), lambda: make(run))


def recipe_of(experiment: Experiment, source: Source, study: Study) -> Recipe:
    """Return the recipe for ``source``: its own, or else the experiment's."""
    return source.recipe or experiment.recipe(study)


def estimate_cost(run: StudyRun, experiments: Sequence[Experiment]) -> CostEstimate:
    """Estimate tokens, money and time of the calls that have no outcome yet.

    Raises:
        StudyError: a model of the study is not in the registry.
    """
    from contextcliff_dagster.inference.execution.cost_estimate import estimate

    entries = [get_model(name) for name in run.study.models]
    plans, skipped = [], set()
    for experiment in experiments:
        cells, n = experiment.cells(run.study), experiment.samples_per_cell(run.study)
        for source in experiment.expected_sources(run):
            name = " ".join(source.columns.values()) or (
                experiment.name if experiment.host else None
            )
            plans.append((name, _call_plan(run, experiment, source, cells, n)))
            skipped |= {(name, entry.name) for entry in entries if experiment.not_asked(entry)}
    made = estimate(plans, entries, run.ledger, skipped, batched=run.study.calls.batch)
    first = [sentence for each in experiments for sentence in each.before_first_call(run)]
    return replace(made, notes=(*made.notes, *first)) if first else made


def measure_cells(
    run: StudyRun,
    experiment: Experiment,
    asked: Asked,
    control: RunControl,
    on_cell: Callable[[str, Rows], None] | None = None,
) -> RunSummary:
    """Make a model's missing calls and write each finished cell's predictions.

    ``control`` without a budget gets the study's budget. ``on_cell`` is called after a cell's file
    is written, with all its rows, including rows of earlier, larger runs.

    Raises:
        StudyError: unknown model, or the sample has fewer examples than requested.
        EngineError, BudgetError, StoreError: see ``inference.execution.measure``; existing answers
            are kept.
    """
    budget = control.budget or Budget(usd=run.study.budget.usd)
    control = replace(control, budget=budget, order=run.study.calls.order)
    if run.study.calls.batch and control.batching is None:
        control = replace(control, batching="submit")
    entry, n = get_model(asked.model), _samples(run, experiment, asked, control)
    sources = sources_of(run, experiment)
    if why := experiment.not_asked(entry):
        if control.on_wait is not None:
            control.on_wait(f"Model {asked.model} is not asked for {experiment.name}: {why}.")
        return RunSummary(planned=0)
    if (sample_size := run.study.calls.concurrency) is not None:
        entry = entry.model_copy(update={"concurrency": min(entry.concurrency, sample_size)})
    # A cell is finished after the last source with questions in it.
    cells_of = [
        [cell for cell in asked.cells if source.samples.planned(cell, n)] for source in sources
    ]
    open_sources = Counter(cell for cells in cells_of for cell in cells)

    def end_of(cell: str) -> None:
        open_sources[cell] -= 1
        if open_sources[cell] <= 0:
            rows = write_predictions(run, experiment, asked.model, cell)
            if on_cell is not None and (rows or len(sources) == 1):
                on_cell(cell, rows)

    total = RunSummary(planned=0)
    for source, cells in zip(sources, cells_of, strict=True):
        if len(sources) == 1:
            cells = list(asked.cells)  # an empty cell names the cell into which it was merged
        if not cells:
            continue
        if asked.samples is not None:
            source = replace(source, samples=PerCellLimit(source.samples, asked.samples))
        plan = _call_plan(run, experiment, source, cells, n)
        total = total.plus(measure(plan, entry, run.ledger, control, on_bin=end_of))
        if total.stopped:
            break
    return total


def _samples(run: StudyRun, experiment: Experiment, asked: Asked, control: RunControl) -> int:
    limit = experiment.samples_per_cell(run.study)
    if control.batching == "resume":
        return EVERYTHING  # a batch may have been asked for more than the study asks
    by_cell = asked.samples
    n = asked.samples_per_cell if by_cell is None else max(by_cell.values(), default=0)
    n = n or limit
    if n > limit and experiment.host is None:
        raise StudyError(
            f"{n} examples per bin are requested, but study {run.study.name!r} is sampled with "
            f"{limit}; raise sampling.samples_per_bin in the study and prepare it again (what is "
            "measured stays measured)."
        )
    return min(n, limit)


class PerCellLimit:
    """A source limited to ``samples`` examples per cell."""

    def __init__(self, source: SampleSource, samples: Mapping[str, int]) -> None:
        self._source, self._samples = source, samples

    def planned(self, bin: str, n: int) -> Sequence[PlannedExample]:
        return self._source.planned(bin, min(n, self._samples.get(bin, 0)))

    def document_text(self, document_id: str) -> str:
        return self._source.document_text(document_id)


def models_left(
    run: StudyRun,
    experiment: Experiment,
    cells_of: Mapping[str, Sequence[str]],
    samples_per_cell: int | None = None,
) -> list[str]:
    """Return the models of ``cells_of`` (model -> cells) with missing calls for `measure_cells`.

    Raises:
        StudyError: no sample is drawn.
        StoreError: the ledger cannot be read.
    """
    n = samples_per_cell or experiment.samples_per_cell(run.study)
    sources = sources_of(run, experiment)
    return [
        model
        for model, cells in cells_of.items()
        if not experiment.not_asked(get_model(model))
        and not all(
            finished(_call_plan(run, experiment, source, cells, n), model, run.ledger)
            for source in sources
        )
    ]


def planned_calls(
    run: StudyRun, experiment: Experiment, identity_hash: str, outcomes: Outcomes | None = None
) -> Iterator[PlannedCall]:
    """Yield all calls that the experiment may have made with one serving identity.

    ``outcomes``: earlier outcomes on which further calls depend; None: outcomes of the ledger,
    including imports for the study.

    Raises:
        StudyError: no sample is drawn, or the study has changed since.
    """
    for source in sources_of(run, experiment, known=True):
        plan = _call_plan(run, experiment, source, experiment.cells(run.study), EVERYTHING)
        known = partial(run.ledger.outcomes, study=run.study.name)
        yield from plan.calls(identity_hash, outcomes or known)


def ledger_rows(
    run: StudyRun, experiment: Experiment, source: Source, model: str, cells: Sequence[str]
) -> Rows:
    """Return the rows of ``experiment.predictions`` in the ledger, without calls.

    Returns all rows of the source, even if the study asks for fewer: a smaller run shrinks no cell.

    Raises:
        StoreError: outputs were pruned.
    """
    plan = _call_plan(run, experiment, source, cells, EVERYTHING)
    return [{**source.columns, **row} for row in prediction_rows(plan, model, run.ledger)]


def write_predictions(run: StudyRun, experiment: Experiment, model: str, cell: str) -> Rows:
    """Write one cell's predictions from the ledger; return the rows written, if any."""
    rows = [
        row
        for source in sources_of(run, experiment, known=True)
        for row in ledger_rows(run, experiment, source, model, [cell])
    ]
    if rows:
        table = experiment.predictions
        file = run.store.table_file(table.name, run.study.name, run.campaign, model, cell)
        require_kept(run, [file] if file.exists() else [])
        write_table(file, rows, table)
    return rows


def _call_plan(
    run: StudyRun, experiment: Experiment, source: Source, cells: Sequence[str], n: int
) -> CallPlan:
    return CallPlan(
        study=run.study.name,
        campaign=run.campaign,
        source=source.samples,
        recipe=recipe_of(experiment, source, run.study),
        bins=cells,
        n=n,
        follow_up=source.follow_up,
        steps=source.steps,
    )


def spread_calls(
    run: StudyRun, experiments: Sequence[Experiment], examples: int
) -> list[PlannedCall]:
    """Return calls of ``examples`` examples, from short to long, spread evenly over the cells: one
    per cell, or several if there are fewer cells than examples.

    Includes all replicates of an example, but only the first question of a conversation. The keys
    belong to no serving identity.

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


def example_calls(run: StudyRun, experiment: Experiment, example_id: str) -> list[PlannedCall]:
    """Return the first calls about an example, one for each wording; empty if the sample lacks it.

    The keys belong to no serving identity.

    Raises:
        StudyError: no sample is drawn.
    """
    cells, n = experiment.cells(run.study), experiment.samples_per_cell(run.study)
    return [
        call
        for source in sources_of(run, experiment, known=True)
        for call in plan_calls(
            source.samples, "", recipe_of(experiment, source, run.study), run.campaign, cells, n
        )
        if call.example.example_id == example_id
    ]


def _spread(cells: int, examples: int) -> list[tuple[int, int]]:
    """Return places of cells with the rank of an example in each, in order: one example is in the
    shortest cell, two are in the shortest and the longest, etc."""
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


_LOOKED_AT = ("call_key", "no_answer", "extra")
PAY_AGAIN = "CONTEXTCLIFF_PAY_AGAIN"
"""Environment variable: set to 1 to continue without answers that the ledger has lost."""


def lost_keys(ledger: Ledger, study: str, files: Iterable[Path], *, own: bool = True) -> set[str]:
    """Return the calls with an outcome in prediction files but not in the ledger.

    Imported outcomes replace only imported answers, unless the answers are not the ledger's ``own``
    (`is_own`). Reads no texts. Damaged files have nothing left to lose.
    """
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    keys, imported = set[str](), set[str]()
    for path in files:
        try:
            with pq.ParquetFile(path) as file:
                names = [name for name in _LOOKED_AT if name in file.schema_arrow.names]
                rows = file.read(columns=names)
        except (pa.ArrowException, OSError):
            continue
        # Calls without an answer were not paid for and are asked again anyway.
        unpaid = pa.array(["transport_error", "context_overflow"])
        rows = rows.filter(pc.invert(pc.is_in(rows["no_answer"], unpaid)))
        keys.update(rows["call_key"].to_pylist())
        if "extra" in names:
            foreign = pc.match_substring(rows["extra"], f'"{ORIGIN}"')
            imported.update(rows["call_key"].filter(foreign).to_pylist())
    paid = keys - imported if own else set()
    others = keys - paid
    return (paid - ledger.answered(paid)) | (others - ledger.answered(others, study))


def is_own(study: str, store: Store, ledger: Ledger) -> bool:
    """Return whether ``ledger`` measured the study's answers in ``store``, by the ledger id noted
    beside them; note the id if there is none."""
    known, file = None, store.ledger_note(study)
    with suppress(OSError, ValueError, KeyError, TypeError):
        known = str(json.loads(file.read_bytes())["ledger"])
    is_ours = ledger.takes(known)
    if is_ours and known is None:
        write_json(file, {"ledger": ledger.id})
    return is_ours


def require_known_answers(run: StudyRun, experiment: Experiment, models: Iterable[str]) -> None:
    """Refuse to go on while the store has answers of ``models`` that the ledger has lost.

    Checks the campaign of ``run`` and campaigns unknown to the ledger.

    Raises:
        StoreError: it has, and ``CONTEXTCLIFF_PAY_AGAIN`` is not 1.
    """
    study = run.study.name
    names = {slug(c.name) for c in list_campaigns(run.ledger, study)} - {slug(run.campaign)}
    folder = run.store.study_dir(study) / experiment.predictions.name
    parts = [part for part in folder.glob("campaign=*") if part.name[9:] not in names]
    wanted_models = {f"model={slug(model)}" for model in models}
    require_kept(
        run,
        [
            file
            for part in parts
            for file in part.glob("model=*/bin=*/*.parquet")
            if file.parent.parent.name in wanted_models
        ],
    )


def require_kept(run: StudyRun, files: Iterable[Path]) -> None:
    """Raise StoreError if ``files`` hold answers that the ledger has lost."""
    if os.environ.get(PAY_AGAIN, "").strip() not in ("", "0"):
        return
    study = run.study.name
    is_ours = is_own(study, run.store, run.ledger)
    if lost := len(lost_keys(run.ledger, study, files, own=is_ours)):
        raise StoreError(
            f"The store holds {lost:,} answers of study {study!r} that the call ledger "
            f"{run.ledger.name} does not know: `contextcliff ledger restore {study}` takes them "
            f"back without a call; `profile --pay-again` (or {PAY_AGAIN}=1) measures them again."
        )
