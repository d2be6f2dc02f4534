"""Every task by its name, and its data."""

from __future__ import annotations

from contextcliff_dagster.contracts import StudyError
from contextcliff_dagster.extensions.visibility.tasks.bundled import BUNDLED
from contextcliff_dagster.extensions.visibility.tasks.kaggle.prepare import load_prepared
from contextcliff_dagster.extensions.visibility.tasks.kaggle.tasks import KAGGLE
from contextcliff_dagster.extensions.visibility.tasks.task import Data, Task, require_scikit_learn
from contextcliff_dagster.store import Store

TASKS = (*BUNDLED, *KAGGLE)


def task_named(name: str) -> Task:
    """Return the task ``name``.

    Raises:
        StudyError: there is none of this name.
    """
    for one in TASKS:
        if one.name == name:
            return one
    known = ", ".join(one.name for one in TASKS)
    raise StudyError(f"There is no benchmark {name!r}; choose one of {known}.")


def load_data(task: Task, store: Store) -> Data:
    """Return the data of a task: bundled, generated, or prepared in ``store``.

    Raises:
        DataError: they have not been prepared, or the files are damaged.
        StudyError: scikit-learn is not installed.
    """
    require_scikit_learn()
    return task.load() if task.load else load_prepared(store, task.name)
