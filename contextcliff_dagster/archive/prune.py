"""Taking a study's measurements, or its texts, out of a store: the ledger and the files next to it.

Profiles and reports hold numbers, and stay. Everything else that could only be rebuilt from what
the ledger has lost goes with it, so that no file outlives what it was made from.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

from contextcliff_dagster.contracts import StoreError, Table
from contextcliff_dagster.inference.ledger.ledger import Ledger
from contextcliff_dagster.inference.ledger.prune import PrunePlan, prune
from contextcliff_dagster.store import Store, read_table, write_table

_TEXTS = ("raw_output", "parsed_answer", "error", "extra")


def prune_store(
    store: Store,
    ledger: Ledger,
    study: str,
    campaign: str | None = None,
    *,
    tables: Iterable[Table],
    texts: bool = False,
) -> PrunePlan:
    """`inference.ledger.prune.prune`, and the study's files to match.

    ``tables``: tables that the experiments fill. Without ``texts``: predictions and scored records
    of the pruned campaigns go. With ``texts``: they lose the columns of text, and for a whole study
    its sample and the corpus it was drawn from (documents, questions, answers) go. Entries
    that engines keep of documents they have read go in either case.

    Raises:
        StudyError: no such study or campaign.
        StoreError: a run is measuring it, or ledger or files cannot be written.
    """
    plan = prune(ledger, study, campaign, texts=texts)
    for table in tables:
        for name in plan.campaigns:
            folder = store.campaign_dir(table.name, study, name)
            if texts:
                _remove(store.campaign_copy(table.name, study, name))
                for file in sorted(folder.rglob("*.parquet")):
                    _without_texts(file, table)
            else:
                _remove(folder)
    _remove(store.kv_reads_dir)  # whose documents these are is not noted there
    if texts and campaign is None:
        _remove(store.manifest_dir(study))
        _remove(store.preparation_dir(study))
    return plan


def _without_texts(file: Path, table: Table) -> None:
    import pyarrow as pa

    data = read_table(file, table)
    for name in _TEXTS:
        if name in data.column_names:
            index, field = data.column_names.index(name), data.schema.field(name)
            data = data.set_column(index, field, pa.nulls(data.num_rows, field.type))
    write_table(file, data, table)


def _remove(path: Path) -> None:
    try:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    except OSError as error:
        raise StoreError(
            f"Cannot remove {error.filename or path} ({error.strerror}); the ledger is pruned "
            f"already, so delete {path} by hand."
        ) from error
