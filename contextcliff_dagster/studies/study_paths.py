"""The files that a study names: where they are, and whether they are those of its own folder.

A study may come from another person. What it names outside of its folder is read only once the user
knows of it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from contextcliff_dagster.contracts import StudyError
from contextcliff_dagster.store import PACKAGE
from contextcliff_dagster.user_files import read_file

if TYPE_CHECKING:
    from contextcliff_dagster.studies.study import Study

PROMPT_FILES = ("template", "system", "instructions")
"""The keys of `prompt` that name files."""

_MOST_NAMED = 8
Origin = Literal["own", "project", "elsewhere", "trusted"]
"""Of a study file: the user's folders of studies, the working folder, or anywhere else; or trusted
on request."""


def shipped_folder() -> Path:
    """The studies that come with the package, and their prompts."""
    installed = PACKAGE / "_studies"
    return installed if installed.is_dir() else PACKAGE.parent / "studies"


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


def files_outside(study: Study, part: str = "") -> list[str]:
    """Keys and paths of what the study reads outside of its folder, links followed.

    ``part``: of the files under this key alone (corpus, tokenizer or prompt).
    """
    homes = (study.folder.resolve(), shipped_folder().resolve())
    files = [(key, file) for key, file in _files(study) if key.startswith(part)]
    outside = [f"{key} {file}" for key, file in files if not _is_within(file, homes)]
    return [*outside[:_MOST_NAMED], *(["and others"] if len(outside) > _MOST_NAMED else [])]


def _files(study: Study) -> Iterator[tuple[str, str]]:
    found: list[tuple[str, str]] = []

    def note(kind: str, options: Mapping[str, Any]) -> dict[str, Any]:
        for key in _path_keys(kind, options):
            file = absolute(study.folder, options[key])
            found.append((f"corpus.{key}", file))
            if kind not in ("folder", "python-source"):  # which follow no link out of theirs
                found.extend((f"corpus.{key}", link) for link in _links_below(file))
        return dict(options)

    study.corpus.changed_options(note)
    if study.tokenizer.startswith("file:"):
        found.append(("tokenizer", study.tokenizer[5:]))
    prompt = {key: getattr(study.prompt, key) for key in PROMPT_FILES}
    found.extend((f"prompt.{key}", file) for key, file in prompt.items() if file)
    for key, file in found:
        yield key, absolute(study.folder, file)


def _links_below(folder: str) -> list[str]:
    walked = os.walk(folder) if "://" not in folder and "\0" not in folder else ()
    paths = (Path(above) / name for above, dirs, files in walked for name in dirs + files)
    return [str(path) for path in paths if path.is_symlink()]


def _is_within(file: str, homes: tuple[Path, ...]) -> bool:
    try:
        path = Path(file).resolve()
        return "://" not in file and any(path.is_relative_to(home) for home in homes)
    except (OSError, RuntimeError, ValueError):  # too long, a loop of links, a NUL
        return False


def origin_of(file: Path, folders: list[Path], kept: Path) -> Origin:
    """Whose the study file is; ``folders`` are those of the user, ``kept`` the store's."""
    path, folder = file.resolve(), file.absolute().parent.resolve()
    if folder == kept.resolve():
        return "elsewhere" if imported_mark(kept / file.name).exists() else "own"
    if folder in [one.resolve() for one in folders]:
        return "own"  # a link there, too: the user has put it there
    here = Path.cwd().resolve()
    # From the home folder everything would be within: downloads, too.
    wide = here in (Path.home().resolve(), Path(here.anchor))
    within = path.parent == here if wide else path.is_relative_to(here)
    return "project" if within else "elsewhere"


def imported_mark(definition: Path) -> Path:
    """The file next to a definition in the store that came in an archive."""
    return definition.with_suffix(".imported")


def refuse_outside(study: Study, part: str) -> None:
    """Raise StudyError where a study from elsewhere reads outside of its folder."""
    if study.origin == "elsewhere" and (outside := files_outside(study, part)):
        raise StudyError(
            f"Study {study.name!r} is not from your own folder of studies and reads "
            f"{', '.join(outside)}, outside of its folder; if you want that, run `contextcliff "
            "prepare` with --trust-study, or move its file into CONTEXTCLIFF_STUDIES."
        )


def prompt_text(study: Study, key: str, file: str) -> str:
    """The text of a file of the study's prompt.

    Raises:
        StudyError: it is missing, no text, or outside the folder of a study from elsewhere.
    """
    refuse_outside(study, "prompt")
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
