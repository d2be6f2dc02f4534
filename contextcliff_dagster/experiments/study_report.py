"""The report of a study: one page over all its experiments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from contextcliff_dagster.experiments.lookup import asked_experiments, partitioned

if TYPE_CHECKING:
    from contextcliff_dagster.experiments.common.study_run import StudyRun
    from contextcliff_dagster.reporting.report_files import ReportFiles
    from contextcliff_dagster.reporting.sections import Section


def study_sections(run: StudyRun) -> list[Section]:
    """Return the sections of the study's experiments, without those of the length profile's page.

    Raises:
        StoreError: an experiment has no result yet, or a damaged one.
    """
    return [
        section
        for experiment in partitioned(run.study)
        for section in experiment.sections(run, experiment.read_results(run))
    ]


def write_study_report(run: StudyRun) -> ReportFiles:
    """Write the campaign's report; ``latest`` then names this campaign.

    Raises:
        StoreError: an experiment has no result yet, or the report cannot be written.
    """
    from contextcliff_dagster.reporting.report_files import point_latest, write_sections

    sections = study_sections(run)
    folder = run.store.report_dir(run.study.name, run.campaign)
    for experiment in asked_experiments(run.study):
        if (files := experiment.write_report(run, sections)) is not None:
            break
    else:
        files = write_sections(sections, folder, title=run.study.description or run.study.name)
    point_latest(folder)
    return files
