"""Which further rounds a compat study asks, by what the ledger has: retries and replacements."""

from __future__ import annotations

from typing import TYPE_CHECKING

from contextcliff_dagster.experiments.common.study_run import StudyRun
from contextcliff_dagster.experiments.continuation.compat_runs.generations import generations_of
from contextcliff_dagster.experiments.continuation.documents.kept import DOCUMENTS
from contextcliff_dagster.experiments.continuation.documents.source_texts import section_of

if TYPE_CHECKING:
    from contextcliff_dagster.experiments.common.experiment import Experiment
    from contextcliff_dagster.store import Store
    from contextcliff_dagster.studies import Study


def with_further_rounds(
    study: Study, store: Store, experiment: Experiment, campaign: str | None
) -> Study:
    """Return ``study`` with all rounds that its answers so far call for; no call is made.

    The same study comes back where none are: it is measured as far as it can be.

    Raises:
        StudyError, StoreError: the answers so far cannot be read.
    """
    if not store.has_ledger or DOCUMENTS.frozen(study, store) is None:
        return study
    while True:
        section = section_of(study)
        with StudyRun.open(study, store, campaign) as run:
            found = generations_of(run, experiment, study.models[0])
        further = dict(section.further_rounds)
        for size in found.open_sizes:
            if (more := found.batches[size].needed - section.rounds) > further.get(size, 0):
                further[size] = more
        if further == section.further_rounds:
            return study
        changed = section.model_copy(update={"further_rounds": further})
        study = study.changed(**{experiment.name: changed.model_dump(mode="json")})
