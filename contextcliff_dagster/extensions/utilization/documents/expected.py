"""Lengths of documents that are not made yet, from a short one of the same kind."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from contextcliff_dagster.extensions.utilization.documents.kept import solver_of
from contextcliff_dagster.extensions.utilization.documents.making import Batch, arm_json
from contextcliff_dagster.extensions.utilization.documents.scales import Solved, Wish
from contextcliff_dagster.extensions.utilization.rendering.formats import Format, Order, Verbosity
from contextcliff_dagster.extensions.utilization.rendering.render import render
from contextcliff_dagster.extensions.utilization.scale_labels import scale_tokens

_SHORT_TOKENS = 4_000


def expected_rows(batch: Batch, tokenizer: str) -> Iterator[dict[str, Any]]:
    """Yield rows like those of `files.LISTED` for the documents of a batch: a length that is the
    scale times the format's tokens in a short document, and questions of that one.

    Raises:
        StudyError: such a document, or one of a few thousand tokens, is out of reach.
    """
    target = scale_tokens(batch.scale)
    for arm in batch.arms:
        wish = Wish(batch.benchmark, min(target, _SHORT_TOKENS), 0, arm.evidence, batch.questions)
        short = _short(wish, tokenizer)
        for format in batch.formats:
            ratio = _tokens(wish, format, arm.verbosity, arm.order, tokenizer) / short.tokens
            if batch.match == "tokens":
                plain = _tokens(wish, format, "standard", "chronological", tokenizer)
                ratio *= short.tokens / plain
            place = f"{batch.hash} {format} {arm_json(arm)}"
            yield {
                "document_id": hashlib.sha256(place.encode()).hexdigest(),
                "benchmark": batch.benchmark,
                "scale": batch.scale,
                "seed": batch.seed,
                "format": format,
                "arm": arm_json(arm),
                "length_tokens": round(target * ratio),
                "records": round(len(short.data.records) * target / short.tokens),
                "corrupted": 0,
                "questions": json.dumps(
                    [
                        {
                            "kind": question.kind,
                            "text": question.text,
                            "answer": question.answer,
                            "form": question.form,
                            "choices": [],
                            "hops": question.hops,
                            "needed": len(question.evidence),
                            "evidence_position": None,
                        }
                        for question in short.data.questions
                    ]
                ),
            }


@lru_cache(maxsize=64)
def _short(wish: Wish, tokenizer: str) -> Solved:
    return solver_of(tokenizer).solve(wish)


@lru_cache(maxsize=1024)
def _tokens(wish: Wish, format: Format, verbosity: Verbosity, order: Order, tokenizer: str) -> int:
    text = render(_short(wish, tokenizer).data, format, verbosity, order).text
    return solver_of(tokenizer).count(text)
