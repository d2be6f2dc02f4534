"""Studies that are no longer shown: a note next to their results, which stay where they are."""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import UTC, datetime

from contextcliff_dagster.contracts import StudyError
from contextcliff_dagster.store import Store, write_json
from contextcliff_dagster.studies.files import require_study_name

_NOTE = "retired.json"


def retire(store: Store, study: str) -> None:
    """Note that ``study`` is retired; nothing else of it is touched.

    Raises:
        StudyError: the store has nothing of it, or it is no name.
        StoreError: the note cannot be written.
    """
    require_study_name(study)
    folder = store.study_dir(study)
    if not folder.is_dir():
        raise StudyError(
            f"The store has nothing of a study {study!r}, so there is nothing to retire; "
            "`contextcliff campaign list` names those that were measured."
        )
    when = datetime.now(UTC).isoformat(timespec="seconds")
    write_json(folder / _NOTE, {"study": study, "retired_at": when})


def bring_back(store: Store, study: str) -> None:
    """Take the note away.

    Raises:
        StudyError: the study is not retired.
    """
    require_study_name(study)
    if not is_retired(store, study):
        raise StudyError(
            f"Study {study!r} is not retired; {', '.join(retired_studies(store)) or 'none'} is."
        )
    (store.study_dir(study) / _NOTE).unlink(missing_ok=True)


def is_retired(store: Store, study: str) -> bool:
    """Whether ``study`` is retired in ``store``."""
    return (store.study_dir(study) / _NOTE).is_file()


def retired_studies(store: Store) -> list[str]:
    """Return the names of the retired studies, sorted."""
    names = []
    for note in store.root.glob(f"*/{_NOTE}"):
        with suppress(OSError, ValueError, KeyError, TypeError):
            names.append(str(json.loads(note.read_bytes())["study"]))
    return sorted(names)
