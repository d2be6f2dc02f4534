"""Cache of trainings: the same configuration on the same data is trained only once."""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from contextcliff_dagster.contracts import DataError, StoreError
from contextcliff_dagster.extensions.visibility.tasks.task import Evaluation
from contextcliff_dagster.private_files import make_folder

if TYPE_CHECKING:
    from pathlib import Path

    from contextcliff_dagster.extensions.visibility.tasks.task import Config, Data, Split, Task
    from contextcliff_dagster.store import Store


_BUSY_S = 60.0

_ADVICE = {
    sqlite3.SQLITE_FULL: "make room on the disk, and run the same command again",
    sqlite3.SQLITE_BUSY: "another process holds it: end that, and run the same command again",
    sqlite3.SQLITE_READONLY: "let it be written, and run the same command again",
    sqlite3.SQLITE_CANTOPEN: "let its folder be written, and run the same command again",
}

_TABLE = """
CREATE TABLE IF NOT EXISTS trainings (
    data TEXT, split INTEGER, config TEXT, validation REAL, test REAL,
    PRIMARY KEY (data, split, config)
) WITHOUT ROWID
"""


def trainings_file(store: Store) -> Path:
    """Return the path of the training cache, which is rebuilt if deleted."""
    return store.root / "_visibility" / "trainings.db"


@dataclass(frozen=True)
class Trainings:
    """The trainings of one task on one version of its data, cached in the store.

    Attributes:
        task: the trained task.
        store: the store with data and trainings.
        data_sha256: hash of the data with which the study's runs began.
        writes: whether new trainings are cached; if not, the store stays as it is.
    """

    task: Task
    store: Store
    data_sha256: str
    writes: bool = True
    _known: dict[tuple[int, str], Evaluation] = field(default_factory=dict, repr=False)
    _splits: dict[int, Split] = field(default_factory=dict, repr=False)
    _lock: threading.RLock = field(default_factory=threading.RLock, repr=False, compare=False)

    def evaluation(self, config: Config, split: int) -> Evaluation:
        """Return a configuration's scores on the split with this seed; nan if training failed.

        Raise DataError if training is necessary, but the data are missing, too few, or not those
        with which the study began; StoreError if the file cannot be read or written.
        """
        key = split, json.dumps(dict(config), sort_keys=True)
        with self._lock:  # another thread may be training the same one
            if key not in self._known:
                stored = self._kept(*key)
                if stored is None:
                    stored = self._trained(config, split)
                    if self.writes:
                        self.keep([(*key, *stored)])
                self._known[key] = stored
            return self._known[key]

    def of_splits(self, splits: Sequence[int]) -> list[tuple[int, str, float | None, float | None]]:
        """Return the cached trainings on the splits: split, configuration as JSON, both scores."""
        marks = ", ".join("?" * len(splits))
        with self._database() as db:
            return db.execute(
                "SELECT split, config, validation, test FROM trainings WHERE data = ? AND split IN "
                f"({marks}) ORDER BY split, config",
                (self._made_of, *splits),
            ).fetchall()

    def keep(self, trained: Iterable[tuple[int, str, float | None, float | None]]) -> None:
        """Cache trainings as `of_splits` returns them; existing ones stay. Raise StoreError."""
        with self._database() as db, db:
            db.executemany(
                "INSERT OR IGNORE INTO trainings VALUES (?, ?, ?, ?, ?)",
                [(self._made_of, *training) for training in trained],
            )

    @cached_property
    def _data(self) -> Data:
        """Return the data, loaded on the first training."""
        from contextcliff_dagster.extensions.visibility.landscape import data_digest
        from contextcliff_dagster.extensions.visibility.tasks.catalogue import load_data

        data = load_data(self.task, self.store)
        if data_digest(data) != self.data_sha256:
            raise DataError(
                f"The data of benchmark {self.task.name!r} changed since this study began, so new "
                "scores would not be comparable; prepare the same file again, or "
                "measure under another study name."
            )
        return data

    @cached_property
    def _made_of(self) -> str:
        parts = [self.task.name, repr(self.task.space.parameters), self.task.score.name]
        return hashlib.sha256(json.dumps([*parts, self.data_sha256]).encode()).hexdigest()

    def _trained(self, config: Config, split: int) -> Evaluation:
        if split not in self._splits:
            self._splits[split] = self.task.split(self._data, split)
        try:
            return self.task.evaluate(self._data, self._splits[split], config, split)
        except (ValueError, ArithmeticError):  # scikit-learn's for what cannot be trained
            return Evaluation(float("nan"), float("nan"))

    def _kept(self, split: int, config: str) -> Evaluation | None:
        if not self.writes and not trainings_file(self.store).exists():
            return None
        with self._database() as db:
            row = db.execute(
                "SELECT validation, test FROM trainings WHERE data = ? AND split = ? AND "
                "config = ?",
                (self._made_of, split, config),
            ).fetchone()
        # SQLite keeps NaN as NULL.
        return row and Evaluation(*(float("nan") if score is None else score for score in row))

    @contextmanager
    def _database(self) -> Iterator[sqlite3.Connection]:
        path = trainings_file(self.store)
        try:
            yield self._connection
        except sqlite3.Error as error:
            advice = _ADVICE.get(
                getattr(error, "sqlite_errorcode", 0) & 0xFF,
                "delete it, and what it holds is trained again",
            )
            raise StoreError(f"{path} cannot be used ({error}); {advice}.") from error

    @cached_property
    def _connection(self) -> sqlite3.Connection:
        path = trainings_file(self.store)
        if path.exists() and not os.access(path.parent, os.W_OK):
            uri = f"{path.absolute().as_uri()}?mode=ro"
            return sqlite3.connect(uri, uri=True, check_same_thread=False)
        make_folder(path.parent)
        db = sqlite3.connect(path, timeout=_BUSY_S, check_same_thread=False)
        # No write-ahead log: processes that begin one at once are refused, and it cannot be read
        # where nothing can be written.
        # Lost in a power failure at worst, and then trained again.
        db.execute("PRAGMA synchronous = OFF")
        db.execute(_TABLE)
        return db
