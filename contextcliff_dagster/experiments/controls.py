"""Controls of the length profile: the same questions without the document, or on its evidence.

They are separate calls, stored in the ledger like other calls, and do not enter the measured curve.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import AfterValidator

from contextcliff_dagster.contracts import CONTROL_PREDICTIONS, CONTROL_RECORDS
from contextcliff_dagster.experiments.common.experiment import Experiment, Rows, Source
from contextcliff_dagster.experiments.common.measurement import EVERYTHING
from contextcliff_dagster.experiments.common.records import (
    examples_of,
    score_by_answers,
    score_campaign,
)
from contextcliff_dagster.experiments.common.study_run import StudyRun, guest_records
from contextcliff_dagster.sampling.draw_manifest import CONTROLS, Control, ControlSource

if TYPE_CHECKING:
    from contextcliff_dagster.analysis.control_tests import ControlAnswers


class Controls(Experiment):
    """`no_context` asks without the document, `oracle` over the pieces of evidence alone."""

    name = "controls"
    example: ClassVar[Any] = ["no_context", "oracle"]
    section: ClassVar[Any] = Annotated[
        tuple[Control, ...], AfterValidator(lambda named: tuple(c for c in CONTROLS if c in named))
    ]
    host = "length_profile"
    by_bins = True
    predictions = CONTROL_PREDICTIONS
    records = CONTROL_RECORDS
    description = (
        "The same questions without their document, or over its evidence alone: never part of the "
        "measured curve."
    )

    def asset_names(self, step: str) -> tuple[str, ...]:
        return ("control_predictions",) if step == "predictions" else ()

    def sources(self, run: StudyRun) -> Sequence[Source]:
        return [_source(run, control) for control in run.study.sections.get(self.name, ())]

    def known_sources(self, run: StudyRun) -> Sequence[Source]:
        return [_source(run, control) for control in CONTROLS]

    def score(self, run: StudyRun, source: Source, rows: Rows) -> Rows:
        """Return records with the id and length of the whole document, not the control's text.

        So they are comparable with the records of the same questions.
        """
        whole = {
            sample.example.example_id: {
                "document_id": sample.example.document_id,
                "length_tokens": sample.length_tokens,
            }
            for cell in self.cells(run.study)
            for sample in run.manifest.planned(cell, EVERYTHING)
        }
        return [
            record | whole[record["example_id"]]
            for record in score_by_answers(self, run, source, rows)
        ]

    def score_campaign(self, run: StudyRun) -> None:
        """Score the campaign's answers, even if the study no longer asks for controls."""
        if self.is_asked(run.study) or self._any_measured(run):
            score_campaign(run, self)

    def _any_measured(self, run: StudyRun) -> bool:
        """Return whether the campaign has a call on a text that is not a document of the sample."""
        known = set(run.manifest.documents["document_id"].to_pylist())
        asked = run.ledger.read(
            "SELECT DISTINCT document_id FROM calls WHERE study = ? AND campaign = ?",
            (run.study.name, run.campaign),
        )
        return any(row[0] not in known for row in asked)

    def contribution(self, run: StudyRun, model: str) -> list[ControlAnswers]:
        """Return the scored controls of ``model``, one item per control with records."""
        from contextcliff_dagster.analysis.control_tests import ControlAnswers

        table = guest_records(run, self, model)
        if table is None:
            return []
        records = table.to_pandas()
        answers = []
        for control in CONTROLS:
            rows = records[records["control"] == control]
            if len(rows):
                askable = frozenset(examples_of(_source(run, control), self.cells(run.study)))
                answers.append(ControlAnswers(control, rows.drop(columns="control"), askable))
        return answers


def _source(run: StudyRun, control: Control) -> Source:
    return Source(ControlSource(run.manifest, control), {"control": control})


CONTROLS_EXPERIMENT = Controls()
