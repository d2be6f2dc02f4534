"""A search: a start, then as many proposals as the budget allows, each from what came before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from contextcliff_dagster.experiments.visibility.tasks.parameters import Config
from contextcliff_dagster.experiments.visibility.tasks.task import Evaluation, Objective


class Trial(NamedTuple):
    """A configuration that was tried, and its scores."""

    config: Config
    evaluation: Evaluation


class Search(Protocol):
    """Chooses the next configuration; keeps what it needs, and is used for one run only."""

    def propose(self, trials: Sequence[Trial]) -> Config:
        """Return the next configuration after ``trials``, the start first.

        It may look at validation scores alone.
        """


def run_search(search: Search, objective: Objective, start: Config, budget: int) -> list[Trial]:
    """Return ``budget`` + 1 trials: the start, and what the search proposed.

    Raises:
        ValueError: the budget is negative.
    """
    if budget < 0:
        raise ValueError("a budget is 0 or more steps")
    trials = [Trial(start, objective(start))]
    for _ in range(budget):
        config = search.propose(tuple(trials))
        trials.append(Trial(config, objective(config)))
    return trials
