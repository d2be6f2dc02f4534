"""Which Python files there are under the roots, in an order that a seed decides."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_PRUNED = frozenset({"__pycache__", "site-packages", "dist-packages", "node_modules"})


class Root(NamedTuple):
    """A folder under the name by which its files are called (``stdlib/json/decoder.py``)."""

    label: str
    folder: Path


class FoundFile(NamedTuple):
    """A file to be read; ``name`` is its root's label and its path below that, with slashes."""

    name: str
    path: Path


def installed_roots(label: str) -> list[Root]:
    """The folders of this interpreter's ``stdlib`` or ``site-packages``; those that exist."""
    import sysconfig

    paths = sysconfig.get_paths()
    names = ("stdlib",) if label == "stdlib" else ("purelib", "platlib")
    folders = dict.fromkeys(Path(paths[name]).resolve() for name in names if name in paths)
    return [Root(label, folder) for folder in folders if folder.is_dir()]


def find_files(roots: list[Root], seed: int, skipped: Counter[str]) -> list[FoundFile]:
    """Every ``.py`` file below the roots, ordered by SHA-256 of the seed and its name.

    Links are followed only where they stay below their root. What is left out is counted in
    ``skipped``: ``outside`` (a link that leads out of the root), ``unreadable`` (a folder that
    cannot be listed, or something that is no plain file).
    """
    found = {file.path: file for root in roots for file in _below(root, skipped)}
    return sorted(found.values(), key=lambda file: (_place(seed, file.name), file.name))


def _place(seed: int, name: str) -> bytes:
    return hashlib.sha256(f"{seed}\nfile\n{name}".encode()).digest()


def _below(root: Root, skipped: Counter[str]) -> Iterator[FoundFile]:
    home = root.folder.resolve()

    def not_listed(_: OSError) -> None:
        skipped["unreadable"] += 1

    for folder, folders, files in os.walk(home, onerror=not_listed):
        here = Path(folder)
        # The installed packages lie inside the standard library's folder where there is no venv.
        folders[:] = sorted(n for n in folders if n not in _PRUNED and not n.startswith("."))
        for name in folders:
            if (here / name).is_symlink() and not _inside(here / name, home):
                skipped["outside"] += 1
        for name in sorted(files):
            if not name.endswith(".py"):
                continue
            path = here / name
            if not _inside(path, home):
                skipped["outside"] += 1
            elif not path.is_file():  # a pipe or a device would block whoever opens it
                skipped["unreadable"] += 1
            else:
                # Names of files are bytes: what is no UTF-8 must not stop a hash or a table.
                below = os.fsencode(path.relative_to(home)).decode(errors="replace")
                yield FoundFile(f"{root.label}/{below.replace(os.sep, '/')}", path)


def _inside(path: Path, home: Path) -> bool:
    if not path.is_symlink():
        return True
    try:
        return path.resolve().is_relative_to(home)
    except (OSError, RuntimeError):  # a link to itself
        return False
