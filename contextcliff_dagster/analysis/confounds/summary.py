"""What the questions say of the curve: their mix, their evidence, their levels, their controls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from contextcliff_dagster.analysis.confounds.confound_audit import audit_confounds
from contextcliff_dagster.analysis.confounds.evidence_position import (
    evidence_curve,
    evidence_sentence,
)
from contextcliff_dagster.analysis.confounds.levels import compare_levels

if TYPE_CHECKING:
    from contextcliff_dagster.analysis.cliff.verdict import Finding
    from contextcliff_dagster.analysis.confounds.controls import ControlAnswers
    from contextcliff_dagster.analysis.records.samples import Sample
    from contextcliff_dagster.analysis.records.settings import AnalysisSettings
    from contextcliff_dagster.contracts.results.questions import (
        CategoryMix,
        Confounds,
        ControlResult,
        EvidenceCurve,
        LevelResult,
    )


@dataclass(frozen=True, slots=True)
class Questions:
    """What ``cliffs.json`` says of the questions; ``warnings``: sentences."""

    confounds: Confounds
    mix: Sequence[CategoryMix]
    controls: Sequence[ControlResult]
    by_position: EvidenceCurve | None
    by_distance: EvidenceCurve | None
    levels: Sequence[LevelResult]
    warnings: Sequence[str]


def judge_questions(
    sample: Sample,
    finding: Finding,
    settings: AnalysisSettings,
    controls: Sequence[ControlAnswers] = (),
) -> Questions:
    """Whether it is length at all (`confounds`), and what else the questions show.

    Levels take two more conclusions, so they are left out without second opinions.
    """
    audit = audit_confounds(sample, finding, settings, controls)
    position = evidence_curve(sample, "evidence_position", settings)
    distance = evidence_curve(sample, "inter_evidence_tokens", settings)
    levels = compare_levels(sample, settings) if settings.second_opinions else []
    sentences = (evidence_sentence(curve, settings.confidence) for curve in (position, distance))
    return Questions(
        audit.confounds,
        audit.mix,
        audit.controls,
        position,
        distance,
        levels,
        [*audit.warnings, *(sentence for sentence in sentences if sentence is not None)],
    )
