"""From a continuation to its metrics, its coherence, its score, and how it collapsed."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from contextcliff_dagster.contracts import (
    EVAL_RECORDS,
    EngineError,
    FailureTag,
    StoreError,
    StudyError,
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
"""A continuation as the model gave it, or the document that its author went on from, and how many
words are measured."""


class Measured(NamedTuple):
    """A coherence and the name of the embedder behind it."""

    embedder: str
    coherence: Coherence


def embedder_name(study: Study) -> str | None:
    """The embedder that a study asks for, by its name in results; None for none."""
    asked = section_of(study).embeddings
    if isinstance(asked, EmbeddingServer):
        return asked.name
    return None if asked == "none" else StaticEmbedder.name


def is_required(study: Study) -> bool:
    """Whether a coherence that is missing is worth a warning."""
    asked = section_of(study).embeddings
    return asked != "none" and (asked != "auto" or local_files() is not None)


class CoherenceMeter:
    """Measures texts, those in ``kept`` excepted; a server that fails is not asked again.

    ``name``: of the embedder; None measures nothing.
    """

    def __init__(self, study: Study, kept: Mapping[Key, Coherence]) -> None:
        self._study, self._kept = study, dict(kept)
        self.name = embedder_name(study)
        self._embedder: Embedder | None = None
        self._is_off = self.name is None

    @classmethod
    def of_run(cls, run: StudyRun) -> CoherenceMeter:
        """With what the campaign's records have, of the same embedder."""
        return cls(run.study, _kept(run, embedder_name(run.study)))

    def measure(self, texts: Sequence[tuple[Key, Prose]]) -> list[Measured | None]:
        """The coherence of each text; None where it cannot be had, which is logged once."""
        if self.name is None:
            return [None for _ in texts]
        found = self._kept
        missing = [(key, prose) for key, prose in texts if key not in found]
        for start in range(0, len(missing), _TEXTS_AT_ONCE):
            some = missing[start : start + _TEXTS_AT_ONCE]
            values = self._asked([prose for _, prose in some])
            found.update({key: one for (key, _), one in zip(some, values, strict=False)})
        return [Measured(self.name, found[key]) if key in found else None for key, _ in texts]

    def _asked(self, texts: list[Prose]) -> list[Coherence]:
        """Nothing once embeddings could not be had."""
        if self._is_off:
            return []
        try:
            if self._embedder is None:
                self._embedder = _opened(self._study)
            if self._embedder is not None:
                return coherence_of_texts(texts, self._embedder)
        except (EngineError, StudyError) as error:
            _LOG.warning("%s", error)
        self._is_off = True
        return []


def missing_sentence(study: Study, records: pd.DataFrame) -> str | None:
    """A warning about continuations whose coherence is missing though it was asked for."""
    measured = records["compared_words"].fillna(0) > 0
    lacking = int((measured & records["embedder"].isna()).sum())
    if not lacking or not is_required(study):
        return None
    asked = section_of(study).embeddings
    way = (
        f"see to the server of `continuation.embeddings` and run `contextcliff report {study.name}`"
        if isinstance(asked, EmbeddingServer)
        else "install the extra `embeddings`"
    )
    return (
        f"Coherence is missing for {lacking:,} of {int(measured.sum()):,} continuations, whose "
        f"embeddings could not be had: {way}; no score depends on it."
    )


def _opened(study: Study) -> Embedder | None:
    """The embedder that the study names; None where it is not installed.

    Raises:
        EngineError: its files are damaged, or the variable of its key is not set.
        StudyError: the study comes from elsewhere, and its user has not agreed to the server.
    """
    asked = section_of(study).embeddings
    if not isinstance(asked, EmbeddingServer):
        return None if asked == "none" else local_embedder()
    refuse_without_leave(study, "continuation.embeddings")
    key = os.environ.get(asked.api_key_env, "").strip() if asked.api_key_env else None
    if key is not None and not re.fullmatch(r"[\x21-\x7e]+", key):
        raise EngineError(
            f"Embeddings by {asked.name!r} take their key from the environment variable "
            f"{asked.api_key_env}, which is not set or holds what no header can carry; set it."
        )
    return EndpointEmbedder(asked.base_url.rstrip("/"), asked.model, key)


def _kept(run: StudyRun, embedder: str | None) -> dict[Key, Coherence]:
    from contextcliff_dagster.experiments.common.study_run import table_files

    own, authors = COHERENCE, [f"author_{name}" for name in COHERENCE]
    columns = ("embedder", "compared_words", "raw_output", *own, "document_id", *authors)
    found: dict[Key, Coherence] = {}
    table = CONTINUATION_RECORDS
    for file in table_files(run.store, table, run.study.name, run.campaign) if embedder else ():
        with suppress(StoreError):  # of an earlier version, or damaged: measured again
            read = read_table(file, table, columns)
            for by, words, *values in zip(*(read[n].to_pylist() for n in columns), strict=True):
                for text, near, far in (values[:3], values[3:]) if by == embedder else ():
                    # A text with too few sentences has neither, and nothing is asked for it.
                    if text is not None and near is not None:
                        found[text, words] = Coherence(near, far)
    return found


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
    """Return the rows of `tables.CONTINUATION_RECORDS` for rows of predictions, in the same order.

    A continuation and what its author wrote are cut to the same words before they are measured. One
    that is cut off too early for that, and no collapse, has no score; one that ends so early is the
    collapse `short`. No score depends on coherence.

    Args:
        rows: with the columns of `contracts.PREDICTIONS`.
        examples: by example id.
        authors: passages of the study; None: nothing is measured here.
        answer_prefix: how the recipe began the reply; removed where a server repeats it.
        coherence: None measures none.

    Raises:
        DataError: there are too few human passages.
    """
    kept = [name for name in EVAL_RECORDS.column_names if name not in _OF_SCORING]
    records, compared = [], []
    for row in rows:
        known = examples[str(row["example_id"])].metadata
        record = {name: row.get(name) for name in kept}
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
    """Of the continuations, and of what their authors wrote in as many words."""
    texts = [((str(row["raw_output"]), len(prose.words)), prose) for row, prose, _ in compared]
    keys = [(str(row["document_id"]), len(prose.words)) for row, prose, _ in compared]
    after = {key: author for key, (_, _, author) in zip(keys, compared, strict=True)}
    own = coherence.measure(texts)
    authors = dict(zip(after, coherence.measure(list(after.items())), strict=True))
    for (row, _, _), key, found in zip(compared, keys, own, strict=True):
        if found is not None:
            row |= {"embedder": found.embedder, **_named(found, "")}
        if (of_author := authors[key]) is not None:
            row |= _named(of_author, "author_")


def _named(found: Measured, prefix: str) -> dict[str, float | None]:
    names = (f"{prefix}{name}" for name in COHERENCE)
    return dict(zip(names, found.coherence, strict=True))


def _measured(
    text: str, passage: str, authors: Authors, *, ended: bool
) -> tuple[dict[str, Any], Prose | None]:
    """The values of a record, and the words that they are of; None without any.

    ``ended``: the model had room for more.
    """
    prose, author = read_prose(text), authors.after[passage]
    words = authors.compared_words(passage, len(prose.words))
    collapse = collapse_of(text, author.text)
    if not collapse and not words and ended and authors.compared_words(passage, authors.words):
        # Without a score it would leave those sizes better off at which a model gives up.
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


_OF_SCORING = {
    *_SCORED,
    *("parsed_answer", "failed", "failure", "scorer_version", "kind", "domain", "source"),
}
