"""What the runs of a study rest on: the landscapes and the data that it began with.

Starts and regret rest on landscapes. They lie in the store for all studies, each under the hash of
what it was made of; the list of a study's own is ``visibility_documents/manifest.json``.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from contextcliff_dagster.contracts import StoreError, StudyError
from contextcliff_dagster.experiments.common.documents import (
    DocumentList,
    read_list,
    write_list,
)
from contextcliff_dagster.extensions.visibility.landscape.table import POINTS, SPLITS, Landscape
from contextcliff_dagster.step_progress import report_step

if TYPE_CHECKING:
    from pathlib import Path

    from contextcliff_dagster.extensions.visibility.section import VisibilitySection
    from contextcliff_dagster.store import Store
    from contextcliff_dagster.studies import Study


@dataclass(frozen=True, slots=True)
class Ground:
    """What the runs on a benchmark rest on. ``data_sha256``: of the data that are trained on."""

    landscape: Landscape
    data_sha256: str


def section_of(study: Study) -> VisibilitySection:
    """Return the study's key `visibility`."""
    section: VisibilitySection = study.sections["visibility"]
    return section


def grounds_of(study: Study, store: Store) -> dict[str, Ground]:
    """Return what the runs of a study rest on, by benchmark; made where it is missing.

    A study that has begun keeps what it began with: no data are read.

    Raises:
        StudyError: scikit-learn is not installed, or a landscape is so flat that no search can be
            told from another on it.
        DataError: the data have not been prepared, or are too few.
        StoreError: the store cannot be read or written.
    """
    if frozen_list(study, store) is None:
        begun = _begun(study, store)
        names = section_of(study).benchmarks
        rows = [row_of(begun.get(name) or ground_named(name, store)) for name in names]
        store.mark()
        write_list(_folder(study, store), _asked(study), rows)
    return _begun(study, store)


def frozen_list(study: Study, store: Store) -> DocumentList | None:
    """Return the list of the study's landscapes where it is whole; nothing is made."""
    kept = read_list(_folder(study, store), _asked(study))
    if kept is None or any(_listed(row, store) is None for row in kept.documents):
        return None
    return kept


def write_grounds(study: Study, store: Store, grounds: Mapping[str, Ground]) -> None:
    """Make ``grounds``, whose landscapes are in the store, those that the study began with.

    Raises:
        StoreError: the study has begun with others.
    """
    folder, rows = _folder(study, store), [row_of(one) for one in grounds.values()]
    known = read_list(folder, _asked(study))
    if known is not None and known.documents != rows:
        raise StoreError(
            f"Study {study.name!r} has begun with other landscapes in {folder}; use a store of its "
            "own (--store DIR)."
        )
    write_list(folder, _asked(study), rows)


def _begun(study: Study, store: Store) -> dict[str, Ground]:
    """What the list of the study has, whichever benchmarks it was made for."""
    kept = read_list(_folder(study, store))
    grounds = {}
    for row in kept.documents if kept else ():
        landscape = _listed(row, store)
        if landscape is not None:
            grounds[row["benchmark"]] = Ground(landscape, row["data_sha256"])
    return grounds


def ground_named(name: str, store: Store) -> Ground:
    """Return the landscape of a benchmark, tabulated unless the store has it, and its data.

    Raises:
        StudyError, DataError, StoreError: as `grounds_of`.
    """
    from contextcliff_dagster.extensions.visibility.landscape.kept import (
        read_landscape,
        write_landscape,
    )
    from contextcliff_dagster.extensions.visibility.landscape.table import (
        data_digest,
        fingerprint,
        tabulate,
    )
    from contextcliff_dagster.extensions.visibility.tasks.catalogue import load_data, task_named

    task = task_named(name)
    data = load_data(task, store)
    made_of = fingerprint(task, data, POINTS, range(SPLITS), 0)
    known = read_landscape(store, name, made_of)
    if known is None:
        step = f"landscape of {name}"
        known = tabulate(
            task,
            data,
            points=POINTS,
            splits=range(SPLITS),
            on_progress=lambda done, of: report_step(step, done, of),
        )
        write_landscape(store, known)
    if not (found := accept(known)).counts:
        raise StudyError(
            f"Benchmark {name!r} can tell no search from another: {' and '.join(found.refused)}; "
            "take another one."
        )
    return Ground(known, data_digest(data))


def _listed(row: Mapping[str, Any], store: Store) -> Landscape | None:
    """The landscape of a row of the list; None where the store has lost it."""
    from contextcliff_dagster.extensions.visibility.landscape.kept import read_landscape

    return read_landscape(store, row["benchmark"], row["made_of"])


def row_of(ground: Ground) -> dict[str, Any]:
    """Return a landscape as the list has it."""
    landscape = ground.landscape
    found = accept(landscape)
    return {
        "benchmark": landscape.task,
        "made_of": landscape.made_of,
        "data_sha256": ground.data_sha256,
        "sha256": hashlib.sha256(landscape.test.tobytes()).hexdigest(),
        "configurations": len(landscape.configs),
        "splits": len(landscape.splits),
        "best": landscape.best,
        "worst": landscape.worst,
        "spread": found.spread,
        "standard_error": found.standard_error,
    }


def _folder(study: Study, store: Store) -> Path:
    return store.study_dir(study.name) / "visibility_documents"


def _asked(study: Study) -> str:
    asked = [list(section_of(study).benchmarks), POINTS, SPLITS]
    return hashlib.sha256(json.dumps(asked).encode()).hexdigest()


LEAST_SPREAD = 0.05
LEAST_ERRORS = 3.0


@dataclass(frozen=True, slots=True)
class Acceptance:
    """Whether a landscape has anything to be found, and by what.

    Flat ones cannot tell one search from another.

    Attributes:
        spread: how much better the best configuration is than the worst, in the score's unit.
        standard_error: of the spread.
        splits: how many it is the mean of.
        failed: configurations that could not be trained on every split.
        refused: why it does not count, one sentence each; empty where it does.
    """

    spread: float
    standard_error: float
    splits: int
    failed: int
    refused: tuple[str, ...]

    @property
    def counts(self) -> bool:
        return not self.refused


def accept(landscape: Landscape) -> Acceptance:
    """Return whether a landscape's configuration means spread by >= .05 and >= 3 standard errors.

    The best and the worst of many means differ by chance alone, by about five standard errors of
    128. So both are chosen on every other split, and compared on the splits between; then the other
    way round. The spread is the mean of these paired differences over all splits.

    Raises:
        ValueError: fewer than four splits.
    """
    splits = len(landscape.splits)
    if splits < 4:
        raise ValueError("a landscape is judged on four splits or more")
    whole = np.isfinite(landscape.test).all(axis=1)
    failed = int((~whole).sum())
    if whole.sum() < 2:
        reason = "fewer than two configurations could be trained"
        return Acceptance(0.0, 0.0, splits, failed, (reason,))
    scores = landscape.test[whole] / landscape.unit
    if not landscape.higher_is_better:
        scores = -scores
    even = np.arange(splits) % 2 == 0
    differences = np.concatenate(
        [_compared(scores[:, chosen], scores[:, ~chosen]) for chosen in (even, ~even)]
    )
    spread = float(differences.mean())
    error = float(differences.std(ddof=1) / math.sqrt(splits))
    refused = []
    if spread < LEAST_SPREAD:
        refused.append(f"its scores spread by {spread:.3f}, less than {LEAST_SPREAD}")
    if spread < LEAST_ERRORS * error:
        refused.append(f"its spread is {spread / error:.1f} standard errors, fewer than 3")
    return Acceptance(spread, error, splits, failed, tuple(refused))


def _compared(chosen: NDArray[np.float64], scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Best less worst by the means of ``chosen``, on each split of ``scores``."""
    means = chosen.mean(axis=1)
    return np.asarray(scores[means.argmax()] - scores[means.argmin()])
