"""What the UI shows of any experiment's records and results; the length profile shows more."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg

from contextcliff_dagster.contracts.results import to_json
from contextcliff_dagster.defs.ui import results as length_profile
from contextcliff_dagster.defs.ui.rendering import table
from contextcliff_dagster.experiments.common.experiment import Analysis, Experiment
from contextcliff_dagster.experiments.common.study_run import StudyRun
from contextcliff_dagster.store import slug

if TYPE_CHECKING:
    import pyarrow as pa

    from contextcliff_dagster.reporting.report import ReportFiles

Metadata = dict[str, Any]
_SHOWN_FIELDS = 12
"""Of a result: the UI's tables scroll sideways beyond."""


def records_metadata(run: StudyRun, experiment: Experiment, records: pa.Table) -> Metadata:
    """Counts, mean scores, failures by tag, and which cells of which model are missing."""
    return length_profile.records_metadata(
        run.store.campaign_dir(experiment.records.name, run.study.name, run.campaign),
        run.campaign,
        records,
    )


def result_metadata(
    run: StudyRun, experiment: Experiment, analysis: Analysis
) -> dict[str, Metadata]:
    """Asset -> its metadata, for each asset that the result has, in their order."""
    study, store = run.study, run.store
    if experiment.name == "length_profile":
        return {
            "metrics": length_profile.metrics_metadata(
                study, store, run.campaign, analysis.results
            ),
            "cliffs": {
                **length_profile.cliffs_metadata(study, store, run.campaign, analysis.results),
                **length_profile.rounds_metadata(analysis.extra["rounds"]),
            },
        }
    path = store.results_file(study.name, run.campaign, experiment.name)
    shown = {
        "dagster/row_count": len(analysis.results),
        "campaign": run.campaign,
        "results": table([_scalars(result) for result in analysis.results]),
        "path": dg.MetadataValue.path(str(path)),
        **{
            f"{name}/{slug(str(_scalars(result).get('model', number)))}": value
            for number, result in enumerate(analysis.results)
            for name, value in _scalars(result).items()
            if isinstance(value, int | float) and not isinstance(value, bool)
        },
    }
    return dict.fromkeys(experiment.asset_names("result"), shown)


def report_metadata(run: StudyRun, files: ReportFiles) -> Metadata:
    """The verdicts in place; the picture and the whole text behind a click."""
    if files.png is not None:
        from contextcliff_dagster.studies.experiment_table import load_experiment

        cliffs = load_experiment("length_profile").read_results(run)
        return length_profile.report_metadata(run.campaign, files.md, files.png, cliffs)
    return {
        "report": dg.MetadataValue.md(files.md.read_text(encoding="utf-8")),
        "campaign": run.campaign,
        "path": dg.MetadataValue.path(str(Path(files.md).parent)),
    }


def _scalars(result: Any) -> dict[str, Any]:
    scalars = {
        name: value
        for name, value in to_json(result).items()
        if value is None or isinstance(value, str | int | float)
    }
    return dict(list(scalars.items())[:_SHOWN_FIELDS])
