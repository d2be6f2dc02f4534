"""A study of the experiment visibility, made of the options of its commands."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from contextcliff_dagster.contracts import StudyError
from contextcliff_dagster.experiments.visibility.axes import AXES

if TYPE_CHECKING:
    from contextcliff_dagster.inference.models.models_file import ModelEntry
    from contextcliff_dagster.studies import Study

DEFAULT_MODEL = "gpt-4o-mini"
_OPTIONS = {
    "benchmarks": "--benchmark",
    "steps": "--num-steps",
    "first_seed": "--seed",
    "history": "--history-window",
    "start": "--init",
}
"""Key of the section -> option, where that has another name."""
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,59}")


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
    from contextcliff_dagster.studies import Study

    known = load_models()
    entries = [get_model(model, known) for model in models]
    _read_keys(entries)
    study = {
        "name": "visibility",
        "description": "Tuning hyper-parameters: what an agent is shown",
        "models": list(dict.fromkeys(models)),
        "visibility": dict(keys),
    }
    try:
        made = Study.model_validate(study)
    except ValidationError as error:
        raise _sentence(error, command) from None
    if name is not None:
        return _named(made, name)
    section = made.sections["visibility"]
    decides = json.dumps(section.model_dump(mode="json"), sort_keys=True)
    digest = hashlib.sha256(decides.encode()).hexdigest()[:6]
    some = "-".join(section.benchmarks) if len(section.benchmarks) < 3 else "several"
    return made.changed(name=f"visibility-{some}-{digest}")


def _named(study: Study, name: str) -> Study:
    from contextcliff_dagster.studies import load_studies

    if not _NAME.fullmatch(name):
        raise StudyError(
            f"--run-id {name!r} cannot name a run: write small letters, digits and hyphens, at "
            "most 60, beginning with a letter or a digit."
        )
    named = study.changed(name=name)
    known = load_studies().get(name)
    if known is not None and known.model_dump() != named.model_dump():
        raise StudyError(
            f"--run-id {name}: there is a study of this name with other options, and it stays as "
            "it is; choose another name, or give the same options to go on with it."
        )
    return named


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


def _sentence(error: ValidationError, command: str) -> StudyError:
    first = error.errors(include_url=False)[0]
    what = str(first["msg"]).removeprefix("Value error, ")
    what = re.sub(r"^Input should be ", "should be ", what)
    key = next((str(place) for place in first["loc"] if place != "visibility"), "")
    option = _OPTIONS.get(key) or f"--{key.replace('_', '-')}"
    if command == "grid" and key in AXES:
        option = f"--levels {key}="
    given = first.get("input")
    shown = f" {given!r}" if isinstance(given, str) and given not in what else ""
    return StudyError(f"{option}{shown}: {what}; see `contextcliff visibility {command} -h`.")
