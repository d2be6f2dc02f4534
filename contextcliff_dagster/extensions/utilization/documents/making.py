"""The documents of one benchmark, scale and seed: every format and arm, verified."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.contracts import StudyError
from contextcliff_dagster.extensions.utilization.benchmarks.corruption import corrupt
from contextcliff_dagster.extensions.utilization.benchmarks.data import (
    Benchmark,
    BenchmarkName,
    Question,
)
from contextcliff_dagster.extensions.utilization.benchmarks.schema import DOMAINS
from contextcliff_dagster.extensions.utilization.cells import Arm
from contextcliff_dagster.extensions.utilization.documents.scales import ScaleSolver, Solved, Wish
from contextcliff_dagster.extensions.utilization.rendering.formats import Format, Rendering
from contextcliff_dagster.extensions.utilization.rendering.render import render
from contextcliff_dagster.extensions.utilization.scale_labels import scale_tokens
from contextcliff_dagster.extensions.utilization.verification.verify import (
    Verifier,
    require_agreement,
)

if TYPE_CHECKING:
    from contextcliff_dagster.extensions.utilization.section import Match

MAKING_VERSION = "3"
"""Raise it when the same wish would give another document: those in stores are then made anew."""


@dataclass(frozen=True, slots=True)
class Batch:
    """The documents that are made together. ``arms``: without what is no part of a document.

    ``fingerprint``: of the tokenizer that counts.
    """

    benchmark: BenchmarkName
    scale: str
    seed: int
    formats: Sequence[Format]
    arms: Sequence[Arm]
    questions: int
    match: Match
    fingerprint: str

    @property
    def hash(self) -> str:
        """SHA-256 (hex) of what decides the documents."""
        decides = {
            "version": MAKING_VERSION,
            "benchmark": self.benchmark,
            "tokens": scale_tokens(self.scale),
            "seed": self.seed,
            "formats": list(self.formats),
            "arms": [arm_json(arm) for arm in self.arms],
            "questions": self.questions,
            "match": self.match,
            "tokenizer": self.fingerprint,
        }
        return hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()


def arm_json(arm: Arm) -> str:
    """Return what of an arm decides a document, as JSON text."""
    return json.dumps(
        {
            "evidence": arm.evidence,
            "verbosity": arm.verbosity,
            "order": arm.order,
            "corruption": arm.corruption.level,
        }
    )


def make_batch(batch: Batch, solver: ScaleSolver) -> Iterator[dict[str, Any]]:
    """Yield the rows of `UTILIZATION_DOCUMENTS` of a batch, each made when it is asked for: a text
    may have millions of tokens.

    Raises:
        StudyError: the scale is out of reach, or a package that verifies is missing.
        VerificationError: a text does not support its answers: a fault of ours.
    """
    solved: dict[tuple[str, Format], Solved] = {}
    digest, verifier = batch.hash, Verifier(batch.benchmark)
    for arm in batch.arms:
        for format in batch.formats:
            written: Format = format if batch.match == "tokens" else "jsonl"
            key = (arm.evidence, written)
            if key not in solved:
                wish = Wish(
                    batch.benchmark,
                    scale_tokens(batch.scale),
                    batch.seed,
                    arm.evidence,
                    batch.questions,
                    written,
                )
                solved[key] = solver.solve(wish)
            document = _document(batch, arm, format, solved[key], solver, verifier)
            yield {**document, "made_by": digest}


def _document(
    batch: Batch,
    arm: Arm,
    format: Format,
    solved: Solved,
    solver: ScaleSolver,
    verifier: Verifier,
) -> dict[str, Any]:
    data = solved.data
    if arm.corruption.share:
        try:
            data = corrupt(data, arm.corruption.share, arm.corruption.of, batch.seed)
        except ValueError as error:
            raise StudyError(f"{error}.") from None
    rendering = render(data, format, arm.verbosity, arm.order)
    text = rendering.text
    verdicts = verifier.verify(text, data.questions, format)
    where = f"{batch.scale}, {format}"
    require_agreement(verdicts, data.questions, batch.benchmark, batch.seed, where)
    return {
        "document_id": hashlib.sha256(text.encode()).hexdigest(),
        "benchmark": batch.benchmark,
        "scale": batch.scale,
        "seed": batch.seed,
        "format": format,
        "arm": arm_json(arm),
        "length_tokens": solved.tokens if text == solved.text else solver.count(text),
        "records": len(data.records),
        "corrupted": len(data.corrupted),
        "questions": json.dumps([_question(q, data, rendering) for q in data.questions]),
        "evidence": json.dumps([_starts(q, rendering) for q in data.questions]),
        "verdicts": json.dumps([verdict._asdict() for verdict in verdicts]),
        "text": text,
    }


def _question(question: Question, data: Benchmark, rendering: Rendering) -> dict[str, Any]:
    """What is asked again and again; without the positions, which may be thousands."""
    starts = _starts(question, rendering)
    length = max(len(rendering.text), 1)
    return {
        "kind": question.kind,
        "text": question.text,
        "answer": question.answer,
        "form": question.form,
        "choices": list(_choices(question, data)),
        "about": dict(question.about),
        "margin": question.margin,
        "hops": question.hops,
        "needed": len(starts),
        "evidence_position": sum(starts) / len(starts) / length if starts else None,
    }


def _choices(question: Question, data: Benchmark) -> Sequence[str]:
    """Values that the question can have: of an attribute all of its domain."""
    about: Mapping[str, Any] = question.about
    if question.form == "value" and about.get("ask") == "value":
        return [str(value) for value in DOMAINS[str(about["attr"])]]
    if question.form == "value" and not question.choices:
        kind = "warehouse" if about.get("ask") == "transfers" else ""
        return sorted({str(record[kind]) for record in data.records if kind in record})
    return question.choices


def _starts(question: Question, rendering: Rendering) -> list[int]:
    return sorted(rendering.starts[index] for index in question.evidence)
