"""A study of the experiment visibility, made of the options of its commands."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.cli.measuring.section_options import (
    SectionOptions,
    digest,
    named_study,
)
from contextcliff_dagster.contracts import StudyError
from contextcliff_dagster.extensions.visibility.axes import AXES
from contextcliff_dagster.extensions.visibility.section import VisibilitySection

if TYPE_CHECKING:
    from contextcliff_dagster.inference.models.models_file import ModelEntry
    from contextcliff_dagster.studies import Study

DEFAULT_MODEL = "gpt-4o-mini"
_NAMES = {
    "benchmarks": "--benchmark",
    "steps": "--num-steps",
    "first_seed": "--seed",
    "history": "--history-window",
    "start": "--init",
}
"""Key of the section -> option, where that has another name."""


def made_study(
    keys: Mapping[str, Any], models: Sequence[str], command: str, name: str | None = None
) -> Study:
    """Return the study that options describe; options like these get a name of their own.

    Args:
        keys: of the section.
        command: `run` or `grid`, for errors.
        name: of the study; None: made of the options.

    Raises:
        StudyError: a model is unknown, an option has no such value, or ``name`` is none, or that
            of a study with other options.
    """
    from contextcliff_dagster.inference.models.models_file import get_model, load_models

    known = load_models()
    entries = [get_model(model, known) for model in models]
    _read_keys(entries)
    levels = {axis: f"--levels {axis}=" for axis in AXES} if command == "grid" else {}
    made = SectionOptions(
        "visibility",
        VisibilitySection,
        f"contextcliff visibility {command}",
        keys=(),
        names={**_NAMES, **levels},
        help={},
    ).study(
        keys,
        description="Tuning hyper-parameters: what an agent is shown",
        models=list(dict.fromkeys(models)),
    )
    if name is not None:
        return named_study(made, name, "--run-id", "run")
    section = made.sections["visibility"]
    some = "-".join(section.benchmarks) if len(section.benchmarks) < 3 else "several"
    return made.changed(name=f"visibility-{some}-{digest(section.model_dump(mode='json'))}")


def _read_keys(entries: Sequence[ModelEntry]) -> None:
    """Take the keys of these models from ``.env`` of the current folder, where the environment
    lacks them; nothing else of that file."""
    from dotenv import dotenv_values

    file = Path(".env")
    wanted = {entry.api_key_env for entry in entries if entry.api_key_env} - os.environ.keys()
    if not wanted or not file.is_file():
        return
    try:
        # Not interpolated: a value with a dollar sign is a key as it is.
        given = dotenv_values(file, interpolate=False)
    except (OSError, ValueError) as error:
        raise StudyError(
            f".env in {Path.cwd()} cannot be read ({type(error).__name__}); write lines such as "
            "OPENAI_API_KEY=... in UTF-8, or set the variable."
        ) from None
    for name in wanted:
        if value := given.get(name):
            os.environ[name] = value


_BOTH = ("hidden", "shown")

GRIDS: Mapping[str, Mapping[str, Sequence[str | int]]] = {
    "48": {
        "task": _BOTH,
        "metric": _BOTH,
        "resources": _BOTH,
        "bounds": ("hidden",),
        "direction": ("hidden",),
        "history": (0, 5),
        "start": ("default",),
    },
    "144": {
        "task": _BOTH,
        "metric": _BOTH,
        "resources": ("hidden",),
        "bounds": _BOTH,
        "direction": ("hidden",),
        "history": (0, 4),
        "start": ("low", "neutral", "high"),
    },
}
"""The grids that users of context-eval know: runs of one benchmark at three seeds -> levels."""
RUN_STEPS, GRID_SEEDS, GRID_STEPS = 3, 3, 10


def levels_of(given: Sequence[str]) -> dict[str, list[str | int]]:
    """Return the levels of ``AXIS=LEVEL,LEVEL`` by axis.

    Raises:
        ValueError: a sentence that says which one is none.
    """
    levels: dict[str, list[str | int]] = {}
    for one in given:
        axis, _, values = one.partition("=")
        parts = [part.strip() for part in values.split(",") if part.strip()]
        if axis not in AXES or not parts:
            raise ValueError(
                f"{one!r} is no axis with levels; write as in direction=hidden,shown, with one of "
                f"{', '.join(AXES)}."
            )
        levels[axis] = [int(part) if part.isdecimal() else part for part in parts]
    return levels
