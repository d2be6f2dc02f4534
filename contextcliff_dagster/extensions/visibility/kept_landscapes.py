"""Storage of the landscapes and data that a study's runs depend on.

Starts and regret depend on landscapes. Landscapes are tabulated before the first call of a grid,
stored once for all studies under the hash of their inputs, and copied along with a study to another
store. Each training is kept as soon as it is made (`runs.trainings`), so that a tabulation that was
stopped goes on where it was. A study lists its landscapes in
``visibility_documents/manifest.json``. A single run tabulates none, and uses one that is there.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from contextcliff_dagster.archive.container import damaged, malformed
from contextcliff_dagster.archive.results import KEPT_MEMBERS, KeptList
from contextcliff_dagster.contracts import StoreError, StudyError
from contextcliff_dagster.experiments.common.documents import (
    DocumentList,
    KeptDocuments,
    MadeDocuments,
    json_sha256,
    read_list,
    write_list,
)
from contextcliff_dagster.extensions.visibility.landscape import (
    COARSE,
    POINTS,
    SPLITS,
    Landscape,
    data_digest,
    fingerprint,
    sobol_configs,
    tabulate,
)
from contextcliff_dagster.extensions.visibility.runs.trainings import Trainings, trainings_file
from contextcliff_dagster.extensions.visibility.section import section_of
from contextcliff_dagster.extensions.visibility.tasks.catalogue import load_data, task_named
from contextcliff_dagster.step_progress import report_step
from contextcliff_dagster.store import Store, slug, write_json

if TYPE_CHECKING:
    from contextcliff_dagster.extensions.visibility.section import VisibilitySection
    from contextcliff_dagster.studies import Study


@dataclass(frozen=True, slots=True)
class Ground:
    """What the runs on a benchmark rest on.

    Attributes:
        landscape: the landscape; None for a single run if there is none.
        data_sha256: the hash of the data.
        made_of: the fingerprint of the landscape, whether it is there or not.
    """

    landscape: Landscape | None
    data_sha256: str
    made_of: str


def grounds_of(study: Study, store: Store) -> dict[str, Ground]:
    """Return a study's landscapes and data hashes by benchmark; tabulate missing landscapes.

    A study that has begun keeps its landscapes; no data are read for it.

    Raises:
        StudyError: scikit-learn is not installed, or a landscape is too flat to distinguish
            searches.
        DataError: the data have not been prepared, or there are too few rows.
        StoreError: the store cannot be read or written.
    """
    if frozen_list(study, store) is None:
        begun, section = _begun(study, store), section_of(study)
        rows = [
            row_of(name, begun.get(name) or ground_named(name, store, section))
            for name in section.benchmarks
        ]
        store.mark()
        write_list(_folder(study, store), _asked(study), rows)
    return _begun(study, store)


def frozen_list(study: Study, store: Store) -> DocumentList | None:
    """Return the list of the study's landscapes, or None if it is incomplete; tabulates nothing."""
    listing = read_list(_folder(study, store), _asked(study))
    if listing is None or section_of(study).is_single:
        return listing
    whole = all("best" in row and _listed(row, store) is not None for row in listing.documents)
    return listing if whole else None


def write_grounds(study: Study, store: Store, grounds: Mapping[str, Ground]) -> None:
    """Record that the study began with ``grounds``, whose landscapes are already in the store.

    Raise StoreError if the study has begun with other landscapes.
    """
    folder, rows = _folder(study, store), [row_of(*named) for named in grounds.items()]
    listing = read_list(folder, _asked(study))
    if listing is not None and listing.documents != rows:
        raise StoreError(
            f"Study {study.name!r} has begun with other landscapes in {folder}; use a store of its "
            "own (--store DIR)."
        )
    write_list(folder, _asked(study), rows)


def _begun(study: Study, store: Store) -> dict[str, Ground]:
    """Return the grounds in the study's list, even if it was written for other benchmarks."""
    listing = read_list(_folder(study, store))
    grounds = {}
    for row in listing.documents if listing else ():
        landscape = _listed(row, store)
        if "best" not in row and landscape is not None and not accept(landscape).counts:
            landscape = None
        if landscape is not None or section_of(study).is_single:
            grounds[row["benchmark"]] = Ground(landscape, row["data_sha256"], row["made_of"])
    return grounds


def ground_named(name: str, store: Store, section: VisibilitySection) -> Ground:
    """Return a benchmark's ground; tabulate its landscape unless it is stored or not needed.

    Raise as `grounds_of`.
    """
    task, (points, splits) = task_named(name), size_of(section)
    data = load_data(task, store)
    made_of, digest = fingerprint(task, data, points, range(splits), 0), data_digest(data)
    if section.is_single:
        return Ground(None, digest, made_of)
    if (landscape := read_landscape(store, name, made_of)) is None:
        landscape = tabulate(
            task,
            data,
            points=points,
            splits=range(splits),
            evaluate=Trainings(task, store, digest).evaluation,
            on_progress=lambda done, of: report_step(f"landscape of {name}", done, of),
        )
        write_landscape(store, landscape)
    if not (acceptance := accept(landscape)).counts:
        raise StudyError(
            f"Benchmark {name!r} cannot distinguish searches: {' and '.join(acceptance.refused)}; "
            "choose another."
        )
    return Ground(landscape, digest, made_of)


def size_of(section: VisibilitySection) -> tuple[int, int]:
    """Return the number of configurations and of splits of a section's landscapes."""
    return COARSE if section.landscape == "coarse" else (POINTS, SPLITS)


@dataclass(frozen=True, slots=True)
class Work:
    """What is left of tabulating: ``rows`` of ``of`` are trained in about ``cpu_seconds``."""

    benchmark: str
    rows: int
    of: int
    cpu_seconds: float

    @property
    def sentence(self) -> str:
        """Return a sentence that says what the first call waits for."""
        from contextcliff_dagster.cli.display.output import duration
        from contextcliff_dagster.reporting.wording import count

        coarser = "" if self.of == math.prod(COARSE) else f" (coarse: {math.prod(COARSE)})"
        return (
            f"Landscape of {self.benchmark}: {count(self.rows, 'training')} left of {self.of:,}"
            f"{coarser}, about {duration(self.cpu_seconds)} of CPU time before the first call. "
            "Each training is kept."
        )


_TIMED = 4


def landscapes_left(study: Study, store: Store) -> list[Work]:
    """Return the landscapes that a study's first call has to wait for; raise as `grounds_of`."""
    section = section_of(study)
    if section.is_single or frozen_list(study, store) is not None:
        return []
    return [work for name in section.benchmarks if (work := work_left(name, store, section)).rows]


def work_left(name: str, store: Store, section: VisibilitySection) -> Work:
    """Return the work of tabulating a benchmark's landscape; raise as `grounds_of`.

    The CPU time is that of four trainings, times the rows.
    """
    task, (points, splits) = task_named(name), size_of(section)
    data, total = load_data(task, store), points * splits
    if read_landscape(store, name, fingerprint(task, data, points, range(splits), 0)):
        return Work(name, 0, total, 0.0)
    rows, configs = total, sobol_configs(task.space, points, 0)
    if trainings_file(store).exists():
        kept = Trainings(task, store, data_digest(data)).of_splits(range(splits))
        wanted = {json.dumps(config, sort_keys=True) for config in configs}
        rows -= sum(config in wanted for _, config, *_ in kept)
    objective, began = task.objective(data, 0), time.process_time()
    for config in configs[:_TIMED]:
        with suppress(ValueError, ArithmeticError):  # scikit-learn's for what cannot be trained
            objective(config)
    return Work(name, rows, total, rows * (time.process_time() - began) / _TIMED)


def _listed(row: Mapping[str, Any], store: Store) -> Landscape | None:
    """Return the landscape that a list row refers to; None if it is missing from the store."""
    return read_landscape(store, row["benchmark"], row["made_of"])


def row_of(name: str, ground: Ground) -> dict[str, Any]:
    """Return the row that describes a benchmark's ground in a study's list."""
    landscape = ground.landscape
    if landscape is None:
        return {"benchmark": name, "made_of": ground.made_of, "data_sha256": ground.data_sha256}
    acceptance = accept(landscape)
    return {
        "benchmark": landscape.task,
        "made_of": landscape.made_of,
        "data_sha256": ground.data_sha256,
        "sha256": hashlib.sha256(landscape.test.tobytes()).hexdigest(),
        "configurations": len(landscape.configs),
        "splits": len(landscape.splits),
        "best": landscape.best,
        "worst": landscape.worst,
        "spread": acceptance.spread,
        "standard_error": acceptance.standard_error,
    }


def _folder(study: Study, store: Store) -> Path:
    return store.study_dir(study.name) / "visibility_documents"


def _asked(study: Study) -> str:
    section = section_of(study)
    settings = [list(section.benchmarks), *size_of(section)]
    return hashlib.sha256(json.dumps(settings).encode()).hexdigest()


LEAST_SPREAD = 0.05
LEAST_ERRORS = 3.0


@dataclass(frozen=True, slots=True)
class Acceptance:
    """Whether a landscape is acceptable, as a flat landscape cannot distinguish searches.

    Attributes:
        spread: difference between the best and the worst configuration, in the score's unit.
        standard_error: standard error of the spread.
        refused: reasons for rejection, as phrases; empty if the landscape is acceptable.
    """

    spread: float
    standard_error: float
    refused: tuple[str, ...]

    @property
    def counts(self) -> bool:
        return not self.refused


def accept(landscape: Landscape) -> Acceptance:
    """Judge whether a landscape's means spread by >= .05 and >= 3 standard errors.

    The best and worst of 128 means differ by about five standard errors by chance alone. Therefore
    both are chosen on every other split and compared on the remaining splits, then vice versa. The
    spread is the mean of these paired differences over all splits.

    Raises:
        ValueError: fewer than four splits.
    """
    splits = len(landscape.splits)
    if splits < 4:
        raise ValueError("a landscape is judged on four splits or more")
    complete = np.isfinite(landscape.test).all(axis=1)
    if complete.sum() < 2:
        return Acceptance(0.0, 0.0, ("fewer than two configurations could be trained",))
    scores = landscape.test[complete] / landscape.unit
    if not landscape.higher_is_better:
        scores = -scores
    even = np.arange(splits) % 2 == 0
    differences = np.concatenate(
        [_compared(scores[:, half], scores[:, ~half]) for half in (even, ~even)]
    )
    spread = float(differences.mean())
    error = float(differences.std(ddof=1) / math.sqrt(splits))
    reasons = []
    if spread < LEAST_SPREAD:
        reasons.append(f"its scores spread by {spread:.3f}, less than {LEAST_SPREAD}")
    if spread < LEAST_ERRORS * error:
        reasons.append(f"its spread is {spread / error:.1f} standard errors, fewer than 3")
    return Acceptance(spread, error, tuple(reasons))


def _compared(chosen: NDArray[np.float64], scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return best minus worst, as ranked by ``chosen``, for each split of ``scores``."""
    means = chosen.mean(axis=1)
    return np.asarray(scores[means.argmax()] - scores[means.argmin()])


VERSION = 1


def landscape_file(store: Store, task: str, made_of: str) -> Path:
    """Return the path of the landscape with this task and fingerprint."""
    return store.root / "_visibility" / "landscapes" / f"{slug(task)}-{made_of[:16]}.json"


def write_landscape(store: Store, landscape: Landscape) -> Path:
    """Write a landscape with its SHA-256, and return the path; raise StoreError."""
    path = landscape_file(store, landscape.task, landscape.made_of)
    write_json(path, as_json(landscape))
    return path


def as_json(landscape: Landscape) -> dict[str, Any]:
    """Return the JSON form of a landscape, with its SHA-256."""
    content = {
        "version": VERSION,
        "task": landscape.task,
        "made_of": landscape.made_of,
        "higher_is_better": landscape.higher_is_better,
        "unit": landscape.unit,
        "splits": list(landscape.splits),
        "configs": [dict(config) for config in landscape.configs],
        "validation": _rows(landscape.validation),
        "test": _rows(landscape.test),
    }
    return {**content, "sha256": json_sha256(content)}


def read_landscape(store: Store, task: str, made_of: str) -> Landscape | None:
    """Return the stored landscape with this fingerprint, or None; raise StoreError if damaged."""
    path = landscape_file(store, task, made_of)
    try:
        landscape = from_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror or error}.") from error
    if landscape is None or (landscape.task, landscape.made_of) != (task, made_of):
        raise StoreError(f"{path} is damaged or of another version; delete it to regenerate it.")
    return landscape


def from_json(text: bytes) -> Landscape | None:
    """Parse a landscape from the content of a file; None if it is damaged or of another version."""
    try:
        content = json.loads(text)
        digest = content.pop("sha256")
        if content["version"] != VERSION or digest != json_sha256(content):
            return None
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    return Landscape(
        task=content["task"],
        made_of=content["made_of"],
        higher_is_better=content["higher_is_better"],
        unit=content["unit"],
        configs=tuple(content["configs"]),
        splits=tuple(content["splits"]),
        validation=np.array(content["validation"], dtype=np.float64),
        test=np.array(content["test"], dtype=np.float64),
    )


def _rows(scores: Any) -> list[list[float | None]]:
    """Return the scores as lists, with None in place of nan, which JSON lacks."""
    return [[None if np.isnan(score) else float(score) for score in row] for row in scores]


class Landscapes(KeptDocuments):
    """The study's landscapes, one partition per benchmark: 128 configurations on 20 splits."""

    description = (
        "The scores of 128 configurations of a benchmark on 20 splits: the starts, and what regret "
        "is measured by."
    )

    def keys(self, study: Study) -> Mapping[str, Sequence[str]]:
        return {"benchmark": section_of(study).benchmarks, "table": ["landscape"]}

    def make(self, study: Study, store: Store, partition: Mapping[str, str]) -> MadeDocuments:
        name = partition["benchmark"]
        if name not in section_of(study).benchmarks:
            raise StudyError(
                f"Study {study.name!r} does not use benchmark {name!r}; see `visibility` in its "
                "file."
            )
        row = row_of(name, ground_named(name, store, section_of(study)))
        return MadeDocuments(row.get("sha256", row["data_sha256"]), row)

    def write(self, study: Study, store: Store) -> None:
        grounds_of(study, store)

    def frozen(self, study: Study, store: Store) -> MadeDocuments | None:
        listing = frozen_list(study, store)
        documents = listing.documents if listing else ()
        spreads = {row["benchmark"]: row.get("spread") for row in documents}
        return MadeDocuments(listing.sha256, spreads) if listing else None

    def depends_on(self, study: Study) -> Mapping[str, Any]:
        section = section_of(study)
        return {"benchmarks": list(section.benchmarks)} | section.model_dump(include={"landscape"})

    def archived(self, study: Study, store: Store) -> KeptList | None:
        if self.frozen(study, store) is None:
            return None
        section = section_of(study)
        grounds, rows = grounds_of(study, store), []
        for name, ground in grounds.items():
            kept = Trainings(task_named(name), store, ground.data_sha256)
            there = ground.landscape
            parts = {
                "landscape": {"made_of": ground.made_of} if there is None else as_json(there),
                "trainings": kept.of_splits(section.seed_numbers),
            }
            for kind, content in parts.items():
                text = json.dumps(content)
                digest = hashlib.sha256(text.encode()).hexdigest()
                rows.append({"document_id": digest, "benchmark": name, "kind": kind, "text": text})
        data = {name: ground.data_sha256 for name, ground in grounds.items()}
        return KeptList("landscapes", data, rows)

    def restore(self, study: Study, store: Store, kept: KeptList, file: Path) -> Callable[[], None]:
        """Restore landscapes (see `KeptDocuments`) without changing already stored scores."""
        names = section_of(study).benchmarks
        grounds: dict[str, Ground] = {}
        trainings: dict[str, list[Any]] = {}
        with malformed(file, KEPT_MEMBERS[1]):
            for row in kept.rows:
                name, text = str(row["benchmark"]), str(row["text"])
                if row["kind"] == "landscape":
                    landscape, made_of = from_json(text.encode()), str(json.loads(text)["made_of"])
                    if landscape is None and not section_of(study).is_single:
                        raise ValueError("landscape")
                    if landscape is not None and landscape.task != name:
                        raise ValueError("landscape")
                    grounds[name] = Ground(landscape, str(kept.sources[name]), made_of)
                else:
                    trainings[name] = [_training(row) for row in json.loads(text)]
        if set(grounds) != set(names) or set(trainings) != set(names):
            raise damaged(file, "its landscapes are not those of its study's benchmarks")

        def write() -> None:
            for name in names:
                ground = grounds[name]
                if ground.landscape and read_landscape(store, name, ground.made_of) is None:
                    write_landscape(store, ground.landscape)
                Trainings(task_named(name), store, ground.data_sha256).keep(trainings[name])
            write_grounds(study, store, {name: grounds[name] for name in names})

        return write


LANDSCAPES = Landscapes()


def _training(row: Any) -> tuple[int, str, float | None, float | None]:
    split, config, validation, test = row
    scores = (None if score is None else float(score) for score in (validation, test))
    return (int(split), str(config), *scores)  # type: ignore[return-value]
