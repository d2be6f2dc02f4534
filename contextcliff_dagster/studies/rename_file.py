"""A study's file under another name, everything else in it as it was written."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from contextcliff_dagster.contracts import StudyError
from contextcliff_dagster.private_files import atomic_path
from contextcliff_dagster.store import Store, write_atomic
from contextcliff_dagster.studies.files import (
    kept_in,
    load_studies,
    load_study,
    own_study,
    study_folders,
)
from contextcliff_dagster.studies.study import Study
from contextcliff_dagster.studies.study_paths import (
    imported_mark,
    leave_record,
    prompt_files,
)
from contextcliff_dagster.user_files import read_file

Values = Mapping[tuple[str, ...], str]
"""Keys, from the outermost, to the scalar under the last."""


def study_files(store: Store, name: str) -> list[Path]:
    """The files that define the study ``name``: the user's own, the one that the store keeps.

    Raises:
        StudyError: the study comes with the package, or a file is malformed.
    """
    own, kept = own_study(name), kept_in(store.root) / f"{name}.yaml"
    files = [*([own[0]] if own else []), *([kept] if kept.is_file() else [])]
    if not files and name in load_studies():
        raise StudyError(
            f"Study {name!r} comes with the package , which keeps "
            "its name; copy the file into a folder of yours (CONTEXTCLIFF_STUDIES) to change it."
        )
    return files


def is_taken(store: Store, name: str) -> Path | None:
    """A file that a study called ``name`` would replace or be hidden by."""
    for folder in (*study_folders(), kept_in(store.root)):
        for path in (folder / f"{name}.yaml", folder / f"{name}.yml"):
            if path.exists():
                return path
    known = load_studies().get(name)
    return None if known is None else known.folder


def renamed_text(path: Path, old: str, new: str, values: Values | None = None) -> str:
    """The text of the study file at ``path`` with the name ``new``; of other ``values``, too.

    Raises:
        StudyError: it names its study in a way that only a person should change.
    """
    import yaml

    text = read_file(path).decode()
    wanted = {("name",): new, **(values or {})}
    spans = {keys: _span(yaml.compose(text, yaml.SafeLoader), keys) for keys in wanted}
    changed = text
    for keys, span in sorted(spans.items(), key=lambda item: item[1], reverse=True):
        value = wanted[keys]
        plain = re.fullmatch(r"[a-z][a-z0-9-]*", value) and yaml.safe_load(value) == value
        written = value if plain else json.dumps(value)
        changed = changed[: span[0]] + written + changed[span[1] :]
    before: Any = yaml.safe_load(text)
    try:
        after: Any = yaml.safe_load(changed)
        for keys, value in wanted.items():
            _put(before, keys, value)
    except (yaml.YAMLError, TypeError, KeyError):
        after = None
    if after is None or after != before:
        raise StudyError(
            f"The name {old!r} is written in {path} in a way that cannot be changed safely; write "
            f"`name: {new}` there by hand and run the same command again."
        )
    return changed


def rename_file(path: Path, old: str, new: str) -> Path:
    """Write the study's file again under its new name; where it is then.

    The file keeps its folder, and another name than the study's; killed in between, the old file or
    both are there, and calling it again ends with the new one.

    Raises:
        StudyError: as `renamed_text`.
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
    """`rename_file` of the definition that the store keeps, with what lies next to it.

    Raises:
        StudyError, StoreError: as `rename_file`.
    """
    folder = kept_in(store.root)
    path, target = folder / f"{old}.yaml", folder / f"{new}.yaml"
    study = load_study(path)
    values: dict[tuple[str, ...], str] = {}
    for key, file in prompt_files(study).items():
        # Under the old name an import of such a study would write over it.
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
    # The mark last: without it the old definition would be the user's own.
    for one in (*(folder / f"{old}.{key}.txt" for _, key in values), imported_mark(path)):
        one.unlink(missing_ok=True)
    return target


def _span(node: Any, keys: tuple[str, ...]) -> tuple[int, int]:
    for key in keys:
        node = next((value for name, value in node.value if name.value == key), None)
        if node is None:
            return 0, 0
    return node.start_mark.index, node.end_mark.index


def _put(data: Any, keys: tuple[str, ...], value: str) -> None:
    for key in keys[:-1]:
        data = data[key]
    data[keys[-1]] = value
