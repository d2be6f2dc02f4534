"""The options of the corpus `folder`, checked one by one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from contextcliff_dagster.contracts import CorpusError
from contextcliff_dagster.corpora.extraction import Limits

NUMBERS = {"questions_per_document": (5, 1), "seed": (0, 0), "min_characters": (0, 0)}
"""Option: default, least."""
_WORDINGS = ("sentence", "beginning")


def checked_path(path: Path) -> Path:
    """The folder or file, proven to be there.

    Raises:
        CorpusError: there is neither.
    """
    if not path.exists():
        raise CorpusError(f"There is no file or folder {path}; check the corpus option 'path'.")
    if not path.is_dir() and not path.is_file():
        raise CorpusError(f"{path} is no plain file; name a folder or a document.")
    return path


def checked_numbers(given: Mapping[str, Any]) -> dict[str, int]:
    """The options that are whole numbers, with their defaults.

    Raises:
        CorpusError: a value is out of range.
    """
    numbers = {name: given.get(name, default) for name, (default, _) in NUMBERS.items()}
    for name, (_, least) in NUMBERS.items():
        if numbers[name] < least:
            raise CorpusError(
                f"Option {name!r} of a corpus of kind 'folder' must be at least {least}, "
                f"not {numbers[name]}."
            )
    return numbers


def checked_wording(given: Mapping[str, Any]) -> str:
    """How a question of verbatim recall is put.

    Raises:
        CorpusError: a value is out of range.
    """
    wording = str(given.get("recall_question", _WORDINGS[0]))
    if wording not in _WORDINGS:
        raise CorpusError(
            f"Option 'recall_question' is one of {', '.join(_WORDINGS)}, not {wording!r}."
        )
    return wording


def checked_limits(given: Mapping[Any, Any]) -> Limits:
    """What reading one file may cost.

    Raises:
        CorpusError: a value is out of range.
    """
    names = list(Limits.__dataclass_fields__)
    for name, value in given.items():
        if name not in names or isinstance(value, bool) or not isinstance(value, int | float):
            raise CorpusError(
                f"Option 'limits' maps {name!r} to {value!r}; it maps some of "
                f"{', '.join(names)} to numbers."
            )
    try:
        return Limits(**given)
    except ValueError as error:
        raise CorpusError(f"Option 'limits': {error}") from error
