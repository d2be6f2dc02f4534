"""Generations of a `--compat` run: batches, retries, replacements, their embedding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from contextcliff_dagster.contracts import EngineError
from contextcliff_dagster.experiments.common.documents import tokenizer_of
from contextcliff_dagster.experiments.common.study_run import StudyRun
from contextcliff_dagster.extensions.continuation.cells import cells_of
from contextcliff_dagster.extensions.continuation.compat.metrics import (
    Embed,
    Figures,
    coherence,
    read_word_list,
    sentences_of,
    text_metrics,
)
from contextcliff_dagster.extensions.continuation.compat.result_files import ContextResult, Run
from contextcliff_dagster.extensions.continuation.compat.statistics import (
    Round,
    is_long_enough,
    replacement,
)
from contextcliff_dagster.extensions.continuation.documents.kept import (
    DOCUMENTS,
    part_file,
    read_texts,
)
from contextcliff_dagster.extensions.continuation.documents.making import section_of
from contextcliff_dagster.extensions.continuation.prose.embedders import (
    EndpointEmbedder,
    local_embedder,
)

if TYPE_CHECKING:
    from contextcliff_dagster.experiments.common.experiment import Experiment
    from contextcliff_dagster.extensions.continuation.compat.metrics import Embed
    from contextcliff_dagster.extensions.continuation.compat.statistics import Round
    from contextcliff_dagster.extensions.continuation.prose.embedders import Embedder
    from contextcliff_dagster.inference.models.models_file import ModelEntry
    from contextcliff_dagster.store import Store
    from contextcliff_dagster.studies import Study


_PROBE = ("Is there an embedder?",)


@dataclass(frozen=True, slots=True)
class Embedding:
    """``name`` of the embedder, for results; both None where there is none."""

    name: str | None = None
    embed: Embed | None = None


def embedding_of(entry: ModelEntry | None) -> Embedding:
    """Return the first that answers: the ``/embeddings`` of the model's server, a local embedder.

    Sentences that the server does not embed later have no vectors, as in the reference.
    """
    found = _of_server(entry) if entry is not None and entry.spec.remote else None
    embedder: Embedder | None = found or local_embedder()
    if embedder is None:
        return Embedding()
    return Embedding(embedder.name, _tolerant(embedder))


def _of_server(entry: ModelEntry) -> EndpointEmbedder | None:
    from contextcliff_dagster.inference.models.identity import request_headers

    try:
        headers = request_headers(entry, f"Model {entry.name!r}", EngineError)
        key = headers.get("Authorization", "").removeprefix("Bearer ") or None
        address = entry.resolved_base_url()
        found = EndpointEmbedder(address, entry.model_id or entry.name, key)
        found.embed(_PROBE)
    except EngineError:
        return None
    return found


def _tolerant(embedder: Embedder) -> Embed:
    def embed(sentences: Sequence[str]) -> Sequence[Sequence[float]] | None:
        try:
            rows: Sequence[Sequence[float]] = embedder.embed(sentences).tolist()
        except EngineError:
            return None
        return rows

    return embed


ATTEMPTS = 3
"""A batch and its retries."""


@dataclass(frozen=True, slots=True)
class Batch:
    """What a context size has.

    Attributes:
        state: `open` while rounds are to be asked, `done`, or `failed` after all attempts.
        needed: rounds to ask in all; at most those asked unless `open`.
        chosen: numbers of the rounds that count, by their places in the batch.
        replaced: numbers of those that were outliers, and no longer count.
    """

    state: Literal["open", "done", "failed"]
    needed: int
    chosen: tuple[int, ...] = ()
    replaced: tuple[int, ...] = ()


def chosen_rounds(rounds: Sequence[Round | None], size: int, *, drawn: bool = True) -> Batch:
    """Return the batch of ``size`` rounds that counts, or what is still to be asked.

    A batch with a round that has no figures fails as a whole, and the next rounds are another try.
    The outliers of a full batch are replaced once, in their places, by further rounds; where one of
    those has no figures, the batch stays as it was (the reference breaks off there).

    Args:
        rounds: all that are answered, in order; None: failed, or too short.
        size: rounds of a batch.
        drawn: whether another round can differ; else one batch is all.
    """
    attempts = ATTEMPTS if drawn else 1
    for start in range(0, attempts * size, size):
        batch = rounds[start : start + size]
        if len(batch) < size:
            return Batch("open", start + size)
        full = [one for one in batch if one is not None]
        if len(full) < size:
            continue
        chosen = list(range(start, start + size))
        _, places = replacement(full)
        further = rounds[start + size : start + size + len(places)]
        if len(further) < len(places):
            return Batch("open", start + size + len(places))
        if None in further:
            places = []
        for number, place in enumerate(places):
            chosen[place] = start + size + number
        replaced = tuple(start + place for place in places)
        return Batch("done", len(rounds), tuple(chosen), replaced)
    return Batch("failed", len(rounds))


_PREVIEW = 500


@dataclass(frozen=True, slots=True)
class Generations:
    """What a model has written for a compat study, by context size in tokens.

    Attributes:
        rounds: all that are answered, in order; None: failed, or below 60% of `max_tokens`.
        batches: which of them count.
        author: the author's continuation.
        contexts: the texts that the model read.
        finished: when each answer came, ISO 8601.
    """

    rounds: Mapping[int, Sequence[Round | None]]
    batches: Mapping[int, Batch]
    author: str
    contexts: Mapping[int, str]
    finished: Sequence[str]

    @property
    def open_sizes(self) -> list[int]:
        """Sizes with rounds that have no answer yet."""
        return [size for size, batch in self.batches.items() if batch.state == "open"]


def generations_of(run: StudyRun, experiment: Experiment, model: str) -> Generations:
    """Return the generations that the ledger has; no call is made.

    Raises:
        StudyError: the word list cannot be read.
        StoreError: outputs or documents are gone.
    """
    from contextcliff_dagster.experiments.common.measurement import ledger_rows, sources_of

    section = section_of(run.study)
    familiar = familiar_of(run.study)
    sizes = {cell.key: cell.tokens for cell in cells_of(section)}
    rows: dict[int, list[dict[str, Any]]] = {}
    for source in sources_of(run, experiment):
        for row in ledger_rows(run, experiment, source, model, list(sizes)):
            rows.setdefault(sizes[row["bin"]], []).append(row)
    name = section.text_names[0]
    texts = read_texts(part_file(run.store, run.study.name, name, "p000"))
    contexts = {row["context_tokens"]: row["text"] for row in texts if row["kind"] == "context"}
    rounds = {size: _in_order(rows.get(size, []), run.study, familiar) for size in contexts}
    drawn = section.temperature[0] > 0
    return Generations(
        rounds,
        {size: chosen_rounds(of, section.rounds, drawn=drawn) for size, of in rounds.items()},
        next(row["text"] for row in texts if row["kind"] == "author"),
        contexts,
        sorted(row["finished_at"].isoformat() for of in rows.values() for row in of),
    )


def familiar_of(study: Study) -> frozenset[str] | None:
    """Return the words of the study's word list; None without one.

    Raises:
        StudyError: it cannot be read.
    """
    from contextcliff_dagster.studies.study_paths import absolute, refuse_without_leave

    file = section_of(study).word_list
    if not file:
        return None
    refuse_without_leave(study, "continuation")
    return read_word_list(Path(absolute(study.folder, file)))


def run_of(
    study: Study, found: Generations, metadata: Mapping[str, Any], embed: Embed | None
) -> Run:
    """Return the sizes that are done as a run; without ``embed`` coherence is 0, as there."""
    section, tokenizer = section_of(study), tokenizer_of(study, "continuation")
    familiar = familiar_of(study)
    author_tokens = tokenizer.count(found.author)
    contexts = {}
    for size, batch in found.batches.items():
        if batch.state != "done":
            continue
        context = found.contexts[size]
        info = {
            "context_length_target": size,
            "context_length_actual": tokenizer.count(context),
            "context_text_chars": len(context),
            "context_word_count": len(context.split()),
            "context_preview": context[-_PREVIEW:],
            "ground_truth_text": found.author,
            "ground_truth_tokens": author_tokens,
            "ground_truth_chars": len(found.author),
        }
        kept = [found.rounds[size][number] or {} for number in batch.chosen]
        rounds = tuple(
            {**one, "round_number": place, **_coherence(one, embed)}
            for place, one in enumerate(kept, 1)
        )
        contexts[size] = ContextResult(size, rounds, info)
    return Run(metadata, contexts, text_metrics(found.author, familiar, embed), section.sizes)


def _coherence(one: Round, embed: Embed | None) -> dict[str, float]:
    if embed is None:
        return {}
    figures = coherence(sentences_of(one["continuation_text"]), embed)
    return {key: round(value, 4) for key, value in figures.items()}


def _in_order(
    rows: Sequence[Mapping[str, Any]], study: Study, familiar: frozenset[str] | None
) -> list[Round | None]:
    """The rounds up to the first that has no answer yet."""
    by_number = {row["replicate"]: row for row in rows}
    rounds: list[Round | None] = []
    while (row := by_number.get(len(rounds))) and row.get("no_answer") != "transport_error":
        rounds.append(_round(row, study, familiar))
    return rounds


def _round(row: Mapping[str, Any], study: Study, familiar: frozenset[str] | None) -> Round | None:
    from contextcliff_dagster.scoring.parse import parse_answer

    prefix = study.recipe().answer_prefix or ""
    text = parse_answer(row.get("raw_output"), answer_prefix=prefix).text or ""
    if row.get("no_answer") is not None or not text.strip():
        return None
    tokens = row.get("completion_tokens")
    if tokens is None:
        tokens = tokenizer_of(study, "continuation").count(text)
    else:
        tokens -= row.get("reasoning_tokens") or 0
    if not is_long_enough(tokens, section_of(study).max_tokens):
        return None
    duration_ms = row.get("duration_ms") or 0.0
    return {
        "round_number": row["replicate"] + 1,
        "continuation_length": len(text),
        "continuation_tokens": tokens,
        "generation_time_seconds": round(duration_ms / 1000, 3),
        "generation_time_ms": round(duration_ms),
        "timestamp": row["finished_at"].isoformat(),
        "continuation_text": text,
        **_metrics(text, familiar),
    }


@lru_cache(maxsize=4096)
def _metrics(text: str, familiar: frozenset[str] | None) -> Figures:
    return text_metrics(text, familiar)


def with_further_rounds(
    study: Study, store: Store, experiment: Experiment, campaign: str | None
) -> Study:
    """Return ``study`` with all rounds that its answers so far call for: retries, replacements.

    No call is made. The same study comes back where none are: it is measured as far as it can be.

    Raises:
        StudyError, StoreError: the answers so far cannot be read.
    """
    if not store.has_ledger or DOCUMENTS.frozen(study, store) is None:
        return study
    while True:
        section = section_of(study)
        with StudyRun.open(study, store, campaign) as run:
            found = generations_of(run, experiment, study.models[0])
        further = dict(section.further_rounds)
        for size in found.open_sizes:
            if (more := found.batches[size].needed - section.rounds) > further.get(size, 0):
                further[size] = more
        if further == section.further_rounds:
            return study
        changed = section.model_copy(update={"further_rounds": further})
        study = study.changed(**{experiment.name: changed.model_dump(mode="json")})
