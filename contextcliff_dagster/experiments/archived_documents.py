"""Documents of experiments in an archive: those that the study alone cannot make again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from contextcliff_dagster.archive.container import damaged
from contextcliff_dagster.archive.kept_documents import KeptList
from contextcliff_dagster.experiments.lookup import asked_experiments

if TYPE_CHECKING:
    from contextcliff_dagster.store import Store
    from contextcliff_dagster.studies import Study


def kept_lists(study: Study, store: Store) -> dict[str, KeptList]:
    """Return the documents of ``study`` in ``store`` that an archive has to hold, by experiment.

    Raises:
        StoreError: they cannot be read.
    """
    found = {
        one.name: one.documents.archived(study, store)
        for one in asked_experiments(study)
        if one.documents is not None
    }
    return {name: kept for name, kept in found.items() if kept is not None}


def restore(
    study: Study, store: Store, lists: Mapping[str, KeptList], file: Path
) -> Callable[[], None]:
    """Return what writes the documents of the archive ``file`` into ``store``; all are checked.

    Raises:
        StoreError: they are not those of ``study``, or the store has others.
    """
    asked = {one.name: one.documents for one in asked_experiments(study) if one.documents}
    if strange := sorted(lists.keys() - asked.keys()):
        raise damaged(file, f"it has documents of {strange[0][:80]!r}, which its study has not")
    writers = [asked[name].restore(study, store, kept, file) for name, kept in lists.items()]

    def write() -> None:
        for one in writers:
            one()

    return write
