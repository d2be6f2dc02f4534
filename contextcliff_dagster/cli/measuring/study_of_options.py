"""What the commands share that make a study of their options: its keys, its name, its errors."""

from __future__ import annotations

import hashlib
import json
import re
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.contracts import StudyError

if TYPE_CHECKING:
    from pydantic import ValidationError

    from contextcliff_dagster.studies import Study


def given_keys(**keys: Any) -> dict[str, Any]:
    """Those of the keys that have a value."""
    return {key: value for key, value in keys.items() if value is not None}


def digest(decides: Any) -> str:
    """Six characters that tell studies apart, of what decides them."""
    return hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()[:6]


def named_study(study: Study, name: str, option: str, what: str) -> Study:
    """Return ``study`` under ``name``, the value of ``option``, which names a ``what``.

    Raises:
        StudyError: that is no name, or one of a study with other options.
    """
    from contextcliff_dagster.studies import load_studies

    if not re.fullmatch(r"[a-z0-9][a-z0-9-]{0,59}", name):
        raise StudyError(
            f"{option} {name!r} cannot name a {what}: write small letters, digits and hyphens, at "
            "most 60, beginning with a letter or a digit."
        )
    named = study.changed(name=name)
    known = load_studies().get(name)
    if known is not None and known.model_dump() != named.model_dump():
        raise StudyError(
            f"{option} {name}: there is a study of this name with other options, and it stays as "
            "it is; choose another name, or give the same options to go on with it."
        )
    return named


def first_error(error: ValidationError) -> tuple[list[str], str, str]:
    """The place of the first error, what is wrong, and the value where that does not say it."""
    first = error.errors(include_url=False)[0]
    what = str(first["msg"]).removeprefix("Value error, ")
    what = re.sub(r"^Input should be ", "should be ", what)
    given = first.get("input")
    shown = f" {given!r}" if isinstance(given, str) and given not in what else ""
    return [str(place) for place in first["loc"]], what, shown
