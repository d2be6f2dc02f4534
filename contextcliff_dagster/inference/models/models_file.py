"""The registry of models: which serving configuration has a name, and where it is kept.

The registry of models: which serving configuration has a name.

``models.yaml`` maps a name to an engine, a model id, an endpoint, a window, prices and the quirks
that real endpoints have. The shipped file is overlaid, name by name, by the store's
(`kept_models`), and both by the file that ``CONTEXTCLIFF_MODELS`` names, or else by ``models.yaml``
in the working folder.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pydantic

from contextcliff_dagster.contracts import StoreError, StudyError
from contextcliff_dagster.contracts.extensions import extensions
from contextcliff_dagster.inference.models.entry import ModelEntry as ModelEntry
from contextcliff_dagster.inference.models.entry import Name, Strict
from contextcliff_dagster.inference.models.entry import Price as Price
from contextcliff_dagster.inference.models.entry import Quirks as Quirks
from contextcliff_dagster.inference.models.kv_variants import Models, kv_policy, parse_kv_variant
from contextcliff_dagster.private_files import folder_lock
from contextcliff_dagster.store import PACKAGE, store_root, write_atomic
from contextcliff_dagster.yaml_config import load_validated

if TYPE_CHECKING:
    from contextcliff_dagster.inference.models.new_entry import NewEntry

SHIPPED_MODELS = PACKAGE / "models.yaml"


class _ModelsFile(Strict):
    models: dict[Name, ModelEntry]

    @pydantic.model_validator(mode="before")
    @classmethod
    def _names_from_keys(cls, data: Any) -> Any:
        models = data.get("models") if isinstance(data, Mapping) else None
        if not isinstance(models, Mapping):
            return data
        named = dict(models)
        for key, entry in models.items():
            if isinstance(entry, Mapping):
                named[key] = {"name": key, **entry}
                if (name := named[key]["name"]) != key:
                    raise ValueError(f"model {key!r} has `name: {name}`; leave `name` out")
        return {**data, "models": named}


def model_files(*, here: bool = True) -> list[Path]:
    """The files that make up the registry, the later overlaying the earlier.

    ``here``: that of the working folder, too.
    """
    kept = kept_models_file()
    of_extensions = [path for one in extensions().values() if (path := one.own("models.yaml"))]
    files = [SHIPPED_MODELS, *of_extensions, *([kept] if kept.is_file() else [])]
    if own := os.environ.get("CONTEXTCLIFF_MODELS"):
        return [*files, Path(own).expanduser()]
    local = Path("models.yaml")
    return [*files, local] if here and local.is_file() else files


def kept_models_file() -> Path:
    """The store's own file, of models that a command has found at an address."""
    return store_root() / "_models.yaml"


def load_models(paths: Sequence[Path] | None = None) -> Models:
    """Name -> entry, of ``paths`` or of `model_files()`; a later file replaces whole entries.

    A variant of an entry (`kv_variants`) is found by its name, too, though not listed.

    Raises:
        StudyError: naming file, line and key.
    """
    entries = Models()
    for path in model_files() if paths is None else paths:
        try:
            stat = path.stat()
            stamp = stat.st_mtime_ns, stat.st_size
        except OSError:
            stamp = 0, 0
        entries.update(_load_file(path.resolve(), stamp))
    return entries


def get_model(name: str, models: Mapping[str, ModelEntry] | None = None) -> ModelEntry:
    """The entry called ``name``, or the variant of an entry; else a StudyError that lists them."""
    models = load_models() if models is None else Models(models)
    try:
        return models[name]
    except KeyError as error:
        if isinstance(error.__cause__, StudyError):  # a variant that its engine cannot be
            raise error.__cause__ from None
    variant = parse_kv_variant(name)
    if variant and variant.base in models:
        raise StudyError(
            f"Model {name!r} cannot be made of {variant.base!r}, which is a variant itself; name "
            f"the model without `+{variant.base.rpartition('+')[2]}`."
        )
    base, _, policy = name.rpartition("+")
    if base in models and kv_policy(policy):
        raise StudyError(f"Model {name!r} lacks its budget, a share as in {name}@0.2.")
    raise StudyError(
        f"There is no model {name!r}; there are {', '.join(sorted(models))}. "
        "Add it to ./models.yaml (or the file that CONTEXTCLIFF_MODELS names)."
    )


@cache
def _load_file(path: Path, stamp: tuple[int, int]) -> dict[str, ModelEntry]:
    """Cached by path and time of change: long-living processes ask often."""
    del stamp
    entries = load_validated(path, _ModelsFile).models
    for name, entry in entries.items():
        if weights := entry.weights:
            # Relative to the file that names them; a bare name may also be of a fetched model.
            place = path.parent / Path(weights).expanduser()
            if weights != place.name or place.exists():
                entries[name] = entry.model_copy(update={"weights": str(place)})
        if bundle := entry.ca_bundle:
            bundle = str(path.parent / Path(bundle).expanduser())
            entries[name] = entries[name].model_copy(update={"ca_bundle": bundle})
    return entries


_HEAD = "# Kept by contextcliff for its studies; your own models belong into models.yaml.\n"


@contextmanager
def kept_model(new: NewEntry) -> Iterator[ModelEntry]:
    """Make ``new`` a model of this store; one that no study of the store names is dropped again.

    An entry of the same name in the user's models.yaml comes first.

    Raises:
        StudyError: a field of the entry is none.
        StoreError: the store cannot be written.
    """
    new.checked()
    _change(new.name, dict(new.fields))
    try:
        yield load_models()[new.name]
    finally:
        if not _is_named(new.name):
            _change(new.name, None)


def _is_named(model: str) -> bool:
    root = store_root() / "_studies"
    return any(model in file.read_text("utf-8") for file in root.glob("*.yaml"))


def _change(name: str, entry: Mapping[str, Any] | None) -> None:
    import yaml

    file = kept_models_file()
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with folder_lock(file.parent):
            kept = yaml.safe_load(file.read_bytes())["models"] if file.exists() else {}
            kept.pop(name, None)
            if entry is not None:
                kept[name] = dict(entry)
            if kept:
                write_atomic(file, (_HEAD + yaml.safe_dump({"models": kept})).encode())
            else:
                file.unlink(missing_ok=True)
    except OSError as error:
        raise StoreError(
            f"{file} cannot be written ({error.strerror or error}); point --store or "
            "CONTEXTCLIFF_HOME at a writable folder."
        ) from error
    if not kept:
        with suppress(OSError):  # a store that was not there is not there again
            file.parent.rmdir()
