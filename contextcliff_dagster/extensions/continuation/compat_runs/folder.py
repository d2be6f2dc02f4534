"""The result folder of a compat study: a rendering of generations that the ledger has."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path, PurePath
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from contextcliff_dagster.contracts import StoreError, StudyError
from contextcliff_dagster.experiments.common.kept_documents import tokenizer_name
from contextcliff_dagster.extensions.continuation.compat.result_files import (
    start_folder,
    write_run,
)
from contextcliff_dagster.extensions.continuation.compat.runs import Run
from contextcliff_dagster.extensions.continuation.compat_runs.again import Written, write_picture
from contextcliff_dagster.extensions.continuation.compat_runs.batches import ATTEMPTS
from contextcliff_dagster.extensions.continuation.compat_runs.generations import run_of
from contextcliff_dagster.extensions.continuation.documents.source_texts import section_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from contextcliff_dagster.extensions.continuation.compat.coherence import Embed
    from contextcliff_dagster.extensions.continuation.compat_runs.generations import Generations
    from contextcliff_dagster.inference.models.models_file import ModelEntry
    from contextcliff_dagster.studies import Study

_LONGEST_ID = 80


@dataclass(frozen=True, slots=True)
class RunName:
    """``model`` as its user calls it, and the ``id`` of the run."""

    model: str
    id: str


def new_folder(results: Path, study: Study, named: RunName) -> Path:
    """Return the folder of a run; nothing is made.

    Raises:
        StudyError: it is there already, or the ID cannot be part of its name.
    """
    if not named.id.strip() or not named.id.isprintable() or len(named.id) > _LONGEST_ID:
        raise StudyError(
            f"--model-id {named.id[:_LONGEST_ID]!r} cannot name a folder: write 1 to {_LONGEST_ID} "
            "letters, digits and signs."
        )
    return start_folder(results, Run(_named(study, named), {}))


def write_folder(
    folder: Path, study: Study, metadata: Mapping[str, Any], found: Generations, embed: Embed | None
) -> Written:
    """Write the sizes that are done to ``folder``, all files or none; ``embed`` as in `run_of`.

    Raises:
        StudyError: no size is done, or the folder is there by now.
        StoreError: the files cannot be written.
    """
    section = section_of(study)
    run = run_of(study, found, metadata, embed)
    if not run.contexts:
        raise StudyError(
            f"No context size has {section.rounds} rounds of at least 60% of "
            f"{section.max_tokens:,} tokens, so {folder} is not written; lower --max-tokens, or "
            f"see `contextcliff answers {study.name}` for what the model wrote."
        )
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        aside = Path(mkdtemp(prefix=f".{folder.name[:80]}-", dir=folder.parent))
    except OSError as error:
        raise StoreError(f"{folder} cannot be written: {error.strerror or error}.") from error
    try:
        at = datetime.now().astimezone().isoformat(timespec="seconds")
        files = [*write_run(aside, run, at), write_picture(aside, run)]
        if folder.exists():
            raise StudyError(f"{folder} exists by now; give this run another --model-id.")
        aside.chmod(0o755)
        aside.rename(folder)
    except OSError as error:
        raise StoreError(f"{folder} cannot be written: {error.strerror or error}.") from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return Written(run, tuple(folder / file.name for file in files))


def _named(study: Study, named: RunName) -> dict[str, Any]:
    return {
        "model_name": named.model.removeprefix("koboldcpp/"),
        "model_id": named.id,
        "source_text_name": PurePath(section_of(study).texts[0]).name,
    }


def metadata_of(
    study: Study, entry: ModelEntry, named: RunName, found: Generations, embedding: str | None
) -> dict[str, Any]:
    """Return what `metadata.json` says of a run; ``embedding``: the embedder's name."""
    section = section_of(study)
    done = sum(batch.state == "done" for batch in found.batches.values())
    return {
        **_named(study, named),
        "embedding_model": embedding,
        "tokenizer_model": tokenizer_name(study, "continuation"),
        "source_text_file": section.texts[0],
        "start_time": found.finished[0] if found.finished else None,
        "num_rounds": section.rounds,
        "divisions": section.divisions,
        "start_context": section.start_context,
        "max_retries": ATTEMPTS - 1,
        "generation_params": {
            "max_tokens": section.max_tokens,
            "temperature": section.temperature[0],
            "top_k": section.top_k,
            "top_p": section.top_p,
            "seed": section.seed,
        },
        "api_url": _address(entry),
        "max_context": section.max_context,
        "end_time": found.finished[-1] if found.finished else None,
        "successful_contexts": done,
        "study": study.name,
    }


def _address(entry: ModelEntry) -> str | None:
    """The server without a user and a password."""
    if not entry.spec.remote or not entry.base_url:
        return None
    parts = urlsplit(entry.resolved_base_url())
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
