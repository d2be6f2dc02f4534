"""In-process measurement of a pilot, then of rounds at the most informative lengths."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING

from contextcliff_dagster.contracts import BudgetError
from contextcliff_dagster.defs.resources import Watch
from contextcliff_dagster.experiments.common.measurement import require_known_answers
from contextcliff_dagster.experiments.common.study_run import StudyRun
from contextcliff_dagster.experiments.length_profile import experiment
from contextcliff_dagster.experiments.length_profile.experiment import LENGTH_PROFILE
from contextcliff_dagster.experiments.lookup import judged_assets
from contextcliff_dagster.inference.execution.run_control import deadline_after
from contextcliff_dagster.inference.spending import out_of_time
from contextcliff_dagster.inference.telemetry import RunSummary
from contextcliff_dagster.run.study import LocalRuns, Profiled, read_profiled

if TYPE_CHECKING:
    from contextcliff_dagster.analysis.design.allocation import Round, Target


@dataclass(frozen=True, slots=True)
class Targeted:
    """The result of a measurement in rounds, and each model's last plan."""

    profiled: Profiled
    rounds: Mapping[str, Round]
    stopped: str | None
    """Sentence about the budget or the deadline that ended the run early, else None."""


def profile_targeted(
    runs: LocalRuns,
    target: Target,
    watch: Watch | None = None,
    on_round: Callable[[str], None] | None = None,
) -> Targeted:
    """Measure a prepared study until each model's loss is located or ruled out, or data runs out.

    Each bin gives at most ``study.sampling.samples_per_bin`` examples. Answers of an earlier run
    count, so an interrupted run continues where it stopped. If the budget or the deadline ends the
    run, the answers so far are judged and reported.

    Args:
        runs: the runs that materialize the study's assets.
        on_round: called with a sentence about what each round measures for a model, and why.

    Raises:
        BatchesOpenError: a round waits in batches; the same call goes on when it is answered.
        BudgetError: the budget does not cover the first round.
        StoreError: the call ledger has lost answers that the store has.
        ContextCliffError: measuring failed; nothing measured is lost.
    """
    from contextcliff_dagster.experiments.common import preparation

    study, store, campaign = runs.study, runs.store, runs.campaign
    watch = watch or Watch()
    with StudyRun.open(study, store, campaign) as run:
        require_known_answers(run, LENGTH_PROFILE, study.models)  # rounds are planned from them
    manifest = preparation.load_frozen(study, store)
    deadline_at = deadline_after(watch.deadline_s)
    calls: dict[str, RunSummary] = {}
    ended: set[str] = set()
    stopped: str | None = None
    tell = on_round or (lambda _: None)
    names = ("predictions", "eval_records")
    rounds: dict[str, Round] = {}
    for number in count(1):
        before = {model: sum(plan.asked.values()) for model, plan in rounds.items()}
        rounds = experiment.plan_rounds(study, store, manifest, campaign, target)
        for model, plan in rounds.items():
            if model in ended:
                continue
            if plan.done or (number > 1 and sum(plan.asked.values()) == before[model]):
                ended.add(model)
                why = plan.sentence(number) if plan.done else "Nothing new came: stopped."
                tell(f"{model}: {why}")
        going = [model for model in study.models if model not in ended]
        if not going or (watch.should_stop is not None and watch.should_stop()):
            break
        waiting = Watch()
        try:
            for model in going:
                why = rounds[model].sentence(number)
                tell(f"{model}: {why}")
                left = None if deadline_at is None else deadline_at - time.monotonic()
                if left is not None and left <= 0:
                    raise out_of_time(sum(rounds[model].more.values()))
                of_round = replace(watch, deadline_s=left, calls={})
                asked = {"predictions": {"samples": rounds[model].samples, "why": why}}
                of_model = replace(runs, study=study.with_models([model]))
                of_model.materialize(LENGTH_PROFILE, names, asked, of_round)
                _add(calls, of_round.calls)
                waiting.calls |= of_round.calls
            waiting.require_answers(study.name, campaign)
        except BudgetError as error:
            if not any(sum(plan.asked.values()) for plan in rounds.values()):
                raise
            stopped = str(error)
            break
    if stopped is not None:
        # A bin that was cut short has answers in the ledger that no table has yet.
        runs.materialize(LENGTH_PROFILE, names, {"predictions": {"from_ledger_only": True}})
    runs.materialize(LENGTH_PROFILE, [*judged_assets(LENGTH_PROFILE), "report"])
    return Targeted(read_profiled(study, store, campaign, calls), rounds, stopped)


def _add(calls: dict[str, RunSummary], more: Mapping[str, RunSummary]) -> None:
    """Add a round's summaries to ``calls``, counting each planned call once."""
    for model, summary in more.items():
        if (so_far := calls.get(model)) is None:
            calls[model] = summary
            continue
        # In a later round, all earlier answers were asked or counted by an earlier round.
        planned = so_far.planned + summary.planned - summary.cached
        calls[model] = replace(
            so_far.plus(summary),
            planned=planned,
            cached=so_far.cached,
            orphans=so_far.orphans + summary.orphans,
            orphans_usd=so_far.orphans_usd + summary.orphans_usd,
        )
