"""Study files: finding, reading, retiring and renaming them.

A retired study is no longer shown. A note next to its results marks it; the results remain.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from contextcliff_dagster.contracts import StudyError
from contextcliff_dagster.private_files import atomic_path
from contextcliff_dagster.store import Store, store_root, write_atomic, write_json
from contextcliff_dagster.studies.sections import NAME_CHARS, STUDY_NAME
from contextcliff_dagster.studies.study import (
    Leave,
    Study,
    home_of,
    imported_mark,
    leave_record,
    prompt_files,
    recorded_leave,
    shipped_folders,
)
from contextcliff_dagster.user_files import open_file, read_file


def load_study(path: Path) -> Study:
    """Load one study from its YAML file.

    Raises:
        StudyError: it is malformed; the message names the file, the line and the key.
    """
    from contextcliff_dagster.yaml_config import load_validated

    study = in_folder(load_validated(path, Study), path.resolve().parent)
    folder, store_folder = path.absolute().parent.resolve(), kept_in(store_root())
    if folder == store_folder.resolve():
        return study.with_leave(recorded_leave(study, store_folder / path.name))
    # A link in one of the study folders counts as the user's own, too.
    searched = folder in [known.resolve() for known in study_folders()]
    return study if searched else study.with_leave(Leave(home_of(path)))


def in_folder(study: Study, folder: Path) -> Study:
    """Return ``study`` with its paths relative to ``folder``."""
    copy = study.model_copy()
    copy._folder = folder
    return copy


def study_folders() -> list[Path]:
    """Return the folders to search (shipped, store, user), where later ones take precedence.

    The store holds studies that were created on the command line or imported (:func:`kept_in`); the
    user's folder is ``CONTEXTCLIFF_STUDIES``.

    Raises:
        StudyError: ``CONTEXTCLIFF_STUDIES`` is not a folder.
    """
    folders = [*shipped_folders(), kept_in(store_root())]
    if user_folder := os.environ.get("CONTEXTCLIFF_STUDIES"):
        folder = Path(user_folder).expanduser()
        if not folder.is_dir():
            raise StudyError(f"CONTEXTCLIFF_STUDIES names {folder}, which is not a folder.")
        folders.append(folder)
    return folders


def kept_in(root: Path) -> Path:
    """Return the store's folder of study definitions; its name is not a valid study name."""
    return root / "_studies"


@dataclass(frozen=True, slots=True)
class BrokenStudy:
    """A malformed study file: the study's name, if readable, and the error.

    The error is raised as StudyError when this study is requested; all other studies still work.
    """

    name: str
    path: Path
    error: str


def load_studies() -> dict[str, Study]:
    """Load all studies by name, sorted; a user's study replaces the shipped one of the same name.

    Malformed files are omitted; :func:`read_studies` returns them, too. Raises StudyError if
    ``CONTEXTCLIFF_STUDIES`` is not a folder.
    """
    return read_studies()[0]


def known_study(name: str) -> Study | None:
    """Return the study named ``name``; None if there is none or its file is malformed.

    No other study's file is loaded, because some load packages that this study does not need.
    Raises like :func:`load_studies`.
    """
    return read_studies(named=name)[0].get(name)


def read_studies(
    shipped: Callable[[str], bool] | None = None, named: str | None = None
) -> tuple[dict[str, Study], list[BrokenStudy]]:
    """Load all studies by name, and the malformed files; raises like :func:`load_studies`.

    ``shipped`` decides by name which shipped studies to load; None loads all. ``named`` is the only
    study needed; others may be loaded with it.
    """
    studies: dict[str, Study] = {}
    broken: dict[str, BrokenStudy] = {}
    of_ours = shipped_folders()
    for folder in study_folders():
        found, unusable = _studies_in(folder, shipped if folder in of_ours else None, named)
        for name in unusable:  # a sound file would replace the earlier study
            studies.pop(name, None)
        for name, (_, study) in found.items():
            studies[name] = study
            broken.pop(name, None)
        broken |= unusable
    return dict(sorted(studies.items())), list(broken.values())


def _studies_in(
    folder: Path, wanted: Callable[[str], bool] | None = None, named: str | None = None
) -> tuple[dict[str, tuple[Path, Study]], dict[str, BrokenStudy]]:
    studies: dict[str, tuple[Path, Study]] = {}
    errors: list[BrokenStudy] = []
    duplicates: dict[str, BrokenStudy] = {}
    for path in sorted([*folder.glob("*.yaml"), *folder.glob("*.yml")]):
        written = _written_name(path)
        if wanted is not None and not wanted(written or path.stem):
            continue
        if named is not None and written not in (None, named):
            continue
        try:
            study = load_study(path)
        except Exception as error:  # one broken file must not hide the others
            known = isinstance(error, StudyError)
            text = str(error) if known else f"{path}: {error}"
            errors.append(BrokenStudy(written or path.stem, path, text))
            continue
        if study.name in studies:
            both = (
                f"{studies[study.name][0]} and {path} both name their study {study.name!r}; "
                "rename one."
            )
            duplicates[study.name] = BrokenStudy(study.name, path, both)
        studies[study.name] = path, study
    # A broken copy of a sound file does not claim its name.
    spoiled = [replace(e, name=e.path.name) if e.name in studies else e for e in errors]
    broken = {entry.name: entry for entry in spoiled} | duplicates
    return {name: entry for name, entry in studies.items() if name not in duplicates}, broken


def _written_name(path: Path) -> str | None:
    """Return the study name stated in a file, even a malformed one; None if none is stated."""
    with suppress(OSError):
        with open_file(path) as file:
            text = file.read(1 << 16).decode(errors="replace")
        if match := re.search(r"^name:\s*[\"']?([a-z0-9][a-z0-9-]{0,59})\b", text, re.MULTILINE):
            return match[1]
    return None


def own_study(name: str) -> tuple[Path, Study] | None:
    """Return the file and the study ``name`` in the user's folder, where it hides others.

    Raises:
        StudyError: its file is malformed, or see :func:`load_studies`.
    """
    if not os.environ.get("CONTEXTCLIFF_STUDIES"):
        return None
    studies, broken = _studies_in(study_folders()[-1])
    if name in broken:
        raise StudyError(broken[name].error)
    return studies.get(name)


def hidden_study(name: str) -> tuple[Path, Path] | None:
    """Return the user's file and the store's if both define ``name``, but differently.

    Raises:
        StudyError: one of them is malformed, or see :func:`load_studies`.
    """
    user, store_file = own_study(name), kept_in(store_root()) / f"{name}.yaml"
    if user is None or not store_file.is_file():
        return None
    path, study = user
    return None if measures(study) == measures(load_study(store_file)) else (path, store_file)


def measures(study: Study, recipe_hash: str | None = None) -> dict[str, Any]:
    """Return what the study measures, without paths; pass ``recipe_hash`` if files are missing.

    Raises:
        StudyError: a prompt file is missing.
    """
    words = study.model_dump(mode="json", exclude={"prompt", "description", "assets"})
    return {**words, "recipe": recipe_hash or study.recipe().hash}


def require_study_name(name: str) -> None:
    """Raise StudyError if a study name is invalid; names are used as paths."""
    if not re.fullmatch(STUDY_NAME, name):
        raise StudyError(
            f"{name!r} is not a valid study name: use up to {NAME_CHARS} lowercase letters, digits "
            "and hyphens, starting with a letter or digit."
        )


def find_study(name: str) -> Study:
    """Return the study named ``name``, or the study in the YAML file at path ``name``.

    Raises:
        StudyError: it is unknown, or its file is malformed; the message lists the known studies.
    """
    if name.endswith((".yaml", ".yml")):
        return self_contained(load_study(Path(name)))
    studies, broken = read_studies(named=name)
    for entry in broken:
        if entry.name == name:
            raise StudyError(entry.error)
    if name not in studies:
        if (file := Path(f"{name}.yaml")).is_file():
            raise StudyError(f"There is no study {name!r}, but a file {file}: use its path.")
        raise StudyError(
            f"There is no study {name!r}; there are {', '.join(load_studies())} "
            "(add your own folder with CONTEXTCLIFF_STUDIES)."
        )
    return studies[name]


def self_contained(study: Study) -> Study:
    """Return the study with absolute paths, so that its file may be moved anywhere.

    A known study is unchanged: whether opened by file from any folder or by name, it is the same.
    """
    absolute = study.with_absolute_paths()
    namesake = known_study(study.name)
    if namesake is None or namesake.with_absolute_paths().model_dump() != absolute.model_dump():
        return absolute
    if namesake.leave.home is None:
        return namesake
    return namesake.with_leave(absolute.leave.also(namesake.leave.allowed))


_NOTE = "retired.json"


def retire(store: Store, study: str) -> None:
    """Mark ``study`` as retired, and change nothing else.

    Raises:
        StudyError: the store has nothing for it, or the name is invalid.
        StoreError: the note cannot be written.
    """
    require_study_name(study)
    folder = store.study_dir(study)
    if not folder.is_dir():
        raise StudyError(
            f"The store has no results of study {study!r}, so it cannot be retired; "
            "`contextcliff campaign list` shows the measured studies."
        )
    retired_at = datetime.now(UTC).isoformat(timespec="seconds")
    write_json(folder / _NOTE, {"study": study, "retired_at": retired_at})


def bring_back(store: Store, study: str) -> None:
    """Remove the mark that retires a study. Raises StudyError: the study is not retired."""
    require_study_name(study)
    if not is_retired(store, study):
        raise StudyError(
            f"Study {study!r} is not retired; found: {', '.join(retired_studies(store)) or 'none'}."
        )
    (store.study_dir(study) / _NOTE).unlink(missing_ok=True)


def is_retired(store: Store, study: str) -> bool:
    return (store.study_dir(study) / _NOTE).is_file()


def retired_studies(store: Store) -> list[str]:
    """Return the names of the retired studies, sorted."""
    names = []
    for note in store.root.glob(f"*/{_NOTE}"):
        with suppress(OSError, ValueError, KeyError, TypeError):
            names.append(str(json.loads(note.read_bytes())["study"]))
    return sorted(names)


Values = Mapping[tuple[str, ...], str]
"""Key path, outermost key first -> the scalar value at that path."""


def study_files(store: Store, name: str) -> list[Path]:
    """Return the files that define the study ``name``: the user's and the store's.

    Raises:
        StudyError: the study comes with the package, or a file is malformed.
    """
    user, file = own_study(name), kept_in(store.root) / f"{name}.yaml"
    files = [*([user[0]] if user else []), *([file] if file.is_file() else [])]
    if not files and known_study(name) is not None:
        raise StudyError(
            f"Study {name!r} comes with the package and keeps its name; to change it, copy the "
            "file into your own folder of studies (CONTEXTCLIFF_STUDIES)."
        )
    return files


def is_taken(store: Store, name: str) -> Path | None:
    """Return a file that a new study ``name`` would replace or be hidden by, or None."""
    for folder in (*study_folders(), kept_in(store.root)):
        for path in (folder / f"{name}.yaml", folder / f"{name}.yml"):
            if path.exists():
                return path
    namesake = known_study(name)
    return None if namesake is None else namesake.folder


def renamed_text(path: Path, old: str, new: str, values: Values | None = None) -> str:
    """Return the text of the study file at ``path`` with the ``new`` name and new ``values``.

    Raises:
        StudyError: it states its name in a form that only a person should change.
    """
    import yaml

    text = read_file(path).decode()
    wanted = {("name",): new, **(values or {})}
    spans = {keys: _span(yaml.compose(text, yaml.SafeLoader), keys) for keys in wanted}
    changed = text
    for keys, span in sorted(spans.items(), key=lambda item: item[1], reverse=True):
        value = wanted[keys]
        is_plain = re.fullmatch(r"[a-z][a-z0-9-]*", value) and yaml.safe_load(value) == value
        scalar = value if is_plain else json.dumps(value)
        changed = changed[: span[0]] + scalar + changed[span[1] :]
    old_content: Any = yaml.safe_load(text)
    try:
        new_content: Any = yaml.safe_load(changed)
        for keys, value in wanted.items():
            place = old_content
            for key in keys[:-1]:
                place = place[key]
            place[keys[-1]] = value
    except (yaml.YAMLError, TypeError, KeyError):
        new_content = None
    if new_content is None or new_content != old_content:
        raise StudyError(
            f"The name {old!r} is written in {path} in a way that cannot be changed safely; write "
            f"`name: {new}` there by hand and run the same command again."
        )
    return changed


def rename_file(path: Path, old: str, new: str) -> Path:
    """Rewrite the study's file under its new name, and return the file's path.

    The file stays in its folder; its file name changes only if it was the study's name. If the
    process is killed midway, the old file or both exist; call this again to finish.

    Raises:
        StudyError: see `renamed_text`.
        StoreError: it cannot be written.
    """
    text = renamed_text(path, old, new)
    linked = path.is_symlink()
    target = path if path.stem != old or linked else path.with_stem(new)
    with atomic_path(path.resolve() if linked else target, private=False) as temporary:
        temporary.write_text(text, encoding="utf-8")
        shutil.copymode(path, temporary)
    if target != path:
        path.unlink(missing_ok=True)
    return target


def rename_kept(store: Store, old: str, new: str) -> Path:
    """Rename the store's definition and the files next to it; raises as `rename_file`."""
    folder = kept_in(store.root)
    path, target = folder / f"{old}.yaml", folder / f"{new}.yaml"
    study = load_study(path)
    values: dict[tuple[str, ...], str] = {}
    for key, file in prompt_files(study).items():
        # Under the old name, importing such a study again would overwrite it.
        if Path(file) == folder / f"{old}.{key}.txt":
            values["prompt", key] = str(folder / f"{new}.{key}.txt")
            write_atomic(Path(values["prompt", key]), read_file(Path(file)))
    text = renamed_text(path, old, new, values)
    if imported_mark(path).exists():
        import yaml

        renamed = Study.model_validate(yaml.safe_load(text)).with_leave(study.leave)
        write_atomic(imported_mark(target), leave_record(renamed))
    write_atomic(target, text.encode())
    path.unlink(missing_ok=True)
    # The mark goes last: without it the old definition would count as the user's own.
    for leftover in (*(folder / f"{old}.{key}.txt" for _, key in values), imported_mark(path)):
        leftover.unlink(missing_ok=True)
    return target


def _span(node: Any, keys: tuple[str, ...]) -> tuple[int, int]:
    for key in keys:
        node = next((value for name, value in node.value if name.value == key), None)
        if node is None:
            return 0, 0
    return node.start_mark.index, node.end_mark.index
