"""A study's rows in the ledger, under another name."""

from __future__ import annotations

from contextcliff_dagster.contracts import StoreError, StudyError
from contextcliff_dagster.inference.ledger.backend import Database
from contextcliff_dagster.inference.ledger.ledger import Ledger
from contextcliff_dagster.inference.ledger.schema import columns, table_names

_TABLES = tuple(name for name in table_names() if "study" in columns(name))
"""Keys of calls do not hold the study: every answer stays found."""


def rename_in_ledger(ledger: Ledger, old: str, new: str) -> None:
    """Note the campaigns, calls, attempts and sums of ``old`` under ``new``, all or none.

    Nothing happens where the ledger has nothing of ``old``.

    Raises:
        StudyError: the ledger has measurements of ``new``.
        StoreError: a run is measuring ``old``, or the ledger cannot be written.
    """

    def operation(db: Database) -> None:
        if not _rows(db, old):
            return
        if _rows(db, new):
            raise StudyError(
                f"The ledger has measurements of a study {new!r} already; choose another name."
            )
        owners = db.execute(
            "SELECT DISTINCT owner FROM claims WHERE call_key IN"
            " (SELECT call_key FROM attempts WHERE study = ?)",
            (old,),
        ).fetchall()
        if any(ledger.backend.is_alive(row[0]) for row in owners):
            raise StoreError(
                f"Study {old!r} is being measured just now; end that run, then rename it."
            )
        for table in _TABLES:
            db.execute(f"UPDATE {table} SET study = ? WHERE study = ?", (new, old))

    ledger.write(operation)


def ledger_rows(ledger: Ledger, study: str) -> dict[str, int]:
    """Rows of ``study`` in each table that has some."""
    with ledger.snapshot() as db:
        return _rows(db, study)


def _rows(db: Database, study: str) -> dict[str, int]:
    counts = {
        table: int(
            db.execute(f"SELECT count(*) FROM {table} WHERE study = ?", (study,)).fetchone()[0]
        )
        for table in _TABLES
    }
    return {table: count for table, count in counts.items() if count}
