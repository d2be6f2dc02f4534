"""Landscapes in the store, each under the hash of what it was made of."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np

from contextcliff_dagster.contracts import StoreError
from contextcliff_dagster.experiments.visibility.landscape.table import Landscape
from contextcliff_dagster.store import Store, slug, write_json

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
    write_json(path, {**content, "sha256": _sha256(content)})
    return path


def read_landscape(store: Store, task: str, made_of: str) -> Landscape | None:
    """Return the landscape of a task with this fingerprint; None where there is none.

    Raises:
        StoreError: the file is damaged, or of another version.
    """
    path = landscape_file(store, task, made_of)
    try:
        content = json.loads(path.read_bytes())
        digest = content.pop("sha256")
        whole = content["version"] == VERSION and digest == _sha256(content)
        whole = whole and (content["task"], content["made_of"]) == (task, made_of)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror or error}.") from error
    except (ValueError, KeyError, TypeError, AttributeError):
        whole = False
    if not whole:
        raise StoreError(f"{path} is damaged or of another version; delete it to make it anew.")
    return Landscape(
        task=task,
        made_of=made_of,
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
