"""Taking a study out of a store, and bringing it into another."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
from contextcliff_dagster.inference.ledger.schema import LEDGER_VERSION
from contextcliff_dagster.store import Store, write_atomic
from contextcliff_dagster.studies.study import PROMPT_FILES

if TYPE_CHECKING:
    import pyarrow as pa

    from contextcliff_dagster.inference.ledger.ledger import Ledger
    from contextcliff_dagster.sampling.manifest import Manifest
    from contextcliff_dagster.studies import Study


_MEMBERS = ("study.json", *(f"ledger/{name}.parquet" for name in calls.TABLES))


@dataclass(frozen=True, slots=True)
class ArchiveSummary:
    """Contents of an archive; ``new_answers`` were not in the store before (import only).

    ``usd``: charge of its requests; import counts it against budgets of its campaigns, not
    against the day's.
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
    """Write ``study`` with its sample and its own calls to ``file``, all at once or not at all.

    Args:
        campaign: only this one; all when None.
        asked: gives the keys of the calls that the study asks, so that answers which another study
            of the store paid first go along (`experiments.lookup.asked_keys`); theirs alone do not.
        documents: of experiments (`experiments.restore.kept_lists`).

    Raises:
        StudyError: nothing is measured yet, or there is no such campaign.
        StoreError: the store cannot be read or the file not written.
    """
    from contextcliff_dagster.inference.ledger.ledger import Ledger
    from contextcliff_dagster.sampling.manifest import MANIFEST_FILES, load_manifest

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
        named = f"campaign {campaign!r}" if campaign else "campaign"
        raise StudyError(
            f"Study {study.name!r} has no {named} in {store.root}; "
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


Restore = Callable[["Study", Store, Mapping[str, KeptList], Path], Callable[[], None]]
"""Checks the documents of experiments, and returns the function that stores them."""


def import_study(
    store: Store,
    file: Path,
    name: str | None = None,
    restore: Restore | None = None,
    *,
    adopt: bool = False,
) -> tuple[Study, ArchiveSummary]:
    """Bring the study of ``file`` into ``store``; answers already there stay as they are.

    Its answers are in the study's reports, and no measurement takes them for its own.

    Nothing of the store changes unless the whole file is sound and fits. Importing twice does
    nothing the second time. The study's definition is returned, not kept: the caller decides
    where definitions live.

    Args:
        name: of the study in this store; None: the file's.
        restore: takes the documents of experiments over
            (`experiments.restore.restore`); None leaves them.
        adopt: measurements, of this study and of others that ask the same, take its answers.

    Raises:
        StoreError: the file is no such archive, is damaged or newer, or contradicts the store
            (another sample or another serving identity under the same name).
        StudyError: another study has that name: a shipped one or one of the user's own.
    """
    from contextcliff_dagster.inference.ledger.ledger import Ledger
    from contextcliff_dagster.sampling.manifest import MANIFEST_FILES, load_manifest
    from contextcliff_dagster.studies import load_studies, measures, own_study

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
    existing, there = own_study(study.name), load_studies().get(study.name)
    mine = there if there and there.leave.home is None else None
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
            "import it into a store of its own with --store DIR."
        )
    shown = "".join(letter if letter.isprintable() else "?" for letter in file.name)
    origin = f"{shown}, sha256 {container.sha256(data)}"
    kept = unpack(members, allowance)
    write_kept = restore(study, store, kept, file) if restore and kept else None
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
    if write_kept is not None:
        write_kept()
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
        # As configured, relative paths too: the sample's specification is hashed from these words.
        "study": study.model_dump(mode="json"),
        "prompt_texts": {key: texts[key] for key in PROMPT_FILES if getattr(study.prompt, key)},
        "recipe": recipe.to_dict(),
        "recipe_hash": recipe.hash,
    }


def _restore(
    data: Mapping[str, Any], head: Mapping[str, Any], store: Store, file: Path, name: str | None
) -> tuple[Study, dict[Path, str]]:
    """The study of the archive, and the texts of its prompt files by their place in the store."""
    import pydantic

    from contextcliff_dagster.studies import Study, kept_in

    try:
        study = Study.model_validate(data["study"])  # its name is checked here: it becomes a path
        used = [key for key in PROMPT_FILES if getattr(study.prompt, key)]
        texts = {key: data["prompt_texts"][key] for key in used}
    except (pydantic.ValidationError, KeyError, TypeError) as error:
        raise StoreError(
            f"{file} holds no study that this version understands; upgrade contextcliff."
        ) from error
    if study.name != head["study"]:
        raise StoreError(f"{file} is damaged: it names two studies; get a fresh copy.")
    study = study.changed(name=name or study.name)
    paths = {key: kept_in(store.root) / f"{study.name}.{key}.txt" for key in texts}
    prompt = study.prompt.model_copy(update={key: str(path) for key, path in paths.items()})
    restored = study.model_copy(update={"prompt": prompt})
    return restored, {paths[key]: text for key, text in texts.items()}
