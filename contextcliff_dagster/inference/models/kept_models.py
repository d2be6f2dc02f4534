"""Models that a command has found at an address, kept with the studies that measure them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.contracts import StoreError
from contextcliff_dagster.inference.models.models_file import (
    ModelEntry,
    kept_models_file,
    load_models,
)
from contextcliff_dagster.private_files import folder_lock
from contextcliff_dagster.store import store_root, write_atomic

if TYPE_CHECKING:
    from contextcliff_dagster.inference.models.new_entry import NewEntry

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
