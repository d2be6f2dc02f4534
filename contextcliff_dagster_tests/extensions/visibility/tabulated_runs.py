"""Runs of a scripted agent on tabulated landscapes, as records that the analysis takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from contextcliff_dagster.extensions.visibility.agent import TEMPLATE, Usage
from contextcliff_dagster.extensions.visibility.baselines import Trial, reported_scores
from contextcliff_dagster.extensions.visibility.behaviour import as_json, columns_of
from contextcliff_dagster.extensions.visibility.landscape import normalised_regret
from contextcliff_dagster.extensions.visibility.runs.tuning import Bench
from contextcliff_dagster.extensions.visibility.section import PlannedRun, runs_of
from contextcliff_dagster.extensions.visibility.tasks.catalogue import task_named
from contextcliff_dagster_tests.extensions.visibility.landscapes import objective_of

if TYPE_CHECKING:
    import pandas as pd

    from contextcliff_dagster.extensions.visibility.controls import ScriptedAgent
    from contextcliff_dagster.extensions.visibility.landscape import Landscape
    from contextcliff_dagster.extensions.visibility.section import VisibilitySection
    from contextcliff_dagster.extensions.visibility.tasks.task import Config, Evaluation, Space

_CHARACTERS_A_TOKEN = 4


@dataclass(frozen=True, eq=False)
class _TableScores:
    """A seed has the split of its number modulo the splits of the landscape."""

    landscape: Landscape
    space: Space
    _objectives: dict[int, Callable[[Config], Evaluation]] = field(default_factory=dict)

    def evaluation(self, config: Config, split: int) -> Evaluation:
        number = split % len(self.landscape.splits)
        if number not in self._objectives:
            self._objectives[number] = objective_of(self.landscape, self.space, number)
        return self._objectives[number](config)


@dataclass(frozen=True, eq=False)
class Tabulated:
    """Landscapes by benchmark; scores of any configuration are those of the nearest one."""

    landscapes: Mapping[str, Landscape]

    @cached_property
    def _benches(self) -> dict[str, Bench]:
        tasks = {name: task_named(name) for name in self.landscapes}
        return {
            name: Bench(tasks[name], _TableScores(landscape, tasks[name].space), landscape)
            for name, landscape in self.landscapes.items()
        }

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
    ) -> Iterator[dict[str, Any]]:
        bench, landscape = self._benches[run.benchmark], self.landscapes[run.benchmark]
        rng = np.random.default_rng([draw, *run.key.encode()])
        history = bench.begin(run)
        for _ in range(steps):
            document, question = bench.prompt(run, history)
            prompt = TEMPLATE.format(document=document, question=question)
            reply = agent(prompt, rng)
            usage = Usage(len(prompt) // _CHARACTERS_A_TOKEN, len(reply) // _CHARACTERS_A_TOKEN)
            history = bench.after(run, history, reply, usage)
        trials = [Trial(one.step.config, one.scores) for one in history]
        reported = reported_scores(trials, higher_is_better=landscape.higher_is_better)
        start, *regrets = normalised_regret(reported, landscape.best, landscape.worst)
        begun = {"start_config": as_json(history[0].step.config), "start_regret": start}
        for number, (tried, regret) in enumerate(zip(history[1:], regrets, strict=True), start=1):
            same = {"run": run.key, "step": number, "failure": None, "regret": regret}
            yield same | begun | columns_of(tried.step)
