"""Exporting a study from a store, and importing it into another."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pydantic

from contextcliff_dagster.archive import calls, container
from contextcliff_dagster.archive.calls import check_rows
from contextcliff_dagster.archive.container import (
    ARCHIVE_HEAD,
    EXAMPLES_MEMBER,
    SAMPLE_MEMBERS,
    check_head,
    malformed,
    read_description,
    sound_sample,
)
from contextcliff_dagster.archive.results import KEPT_MEMBERS, KeptList, pack, unpack
from contextcliff_dagster.contracts import SCHEMA_VERSION, StoreError, StudyError
from contextcliff_dagster.inference.ledger.ledger import Ledger
from contextcliff_dagster.inference.ledger.schema import LEDGER_VERSION
from contextcliff_dagster.sampling.manifest import MANIFEST_FILES, Manifest, load_manifest
from contextcliff_dagster.store import Store, write_atomic
from contextcliff_dagster.studies import Study, kept_in, load_studies, measures, own_study
from contextcliff_dagster.studies.study import PROMPT_FILES

_MEMBERS = ("study.json", *(f"ledger/{name}.parquet" for name in calls.TABLES))


@dataclass(frozen=True, slots=True)
class ArchiveSummary:
    """Contents of an archive. ``new_answers``: answers not in the store before (import only).

    ``usd``: what its requests cost. Import counts this against its campaigns' budgets, but not
    against the daily budget.
    """

    study: str
    campaigns: tuple[str, ...]
    examples: int
    answers: int
    bytes: int
    sha256: str
    new_answers: int = 0
    usd: float = 0.0


def export_study(
    store: Store,
    study: Study,
    file: Path,
    *,
    campaign: str | None = None,
    asked: Callable[[Ledger], Iterable[str]] = lambda _: (),
    documents: Mapping[str, KeptList] | None = None,
) -> ArchiveSummary:
    """Write ``study`` with its sample and its calls to ``file`` atomically; return a summary.

    ``campaign``: None for all. ``asked``: returns the keys of the study's calls
    (`experiments.lookup.asked_keys`), so that answers which another study of the store paid for
    first are exported, too. ``documents``: `experiments.restore.kept_lists`.

    Raises:
        StudyError: nothing is measured yet, or there is no such campaign.
        StoreError: the store cannot be read or the file not written.
    """
    folder = store.manifest_dir(study.name)
    sampled = study.has_corpus
    if (sampled and not (folder / MANIFEST_FILES[0]).is_file()) or not store.has_ledger:
        raise StudyError(
            f"Study {study.name!r} has nothing to export in {store.root}; measure it first with "
            f"`contextcliff profile {study.name}`."
        )
    manifest = load_manifest(folder) if sampled else None  # verifies its hash
    members = {
        f"manifest/{name}": (folder / name).read_bytes()
        for name in MANIFEST_FILES
        if sampled and (folder / name).is_file()
    }
    texts = manifest.documents.column("document_id").to_pylist() if manifest else ()
    with Ledger.open(store.ledger) as ledger:
        tables = calls.read_calls(ledger, study.name, campaign, texts, asked(ledger))
    campaigns = tuple(tables["campaigns"].column("campaign").to_pylist())
    if not campaigns:
        missing = f"campaign {campaign!r}" if campaign else "campaign"
        raise StudyError(
            f"Study {study.name!r} has no {missing} in {store.root}; "
            f"see `contextcliff campaign list {study.name}`."
        )
    members |= pack(documents or {})
    members["study.json"] = container.json_bytes(_describe(study))
    for name, table in tables.items():
        members[f"ledger/{name}.parquet"] = container.parquet_bytes(table)
    head = {
        "study": study.name,
        "campaigns": list(campaigns),
        "manifest_sha256": manifest.sha256 if manifest else None,
        "versions": {
            "contextcliff": importlib.metadata.version("contextcliff-dagster"),
            "schema": SCHEMA_VERSION,
            "ledger": LEDGER_VERSION,
        },
    }
    data = container.write(file, head, members)
    return _summary(study, manifest, tables, data)


Restore = Callable[[Study, Store, Mapping[str, KeptList], Path], Callable[[], None]]
"""Function that checks the documents of experiments and returns a function to store them."""


def import_study(
    store: Store,
    file: Path,
    name: str | None = None,
    restore: Restore | None = None,
    *,
    adopt: bool = False,
) -> tuple[Study, ArchiveSummary]:
    """Import the study of ``file`` into ``store``; answers already there stay as they are.

    The store changes only if the whole file is valid and fits. Importing a second time does
    nothing. The study's definition is returned but not stored: the caller decides where
    definitions live.

    Args:
        name: name of the study in this store; None: the name in the file.
        restore: stores the documents of experiments; None: they are skipped.
        adopt: whether measurements use its answers, too; reports of the study always do.

    Raises:
        StoreError: the file is not such an archive, is damaged or newer, or contradicts the store
            (another sample or another serving identity under the same name).
        StudyError: another study has that name, shipped or the user's own.
    """
    head, members, data = container.read(
        file, _MEMBERS, SAMPLE_MEMBERS, (EXAMPLES_MEMBER,), KEPT_MEMBERS
    )
    allowance = container.Allowance(file, len(data))
    with malformed(file, ARCHIVE_HEAD):
        head = check_head(head)
    manifest, texts = sound_sample(members, head["manifest_sha256"], allowance)
    tables = calls.read_tables(members, allowance, head["versions"]["ledger"])
    check_rows(tables, head, texts, allowance)
    tables = calls.own_rows(tables, head["study"], name or head["study"])
    described = read_description(members["study.json"], file)
    study, prompt_texts = _restore(described, head, store, file, name)
    existing, existing_study = own_study(study.name), load_studies().get(study.name)
    mine = existing_study if existing_study and existing_study.leave.home is None else None
    if mine and measures(mine) != measures(study, described["recipe_hash"]):
        where = existing[0] if existing else mine.folder / f"{study.name}.yaml"
        raise StudyError(
            f"{file} holds another study {study.name!r} than {where}; import it under another "
            "name with --name NAME, or rename yours."
        )
    folder = store.manifest_dir(study.name)
    present = (folder / MANIFEST_FILES[0]).is_file()
    if present and manifest and load_manifest(folder).sha256 != manifest.sha256:
        raise StoreError(
            f"{file} holds another sample of study {study.name!r} than {folder}; "
            "import it into a separate store with --store DIR."
        )
    label = "".join(letter if letter.isprintable() else "?" for letter in file.name)
    origin = f"{label}, sha256 {container.sha256(data)}"
    lists = unpack(members, allowance)
    write_lists = restore(study, store, lists, file) if restore and lists else None
    with Ledger.open(store.ledger) as ledger:
        new = ledger.write(
            lambda db: calls.merge_calls(db, tables, texts, file, study.name, origin, adopt=adopt)
        )
    store.mark()
    for path, text in prompt_texts.items():
        write_atomic(path, text.encode())
    # A manifest.json means that the other files are complete.
    for name in () if present or manifest is None else reversed(MANIFEST_FILES):
        if member := members.get(f"manifest/{name}"):
            write_atomic(folder / name, member)
    if write_lists is not None:
        write_lists()
    return study, _summary(study, manifest, tables, data, new)


def _summary(
    study: Study,
    manifest: Manifest | None,
    tables: Mapping[str, pa.Table],
    data: bytes,
    new_answers: int = 0,
) -> ArchiveSummary:
    return ArchiveSummary(
        study=study.name,
        campaigns=tuple(tables["campaigns"].column("campaign").to_pylist()),
        examples=manifest.examples.num_rows if manifest else 0,
        answers=tables["results"].num_rows,
        bytes=len(data),
        sha256=container.sha256(data),
        new_answers=new_answers,
        usd=sum(filter(None, tables["attempts"].column("charged_usd").to_pylist())),
    )


def _describe(study: Study) -> dict[str, Any]:
    recipe = study.recipe()
    texts = {**recipe.to_dict(), "instructions": "\n".join(recipe.instructions)}
    return {
        # As configured, with relative paths: the sample's specification is hashed from this text.
        "study": study.model_dump(mode="json"),
        "prompt_texts": {key: texts[key] for key in PROMPT_FILES if getattr(study.prompt, key)},
        "recipe": recipe.to_dict(),
        "recipe_hash": recipe.hash,
    }


def _restore(
    data: Mapping[str, Any], head: Mapping[str, Any], store: Store, file: Path, name: str | None
) -> tuple[Study, dict[Path, str]]:
    """Return the archive's study, and its prompt texts by their path in the store."""
    try:
        study = Study.model_validate(data["study"])  # its name is checked here: it becomes a path
        used = [key for key in PROMPT_FILES if getattr(study.prompt, key)]
        texts = {key: data["prompt_texts"][key] for key in used}
    except (pydantic.ValidationError, KeyError, TypeError) as error:
        raise StoreError(
            f"{file} holds a study that this version cannot read; upgrade contextcliff."
        ) from error
    if study.name != head["study"]:
        raise StoreError(f"{file} is damaged: it names two studies; get a fresh copy.")
    study = study.changed(name=name or study.name)
    paths = {key: kept_in(store.root) / f"{study.name}.{key}.txt" for key in texts}
    prompt = study.prompt.model_copy(update={key: str(path) for key, path in paths.items()})
    restored = study.model_copy(update={"prompt": prompt})
    return restored, {paths[key]: text for key, text in texts.items()}
