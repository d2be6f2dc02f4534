"""Trainings that are remembered: a configuration is trained once on a split, whoever asks again."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from contextcliff_dagster.contracts import StoreError
from contextcliff_dagster.experiments.visibility.tasks.task import Evaluation
from contextcliff_dagster.private_files import make_folder

if TYPE_CHECKING:
    from pathlib import Path

    from contextcliff_dagster.experiments.visibility.tasks.parameters import Config
    from contextcliff_dagster.experiments.visibility.tasks.splits import Split
    from contextcliff_dagster.experiments.visibility.tasks.task import Data, Task
    from contextcliff_dagster.store import Store

_BUSY_S = 60.0
_TABLE = """
CREATE TABLE IF NOT EXISTS trainings (
    made_of TEXT, split INTEGER, config TEXT, validation REAL, test REAL,
    PRIMARY KEY (made_of, split, config)
) WITHOUT ROWID
"""


def trainings_file(store: Store) -> Path:
    """Return where trainings are remembered; deleted, they are made again."""
    return store.root / "_visibility" / "trainings.db"


@dataclass(frozen=True)
class Trainings:
    """The trainings of one task, in the store.

    Attributes:
        task: what is trained.
        store: where data and trainings lie.
    """

    task: Task
    store: Store
    _known: dict[tuple[int, str], Evaluation] = field(default_factory=dict, repr=False)
    _splits: dict[int, Split] = field(default_factory=dict, repr=False)

    def evaluation(self, config: Config, split: int) -> Evaluation:
        """Return the scores of a configuration on the split of a seed, nan where training failed.

        Raises:
            DataError: the data have not been prepared, or are too few.
            StoreError: the file cannot be read or written.
        """
        key = split, json.dumps(dict(config), sort_keys=True)
        if key not in self._known:
            kept = self._kept(*key)
            if kept is None:
                kept = self._trained(config, split)
                self._keep(key, kept)
            self._known[key] = kept
        return self._known[key]

    @cached_property
    def data(self) -> Data:
        """The data of the task, loaded when something is to be trained."""
        from contextcliff_dagster.experiments.visibility.tasks.catalogue import load_data

        return load_data(self.task, self.store)

    @cached_property
    def _made_of(self) -> str:
        from contextcliff_dagster.experiments.visibility.landscape.table import fingerprint

        return fingerprint(self.task, self.data, 0, (), 0)

    def _trained(self, config: Config, split: int) -> Evaluation:
        if split not in self._splits:
            self._splits[split] = self.task.split(self.data, split)
        try:
            return self.task.evaluate(self.data, self._splits[split], config, split)
        except (ValueError, ArithmeticError):  # scikit-learn's for what cannot be trained
            return Evaluation(float("nan"), float("nan"))

    def _kept(self, split: int, config: str) -> Evaluation | None:
        with self._database() as db:
            row = db.execute(
                "SELECT validation, test FROM trainings WHERE made_of = ? AND split = ? AND "
                "config = ?",
                (self._made_of, split, config),
            ).fetchone()
        # SQLite keeps NaN as NULL.
        return row and Evaluation(*(float("nan") if one is None else one for one in row))

    def _keep(self, key: tuple[int, str], scores: Evaluation) -> None:
        with self._database() as db, db:
            db.execute(
                "INSERT OR IGNORE INTO trainings VALUES (?, ?, ?, ?, ?)",
                (self._made_of, *key, *scores),
            )

    @contextmanager
    def _database(self) -> Iterator[sqlite3.Connection]:
        path = trainings_file(self.store)
        try:
            yield self._connection
        except sqlite3.Error as error:
            raise StoreError(
                f"{path} cannot be used ({error}); delete it, and what it holds is trained again."
            ) from error

    @cached_property
    def _connection(self) -> sqlite3.Connection:
        path = trainings_file(self.store)
        make_folder(path.parent)
        db = sqlite3.connect(path, timeout=_BUSY_S, check_same_thread=False)
        db.execute("PRAGMA journal_mode = WAL")
        # Lost in a power failure at worst, and then trained again.
        db.execute("PRAGMA synchronous = OFF")
        db.execute(_TABLE)
        return db
