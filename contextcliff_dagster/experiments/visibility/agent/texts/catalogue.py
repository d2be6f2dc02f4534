"""The texts of each task by its name."""

from __future__ import annotations

from dataclasses import dataclass

from contextcliff_dagster.experiments.visibility.agent.texts.bundled import BUNDLED_TEXTS
from contextcliff_dagster.experiments.visibility.agent.texts.kaggle import KAGGLE_TEXTS
from contextcliff_dagster.experiments.visibility.agent.texts.placebos import PLACEBOS


@dataclass(frozen=True, slots=True)
class Texts:
    """What an agent may read about a task.

    Attributes:
        task: data, model, and what its parameters do.
        metric: the score's name and formula, without its direction.
        task_placebo: as long as `task`, about something else.
        metric_placebo: as long as `metric`, about something else.
    """

    task: str
    metric: str
    task_placebo: str
    metric_placebo: str


def texts_of(name: str) -> Texts:
    """Return the texts of the task ``name``.

    Raises:
        KeyError: there are none.
    """
    return Texts(*(BUNDLED_TEXTS | KAGGLE_TEXTS)[name], *PLACEBOS[name])
