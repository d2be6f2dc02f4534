"""Analyse a finished run again, or measure its texts again."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from contextcliff_dagster.contracts import DataError, ScoreFileError
from contextcliff_dagster.extensions.continuation.compat.coherence import COHERENCE_KEYS, Embed
from contextcliff_dagster.extensions.continuation.compat.earlier_runs import read_run
from contextcliff_dagster.extensions.continuation.compat.metrics import Figures, text_metrics
from contextcliff_dagster.extensions.continuation.compat.result_files import (
    write_analysis,
    write_run,
)
from contextcliff_dagster.extensions.continuation.compat.runs import ContextResult, Run
from contextcliff_dagster.extensions.continuation.compat_runs.embedding import Embedding
from contextcliff_dagster.store import write_atomic

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
    from contextcliff_dagster.extensions.continuation.figures.standard import plot_standard

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
