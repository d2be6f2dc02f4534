"""The report of a study: one page over all its experiments."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from contextcliff_dagster.experiments.lookup import asked_experiments, partitioned

if TYPE_CHECKING:
    from contextcliff_dagster.experiments.common.experiment import Experiment
    from contextcliff_dagster.experiments.common.study_run import StudyRun
    from contextcliff_dagster.reporting.report_files import ReportFiles
    from contextcliff_dagster.reporting.sections import Section

_warn = logging.getLogger(__name__).warning


def study_sections(run: StudyRun, owner: Experiment | None = None) -> list[Section]:
    """Return the sections of the study's experiments, without those that ``owner`` has on its page.

    Raises:
        StoreError: an experiment has no result yet, or a damaged one.
    """
    return [
        section
        for experiment in partitioned(run.study)
        if experiment is not owner
        for section in experiment.sections(run, experiment.read_results(run))
    ]


def write_study_report(run: StudyRun, warn: Callable[[str], None] = _warn) -> ReportFiles:
    """Write the campaign's report; ``latest`` then names this campaign.

    Then log it where the study says (`track`); what fails there goes to ``warn`` and fails nothing.

    Raises:
        StoreError: an experiment has no result yet, or the report cannot be written.
    """
    from contextcliff_dagster.reporting.report_files import point_latest, write_sections

    folder = run.store.report_dir(run.study.name, run.campaign)
    owner = next((one for one in asked_experiments(run.study) if one.has_page(run.study)), None)
    sections = study_sections(run, owner)
    if owner is not None:
        files = owner.write_report(run, sections)
    else:
        files = write_sections(sections, folder, title=run.study.description or run.study.name)
    point_latest(folder)
    if run.study.track is not None and run.study.has_corpus:
        from contextcliff_dagster.experiments.length_profile.profile_files import read_cliffs
        from contextcliff_dagster.experiments.tracking.tracker import track_report

        track_report(run, read_cliffs(run.study, run.store, run.campaign), files, warn)
    return files
