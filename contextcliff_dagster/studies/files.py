"""Where study files are looked for, and reading them."""

from __future__ import annotations

import os
from pathlib import Path

from contextcliff_dagster.contracts import StudyError
from contextcliff_dagster.store import store_root
from contextcliff_dagster.studies.study import Study


def load_study(path: Path) -> Study:
    """One study from its YAML file.

    Raises:
        StudyError: naming the file, the line and the key.
    """
    from contextcliff_dagster.inference.yaml_errors import load_validated

    study = load_validated(path, Study)
    study._folder = path.resolve().parent
    return study


def study_folders() -> list[Path]:
    """Folders that are searched, a later one winning: the shipped, the store's, the user's own.

    The store keeps the studies that were made on the command line or imported (:func:`kept_in`);
    the user's folder is ``CONTEXTCLIFF_STUDIES``.

    Raises:
        StudyError: ``CONTEXTCLIFF_STUDIES`` names no folder.
    """
    package = Path(__file__).resolve().parents[1]
    installed = package / "_studies"
    folders = [installed if installed.is_dir() else package.parent / "studies"]
    folders.append(kept_in(store_root()))
    if own := os.environ.get("CONTEXTCLIFF_STUDIES"):
        folder = Path(own).expanduser()
        if not folder.is_dir():
            raise StudyError(f"CONTEXTCLIFF_STUDIES names {folder}, which is not a folder.")
        folders.append(folder)
    return folders


def kept_in(root: Path) -> Path:
    """Where the store at ``root`` keeps definitions; no study can have this name."""
    return root / "_studies"


def load_studies() -> dict[str, Study]:
    """All studies by name, sorted; a user's study replaces the shipped one of the same name.

    Raises:
        StudyError: a file is malformed, or two files of one folder give the same name.
    """
    studies: dict[str, Study] = {}
    for folder in study_folders():
        here: dict[str, Path] = {}
        for path in sorted([*folder.glob("*.yaml"), *folder.glob("*.yml")]):
            study = load_study(path)
            if study.name in here:
                raise StudyError(
                    f"{here[study.name]} and {path} both name their study {study.name!r}; "
                    "rename one."
                )
            here[study.name] = path
            studies[study.name] = study
    return dict(sorted(studies.items()))


def find_study(name: str) -> Study:
    """The study called ``name``, or the one in the YAML file ``name``.

    Raises:
        StudyError: there is none; the sentence lists those there are.
    """
    if name.endswith((".yaml", ".yml")):
        return load_study(Path(name))
    studies = load_studies()
    if name not in studies:
        raise StudyError(
            f"There is no study {name!r}; there are {', '.join(studies)} "
            "(add your own folder with CONTEXTCLIFF_STUDIES)."
        )
    return studies[name]
