"""Scoring of continuations: prose metrics, coherence, score and kind of collapse."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.contracts import (
    EngineError,
    FailureTag,
    StoreError,
    StudyError,
    install_command,
)
from contextcliff_dagster.extensions.continuation.documents import section_of
from contextcliff_dagster.extensions.continuation.noise import Authors
from contextcliff_dagster.extensions.continuation.prose.collapse import collapse_of
from contextcliff_dagster.extensions.continuation.prose.embedders import (
    Coherence,
    EndpointEmbedder,
    StaticEmbedder,
    coherence_of_texts,
    local_embedder,
    local_files,
)
from contextcliff_dagster.extensions.continuation.prose.metrics import metrics_of
from contextcliff_dagster.extensions.continuation.prose.words import (
    Prose,
    read_prose,
    verbatim_overlap,
)
from contextcliff_dagster.extensions.continuation.section import EmbeddingServer
from contextcliff_dagster.extensions.continuation.tables import (
    COHERENCE,
    CONTINUATION_RECORDS,
    METRICS,
)
from contextcliff_dagster.scoring.evaluate import CALL_COLUMNS
from contextcliff_dagster.scoring.parse import parse_answer
from contextcliff_dagster.store import read_table
from contextcliff_dagster.studies.study import refuse_without_leave

if TYPE_CHECKING:
    import pandas as pd

    from contextcliff_dagster.contracts import Example
    from contextcliff_dagster.experiments.common.study_run import StudyRun
    from contextcliff_dagster.extensions.continuation.prose.embedders import Embedder
    from contextcliff_dagster.studies import Study

_TEXTS_AT_ONCE = 16
_LOG = logging.getLogger(__name__)

Key = tuple[str, int]
"""A continuation's raw output, or the id of the document that its author continued, together with
the number of words measured.
"""


def embedder_name(study: Study) -> str | None:
    """Return the name, as in results, of the embedder that a study requests, or None."""
    setting = section_of(study).embeddings
    if isinstance(setting, EmbeddingServer):
        return setting.name
    return None if setting == "none" else StaticEmbedder.name


def is_required(study: Study) -> bool:
    """Return whether a missing coherence deserves a warning."""
    setting = section_of(study).embeddings
    return setting != "none" and (setting != "auto" or local_files() is not None)


class CoherenceMeter:
    """Measures coherence, reusing the values in ``kept``; stops calling an embedder once it fails.

    ``name`` is the embedder's name; with None nothing is measured.
    """

    def __init__(self, study: Study, kept: Mapping[Key, Coherence]) -> None:
        self._study, self._kept = study, dict(kept)
        self.name = embedder_name(study)
        self._embedder: Embedder | None = None
        self._is_off = self.name is None

    @classmethod
    def of_run(cls, run: StudyRun) -> CoherenceMeter:
        """Return a meter that reuses what the same embedder measured for the campaign."""
        return cls(run.study, _stored_coherence(run, embedder_name(run.study)))

    def measure(self, texts: Sequence[tuple[Key, Prose]]) -> list[Coherence | None]:
        """Return the coherence of each text, or None if unavailable, which is logged once."""
        if self.name is None:
            return [None for _ in texts]
        values = self._kept
        missing = [(key, prose) for key, prose in texts if key not in values]
        for start in range(0, len(missing), _TEXTS_AT_ONCE):
            batch = missing[start : start + _TEXTS_AT_ONCE]
            new = self._asked([prose for _, prose in batch])
            values.update({key: value for (key, _), value in zip(batch, new, strict=False)})
        return [values.get(key) for key, _ in texts]

    def _asked(self, texts: list[Prose]) -> list[Coherence]:
        """Return the coherence of ``texts``, or an empty list once embeddings have failed."""
        if self._is_off:
            return []
        try:
            if self._embedder is None:
                self._embedder = _open_embedder(self._study)
            if self._embedder is not None:
                return coherence_of_texts(texts, self._embedder)
        except (EngineError, StudyError) as error:
            _LOG.warning("%s", error)
        self._is_off = True
        return []


def missing_sentence(study: Study, records: pd.DataFrame) -> str | None:
    """Return a warning about continuations that lack the requested coherence, or None."""
    measured = records["compared_words"].fillna(0) > 0
    missing = int((measured & records["embedder"].isna()).sum())
    if not missing or not is_required(study):
        return None
    remedy = f"run {install_command('embeddings')}"
    if isinstance(section_of(study).embeddings, EmbeddingServer):
        remedy = "check the server of `continuation.embeddings` and run "
        remedy += f"`contextcliff report {study.name}`"
    return (
        f"Coherence is missing for {missing:,} of {int(measured.sum()):,} continuations, whose "
        f"embeddings were unavailable: {remedy}; no score depends on it."
    )


def _open_embedder(study: Study) -> Embedder | None:
    """Return the embedder that the study specifies, or None if it is not installed."""
    setting = section_of(study).embeddings
    if not isinstance(setting, EmbeddingServer):
        return None if setting == "none" else local_embedder()
    refuse_without_leave(study, "continuation.embeddings")
    key = os.environ.get(setting.api_key_env, "").strip() if setting.api_key_env else None
    if key is not None and not re.fullmatch(r"[\x21-\x7e]+", key):
        raise EngineError(
            f"Embeddings by {setting.name!r} take their key from the environment variable "
            f"{setting.api_key_env}, which is unset or has characters a header cannot carry."
        )
    return EndpointEmbedder(setting.base_url.rstrip("/"), setting.model, key)


def _stored_coherence(run: StudyRun, embedder: str | None) -> dict[Key, Coherence]:
    from contextcliff_dagster.experiments.common.study_run import table_files

    metrics, authors = COHERENCE, [f"author_{name}" for name in COHERENCE]
    columns = ("embedder", "compared_words", "raw_output", *metrics, "document_id", *authors)
    stored: dict[Key, Coherence] = {}
    table = CONTINUATION_RECORDS
    for file in table_files(run.store, table, run.study.name, run.campaign) if embedder else ():
        with suppress(StoreError):  # a damaged or older file: measure again
            read = read_table(file, table, columns)
            for by, words, *values in zip(*(read[n].to_pylist() for n in columns), strict=True):
                for text, near, far in (values[:3], values[3:]) if by == embedder else ():
                    # A text with too few sentences has no coherence, and no request is made for it.
                    if text is not None and near is not None:
                        stored[text, words] = Coherence(near, far)
    return stored


SCORING_VERSION = "continuation 3"
_OF_EXAMPLE = ("text", "passage", "context_tokens", "arm")
_SCORED = ("em", "f1", "contained", "score")
_FAILURES = {
    "empty": FailureTag.EMPTY,
    "short": FailureTag.EMPTY,
    "chatter": FailureTag.INSTRUCTION_DRIFT,
}


def score_rows(
    rows: Iterable[Mapping[str, Any]],
    examples: Mapping[str, Example],
    authors: Authors | None,
    answer_prefix: str = "",
    coherence: CoherenceMeter | None = None,
) -> list[dict[str, Any]]:
    """Return rows of `tables.CONTINUATION_RECORDS` for rows of predictions, in the same order.

    A continuation and its author's text are cut to the same number of words before measuring. A
    continuation that the token limit cut off too early has no score unless it collapsed; if it
    ended too early by itself, that is the collapse `short`. No score depends on coherence.

    Args:
        rows: rows with the columns of `contracts.PREDICTIONS`.
        examples: examples by example id.
        authors: author passages of the study; with None nothing is measured.
        answer_prefix: the start of the reply set by the recipe; removed if a server repeats it.
        coherence: meter that measures coherence; None to skip this.

    Raises:
        DataError: there are too few human passages.
    """
    records, compared = [], []
    for row in rows:
        known = examples[str(row["example_id"])].metadata
        record = {name: row.get(name) for name in CALL_COLUMNS}
        record |= {name: known[name] for name in _OF_EXAMPLE} | {"round": row["replicate"]}
        record |= dict.fromkeys(_SCORED) | {"scorer_version": SCORING_VERSION}
        if (no_answer := row.get("no_answer")) is not None:
            records.append(record | {"failure": no_answer})
            continue
        if authors is None:
            records.append(record | {"failed": False})
            continue
        text = parse_answer(row.get("raw_output"), answer_prefix=answer_prefix).text or ""
        ended = row.get("finish_reason") != "length"
        values, prose = _measured(text, str(known["passage"]), authors, ended=ended)
        records.append(record | values)
        if prose is not None:
            author = authors.after[str(known["passage"])].first(len(prose.words))
            compared.append((records[-1], prose, author))
    if coherence is not None:
        _add_coherence(compared, coherence)
    return records


def _add_coherence(
    compared: Sequence[tuple[dict[str, Any], Prose, Prose]], coherence: CoherenceMeter
) -> None:
    """Add the coherence of the continuations and of equally long author passages."""
    texts = [((str(row["raw_output"]), len(prose.words)), prose) for row, prose, _ in compared]
    keys = [(str(row["document_id"]), len(prose.words)) for row, prose, _ in compared]
    after = {key: author for key, (_, _, author) in zip(keys, compared, strict=True)}
    measured = coherence.measure(texts)
    authors = dict(zip(after, coherence.measure(list(after.items())), strict=True))
    for (row, _, _), key, value in zip(compared, keys, measured, strict=True):
        if value is not None:
            row |= {"embedder": coherence.name, **_columns(value, "")}
        if (author_value := authors[key]) is not None:
            row |= _columns(author_value, "author_")


def _columns(found: Coherence, prefix: str) -> dict[str, float | None]:
    return {f"{prefix}{name}": value for name, value in zip(COHERENCE, found, strict=True)}


def _measured(
    text: str, passage: str, authors: Authors, *, ended: bool
) -> tuple[dict[str, Any], Prose | None]:
    """Return the values of a record, and the measured prose (None if no words were measured).

    ``ended``: whether the model stopped by itself, with room for more.
    """
    prose, author = read_prose(text), authors.after[passage]
    words = authors.compared_words(passage, len(prose.words))
    collapse = collapse_of(text, author.text)
    if not collapse and not words and ended and authors.compared_words(passage, authors.words):
        # Leaving it unscored would favour the sizes at which a model gives up.
        collapse = "short"
    values: dict[str, Any] = {"collapse": collapse, "compared_words": words, "failed": False}
    if collapse:
        tag = _FAILURES.get(collapse, FailureTag.HALLUCINATION)
        values |= {"failed": True, "failure": tag.value, "score": 0.0}
    if not words:
        return values, None
    compared = prose.first(words)
    metrics = metrics_of(compared)
    if not collapse:
        values["score"] = authors.noise(words).score(metrics, authors.metrics_after(passage, words))
    overlap = verbatim_overlap(compared.text, author.first(words).text)
    values |= {name: value for name, value in metrics.as_dict().items() if name in METRICS[1:]}
    values |= {"longest_run": overlap.longest_run, "shared_runs": overlap.shared_runs}
    return values, compared
