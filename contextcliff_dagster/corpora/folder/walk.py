"""Which files of a folder may be read, and why the others are not: nothing goes unmentioned."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from contextcliff_dagster.corpora.folder.file_report import Fate

_IGNORED_FOLDERS = {
    "node_modules": "installed packages",
    "__pycache__": "compiled code",
    "__MACOSX": "leftovers of an archive",
    "$RECYCLE.BIN": "the recycle bin",
    "System Volume Information": "the system's own",
}
_HIDDEN = ("hidden", "is hidden: its name begins with a dot")
_IGNORED_FILES = ("thumbs.db", "desktop.ini", "icon\r")
_KINDS = (
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISCHR, "a device"),
)


class Found(NamedTuple):
    """A plain file to be read; ``name`` is its path below the folder, with slashes."""

    name: str
    path: Path


@dataclass(frozen=True, slots=True)
class Walked:
    """What a folder holds, each part in the order of its names."""

    home: Path
    found: list[Found] = field(default_factory=list)
    left_out: list[Fate] = field(default_factory=list)


def walk(path: Path) -> Walked:
    """Every entry below the folder, or the one file that ``path`` names.

    Links are followed to files inside the folder alone, and only where these are not read under
    their own name; so there are no loops, and nothing outside is opened. What is hidden or ignored
    is named by its topmost folder. The folder itself may be a link, hidden or not.
    """
    if not path.is_dir():
        return Walked(path.parent.resolve(), [Found(_shown(path.name), path)])
    walked = Walked(path.resolve())
    links: list[tuple[str, Path]] = []
    folders = [(walked.home, "")]
    while folders:  # no recursion: folders may be nested deeper than Python's stack
        folder, above = folders.pop()
        try:
            with os.scandir(folder) as listing:
                entries = list(listing)
        except OSError as error:
            reason = f"cannot be listed: {error.strerror or error}"
            walked.left_out.append(Fate(above, "unreadable", reason))
            continue
        for entry in entries:
            name = above + _shown(entry.name)
            try:
                if entry.is_symlink():
                    links.append((name, Path(entry.path)))
                elif why := _ignored(entry):
                    shown = f"{name}/" if entry.is_dir(follow_symlinks=False) else name
                    walked.left_out.append(Fate(shown, *why))
                elif entry.is_dir(follow_symlinks=False):
                    folders.append((Path(entry.path), f"{name}/"))
                elif entry.is_file(follow_symlinks=False):
                    walked.found.append(Found(name, Path(entry.path)))
                else:
                    mode = entry.stat(follow_symlinks=False).st_mode
                    what = next((kind for test, kind in _KINDS if test(mode)), "something else")
                    walked.left_out.append(Fate(name, "not_a_file", f"is no file but {what}"))
            except OSError as error:
                reason = f"cannot be looked at: {error.strerror or error}"
                walked.left_out.append(Fate(name, "unreadable", reason))
    _judge_links(walked, links)
    walked.found.sort()
    walked.left_out.sort(key=lambda fate: fate.file)
    return walked


def _ignored(entry: os.DirEntry[str]) -> tuple[str, str] | None:
    """Reason and clause where the entry is not meant to be read."""
    if entry.name.startswith("."):
        return _HIDDEN
    if entry.is_dir(follow_symlinks=False):
        if what := _IGNORED_FOLDERS.get(entry.name):
            return "ignored", f"is ignored: {entry.name} holds {what}"
        if (Path(entry.path) / "pyvenv.cfg").exists():
            return "ignored", "is ignored: a virtual environment (it has a pyvenv.cfg)"
    elif entry.name.startswith("~$"):
        return "ignored", "is ignored: an office program's note that a file is open (~$)"
    elif entry.name.lower() in _IGNORED_FILES:
        return "ignored", "is ignored: a file manager's own"
    return None


def _judge_links(walked: Walked, links: list[tuple[str, Path]]) -> None:
    by_target = {file.path: file.name for file in walked.found}
    for name, path in sorted(links):
        try:
            target = path.resolve(strict=True)
        except (OSError, RuntimeError):  # RuntimeError: a link to itself, before Python 3.13
            walked.left_out.append(Fate(name, "link", "is a link that leads nowhere"))
            continue
        if not target.is_relative_to(walked.home):
            why = "link_out", "is a link out of the folder"
        elif target.is_dir():
            why = "link", "is a link to a folder within, which is read under its own name"
        elif target in by_target:
            why = "link", f"is a link to {by_target[target]}, which is read itself"
        elif name.rsplit("/", 1)[-1].startswith("."):
            why = _HIDDEN
        elif not target.is_file():
            why = "not_a_file", "is a link to something that is no file"
        else:
            by_target[target] = name
            walked.found.append(Found(name, target))
            continue
        walked.left_out.append(Fate(name, *why))


def _shown(name: str) -> str:
    # Names of files are bytes: what is no UTF-8 must not stop a hash or a table.
    return os.fsencode(name).decode(errors="replace")
