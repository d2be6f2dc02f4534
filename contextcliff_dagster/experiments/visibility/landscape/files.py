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
