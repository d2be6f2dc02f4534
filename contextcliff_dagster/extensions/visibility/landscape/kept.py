"""The landscapes of a study in the store: files under the hash of what they were made of, assets.

They are tabulated before anything is asked, and travel with a study from store to store.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from contextcliff_dagster.archive.container import damaged, malformed
from contextcliff_dagster.archive.results import KEPT_MEMBERS, KeptList
from contextcliff_dagster.contracts import StoreError, StudyError
from contextcliff_dagster.experiments.common.documents import KeptDocuments, MadeDocuments
from contextcliff_dagster.extensions.visibility.landscape.grounds import (
    Ground,
    frozen_list,
    ground_named,
    grounds_of,
    row_of,
    section_of,
    write_grounds,
)
from contextcliff_dagster.extensions.visibility.landscape.table import Landscape
from contextcliff_dagster.extensions.visibility.runs.tuning import Trainings
from contextcliff_dagster.extensions.visibility.tasks.catalogue import task_named
from contextcliff_dagster.store import Store, slug, write_json

if TYPE_CHECKING:
    from pathlib import Path

    from contextcliff_dagster.archive.results import KeptList
    from contextcliff_dagster.store import Store
    from contextcliff_dagster.studies import Study


VERSION = 1


def landscape_file(store: Store, task: str, made_of: str) -> Path:
    """Return where the landscape of a task with this fingerprint lies."""
    return store.root / "_visibility" / "landscapes" / f"{slug(task)}-{made_of[:16]}.json"


def write_landscape(store: Store, landscape: Landscape) -> Path:
    """Write a landscape with its SHA-256, and return the file.

    Raises:
        StoreError: the store cannot be written.
    """
    path = landscape_file(store, landscape.task, landscape.made_of)
    write_json(path, as_json(landscape))
    return path


def as_json(landscape: Landscape) -> dict[str, Any]:
    """Return a landscape as its file has it, with its SHA-256."""
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
    return {**content, "sha256": _sha256(content)}


def read_landscape(store: Store, task: str, made_of: str) -> Landscape | None:
    """Return the landscape of a task with this fingerprint; None where there is none.

    Raises:
        StoreError: the file is damaged, or of another version.
    """
    path = landscape_file(store, task, made_of)
    try:
        landscape = from_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror or error}.") from error
    if landscape is None or (landscape.task, landscape.made_of) != (task, made_of):
        raise StoreError(f"{path} is damaged or of another version; delete it to make it anew.")
    return landscape


def from_json(text: bytes) -> Landscape | None:
    """Return the landscape of a file; None where it is damaged, or of another version."""
    try:
        content = json.loads(text)
        digest = content.pop("sha256")
        if content["version"] != VERSION or digest != _sha256(content):
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
    """The scores with None, which JSON has, for nan, which it lacks."""
    return [[None if np.isnan(score) else float(score) for score in row] for row in scores]


def _sha256(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


_ONE = "landscape"


class Landscapes(KeptDocuments):
    """A partition is a benchmark: 128 configurations trained on 20 splits."""

    description = (
        "The scores of 128 configurations of a benchmark on 20 splits: the starts, and what regret "
        "is measured by."
    )

    def keys(self, study: Study) -> Mapping[str, Sequence[str]]:
        return {"benchmark": section_of(study).benchmarks, "table": [_ONE]}

    def make(self, study: Study, store: Store, partition: Mapping[str, str]) -> MadeDocuments:
        name = partition["benchmark"]
        if name not in section_of(study).benchmarks:
            raise StudyError(
                f"Study {study.name!r} asks for no benchmark {name!r}; see `visibility` in its "
                "file."
            )
        row = row_of(ground_named(name, store))
        return MadeDocuments(row["sha256"], row)

    def freeze(self, study: Study, store: Store) -> MadeDocuments:
        grounds_of(study, store)
        made = self.frozen(study, store)
        assert made is not None
        return made

    def frozen(self, study: Study, store: Store) -> MadeDocuments | None:
        kept = frozen_list(study, store)
        spreads = {row["benchmark"]: row["spread"] for row in kept.documents} if kept else {}
        return MadeDocuments(kept.sha256, spreads) if kept else None

    def depends_on(self, study: Study) -> Mapping[str, Any]:
        return {"benchmarks": list(section_of(study).benchmarks)}

    def archived(self, study: Study, store: Store) -> KeptList | None:

        return archived(study, store) if self.frozen(study, store) else None

    def restore(self, study: Study, store: Store, kept: KeptList, file: Path) -> Callable[[], None]:

        return restore(study, store, kept, file)


LANDSCAPES = Landscapes()


def archived(study: Study, store: Store) -> KeptList:
    """Return the landscapes of a study that has begun, and the trainings on its splits.

    Raises:
        StoreError: they cannot be read.
    """
    section = section_of(study)
    splits = range(section.first_seed, section.first_seed + section.seeds)
    grounds, rows = grounds_of(study, store), []
    for name, ground in grounds.items():
        trained = Trainings(task_named(name), store, ground.data_sha256).of_splits(splits)
        for kind, content in (("landscape", as_json(ground.landscape)), ("trainings", trained)):
            text = json.dumps(content)
            digest = hashlib.sha256(text.encode()).hexdigest()
            rows.append({"document_id": digest, "benchmark": name, "kind": kind, "text": text})
    data = {name: ground.data_sha256 for name, ground in grounds.items()}
    return KeptList("landscapes", data, rows)


def restore(study: Study, store: Store, kept: KeptList, file: Path) -> Callable[[], None]:
    """As `KeptDocuments.restore`; scores that the store has already stay as they are."""
    names = section_of(study).benchmarks
    grounds: dict[str, Ground] = {}
    trained: dict[str, list[Any]] = {}
    with malformed(file, KEPT_MEMBERS[1]):
        for row in kept.rows:
            name, text = str(row["benchmark"]), str(row["text"])
            if row["kind"] == "landscape":
                landscape = from_json(text.encode())
                if landscape is None or landscape.task != name:
                    raise ValueError("landscape")
                grounds[name] = Ground(landscape, str(kept.sources[name]))
            else:
                trained[name] = [_training(one) for one in json.loads(text)]
    if set(grounds) != set(names) or set(trained) != set(names):
        raise damaged(file, "its landscapes are not those of its study's benchmarks")

    def write() -> None:
        for name in names:
            ground = grounds[name]
            if read_landscape(store, name, ground.landscape.made_of) is None:
                write_landscape(store, ground.landscape)
            Trainings(task_named(name), store, ground.data_sha256).keep(trained[name])
        write_grounds(study, store, {name: grounds[name] for name in names})

    return write


def _training(row: Any) -> tuple[int, str, float | None, float | None]:
    split, config, validation, test = row
    scores = (None if one is None else float(one) for one in (validation, test))
    return (int(split), str(config), *scores)  # type: ignore[return-value]
