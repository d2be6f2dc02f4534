"""Layout of the store on disk, atomic writes, and tables checked against their declaration.

Not here: the meaning of the files. Everything except the call ledger and the manifests can be
deleted, and is rebuilt from those without a call.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from contextcliff_dagster.contracts import DOCUMENTS, StoreError, Table, conform, validate
from contextcliff_dagster.private_files import atomic_path as atomic_path
from contextcliff_dagster.redaction import DatabaseUrl as DatabaseUrl

if TYPE_CHECKING:
    import pyarrow as pa

R = TypeVar("R")

PACKAGE = Path(__file__).resolve().parent
"""Folder of the installed package, or of the checkout it runs from."""

STORE_LAYOUT = 1
"""Version of the file layout; newer ones are refused. File contents have their own versions."""
_MARK = "store.json"
_TEXT_GROUP_BYTES = 1 << 20
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,79}")


def slug(name: str) -> str:
    """Return ``name`` as a path part and partition key: plain names unchanged, others made unique.

    A name with characters other than letters, digits, ``.``, ``_`` and ``-``, or of more than 80
    characters, gets eight hex digits of its SHA-256, so that no two ordinary names share a slug.
    """
    if _PLAIN.fullmatch(name):
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip(".-")[:60]
    return f"{readable}-{digest}" if readable else digest


def checkout_root(start: Path | None = None) -> Path | None:
    """Return the enclosing source checkout (its pyproject.toml names this project), or None."""
    here = (start or Path.cwd()).resolve()
    for folder in (here, *here.parents):
        with suppress(OSError, UnicodeDecodeError):
            text = (folder / "pyproject.toml").read_text(encoding="utf-8")
            if (folder / "contextcliff_dagster").is_dir() and "contextcliff_dagster" in text:
                return folder
    return None


def store_root() -> Path:
    """Return ``CONTEXTCLIFF_HOME``, else the checkout's ``data/store``, else the user's folder."""
    if home := os.environ.get("CONTEXTCLIFF_HOME"):
        return Path(home).expanduser().absolute()
    checkout = checkout_root()
    return checkout / "data" / "store" if checkout else _user_folder()


def _user_folder() -> Path:
    import platformdirs

    return Path(platformdirs.user_data_dir("contextcliff"))


@dataclass(frozen=True, slots=True)
class Store:
    """Paths under one store root; no folder is created before a file is written."""

    root: Path

    @classmethod
    def default(cls) -> Store:
        """Return the store selected by this process's environment.

        Raises:
            StoreError: a newer version of this program created the store, which is left unchanged.
        """
        store = cls(store_root())
        try:
            version = json.loads((store.root / _MARK).read_bytes())["layout"]
        except (OSError, ValueError, KeyError, TypeError):
            return store  # empty, or older than layout numbers
        if version > STORE_LAYOUT:
            raise StoreError(
                f"The store {store.root} was laid out by a newer version of this program (layout "
                f"{version}, known here: {STORE_LAYOUT}) and is left as it is; upgrade this "
                "program, or set CONTEXTCLIFF_HOME to another folder."
            )
        return store

    def mark(self) -> None:
        """Record the layout version in a new store; raises as `atomic_path`."""
        if not (self.root / _MARK).exists():
            write_json(self.root / _MARK, {"layout": STORE_LAYOUT})

    def ledger_note(self, study: str) -> Path:
        """Return the file with the id of the ledger that recorded the study's answers."""
        return self.study_dir(study) / "ledger.json"

    @property
    def ledger(self) -> Path | DatabaseUrl:
        """Return the location of the call ledger: the database in ``CONTEXTCLIFF_LEDGER`` (raises
        as `DatabaseUrl`), else the SQLite file ``state.db``.
        """
        url = os.environ.get("CONTEXTCLIFF_LEDGER")
        return DatabaseUrl(url) if url else self.root / "state.db"

    @property
    def has_ledger(self) -> bool:
        """Return whether a ledger may exist; always True for a database URL."""
        ledger = self.ledger
        return isinstance(ledger, DatabaseUrl) or ledger.is_file()

    @property
    def duckdb_path(self) -> Path:
        """Return the DuckDB file of views and result tables, for SQL users."""
        return self.database_dir / "contextcliff.duckdb"

    @property
    def database_dir(self) -> Path:
        """Return the folder for databases: the root, unless its path contains ``?`` or ``%``."""
        if not {"?", "%"} & set(str(self.root)):
            return self.root
        digest = hashlib.sha256(str(self.root).encode()).hexdigest()[:16]
        return _user_folder() / "databases" / digest

    @property
    def kv_reads_dir(self) -> Path:
        """Return the folder of cached KV reads of documents, for all studies; deletable anytime."""
        return self.root / "_kv_reads"

    def study_dir(self, study: str) -> Path:
        return self.root / slug(study)

    def preparation_dir(self, study: str) -> Path:
        """Return the folder of corpus, length map and audit; deletable once a manifest exists."""
        return self.study_dir(study) / "preparation"

    def baseline_file(self, study: str) -> Path:
        """Return the file that names the campaign pinned as the study's baseline."""
        return self.study_dir(study) / "baseline.json"

    def calibration_file(self, study: str) -> Path:
        """Return the file with simulated error rates for the study's design."""
        return self.study_dir(study) / "calibration.json"

    def manifest_dir(self, study: str) -> Path:
        return self.study_dir(study) / "manifest"

    def campaign_dir(self, table: str, study: str, campaign: str) -> Path:
        """Return the folder for one campaign's ``table``, laid out as model=/bin=/file."""
        return self.study_dir(study) / table / f"campaign={slug(campaign)}"

    def table_file(self, table: str, study: str, campaign: str, model: str, bin: str) -> Path:
        """Return the file of one model's bin (or other cell) in a predictions or records table."""
        folder = self.campaign_dir(table, study, campaign)
        return folder / f"model={slug(model)}" / f"bin={slug(bin)}" / f"{table}.parquet"

    def campaign_copy(self, table: str, study: str, campaign: str) -> Path:
        """Return the file with all of a campaign's records, hidden from the folder's data set."""
        return self.campaign_dir(table, study, campaign) / ".records_at_once"

    def profiles_dir(self, study: str, campaign: str) -> Path:
        """Return the folder of the campaign's profiles, one subfolder per model."""
        return self.study_dir(study) / "profiles" / slug(campaign)

    def profile_dir(self, study: str, campaign: str, model: str) -> Path:
        """Return the folder of ``metrics.json`` and ``cliffs.json``."""
        return self.profiles_dir(study, campaign) / slug(model)

    def results_file(self, study: str, campaign: str, experiment: str) -> Path:
        """Return the results file (all models) of an experiment other than the length profile."""
        return self.study_dir(study) / "results" / slug(campaign) / f"{slug(experiment)}.json"

    def report_dir(self, study: str, campaign: str) -> Path:
        """Return the folder of ``report.md``, ``report.json`` and ``report.png``."""
        return self.study_dir(study) / "report" / slug(campaign)


def write_atomic(path: Path, data: bytes, *, private: bool = True) -> None:
    """Write ``data`` to ``path`` atomically; ``private`` and errors as in `atomic_path`."""
    with atomic_path(path, private=private) as temporary:
        temporary.write_bytes(data)


def write_json(path: Path, value: Any) -> None:
    """Write ``value`` as indented JSON; raises as `atomic_path`, and ValueError for NaN."""
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
    write_atomic(path, (text + "\n").encode())


def write_result(path: Path, result: object) -> None:
    """Write a result (`contracts.results`), or a list of them, as `write_json` does.

    Raises:
        StoreError: the file cannot be written, or `read_result` would refuse it.
    """
    from contextcliff_dagster.contracts.results import ResultError, from_json, to_json

    try:
        for item in result if isinstance(result, list) else (result,):
            from_json(type(item), to_json(item))
    except ResultError as error:
        raise StoreError(
            f"{path} is not written, because {error}: no measurement gives such a value; "
            "check where the answers come from."
        ) from error
    write_json(path, to_json(result))


def read_result(path: Path, model: type[R]) -> R:
    """Return the result of type ``model`` in ``path``; files of older versions are read, too.

    Raises:
        StoreError: the file is damaged, or a newer version of the program wrote it.
    """
    from contextcliff_dagster.contracts.results import NewerResultError, from_json

    try:
        return from_json(model, json.loads(path.read_bytes()))
    except NewerResultError as error:
        raise StoreError(f"{path} cannot be read: {error}; update contextcliff-dagster.") from error
    except (OSError, ValueError) as error:
        raise StoreError(
            f"{path} is damaged ({error}); delete it and rebuild the report."
        ) from error


_FEW_ROWS = 10_000
"""Row count up to which one thread reads a table faster than several."""
MADE_FROM = b"contextcliff.made_from"


def write_table(
    path: Path,
    rows: Sequence[Mapping[str, Any]] | pa.Table,
    table: Table,
    *,
    made_from: str | None = None,
) -> int:
    """Write rows as Parquet conforming to ``table``; return the number of rows.

    ``made_from`` is a hash of the source, stored under `MADE_FROM` in the file's metadata.

    Raises:
        StoreError: the rows do not conform, or the file cannot be written.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    data = validate(rows, table, str(path)) if isinstance(rows, pa.Table) else conform(rows, table)
    options: dict[str, Any] = {}
    if table is DOCUMENTS and data.num_rows:
        # Whole texts: a dictionary, statistics and one large group would only hold copies of them.
        rows_each = max(1, data.num_rows * _TEXT_GROUP_BYTES // max(data.nbytes, 1))
        options = {"use_dictionary": False, "write_statistics": False, "row_group_size": rows_each}
    if made_from is not None:
        data = data.replace_schema_metadata({**data.schema.metadata, MADE_FROM: made_from})
    with atomic_path(path) as temporary:
        pq.write_table(data, temporary, compression="zstd", **options)
    return int(data.num_rows)


def read_table(path: Path, table: Table, columns: Collection[str] | None = None) -> pa.Table:
    """Return the Parquet table at ``path``, checked against ``table``; only ``columns`` if given.

    Raises:
        StoreError: the file is missing, damaged, or lacks a declared column.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        # ParquetFile, not read_table: the latter adds hive columns (model=...) from the path.
        with pq.ParquetFile(path) as file:
            wanted = [c for c in file.schema_arrow.names if columns is None or c in columns]
            if table is DOCUMENTS and file.num_row_groups:
                # At once, a column is copied each time its buffer is full.
                groups = range(file.num_row_groups)
                data = pa.concat_tables(file.read_row_group(n, wanted) for n in groups)
            else:
                data = file.read(wanted, use_threads=file.metadata.num_rows > _FEW_ROWS)
    except FileNotFoundError as error:
        raise StoreError(
            f"There is no {table.name} table at {path}; materialize it first."
        ) from error
    except (pa.ArrowException, OSError) as error:
        raise StoreError(
            f"{path} cannot be read as Parquet ({error}); delete it and rebuild."
        ) from error
    if columns is not None:
        table = replace(table, columns=tuple(c for c in table.columns if c.name in columns))
    return validate(data, table, str(path))


FileStamp = tuple[int, int, int]
"""Time of the last change, size and inode of a file."""


def file_stamp(path: Path) -> FileStamp | None:
    """Return the stamp of a file; None if it is missing."""
    with suppress(OSError):
        status = path.stat()
        return status.st_mtime_ns, status.st_size, status.st_ino
    return None
