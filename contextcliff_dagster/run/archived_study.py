"""A study that `contextcliff export` wrote, judged in a store of its own."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from contextcliff_dagster.contracts.errors import DataError
from contextcliff_dagster.store import Store

if TYPE_CHECKING:
    from contextcliff_dagster.archive.study import ArchiveSummary
    from contextcliff_dagster.run.study import Profiled


class ArchivedStudy(NamedTuple):
    """What an archive holds, its results, and the store that it was unpacked into."""

    summary: ArchiveSummary
    done: Profiled
    store: Store


def is_archive(file: Path) -> bool:
    """Whether ``file`` is one that `contextcliff export` has written."""
    from contextcliff_dagster.archive.container import HEAD

    try:
        if not zipfile.is_zipfile(file):
            return False
        with zipfile.ZipFile(file) as archive:
            return HEAD in archive.namelist()
    except (OSError, zipfile.BadZipFile):
        return False


def rebuild_archive(file: Path, folder: Path, *, with_answers: bool = False) -> ArchivedStudy:
    """Unpack ``file`` into a store below ``folder`` and make its newest campaign's report.

    ``with_answers``: questions and answers go into report.html.

    Raises:
        ContextCliffError: it is no sound archive (as `import_study`), or the ledger is a database
            that it would be written to.
    """
    from contextcliff_dagster.archive.study import import_study
    from contextcliff_dagster.experiments.archived_documents import restore
    from contextcliff_dagster.run.study import rebuild_report
    from contextcliff_dagster.studies import kept_in
    from contextcliff_dagster.studies.study_paths import Leave

    if os.environ.get("CONTEXTCLIFF_LEDGER"):
        raise DataError(
            f"{file} is an archive, and CONTEXTCLIFF_LEDGER names a database that it would be "
            "written to; bring it into a store with `contextcliff import`."
        )
    store = Store(folder)
    study, summary = import_study(store, file, restore=restore)
    study = study.with_leave(Leave(kept_in(store.root)))
    return ArchivedStudy(
        summary, rebuild_report(study, store=store, with_answers=with_answers), store
    )
