"""Absolute paths of this machine, kept out of what is handed on: a report names files alone.

``/home/jo/scores.csv`` reads ``scores.csv``. Addresses of servers keep their paths.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from contextcliff_dagster.redaction import secrets_of, without_secrets

_NOT = r"\s\"'`<>|*?,;()\[\]{}=/\\"
"""What ends a name within a path."""
_FORMS = (
    rf"(?:file:/+)?[A-Za-z]:(?:[\\/]+[^{_NOT}]+)+[\\/]?",  # C:\Users\jo
    rf"\\\\[^{_NOT}]+(?:\\+[^{_NOT}]+)+\\?",  # \\server\share
    rf"file:/+[^{_NOT}]+(?:/+[^{_NOT}]+)*/?",
    rf"~?(?!/+(?:v\d+|api)/)(?:/+[^{_NOT}]+){{2,}}/?",  # an endpoint of a server is no path
)
_ANY = re.compile(rf"(?<![\w.~/:*?\\-])(?:{'|'.join(_FORMS)})")
_SHORTEST = 5
"""A known folder of fewer characters (``/``, ``/tmp``) is no name worth hiding."""


def for_readers() -> Callable[[Any], Any]:
    """What takes the environment's secrets and this machine's paths out of a JSON-like value."""
    secrets, folders = secrets_of(os.environ), known_folders()
    return lambda value: without_paths(without_secrets(value, secrets), folders)


def known_folders() -> tuple[str, ...]:
    """The working folder, the home folder and the store: they may hold spaces, so no pattern."""
    from contextcliff_dagster.store import Store

    found = {str(Path.cwd()), str(Store.default().root)}
    with suppress(RuntimeError):  # no home folder
        found.add(str(Path.home()))
    return tuple(sorted((one for one in found if len(one) > _SHORTEST), key=len, reverse=True))


def without_paths(value: Any, folders: Sequence[str] = ()) -> Any:
    """Return a copy of a JSON-like ``value`` in which each absolute path reads as its last part.

    ``folders``: known ones, cut off wherever they occur, also where they hold spaces.
    """
    if isinstance(value, str):
        for folder in folders:
            value = value.replace(f"{folder}/", "").replace(folder, Path(folder).name)
        return _ANY.sub(_last, value)
    if isinstance(value, dict):
        return {
            without_paths(key, folders): without_paths(item, folders) for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [without_paths(item, folders) for item in value]
    return value


def _last(match: re.Match[str]) -> str:
    parts = [part for part in re.split(r"[\\/]+", match[0]) if part]
    ending = re.search(r"[.:!]+$", match[0])
    return (parts[-1].rstrip(".:!") or "path") + (ending[0] if ending else "")
