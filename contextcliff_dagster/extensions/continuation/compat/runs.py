"""`--compat` runs: their generations, their folders of result files, and measuring them again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from pathlib import Path, PurePath
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from contextcliff_dagster.contracts import (
    DataError,
    EngineError,
    ScoreFileError,
    StoreError,
    StudyError,
)
from contextcliff_dagster.contracts.results.json_form import Missing
from contextcliff_dagster.experiments.common.documents import tokenizer_name, tokenizer_of
from contextcliff_dagster.experiments.common.study_run import StudyRun
from contextcliff_dagster.extensions.continuation.compat.metrics import (
    COHERENCE_KEYS,
    Embed,
    Figures,
    coherence,
    read_word_list,
    sentences_of,
    shipped_words,
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
from contextcliff_dagster.extensions.continuation.compat.slicing import needed_tokens
from contextcliff_dagster.extensions.continuation.compat.statistics import (
    Round,
    is_long_enough,
    replacement,
)
from contextcliff_dagster.extensions.continuation.documents import (
    DOCUMENTS,
    part_file,
    point_key,
    read_part,
    read_texts,
    section_of,
    slices_of,
)
from contextcliff_dagster.extensions.continuation.prose.embedders import (
    EndpointEmbedder,
    local_embedder,
)
from contextcliff_dagster.extensions.continuation.section import BUILT_IN, cells_of
from contextcliff_dagster.reporting.wording import count
from contextcliff_dagster.store import write_atomic

if TYPE_CHECKING:
    from contextcliff_dagster.experiments.common.experiment import Experiment
    from contextcliff_dagster.extensions.continuation.prose.embedders import Embedder
    from contextcliff_dagster.inference.models.models_file import ModelEntry
    from contextcliff_dagster.store import Store
    from contextcliff_dagster.studies import Study

_PROBE = ("Is there an embedder?",)


@dataclass(frozen=True, slots=True)
class Embedding:
    """Embedding function and the embedder's ``name`` in results; both None without an embedder."""

    name: str | None = None
    embed: Embed | None = None


def embedding_of(entry: ModelEntry | None) -> Embedding:
    """Return the embedding from the model's server if it answers, else from a local embedder.

    If the server fails later, its sentences have no vectors, as in the reference.
    """
    remote = _of_server(entry) if entry is not None and entry.spec.remote else None
    embedder: Embedder | None = remote or local_embedder()
    if embedder is None:
        return Embedding()
    return Embedding(embedder.name, _without_errors(embedder))


def _of_server(entry: ModelEntry) -> EndpointEmbedder | None:
    from contextcliff_dagster.inference.models.entry import request_headers

    try:
        headers = request_headers(entry, f"Model {entry.name!r}", EngineError)
        key = headers.get("Authorization", "").removeprefix("Bearer ") or None
        embedder = EndpointEmbedder(entry.resolved_base_url(), entry.model_id or entry.name, key)
        embedder.embed(_PROBE)
    except EngineError:
        return None
    return embedder


def _without_errors(embedder: Embedder) -> Embed:
    def embed(sentences: Sequence[str]) -> Sequence[Sequence[float]] | None:
        try:
            rows: Sequence[Sequence[float]] = embedder.embed(sentences).tolist()
        except EngineError:
            return None
        return rows

    return embed


ATTEMPTS = 3
"""Number of attempts at a batch: the first and its retries."""


@dataclass(frozen=True, slots=True)
class Batch:
    """State of the rounds at one context size.

    Attributes:
        state: `open` while rounds are missing, `done`, or `failed` after all attempts.
        needed: total rounds to request; unless `open`, no more than have been requested.
        chosen: numbers of the rounds that count, in batch order.
        replaced: numbers of the outlier rounds that no longer count.
    """

    state: Literal["open", "done", "failed"]
    needed: int
    chosen: tuple[int, ...] = ()
    replaced: tuple[int, ...] = ()


def chosen_rounds(rounds: Sequence[Round | None], size: int, *, drawn: bool = True) -> Batch:
    """Return the batch of ``size`` rounds that counts, or the number of rounds still needed.

    A batch fails if any of its rounds has no figures; the next rounds are then another attempt. The
    outliers of a complete batch are replaced once by further rounds. If one of those has no
    figures, the batch stays as it was (the reference stops there).

    Args:
        rounds: all answered rounds in order, with None for a round that failed or is too short.
        size: number of rounds in a batch.
        drawn: whether rounds are sampled and can differ; otherwise there is a single attempt.
    """
    for start in range(0, (ATTEMPTS if drawn else 1) * size, size):
        batch = rounds[start : start + size]
        if len(batch) < size:
            return Batch("open", start + size)
        complete = [figures for figures in batch if figures is not None]
        if len(complete) < size:
            continue
        counted = list(range(start, start + size))
        places = replacement(complete)
        further = rounds[start + size : start + size + len(places)]
        if len(further) < len(places):
            return Batch("open", start + size + len(places))
        if None in further:
            places = []
        for number, place in enumerate(places):
            counted[place] = start + size + number
        return Batch("done", len(rounds), tuple(counted), tuple(start + place for place in places))
    return Batch("failed", len(rounds))


_PREVIEW = 500


@dataclass(frozen=True, slots=True)
class Generations:
    """A model's generations for a compat study, by context size in tokens.

    Attributes:
        rounds: all answered rounds in order; None if failed or below 60% of `max_tokens`.
        batches: batches of the rounds that count.
        author: the author's continuation.
        contexts: the texts that the model read.
        missing: the rounds without an answer.
        finished: times of the answers, ISO 8601.
    """

    rounds: Mapping[int, Sequence[Round | None]]
    batches: Mapping[int, Batch]
    author: str
    contexts: Mapping[int, str]
    missing: Missing
    finished: Sequence[str]

    @property
    def open_sizes(self) -> list[int]:
        """Return the sizes with rounds that have no answer yet."""
        return [size for size, batch in self.batches.items() if batch.state == "open"]


def generations_of(run: StudyRun, experiment: Experiment, model: str) -> Generations:
    """Return the generations recorded in the ledger, without making calls.

    Raise StudyError without the word list, StoreError without outputs or documents.
    """
    from contextcliff_dagster.experiments.common.measurement import ledger_rows, sources_of

    section = section_of(run.study)
    familiar = familiar_of(run.study)
    sizes = {cell.key: cell.tokens for cell in cells_of(section)}
    rows: dict[int, list[dict[str, Any]]] = {}
    for source in sources_of(run, experiment):
        for row in ledger_rows(run, experiment, source, model, list(sizes)):
            rows.setdefault(sizes[row["bin"]], []).append(row)
    texts = read_texts(part_file(run.store, run.study.name, section.text_names[0], "p000"))
    contexts = {row["context_tokens"]: row["text"] for row in texts if row["kind"] == "context"}
    rounds = {size: _in_order(rows.get(size, []), run.study, familiar) for size in contexts}
    drawn = section.temperature[0] > 0
    return Generations(
        rounds,
        {size: chosen_rounds(group, section.rounds, drawn=drawn) for size, group in rounds.items()},
        next(row["text"] for row in texts if row["kind"] == "author"),
        contexts,
        Missing.of(row["no_answer"] for group in rows.values() for row in group),
        sorted(row["finished_at"].isoformat() for group in rows.values() for row in group),
    )


def familiar_of(study: Study) -> frozenset[str] | None:
    """Return the words of the study's word list, or None without one; raise StudyError.

    A study never gets a list that it was not measured with: outliers depend on the cloze score.
    """
    from contextcliff_dagster.studies.study import absolute, refuse_without_leave

    file = section_of(study).word_list
    if file in ("", BUILT_IN):
        return shipped_words() if file else None
    refuse_without_leave(study, "continuation")
    return read_word_list(Path(absolute(study.folder, file)))


def run_of(
    study: Study, found: Generations, metadata: Mapping[str, Any], embed: Embed | None
) -> Run:
    """Return the completed sizes as a run; without ``embed``, coherence is 0 as in its files."""
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
        counted = [found.rounds[size][number] or {} for number in batch.chosen]
        rounds = tuple(
            {**figures, "round_number": place, **_coherence(figures, embed)}
            for place, figures in enumerate(counted, 1)
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
    """Return the rounds before the first that has no answer yet."""
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


_metrics = lru_cache(maxsize=4096)(text_metrics)


def with_further_rounds(
    study: Study, store: Store, experiment: Experiment, campaign: str | None
) -> Study:
    """Return ``study`` with the retries and replacements that its answers so far call for.

    This makes no calls. Raise StudyError or StoreError if the answers cannot be read.
    """
    if not store.has_ledger or DOCUMENTS.frozen(study, store) is None:
        return study
    while True:
        section = section_of(study)
        with StudyRun.open(study, store, campaign) as run:
            generations = generations_of(run, experiment, study.models[0])
        further = dict(section.further_rounds)
        for size in generations.open_sizes:
            if (count := generations.batches[size].needed - section.rounds) > further.get(size, 0):
                further[size] = count
        if further == section.further_rounds:
            return study
        section_now = section.model_copy(update={"further_rounds": further})
        study = study.changed(**{experiment.name: section_now.model_dump(mode="json")})


def was_repeated(study: Study, store: Store) -> bool | None:
    """Return whether the stored contexts come from a text that was repeated because it is short.

    Return None if an older version did not record this and the text no longer exists.
    """
    section = section_of(study)
    for row in read_part(part_file(store, study.name, section.text_names[0], point_key(0))) or ():
        if row["kind"] == "source":
            needed = needed_tokens(section.max_context, section.max_tokens)
            return bool(row["length_tokens"] < needed)
    with suppress(StudyError):
        return slices_of(study).repeated
    return None


_LONGEST_ID = 80


@dataclass(frozen=True, slots=True)
class RunName:
    """Name of a run: the user's name for the ``model``, and the run's ``id``."""

    model: str
    id: str


def new_folder(results: Path, study: Study, named: RunName) -> Path:
    """Return the path of a run's new folder; raise StudyError for an ID that cannot name one."""
    if not named.id.strip() or not named.id.isprintable() or len(named.id) > _LONGEST_ID:
        raise StudyError(
            f"--model-id {named.id[:_LONGEST_ID]!r} cannot name a folder: write 1 to {_LONGEST_ID} "
            "letters, digits and signs."
        )
    return start_folder(results, Run(_run_metadata(study, named), {}))


def write_folder(
    folder: Path, study: Study, metadata: Mapping[str, Any], found: Generations, embed: Embed | None
) -> Written:
    """Write all files of the completed sizes to ``folder``, or none; for ``embed`` see `run_of`.

    Raise StudyError if no size is complete, StoreError if the files cannot be written.
    """
    section = section_of(study)
    run = run_of(study, found, metadata, embed)
    if not run.contexts:
        raise StudyError(
            f"No context size has {count(section.rounds, 'round')} of at least 60% of "
            f"{section.max_tokens:,} tokens, so {folder} is not written; lower --max-tokens, or "
            f"see `contextcliff answers {study.name}` for what the model wrote."
        )
    prefix = f".{folder.name[:80]}-"
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory("", prefix, folder.parent, ignore_cleanup_errors=True) as name:
            draft = Path(name)
            files = [*write_run(draft, run, _now()), write_picture(draft, run)]
            if folder.exists():
                raise StudyError(f"{folder} exists by now; give this run another --model-id.")
            draft.chmod(0o755)
            draft.rename(folder)
    except OSError as error:
        raise StoreError(f"{folder} cannot be written: {error.strerror or error}.") from error
    return Written(run, tuple(folder / file.name for file in files))


def _run_metadata(study: Study, named: RunName) -> dict[str, Any]:
    return {
        "model_name": named.model.removeprefix("koboldcpp/"),
        "model_id": named.id,
        "source_text_name": PurePath(section_of(study).texts[0]).name,
    }


def metadata_of(
    study: Study, entry: ModelEntry, named: RunName, found: Generations, embedding: str | None
) -> dict[str, Any]:
    """Return the metadata of a run for `metadata.json`; ``embedding`` is the embedder's name."""
    section = section_of(study)
    return {
        **_run_metadata(study, named),
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
            "rep_pen": None,
            "no_think": False,
            "seed": section.seed,
        },
        "api_url": _address(entry),
        "max_context": section.max_context,
        "end_time": found.finished[-1] if found.finished else None,
        "successful_contexts": sum(batch.state == "done" for batch in found.batches.values()),
        "study": study.name,
        "word_list": section.word_list or None,
    }


def _address(entry: ModelEntry) -> str | None:
    """Return the server's address without user and password, or None for a local model."""
    if not entry.spec.remote or not entry.base_url:
        return None
    parts = urlsplit(entry.resolved_base_url())
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


DPI = 300


@dataclass(frozen=True, slots=True)
class Written:
    """A run and the files written for it."""

    run: Run
    files: tuple[Path, ...]


def analyse_again(folder: Path) -> Written:
    """Rewrite trends, CSV, texts and picture of the run in ``folder``; its rounds stay unchanged.

    Raise ScoreFileError without a whole run, StoreError if files cannot be written.
    """
    run = _read(folder)
    return Written(run, (*write_analysis(folder, run, _now()), write_picture(folder, run)))


def measure_again(
    folder: Path, out: Path, familiar: frozenset[str] | None, embedding: Embedding
) -> Written:
    """Measure the texts of the run in ``folder`` again and write the new run to ``out``.

    The author's figures stay as they are, and so do figures that need a list of familiar words or
    an embedder that is not given. If a round lacks a cloze score, all get one by the built-in list.

    Raises:
        ScoreFileError: there is no run, or it is damaged.
        DataError: the run has no texts, or ``out`` exists.
        StoreError: the files cannot be written.
    """
    if out.exists():
        raise DataError(f"{out} exists; choose a new folder with --out, or delete it.")
    run, at = _read(folder), _now()
    rounds = [figures for context in run.contexts.values() for figures in context.rounds]
    listed = {}
    if familiar is None and not all("cloze_score" in figures for figures in rounds):
        familiar, listed = shipped_words(), {"reanalysis_word_list": BUILT_IN}
    new_run = reanalysed(run, familiar, embedding.embed)
    origin = {"reanalysed_from": str(folder), "reanalysed_at": at}
    embedder = {"reanalysis_embedding_model": embedding.name} if embedding.name else {}
    metadata = {**new_run.metadata, "reanalysis_metadata": {**origin, **embedder, **listed}}
    new_run = replace(new_run, metadata=metadata)
    return Written(new_run, (*write_run(out, new_run, at), write_picture(out, new_run)))


def write_picture(folder: Path, run: Run) -> Path:
    """Draw the averages of ``run`` into ``folder``; return the path; raise StoreError."""
    from contextcliff_dagster.extensions.continuation.figures import plot_standard

    path = folder / f"{run.file_stem}.png"
    write_atomic(path, plot_standard([run], DPI))
    return path


def _read(folder: Path) -> Run:
    if not folder.is_dir():
        raise ScoreFileError(f"There is no folder {folder}; give the folder of a finished run.")
    return read_run(folder)


def _now() -> str:
    return datetime.now().astimezone().isoformat(timespec="seconds")


def reanalysed(run: Run, familiar: frozenset[str] | None = None, embed: Embed | None = None) -> Run:
    """Return ``run`` with figures and averages computed again from its stored texts.

    The author's figures stay as they are, as in the reference. So do the coherence figures without
    ``embed``, and figures of familiar words without ``familiar`` (see `text_metrics`).

    Raises:
        DataError: a text is missing.
    """
    contexts = {}
    for size, context in run.contexts.items():
        texts = [figures.get("continuation_text") for figures in context.rounds]
        if not texts or not all(isinstance(text, str) for text in texts):
            raise DataError(
                f"The run {run.name} has no texts of context size {size:,}; choose a folder whose "
                "context_N_results.json files have continuation_text in every round."
            )
        rounds = tuple(
            {**figures, **_figures(str(text), familiar, embed)}
            for figures, text in zip(context.rounds, texts, strict=True)
        )
        contexts[size] = ContextResult(size, rounds, context.info)
    return replace(run, contexts=contexts)


def _figures(text: str, familiar: frozenset[str] | None, embed: Embed | None) -> Figures:
    unmeasured = COHERENCE_KEYS if embed is None else ()
    return {k: v for k, v in text_metrics(text, familiar, embed).items() if k not in unmeasured}
