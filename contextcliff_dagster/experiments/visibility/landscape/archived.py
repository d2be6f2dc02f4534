"""Landscapes and trainings of a study out of a store and into another.

There they might come out otherwise, by another version of scikit-learn, or not at all, where the
data are not prepared; and the prompts of a study hold these scores.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.archive.container import damaged, malformed
from contextcliff_dagster.archive.kept_documents import KEPT_MEMBERS, KeptList
from contextcliff_dagster.experiments.visibility.landscape.files import (
    as_json,
    from_json,
    read_landscape,
    write_landscape,
)
from contextcliff_dagster.experiments.visibility.landscape.grounds import (
    Ground,
    grounds_of,
    section_of,
    write_grounds,
)
from contextcliff_dagster.experiments.visibility.runs.trainings import Trainings
from contextcliff_dagster.experiments.visibility.tasks.catalogue import task_named

if TYPE_CHECKING:
    from contextcliff_dagster.store import Store
    from contextcliff_dagster.studies import Study


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
