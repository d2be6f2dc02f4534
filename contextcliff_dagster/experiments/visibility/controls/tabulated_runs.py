"""Runs of a scripted agent on tabulated landscapes, as records that the analysis takes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from contextcliff_dagster.experiments.visibility.agent.prompts import TEMPLATE, prompt_of
from contextcliff_dagster.experiments.visibility.agent.replies import parse_reply
from contextcliff_dagster.experiments.visibility.agent.state import RunState, ShownTrial, Usage
from contextcliff_dagster.experiments.visibility.axes import PlannedRun, runs_of
from contextcliff_dagster.experiments.visibility.baselines.curves import reported_scores
from contextcliff_dagster.experiments.visibility.baselines.search import Trial
from contextcliff_dagster.experiments.visibility.landscape.regret import normalised_regret
from contextcliff_dagster.experiments.visibility.landscape.strata import start_of
from contextcliff_dagster.experiments.visibility.tasks.catalogue import task_named
from contextcliff_dagster.experiments.visibility.tasks.clamping import clamp

if TYPE_CHECKING:
    import pandas as pd

    from contextcliff_dagster.experiments.visibility.controls.agents import ScriptedAgent
    from contextcliff_dagster.experiments.visibility.landscape.table import Landscape
    from contextcliff_dagster.experiments.visibility.section import VisibilitySection
    from contextcliff_dagster.experiments.visibility.tasks.parameters import Config
    from contextcliff_dagster.experiments.visibility.tasks.task import Evaluation

_CHARACTERS_A_TOKEN = 4


@dataclass(frozen=True, eq=False)
class Tabulated:
    """Landscapes by benchmark; scores of any configuration are those of the nearest one.

    A seed has the split of its number modulo the splits of the landscape.
    """

    landscapes: Mapping[str, Landscape]
    _objectives: dict[tuple[str, int], Callable[[Config], Evaluation]] = field(
        default_factory=dict, repr=False
    )

    def records(
        self, agent: ScriptedAgent, section: VisibilitySection, draw: int = 0
    ) -> pd.DataFrame:
        """Return one row a step, with the columns of `tables.VISIBILITY_RECORDS` that are analysed.

        Args:
            draw: of the agent's random numbers, which differ from run to run.

        Raises:
            DataError: a landscape has no start of a stratum that the section asks for.
        """
        import pandas as pd

        runs = runs_of(section)
        return pd.DataFrame(
            [row for run in runs for row in self._rows(agent, run, section.steps, draw)]
        )

    def _rows(
        self, agent: ScriptedAgent, run: PlannedRun, steps: int, draw: int
    ) -> list[dict[str, Any]]:
        task, landscape = task_named(run.benchmark), self.landscapes[run.benchmark]
        objective = self._objective(run)
        rng = np.random.default_rng([draw, *run.key.encode()])
        start: Config = task.space.start
        if run.axes.start != "default":
            start = start_of(landscape, run.axes.start, run.seed).config
        trials = [Trial(start, objective(start))]
        state = RunState((ShownTrial(start, trials[0].evaluation.validation, "start"),))
        rows = []
        for step in range(1, steps + 1):
            document, question = prompt_of(task, run.axes, state)
            prompt = TEMPLATE.format(document=document, question=question)
            reply = agent(prompt, rng)
            parsed, base = parse_reply(reply), state.current(task, run.axes).config
            clamped = clamp(task.space, parsed.proposal)
            config = clamped.onto(base)
            trials.append(Trial(config, objective(config)))
            chosen_by = "model" if clamped.values else "fallback"
            shown = ShownTrial(config, trials[-1].evaluation.validation, chosen_by)  # type: ignore[arg-type]
            usage = Usage(len(prompt) // _CHARACTERS_A_TOKEN, len(reply) // _CHARACTERS_A_TOKEN)
            state = state.after(shown, usage)
            rows.append(
                {
                    "run": run.key,
                    "step": step,
                    "failure": None,
                    "chosen_by": chosen_by,
                    "unparsable": parsed.unparsable,
                    "proposed": json.dumps(parsed.recorded),
                    "events": json.dumps([asdict(event) for event in clamped.events]),
                    "base_config": json.dumps(dict(base)),
                    "config": json.dumps(config),
                }
            )
        return self._with_regret(rows, trials, landscape)

    def _objective(self, run: PlannedRun) -> Callable[[Config], Evaluation]:
        landscape = self.landscapes[run.benchmark]
        split = run.seed % len(landscape.splits)
        key = run.benchmark, split
        if key not in self._objectives:
            space = task_named(run.benchmark).space
            self._objectives[key] = landscape.objective(space, split)
        return self._objectives[key]

    def _with_regret(
        self, rows: list[dict[str, Any]], trials: list[Trial], landscape: Landscape
    ) -> list[dict[str, Any]]:
        higher = landscape.higher_is_better
        regret = normalised_regret(
            reported_scores(trials, higher_is_better=higher), landscape.best, landscape.worst
        )
        start = {"start_config": json.dumps(dict(trials[0].config)), "start_regret": regret[0]}
        return [
            row | start | {"regret": after} for row, after in zip(rows, regret[1:], strict=True)
        ]
