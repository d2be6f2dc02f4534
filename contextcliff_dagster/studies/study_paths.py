"""The files that a study names: where they are, and whether they are those of its own folder.

A study may come from another person. What it reads outside of its folder, and the server that
counts its tokens, need the user's leave.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from contextcliff_dagster.contracts import StudyError
from contextcliff_dagster.contracts.extensions import extensions
from contextcliff_dagster.store import PACKAGE
from contextcliff_dagster.user_files import loads, read_file

if TYPE_CHECKING:
    from contextcliff_dagster.studies.study import Study

PROMPT_FILES = ("template", "system", "instructions")
"""The keys of `prompt` that name files."""


_MOST_NAMED = 8
_SERVER, _TRACKER = "server ", "tracker "


class Leave(NamedTuple):
    """What a study may read: all below ``home`` (None: anything, it is the user's own).

    Beyond that, and to ask: what the user has ``allowed``, in the words of `leave_needed`.
    """

    home: Path | None = None
    allowed: frozenset[str] = frozenset()

    def also(self, more: Iterable[str]) -> Leave:
        return Leave(self.home, self.allowed | frozenset(more))


def shipped_folders() -> list[Path]:
    """The studies that come with the package and its extensions, and their prompts."""
    installed = PACKAGE / "_studies"
    of_extensions = [path for one in extensions().values() if (path := one.own("studies"))]
    return [installed if installed.is_dir() else PACKAGE.parent / "studies", *of_extensions]


def absolute(folder: Path, file: str) -> str:
    """``file``, from ``folder`` where it is relative; an address stays as it is.

    Raises:
        StudyError: it begins with the home of a user that there is not.
    """
    if "://" in file:
        return file
    try:
        return str(folder / Path(file).expanduser())
    except RuntimeError as error:
        raise StudyError(f"There is no home folder for {file!r}; write the whole path.") from error


def absolute_options(folder: Path, kind: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a corpus with paths made absolute."""
    return {
        **options,
        **{key: absolute(folder, options[key]) for key in _path_keys(kind, options)},
    }


def _path_keys(kind: str, options: Mapping[str, Any]) -> list[str]:
    questions = kind == "folder" and options.get("questions") != "recall"
    keys = ("path", *(["questions"] if questions else []))
    return [key for key in keys if isinstance(options.get(key), str)]


def leave_needed(study: Study, part: str = "") -> list[str]:
    """What the study reads and asks that its user has not agreed to.

    As `<key> <path>`, links followed, `server <host>`, and `tracker <address>`. ``part``: under
    this key alone (corpus, tokenizer, prompt or track).
    """
    from contextcliff_dagster.inference.models.tokenizers import unlisted_server

    needed, home = [], study.leave.home
    if home is not None:
        homes = (home.resolve(), *(folder.resolve() for folder in shipped_folders()))
        files = _files(study, part)
        outside = [(key, file) for key, file in files if not _is_within(file, homes)]
        needed = [f"{key} {_with_target(file)}" for key, file in outside]
    for key, server in _servers(study):
        if key.startswith(part) and (host := unlisted_server(server, home)):
            needed.append(f"{_SERVER}{host}")
    track = study.track if home is not None and "track".startswith(part) else None
    if track is not None and (address := track.tracking_uri or track.entity):
        needed.append(f"{_TRACKER}{address}")
    return [one for one in needed if one not in study.leave.allowed]


def described(study: Study, needed: Sequence[str]) -> str:
    """A clause about what `leave_needed` has found."""
    files = [one for one in needed if not one.startswith((_SERVER, _TRACKER))]
    more = ["and others"] if len(files) > _MOST_NAMED else []
    hosts = [one.removeprefix(_SERVER) for one in needed if one.startswith(_SERVER)]
    where = "models.yaml" if study.leave.home is None else "CONTEXTCLIFF_MODELS"
    read = f"reads {', '.join(files[:_MOST_NAMED] + more)}, outside of its folder"
    sent = f"sends its documents to {', '.join(hosts)}, which {where} does not list"
    trackers = [one.removeprefix(_TRACKER) for one in needed if one.startswith(_TRACKER)]
    logged = f"sends its results to {', '.join(trackers)}"
    clauses = [read] * bool(files) + [sent] * bool(hosts) + [logged] * bool(trackers)
    return f"study {study.name!r} {' and '.join(clauses)}"


def refuse_without_leave(study: Study, part: str = "") -> None:
    """Raise StudyError where `leave_needed` finds something."""
    if needed := leave_needed(study, part):
        what = described(study, needed)
        way = "move its file into CONTEXTCLIFF_STUDIES"
        if study.leave.home is None:
            way = "add that server to models.yaml (engine openai, base_url)"
        raise StudyError(
            f"{what[0].upper()}{what[1:]}; if you want that, run `contextcliff prepare` with "
            f"--trust-study, or {way}."
        )


def _files(study: Study, part: str) -> Iterator[tuple[str, str]]:
    found: list[tuple[str, str]] = []

    def note(kind: str, options: Mapping[str, Any]) -> dict[str, Any]:
        for key in _path_keys(kind, options):
            file = absolute(study.folder, options[key])
            found.append((f"corpus.{key}", file))
            if kind not in ("folder", "python-source"):  # which follow no link out of theirs
                found.extend((f"corpus.{key}", link) for link in _links_below(file))
        return dict(options)

    if "corpus".startswith(part):
        study.corpus.changed_options(note)
    for key, name in _tokenizers(study):
        if name.startswith("file:"):
            found.append((key, name[5:]))
    found.extend((f"prompt.{key}", file) for key, file in prompt_files(study).items())
    for name, section in study.sections.items():
        named = getattr(section, "named_files", ())
        found.extend((f"{name}.texts", absolute(study.folder, file)) for file in named)
    for key, file in found:
        if key.startswith(part):
            yield key, absolute(study.folder, file)


def _tokenizers(study: Study) -> Iterator[tuple[str, str]]:
    """The study's, and those that its experiments count with, under the same key."""
    yield "tokenizer", study.tokenizer
    for section in study.sections.values():
        if name := getattr(section, "tokenizer", ""):
            yield "tokenizer", name


def _servers(study: Study) -> Iterator[tuple[str, str]]:
    """Servers that read the study's texts, as tokenizers are named."""
    yield from _tokenizers(study)
    if study.leave.home is not None:  # of one's own, the address is in the study's file
        for name, section in study.sections.items():
            for address in getattr(section, "named_servers", ()):
                yield f"{name}.embeddings", f"server:{address}"


def _links_below(folder: str) -> list[str]:
    walked = os.walk(folder) if "://" not in folder and "\0" not in folder else ()
    paths = (Path(above) / name for above, dirs, files in walked for name in dirs + files)
    return [str(path) for path in paths if path.is_symlink()]


def _with_target(file: str) -> str:
    """``file``, and what it is a link to: leave for the one is none for another."""
    with suppress(OSError, RuntimeError, ValueError):
        if "://" not in file and (target := str(Path(file).resolve())) != os.path.normpath(file):
            return f"{file}, a link to {target}"
    return file


def _is_within(file: str, homes: tuple[Path, ...]) -> bool:
    try:
        path = Path(file).resolve()
        return "://" not in file and any(path.is_relative_to(home) for home in homes)
    except (OSError, RuntimeError, ValueError):  # too long, a loop of links, a NUL
        return False


def home_of(file: Path) -> Path:
    """The folder whose files a study file may read: the working folder, else its own."""
    path, here = file.resolve(), Path.cwd().resolve()
    # From the home folder everything would be within: downloads, too.
    wide = here in (Path.home().resolve(), Path(here.anchor))
    return here if path.is_relative_to(here) and not wide else path.parent


def imported_mark(definition: Path) -> Path:
    """The file next to a definition in the store that came from elsewhere: what it may read."""
    return definition.with_suffix(".imported")


def leave_record(study: Study) -> bytes:
    """What is written at `imported_mark`: leave for this very definition."""
    home, allowed = study.leave
    record = {"definition": _definition(study), "home": str(home), "allowed": sorted(allowed)}
    return json.dumps(record, indent=1).encode()


def recorded_leave(study: Study, definition: Path) -> Leave:
    """The leave of the study kept at ``definition``, the least where that was changed."""
    mark = imported_mark(definition)
    if not mark.exists():
        return Leave()
    with suppress(OSError, ValueError, LookupError, TypeError):
        record = loads(read_file(mark))
        if record["definition"] == _definition(study):
            return Leave(Path(record["home"]), frozenset(map(str, record["allowed"])))
    return Leave(definition.parent)


def _definition(study: Study) -> str:
    values = study.model_dump(mode="json", exclude_defaults=True)
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def prompt_files(study: Study) -> dict[str, str]:
    """The files that the study's prompt names, by their key, as they are written."""
    named = {key: getattr(study.prompt, key) for key in PROMPT_FILES}
    # A template may also be written out in the study.
    written = {"template"} if "{document}" in (study.prompt.template or "") else set()
    return {key: file for key, file in named.items() if file and key not in written}


def prompt_text(study: Study, key: str, file: str) -> str:
    """The text of a file of the study's prompt.

    Raises:
        StudyError: it is missing, no text, or outside the folder of a study from elsewhere.
    """
    refuse_without_leave(study, "prompt")
    path = Path(absolute(study.folder, file))
    try:
        return read_file(path).decode()
    except FileNotFoundError as error:
        raise StudyError(
            f"Study {study.name!r} names {path} as prompt.{key}, but there is no such file."
        ) from error
    except (OSError, ValueError) as error:
        raise StudyError(
            f"Study {study.name!r}: {path} (prompt.{key}) is not readable UTF-8 text: {error}."
        ) from error
