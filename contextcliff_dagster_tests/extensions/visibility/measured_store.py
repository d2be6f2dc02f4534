"""A store that has the landscape of `toy`, without the training of one, and a model to ask."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from contextcliff_dagster.extensions.visibility.kept_landscapes import write_landscape
from contextcliff_dagster.extensions.visibility.landscape import POINTS, SPLITS, fingerprint
from contextcliff_dagster.extensions.visibility.tasks.catalogue import load_data, task_named
from contextcliff_dagster.store import Store
from contextcliff_dagster_tests.extensions.visibility.landscapes import landscape_of


def keep_landscape(store: Store, name: str = "toy", flat: Sequence[int] = ()) -> Path:
    """Keep a landscape of heights under the fingerprint of the real one, and return its file.

    On the splits ``flat`` every configuration is worse than any start.
    """
    task = task_named(name)
    made_of = fingerprint(task, load_data(task, store), POINTS, range(SPLITS), 0)
    planted = landscape_of(
        task.space, lambda at: 0.84 + 0.13 * float(at[0]), noise=0.01, points=POINTS
    )
    for table in (planted.validation, planted.test):
        table[:, [*flat]] = 0.1
    return write_landscape(store, replace(planted, task=name, made_of=made_of))


def models_file(folder: Path, url: str, **more: object) -> Path:
    """A models.yaml in which `tuner` is the model behind ``url``, its key in TUNER_KEY."""
    entry = {
        "engine": "openai",
        "model_id": "m",
        "base_url": url,
        "api_key_env": "TUNER_KEY",
        "tokenizer": "tiktoken:o200k_base",
        "window_tokens": 8192,
        **more,
    }
    file = folder / "models.yaml"
    lines = "".join(f"    {name}: {value}\n" for name, value in entry.items())
    file.write_text(f"models:\n  tuner:\n{lines}", encoding="utf-8")
    return file
