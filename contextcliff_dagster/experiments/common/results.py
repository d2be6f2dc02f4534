"""Results of an experiment as one JSON file a campaign."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.contracts import StoreError
from contextcliff_dagster.contracts.results import ResultError, from_json, to_json
from contextcliff_dagster.store import write_json

if TYPE_CHECKING:
    from contextcliff_dagster.experiments.common.experiment import Experiment
    from contextcliff_dagster.experiments.common.study_run import StudyRun


def write_results(run: StudyRun, experiment: Experiment, results: Sequence[Any]) -> None:
    """Write ``results`` for `Experiment.write_results`, with the version of the method."""
    write_json(
        run.store.results_file(run.study.name, run.campaign, experiment.name),
        {
            "experiment": experiment.name,
            "version": experiment.version,
            "study": run.study.name,
            "campaign": run.campaign,
            "results": [to_json(result) for result in results],
        },
    )


def read_results(run: StudyRun, experiment: Experiment, kind: type[Any] | None = None) -> list[Any]:
    """Return what `write_results` wrote, as values of ``kind``, else of ``experiment.result``.

    Raises:
        StoreError: there is none, it is damaged, or another version of the method wrote it.
    """
    path = run.store.results_file(run.study.name, run.campaign, experiment.name)
    again = f"run `contextcliff report {run.study.name}`"
    try:
        kept = json.loads(path.read_bytes())
        if kept["version"] != experiment.version:
            raise StoreError(
                f"{path} was written by version {kept['version']} of {experiment.name} (here: "
                f"{experiment.version}); {again}."
            )
        kind = kind or experiment.result
        if kind is dict:
            return list(kept["results"])
        return [from_json(kind, result) for result in kept["results"]]
    except FileNotFoundError:
        raise StoreError(
            f"Study {run.study.name!r} has no result of {experiment.name} in campaign "
            f"{run.campaign} yet; {again}."
        ) from None
    except ResultError as error:
        raise StoreError(f"{path} cannot be read: {error}; {again}.") from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{path} is damaged ({error}); delete it and {again}.") from error
