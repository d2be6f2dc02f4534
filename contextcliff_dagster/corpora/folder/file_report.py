"""Folder walk and file report: which files may be read, and what happened to each of them."""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from contextcliff_dagster.corpora.extraction.file_type import UNKNOWN_GLYPHS

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
    """A regular file to be read; ``name`` is its path below the folder, with slashes."""

    name: str
    path: Path


@dataclass(frozen=True, slots=True)
class Walked:
    """The contents of a folder, each part sorted by name."""

    home: Path
    found: list[Found] = field(default_factory=list)
    left_out: list[Fate] = field(default_factory=list)


def walk(path: Path) -> Walked:
    """List every entry below the folder, or the single file that ``path`` names.

    A link is followed only to a file inside the folder that is not read under its own name, so
    there are no loops and nothing outside is opened. For hidden and ignored files, only their
    topmost folder is listed. The folder itself may be a link, hidden or not.
    """
    if not path.is_dir():
        return Walked(path.parent.resolve(), [Found(_shown(path.name), path)])
    walked = Walked(path.resolve())
    links: list[tuple[str, Path]] = []
    folders = [(walked.home, "")]
    while folders:  # no recursion: folders may nest deeper than Python's stack
        folder, prefix = folders.pop()
        try:
            with os.scandir(folder) as listing:
                entries = list(listing)
        except OSError as error:
            reason = f"cannot be listed: {error.strerror or error}"
            walked.left_out.append(Fate(prefix, "unreadable", reason))
            continue
        for entry in entries:
            name = prefix + _shown(entry.name)
            try:
                if entry.is_symlink():
                    links.append((name, Path(entry.path)))
                elif why := _ignored(entry):
                    shown_name = f"{name}/" if entry.is_dir(follow_symlinks=False) else name
                    walked.left_out.append(Fate(shown_name, *why))
                elif entry.is_dir(follow_symlinks=False):
                    folders.append((Path(entry.path), f"{name}/"))
                elif entry.is_file(follow_symlinks=False):
                    walked.found.append(Found(name, Path(entry.path)))
                else:
                    mode = entry.stat(follow_symlinks=False).st_mode
                    sort = next((kind for test, kind in _KINDS if test(mode)), "something else")
                    walked.left_out.append(Fate(name, "not_a_file", f"is not a file but {sort}"))
            except OSError as error:
                reason = f"cannot be looked at: {error.strerror or error}"
                walked.left_out.append(Fate(name, "unreadable", reason))
    _judge_links(walked, links)
    walked.found.sort()
    walked.left_out.sort(key=lambda fate: fate.file)
    return walked


def _ignored(entry: os.DirEntry[str]) -> tuple[str, str] | None:
    """Return the reason and a clause if the entry is to be ignored, else None."""
    if entry.name.startswith("."):
        return _HIDDEN
    if entry.is_dir(follow_symlinks=False):
        if description := _IGNORED_FOLDERS.get(entry.name):
            return "ignored", f"is ignored: {entry.name} holds {description}"
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
            fate = "link_out", "is a link out of the folder"
        elif target.is_dir():
            fate = "link", "is a link to a folder within, which is read under its own name"
        elif target in by_target:
            fate = "link", f"is a link to {by_target[target]}, which is read itself"
        elif name.rsplit("/", 1)[-1].startswith("."):
            fate = _HIDDEN
        elif not target.is_file():
            fate = "not_a_file", "is a link to something that is not a file"
        else:
            by_target[target] = name
            walked.found.append(Found(name, target))
            continue
        walked.left_out.append(Fate(name, *fate))


def _shown(name: str) -> str:
    # File names are bytes: a name that is not UTF-8 must not break a hash or a table.
    return os.fsencode(name).decode(errors="replace")


_ABOUT_RECALL = (
    "every question is verbatim recall, made from the documents themselves: the cap says how far "
    "the model copies, not how far it reasons"
)
_MOST_NOTES = 20
_FIRST = 3

FATES: dict[str, str] = {
    "unreadable": "not readable",
    "empty": "empty",
    "duplicate": "the same text as another",
    "too_short": "too short",
    "no_question": "without a question",
    "questions": "table|tables of questions",
    "hidden": "hidden",
    "ignored": "ignored",
    "link_out": "link|links out of the folder",
    "link": "link|links to what is read already, or to nothing",
    "not_a_file": "no plain file|files",
}
"""Why a file is left out, in the words of the report and in its sentence's order. In
``one|several``, the first form is used for a count of 1."""


@dataclass(frozen=True, slots=True)
class Fate:
    """One file and what happened to it.

    ``fate``: ``used`` or a key of `FATES`. ``reason``: a clause whose subject is the file, empty
    for files that are used. ``questions``: the number of examples about it. ``notes``: remarks on
    how its text was extracted.
    """

    file: str
    fate: str
    reason: str = ""
    format: str = ""
    characters: int | None = None
    questions: int | None = None
    notes: tuple[str, ...] = ()
    document_id: str = ""

    def left_out(self, fate: str, reason: str) -> Fate:
        """Return the same file, marked as left out."""
        return replace(self, fate=fate, reason=reason)


def counted(fates: Iterable[Fate]) -> dict[str, Any]:
    """Count files: in total, used, used by format, left out by reason; a folder counts as one."""
    used: Counter[str] = Counter()
    left_out: Counter[str] = Counter()
    notes: Counter[str] = Counter()
    for fate in fates:
        if fate.fate == "used":
            used[fate.format] += 1
            notes.update(fate.notes)
        else:
            left_out[fate.fate] += 1
    return {
        "found": used.total() + left_out.total(),
        "used": used.total(),
        "formats": dict(sorted(used.items())),
        "left_out": {reason: left_out[reason] for reason in FATES if left_out[reason]},
        "notes": dict(sorted(notes.most_common(_MOST_NOTES))),
    }


def listed(counts: Mapping[str, Any]) -> str:
    """Return the counts as a sentence without a full stop at the end."""
    formats = ", ".join(f"{n:,} {kind}" for kind, n in counts["formats"].items())
    left_out = ", ".join(f"{n:,} {_words(reason, n)}" for reason, n in counts["left_out"].items())
    found = counts["found"]
    sentence = f"{found:,} file{'s' * (found != 1)} found, {counts['used']:,} used"
    if formats:
        sentence += f" ({formats})"
    return f"{sentence}; left out: {left_out}" if left_out else sentence


def _words(reason: str, n: int) -> str:
    return " ".join(
        word.split("|")[0 if n == 1 else -1] if "|" in word else word
        for word in FATES[reason].split(" ")
    )


def account_of(
    fates: Collection[Fate], used: int, lost: Mapping[str, int], table: str | None
) -> dict[str, Any]:
    """Return the corpus's account: ``used`` questions from ``table``, or generated if None.

    ``lost``: numbers of questions about documents that are left out, by the documents' fate.
    """
    files = counted(fates)
    n_unknown = sum(
        fate.fate == "used" and any(note.startswith(UNKNOWN_GLYPHS) for note in fate.notes)
        for fate in fates
    )
    source = f"from {table}" if table else "of verbatim recall, made from the texts"
    sentence = f"{used:,} question{'s' * (used != 1)} {source}"
    if n_lost := sum(lost.values()):
        sentence += f", {n_lost:,} more on documents that are left out"
    if n_unknown:
        sentence += f". Documents with {UNKNOWN_GLYPHS}: {n_unknown:,} (the list of files has them)"
    account: dict[str, Any] = {
        "summary": f"{listed(files)}. {sentence}.",
        "files": files,
        "questions": {"used": used, "lost": dict(sorted(lost.items()))},
        "list": "files.csv",
    }
    return account if table else account | {"cautions": [_ABOUT_RECALL]}


def first_reasons(fates: Iterable[Fate]) -> str:
    """Return why the first few files yield no question, and how many others yield none."""
    telling = [fate for fate in fates if fate.fate not in ("questions", "hidden", "used")]
    reasons = "; ".join(f"{fate.file} {fate.reason}" for fate in telling[:_FIRST])
    n_more = len(telling) - _FIRST
    return f"{reasons}; and {n_more:,} more" if n_more > 0 else reasons
