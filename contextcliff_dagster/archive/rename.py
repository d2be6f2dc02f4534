"""Pruning a study's measurements or texts from a store, and renaming a study.

Pruning removes them from the ledger and from the files next to it. Profiles and reports contain
only numbers and stay. Files that could only be rebuilt from pruned data are removed too, so that no
file outlives its source.

Renaming changes a study's ledger rows, its folder, the results in it, and its files. Each step is
atomic and can be repeated. A note in the store marks a renaming in progress; until it is finished,
no run uses either name (`studies.study`), so nothing is measured under the wrong one.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from contextcliff_dagster.contracts import ContextCliffError, StoreError, StudyError, Table
from contextcliff_dagster.inference.ledger.ledger import Ledger
from contextcliff_dagster.inference.ledger.prune import (
    PrunePlan,
    ledger_rows,
    prune,
    rename_in_ledger,
)
from contextcliff_dagster.private_files import atomic_path
from contextcliff_dagster.store import Store, read_table, write_json, write_table
from contextcliff_dagster.studies import files as files
from contextcliff_dagster.studies.files import kept_in, require_study_name
from contextcliff_dagster.studies.study import begun_renaming, renaming_note, study_alone

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
    """Prune the ledger (`inference.ledger.prune.prune`) and the study's files to match.

    Without ``texts``, the pruned campaigns' predictions and scored records are removed. With
    ``texts``, they only lose their text columns; pruning a whole study also removes its sample and
    the corpus it was drawn from (documents, questions, answers). Engines' caches of documents are
    removed in either case. ``tables``: the tables that experiments fill.

    Raises:
        StudyError: there is no such study or campaign.
        StoreError: a run is measuring it, or the ledger or a file cannot be written.
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
    _remove(store.kv_reads_dir)  # it does not record which study a document belongs to
    if texts and campaign is None:
        _remove(store.manifest_dir(study))
        _remove(store.preparation_dir(study))
    return plan


def _without_texts(file: Path, table: Table) -> None:
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


_RESULTS = (
    "profiles/*/*/*.json", "results/*/*.json", "baseline.json", "calibration.json", "retired.json",
)  # fmt: skip
"""JSON files that contain their study's name. Reports do too, but `report` rewrites them."""


@dataclass(frozen=True, slots=True)
class RenamePlan:
    """Changes made by a renaming. ``resumed``: whether it completes an interrupted one."""

    old: str
    new: str
    files: tuple[str, ...]
    folder: bool
    campaigns: int
    calls: int
    resumed: bool


def plan_rename(store: Store, old: str, new: str) -> RenamePlan:
    """Return the changes of `rename_study` without making them.

    Raises:
        StudyError: there is no study ``old``, ``new`` is taken or not a valid name, or a file of
            the study cannot be changed.
        StoreError: another renaming is in progress, or the ledger cannot be read.
    """
    for name in (old, new):
        require_study_name(name)
    begun = begun_renaming(store)
    if begun is not None and begun != (old, new):
        raise StoreError(
            f"Study {begun.old!r} is being renamed to {begun.new!r}; run `{begun.command}` first."
        )
    if old == new:
        raise StudyError(f"Study {old!r} already has this name; choose another.")
    if begun is None:
        _refuse_taken(store, new)
    defined = files.study_files(store, old) if begun is None else _files_left(store, old)
    for path in defined:
        files.renamed_text(path, old, new)
        if not os.access(folder := path.resolve().parent, os.W_OK):
            raise StudyError(
                f"The file of study {old!r} is in {folder}, which is read-only here; run the same "
                "command where the folder is writable."
            )
    rows = _rows(store, old)
    plan = RenamePlan(
        old, new, tuple(map(str, defined)), store.study_dir(old).is_dir(),
        rows.get("campaigns", 0), rows.get("calls", 0), begun is not None,
    )  # fmt: skip
    if not (plan.files or plan.folder or rows or plan.resumed):
        raise StudyError(
            f"There is no study {old!r}, neither a file nor results; `contextcliff studies` and "
            "`contextcliff campaign list` show the existing ones."
        )
    return plan


def rename_study(store: Store, old: str, new: str, *, tables: Iterable[Table]) -> RenamePlan:
    """Rename study ``old``, or finish a renaming that crashed; return its plan.

    Nothing is measured again afterwards, because call keys do not contain the study's name. The
    sample keeps its hash and the name under which it was drawn. ``tables``: those of experiments.

    Raises:
        StudyError, StoreError: see `plan_rename`; also if a run of the study is in progress, or
            a file cannot be written.
    """
    for name in (old, new):
        require_study_name(name)
    with ExitStack() as locks:
        locks.enter_context(study_alone(store, old))
        plan = plan_rename(store, old, new)
        if plan.resumed:  # the folder may have its new name already
            locks.enter_context(study_alone(store, new))
        note = renaming_note(store)
        if not plan.resumed:
            write_json(note, {"old": old, "new": new})
        try:
            if store.has_ledger:
                with Ledger.open(store.ledger) as ledger:
                    rename_in_ledger(ledger, old, new)
        except ContextCliffError:
            if not plan.resumed and _rows(store, old):  # refused: the study goes on as it was
                note.unlink(missing_ok=True)
            raise
        try:
            if store.study_dir(old).exists():
                store.study_dir(old).rename(store.study_dir(new))
            _name_results(store.study_dir(new), old, new, tables)
            for path in _files_left(store, old):
                stored = path == kept_in(store.root) / f"{old}.yaml"
                files.rename_kept(store, old, new) if stored else files.rename_file(path, old, new)
            note.unlink(missing_ok=True)
        except OSError as error:
            raise StoreError(
                f"Cannot change {error.filename or old} ({error.strerror or error}); fix "
                f"this and run `contextcliff studies rename {old} {new}` again."
            ) from error
    return plan


def _rows(store: Store, study: str) -> dict[str, int]:
    if not store.has_ledger:
        return {}
    with Ledger.open(store.ledger) as ledger:
        return ledger_rows(ledger, study)


def _refuse_taken(store: Store, name: str) -> None:
    path: object = files.is_taken(store, name)
    if path is None and store.study_dir(name).exists():
        path = store.study_dir(name)
    if path is None and _rows(store, name):
        path = store.ledger
    if path is not None:
        raise StudyError(f"There is a study {name!r} already ({path}); choose another name.")


def _files_left(store: Store, old: str) -> list[Path]:
    """Return the study's files that still have the old name."""
    with suppress(StudyError):
        return files.study_files(store, old)
    return []


def _name_results(folder: Path, old: str, new: str, tables: Iterable[Table]) -> None:
    """Write the new name into the results in ``folder``, rather than rebuild them."""
    for table in {table.name for table in tables}:
        for file in sorted(folder.glob(f"{table}/campaign=*/model=*/bin=*/*.parquet")):
            _name_in_table(file, new)
    for pattern in _RESULTS:
        for file in sorted(folder.glob(pattern)):
            with suppress(ValueError):  # a damaged file stays as it is
                value = json.loads(file.read_bytes())
                if (renamed := _named(value, old, new)) != value:
                    write_json(file, renamed)


def _name_in_table(file: Path, new: str) -> None:
    try:
        with pq.ParquetFile(file) as opened:
            names = opened.schema_arrow.names
            if "study" not in names or set(opened.read(["study"])["study"].to_pylist()) == {new}:
                return
            data = opened.read()
    except (pa.ArrowException, OSError):  # a damaged file stays as it is
        return
    index = names.index("study")
    column = pa.array([new] * data.num_rows, data.schema.field(index).type)
    with atomic_path(file) as temporary:
        pq.write_table(
            data.set_column(index, data.schema.field(index), column),
            temporary,
            compression="zstd",
        )


def _named(value: Any, old: str, new: str) -> Any:
    if isinstance(value, list):
        return [_named(item, old, new) for item in value]
    if isinstance(value, dict):
        return {
            key: new if key == "study" and item == old else _named(item, old, new)
            for key, item in value.items()
        }
    return value
