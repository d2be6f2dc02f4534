"""Tables of a campaign, read from the store."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.contracts import (
    EVAL_RECORDS,
    UNSCORED_TAGS,
    StoreError,
    Table,
    conform,
    validate,
)
from contextcliff_dagster.store import MADE_FROM, Store, atomic_path, read_table
from contextcliff_dagster.studies import Study

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

FEWEST_FILES = 20
"""Fewer are read as quickly one by one."""
_INDEX = b"contextcliff.partitions"
_Stamp = tuple[int, int, int]


def table_files(
    store: Store, table: Table, study: str, campaign: str, model: str = "*"
) -> list[Path]:
    """Return the files of one table and campaign, of every cell; ``model``: a slug."""
    folder = store.campaign_dir(table.name, study, campaign)
    return sorted(folder.glob(f"model={model}/bin=*/*.parquet"))


def read_record_table(table: Table, study: Study, store: Store, campaign: str) -> pa.Table:
    """Return all records of a campaign; raises like `Experiment.read_record_table`."""
    import pyarrow as pa

    files = table_files(store, table, study.name, campaign)
    if not files:
        raise StoreError(
            f"Study {study.name!r} has no {table.name.replace('_', ' ')} in campaign {campaign} "
            f"yet; run `contextcliff report {study.name}`."
        )
    kept = RecordsAtOnce(store, table, study.name, campaign)
    return pa.concat_tables(kept.read(file) for file in files)


class RecordsAtOnce:
    """The records of one campaign: from a copy of all, or from their files where it lacks them.

    Opening a Parquet file takes milliseconds, and a campaign of 50 models and 20 bins has 1,000.
    The copy knows each file by its stamp (time, size, inode); a file written since is read itself.
    It can be deleted at any time. ``read_alone``: how many files were opened.
    """

    def __init__(self, store: Store, table: Table, study: str, campaign: str) -> None:
        self._table, self._path = table, store.campaign_copy(table.name, study, campaign)
        self._index: Mapping[str, tuple[_Stamp, int, int, str | None]] = {}
        self._copy: pa.Table | None = None
        self.read_alone = 0
        self._load()

    def read(self, path: Path) -> pa.Table:
        """Return the records in ``path``, one of the campaign's files.

        Raises:
            StoreError: it is missing or damaged.
        """
        _, at, rows, _ = self._index.get(self._name(path), (None, 0, 0, None))
        if self._copy is not None and self._has(path):
            return self._copy.slice(at, rows)
        self.read_alone += 1
        return read_table(path, self._table)

    def made_from(self, path: Path) -> str | None:
        """Return what `store.write_table` noted that ``path`` was made from; None where unknown."""
        return self._index[self._name(path)][3] if self._has(path) else _noted(path)

    def keep(self, files: Sequence[Path]) -> None:
        """Write the copy anew where it is not one of just these ``files``.

        Raises:
            StoreError: a file is damaged, or the copy cannot be written.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        names = list(map(self._name, files))
        if len(files) < FEWEST_FILES:
            self._path.unlink(missing_ok=True)
            return
        if names == list(self._index) and all(map(self._has, files)):
            return
        index, tables, at = {}, [], 0
        for name, path in zip(names, files, strict=True):
            # The stamp first: what is written after it is not taken for what was read.
            stamp, made_from, records = _stamp(path), self.made_from(path), self.read(path)
            index[name] = (stamp, at, records.num_rows, made_from)
            tables.append(records)
            at += records.num_rows
        whole = pa.concat_tables(tables)
        noted = {**(whole.schema.metadata or {}), _INDEX: json.dumps(index)}
        with atomic_path(self._path) as temporary:
            pq.write_table(whole.replace_schema_metadata(noted), temporary, compression="zstd")

    def _load(self) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            with pq.ParquetFile(self._path) as file:
                noted = json.loads((file.schema_arrow.metadata or {})[_INDEX])
                index = {
                    name: (tuple(stamp), at, rows, made_from)
                    for name, (stamp, at, rows, made_from) in noted.items()
                }
                copy = validate(file.read(), self._table, str(self._path))
        except (OSError, pa.ArrowException, LookupError, ValueError, TypeError, StoreError):
            return  # none yet, or of another version, or damaged
        if sum(rows for _, _, rows, _ in index.values()) == copy.num_rows:
            self._index, self._copy = index, copy

    def _has(self, path: Path) -> bool:
        known = self._index.get(self._name(path))
        return known is not None and known[0] == _stamp(path)

    def _name(self, path: Path) -> str:
        return str(path.relative_to(self._path.parent))


def read_records(study: Study, store: Store, campaign: str) -> pd.DataFrame:
    """Return the evaluation records of a campaign; raises like `read_record_table`.

    Answers that an earlier version of the scorers scored are scored again, and nothing is written:
    two campaigns are compared by one rule.
    """
    from contextcliff_dagster.scoring import SCORER_VERSION

    table = read_record_table(EVAL_RECORDS, study, store, campaign)
    if set(table["scorer_version"].unique().to_pylist()) != {SCORER_VERSION}:
        table = _scored_again(table, study, store)
    records: pd.DataFrame = table.to_pandas()
    return records


def _scored_again(table: pa.Table, study: Study, store: Store) -> pa.Table:
    """The records, older ones scored by the present scorers; those whose output was pruned, or
    whose example is no longer in the sample, as they are."""
    from contextcliff_dagster.experiments.common.measurement import EVERYTHING
    from contextcliff_dagster.experiments.common.preparation import find_frozen
    from contextcliff_dagster.experiments.common.records import scoring_rules
    from contextcliff_dagster.scoring import SCORER_VERSION
    from contextcliff_dagster.scoring.evaluate import score_rows

    if (manifest := find_frozen(study, store)) is None:
        return table
    planned = [s.example for b in study.bin_keys for s in manifest.planned(b, EVERYTHING)]
    by_id = {example.example_id: example for example in planned}
    rows = table.to_pylist()
    older = [
        index
        for index, row in enumerate(rows)
        if row["scorer_version"] != SCORER_VERSION
        and row["failure"] not in UNSCORED_TAGS
        and row["raw_output"] is not None
        and row["example_id"] in by_id
    ]
    answers = [rows[index] for index in older]
    rules = scoring_rules(study, study.recipe())
    for index, row in zip(
        older, score_rows(answers, by_id, manifest.document_text, rules), strict=True
    ):
        rows[index] = row
    return conform(rows, EVAL_RECORDS)


def record_rows(records: pd.DataFrame) -> list[dict[str, Any]]:
    """Return rows with None where nothing is known: pandas has NaN there in columns of numbers."""
    known = records.astype(object).where(records.notna(), None)
    return [dict(zip(known.columns, row, strict=True)) for row in known.itertuples(index=False)]


def _stamp(path: Path) -> _Stamp | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def _noted(path: Path) -> str | None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        noted = (pq.read_metadata(path).metadata or {}).get(MADE_FROM)
    except (pa.ArrowException, OSError):
        return None  # made again
    return None if noted is None else str(noted, "utf-8")
