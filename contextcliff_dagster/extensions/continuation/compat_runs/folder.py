"""The folder of a `--compat` run: its documents, its files, and a finished one measured again."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from pathlib import Path, PurePath
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from contextcliff_dagster.contracts import DataError, ScoreFileError, StoreError, StudyError
from contextcliff_dagster.experiments.common.documents import (
    opened_tokenizer,
    tokenizer_name,
    tokenizer_of,
)
from contextcliff_dagster.extensions.continuation.compat.metrics import (
    COHERENCE_KEYS,
    Embed,
    Figures,
    text_metrics,
)
from contextcliff_dagster.extensions.continuation.compat.result_files import (
    ContextResult,
    Run,
    read_run,
    start_folder,
    write_analysis,
    write_run,
)
from contextcliff_dagster.extensions.continuation.compat.slicing import (
    Slices,
    needed_tokens,
    sliced,
    source_text,
    trimmed,
)
from contextcliff_dagster.extensions.continuation.compat_runs.generations import (
    ATTEMPTS,
    Embedding,
    run_of,
)
from contextcliff_dagster.extensions.continuation.documents.kept import (
    part_file,
    point_key,
    read_part,
)
from contextcliff_dagster.extensions.continuation.documents.making import (
    document_row,
    read_source,
    section_of,
)
from contextcliff_dagster.extensions.continuation.prompts import instruction_of
from contextcliff_dagster.store import write_atomic

if TYPE_CHECKING:
    from collections.abc import Mapping

    from contextcliff_dagster.extensions.continuation.compat.metrics import Embed
    from contextcliff_dagster.extensions.continuation.compat_runs.generations import Generations
    from contextcliff_dagster.inference.models.models_file import ModelEntry
    from contextcliff_dagster.store import Store
    from contextcliff_dagster.studies import Study


_TEMPLATE_TOKENS = 108
"""Left free of the largest window for a chat template, next to the reference's 20: a prompt that
might not fit is not sent."""


def slices_of(study: Study) -> Slices:
    """Cut the text of a compat study.

    Raises:
        StudyError: it cannot be read.
        DataError: it is empty.
    """
    section = section_of(study)
    text = read_source(study, 0)
    most, length = section.max_context, section.max_tokens
    tokenizer_of(study, "continuation")  # refused without leave
    return _cut(
        text.text, tokenizer_name(study, "continuation"), most, length, instruction_of(section)
    )


@lru_cache(maxsize=2)
def _cut(text: str, tokenizer: str, max_context: int, max_tokens: int, instruction: str) -> Slices:
    counts = opened_tokenizer(tokenizer)
    return sliced(source_text(text), counts, max_context, max_tokens, instruction)


def compat_rows(study: Study, name: str) -> Iterator[dict[str, Any]]:
    """Yield the contexts of ``study``, the smallest first, what the author wrote after them, and
    the length of the text.

    The first size that the text does not reach, and all larger ones, have none.

    Raises:
        StudyError: the text reaches no size at all.
    """
    section, tokenizer = section_of(study), tokenizer_of(study, "continuation")
    slices, passage = slices_of(study), f"{name}-00"
    largest = section.max_context - _TEMPLATE_TOKENS
    for size in section.sizes:
        if not slices.has(min(size, largest)):
            if size == section.sizes[0]:
                raise StudyError(
                    f"Text {name!r} does not fill the smallest window of study {study.name!r}, "
                    f"{size:,} tokens; raise `continuation.start_context` or lower "
                    "`continuation.max_tokens`."
                )
            break
        context = trimmed(slices.context(min(size, largest)))
        yield document_row("context", name, passage, size, context, tokenizer)
    yield document_row("author", name, passage, 0, slices.ground_truth, tokenizer)
    whole = document_row("source", name, passage, 0, "", tokenizer)
    yield {**whole, "length_tokens": slices.source_tokens}


def was_repeated(study: Study, store: Store) -> bool | None:
    """Whether the kept contexts are of a text that was repeated, as it was too short.

    None where they were made before that was kept, and the text is gone.
    """
    section = section_of(study)
    part = part_file(store, study.name, section.text_names[0], point_key(0))
    for row in read_part(part) or ():
        if row["kind"] == "source":
            needed = needed_tokens(section.max_context, section.max_tokens)
            return bool(row["length_tokens"] < needed)
    with suppress(StudyError):
        return slices_of(study).repeated
    return None


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


DPI = 300


@dataclass(frozen=True, slots=True)
class Written:
    """A run and the files that were written of it."""

    run: Run
    files: tuple[Path, ...]


def analyse_again(folder: Path) -> Written:
    """Write trends, CSV, texts and picture of the run in ``folder`` there; its rounds stay.

    Raises:
        ScoreFileError: there is no run, or it is damaged.
        StoreError: the files cannot be written.
    """
    run = _read(folder)
    return Written(run, (*write_analysis(folder, run, _now()), write_picture(folder, run)))


def measure_again(
    folder: Path, out: Path, familiar: frozenset[str] | None, embedding: Embedding
) -> Written:
    """Measure the texts of the run in ``folder`` again, and write the new run to ``out``.

    The author's figures stay those of the run. Without a list of familiar words, or without an
    embedder, the figures that need them stay, too.

    Raises:
        ScoreFileError: there is no run, or it is damaged.
        DataError: its texts were not kept, or ``out`` exists.
        StoreError: the files cannot be written.
    """
    if out.exists():
        raise DataError(f"{out} exists; name a new folder with --out, or delete it.")
    run, at = _read(folder), _now()
    made = reanalysed(run, familiar, embedding.embed)
    kept = {"reanalysed_from": str(folder), "reanalysed_at": at}
    named = {"reanalysis_embedding_model": embedding.name} if embedding.name else {}
    metadata = {**made.metadata, "reanalysis_metadata": {**kept, **named}}
    made = Run(metadata, made.contexts, made.author, made.context_lengths)
    return Written(made, (*write_run(out, made, at), write_picture(out, made)))


def write_picture(folder: Path, run: Run) -> Path:
    """Draw the averages of ``run`` into ``folder``; raises StoreError."""
    from contextcliff_dagster.extensions.continuation.figures import plot_standard

    path = folder / f"{run.file_stem}.png"
    write_atomic(path, plot_standard([run], DPI))
    return path


def _read(folder: Path) -> Run:
    if not folder.is_dir():
        raise ScoreFileError(f"There is no folder {folder}; name the folder of a finished run.")
    return read_run(folder)


def _now() -> str:
    return datetime.now().astimezone().isoformat(timespec="seconds")


def reanalysed(run: Run, familiar: frozenset[str] | None = None, embed: Embed | None = None) -> Run:
    """Return ``run`` with new figures of its kept texts, and averages of those.

    The author's figures stay as they are, as in the reference. So do those of coherence without
    ``embed``, and those of familiar words without ``familiar`` (both as in `text_metrics`).

    Raises:
        DataError: a text was not kept.
    """
    contexts = {}
    for size, context in run.contexts.items():
        texts = [one.get("continuation_text") for one in context.rounds]
        if not texts or not all(isinstance(text, str) for text in texts):
            raise DataError(
                f"The run {run.name} has no texts of context size {size:,}; name a folder whose "
                "context_N_results.json files have continuation_text in every round."
            )
        rounds = tuple(
            {**one, **_figures(str(text), familiar, embed)}
            for one, text in zip(context.rounds, texts, strict=True)
        )
        contexts[size] = ContextResult(size, rounds, context.info)
    return Run(run.metadata, contexts, run.author, run.context_lengths)


def _figures(text: str, familiar: frozenset[str] | None, embed: Embed | None) -> Figures:
    kept = COHERENCE_KEYS if embed is None else ()
    return {k: v for k, v in text_metrics(text, familiar, embed).items() if k not in kept}
