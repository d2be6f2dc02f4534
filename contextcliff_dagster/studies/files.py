"""Where study files are looked for, and reading them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from contextcliff_dagster.contracts import StudyError
from contextcliff_dagster.store import PACKAGE, store_root
from contextcliff_dagster.studies.study import Study


def load_study(path: Path) -> Study:
    """One study from its YAML file.

    Raises:
        StudyError: naming the file, the line and the key.
    """
    from contextcliff_dagster.yaml_config import load_validated

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
    installed = PACKAGE / "_studies"
    folders = [installed if installed.is_dir() else PACKAGE.parent / "studies"]
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
    studies = {
        name: study
        for folder in study_folders()
        for name, (_, study) in _studies_in(folder).items()
    }
    return dict(sorted(studies.items()))


def _studies_in(folder: Path) -> dict[str, tuple[Path, Study]]:
    studies: dict[str, tuple[Path, Study]] = {}
    for path in sorted([*folder.glob("*.yaml"), *folder.glob("*.yml")]):
        study = load_study(path)
        if study.name in studies:
            raise StudyError(
                f"{studies[study.name][0]} and {path} both name their study {study.name!r}; "
                "rename one."
            )
        studies[study.name] = path, study
    return studies


def own_study(name: str) -> tuple[Path, Study] | None:
    """File and study called ``name`` in the user's own folder, which hides any other of that name.

    Raises:
        StudyError: as :func:`load_studies`.
    """
    if not os.environ.get("CONTEXTCLIFF_STUDIES"):
        return None
    return _studies_in(study_folders()[-1]).get(name)


def hidden_study(name: str) -> tuple[Path, Path] | None:
    """The user's file and the store's, where they define different studies called ``name``.

    Raises:
        StudyError: as :func:`load_studies`.
    """
    own, kept = own_study(name), kept_in(store_root()) / f"{name}.yaml"
    if own is None or not kept.is_file():
        return None
    path, study = own
    return None if measures(study) == measures(load_study(kept)) else (path, kept)


def measures(study: Study, recipe_hash: str | None = None) -> dict[str, Any]:
    """What the study measures, wherever its files lie; ``recipe_hash`` where they do not lie yet.

    Raises:
        StudyError: a prompt file is missing.
    """
    words = study.model_dump(mode="json", exclude={"prompt", "description"})
    return {**words, "recipe": recipe_hash or study.recipe().hash}


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
