"""Which executor runs the steps, chosen by CONTEXTCLIFF_EXECUTOR when the definitions load."""

from __future__ import annotations

import os

import dagster as dg

from contextcliff_dagster.contracts import StudyError

_EXECUTORS = {"in_process": dg.in_process_executor, "multiprocess": dg.multiprocess_executor}
DEFAULT_EXECUTOR = "in_process"
"""A study is one chain with nothing to run side by side; a process per step costs seconds each."""


def chosen_executor() -> dg.ExecutorDefinition:
    """The executor named by CONTEXTCLIFF_EXECUTOR, ``in_process`` when it is not set.

    Raises:
        StudyError: there is none of that name.
    """
    name = os.environ.get("CONTEXTCLIFF_EXECUTOR") or DEFAULT_EXECUTOR
    try:
        return _EXECUTORS[name]
    except KeyError:
        raise StudyError(
            f"CONTEXTCLIFF_EXECUTOR is {name!r}; this installation has "
            f"{' and '.join(_EXECUTORS)}, so set it to one of them or leave it out."
        ) from None
