"""Scoring of replies: right or wrong, by how much, and why. `extraction` reads the value."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.contracts import FailureTag
from contextcliff_dagster.extensions.utilization.extraction import (
    EXTRACTION_VERSION,
    Extracted,
    extract_answer,
    identifiers_in,
    numbers_in,
)
from contextcliff_dagster.scoring.evaluate import CALL_COLUMNS
from contextcliff_dagster.scoring.parse import has_content, parse_answer
from contextcliff_dagster.scoring.taxonomy import has_refusing_phrase, is_only_a_refusal

if TYPE_CHECKING:
    from contextcliff_dagster.contracts import Example


_SCORES = ("em", "f1", "contained", "score")
_CUT = frozenset({"length", "max_tokens", "max_output_tokens"})
_FILTERED = frozenset({"content_filter", "refusal", "safety"})
_WINDOW = 300

OF_DOCUMENT = (
    *("benchmark", "format", "scale", "scale_tokens", "seed", "arm", "document_key", "records"),
    *("needed", "question_kind", "hops"),
)
"""Columns copied from an example's metadata."""


def score_rows(
    rows: Iterable[Mapping[str, Any]],
    examples: Mapping[str, Example],
    documents: Callable[[str], str],
    answer_prefix: str = "",
) -> list[dict[str, Any]]:
    """Score rows of predictions; return rows of `tables.UTILIZATION_RECORDS` in the same order.

    Args:
        rows: predictions with the columns of `contracts.PREDICTIONS`.
        examples: examples by id; their metadata has `OF_DOCUMENT`, ``form`` and ``choices``.
        documents: document id -> text; called only if an answer is wrong.
        answer_prefix: the recipe's start of the reply; removed if a server repeats it.
    """

    @lru_cache(maxsize=2)
    def stated(document_id: str) -> frozenset[str]:
        """Return the document's numbers and words, with which wrong answers are compared."""
        words = re.findall(r"[^\W\d_]+|\d+", documents(document_id))
        return frozenset(str(int(word)) if word.isdecimal() else word.lower() for word in words)

    records = []
    for row in rows:
        example = examples[str(row["example_id"])]
        facts = example.metadata
        record = {name: row.get(name) for name in CALL_COLUMNS}
        record |= {name: facts[name] for name in OF_DOCUMENT} | {"expected": example.answers[0]}
        record |= dict.fromkeys(_SCORES) | {"scorer_version": f"utilization {EXTRACTION_VERSION}"}
        if (no_answer := row.get("no_answer")) is not None:
            records.append(record | {"failure": no_answer})
            continue
        parsed = parse_answer(row.get("raw_output"), answer_prefix=answer_prefix)
        visible, answer = parsed.visible, Extracted(None, problem="none")
        if parsed.text is not None:  # else empty, or it ends inside its reasoning
            answer = extract_answer(visible, facts["form"], facts["choices"])
        correct = answer.answer == example.answers[0]
        tag = None
        if not correct:
            reason = "length" if parsed.text is None else row.get("finish_reason")
            tag = _tag(answer, visible, reason, stated, example.document_id)
        margin = _margin(answer.answer, example.answers[0]) if facts["form"] == "number" else None
        record |= dict.fromkeys(_SCORES, float(correct)) | {
            "parsed_answer": answer.answer,
            "failed": not correct,
            "failure": tag and tag.value,
            "margin_abs": margin,
            "margin_rel": margin and margin / max(1.0, abs(float(example.answers[0]))),
            "thought": answer.thought,
        }
        records.append(record)
    return records


def _tag(
    extracted: Extracted,
    visible: str,
    finish_reason: str | None,
    stated: Callable[[str], frozenset[str]],
    document_id: str,
) -> FailureTag:
    """Return the first failure tag that fits, in the project's order of tags.

    A reply with several numbers does not have the requested form: `instruction_drift`. A wrong
    number is `wrong_evidence` if the document states it, else `hallucination`; for a sum, a number
    that no record states was computed wrongly.
    """
    if not has_content(visible):
        return FailureTag.EMPTY
    if extracted.answer is None:
        if finish_reason in _FILTERED or is_only_a_refusal(visible):
            return FailureTag.REFUSAL
        if extracted.problem == "none" and has_refusing_phrase(visible, _WINDOW):
            return FailureTag.REFUSAL
        truncated = finish_reason in _CUT
        return FailureTag.INCOMPLETENESS if truncated else FailureTag.INSTRUCTION_DRIFT
    names = identifiers_in(extracted.answer)
    parts = {str(int(name.partition("-")[2])) for name in names} or {
        extracted.answer.lstrip("-").lower()
    }
    return FailureTag.WRONG_EVIDENCE if parts <= stated(document_id) else FailureTag.HALLUCINATION


def _margin(answer: str | None, expected: str) -> float | None:
    if answer is None:
        return None
    (target,) = numbers_in(expected)
    return abs(float(answer) - float(target))
