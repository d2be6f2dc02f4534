"""From a continuation to its metrics, its score, and how it collapsed where it did."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.contracts import EVAL_RECORDS, FailureTag
from contextcliff_dagster.extensions.continuation.noise import Authors
from contextcliff_dagster.extensions.continuation.prose.collapse import collapse_of
from contextcliff_dagster.extensions.continuation.prose.metrics import metrics_of
from contextcliff_dagster.extensions.continuation.prose.words import (
    Prose,
    read_prose,
    verbatim_overlap,
)
from contextcliff_dagster.extensions.continuation.tables import COHERENCE, METRICS
from contextcliff_dagster.scoring.parse import parse_answer

if TYPE_CHECKING:
    from contextcliff_dagster.contracts import Example
    from contextcliff_dagster.extensions.continuation.coherence import CoherenceMeter, Measured

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
