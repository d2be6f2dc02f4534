"""What surrounds the records of one model: names, window, provenance, and the finished profile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from contextcliff_dagster.analysis.attention.sample import AttentionSample
    from contextcliff_dagster.analysis.confounds.control_tests import ControlAnswers
    from contextcliff_dagster.contracts.results import Cliffs, Metrics
    from contextcliff_dagster.contracts.results.caps import Look


@dataclass(frozen=True, slots=True)
class ProfileContext:
    """Facts about one model's records that the records do not carry.

    Attributes:
        model: serving configuration the records belong to.
        study, campaign, task, tokenizer: names, ``None`` where unknown.
        identity: hash of the serving identity.
        window_tokens: the model's technical window, in its own tokens.
        score_name: name of the score in ``cliffs.json``.
        primary: which of ``em``, ``f1``, ``contained`` the score is; ``None`` for a custom one.
        scorer_version: of the scorers that made the scores; ``None`` where others did.
        provenance: hashes, versions, seeds, times; copied into the result.
        warnings: sentences about the measurement, shown with those of the analysis.
        per_bin: examples asked a bin at most; ``None`` for scores of unknown origin.
        looks: caps read before, at fewer examples a bin.
        copied_share: of the questions whose answer occurs word for word in the document.
        controls: the scored answers to the same questions without their document.
        attention: of the last prompt token, where it was measured; verdict and cap never use it.
        created_at: ISO 8601 time of the analysis; ``None`` takes the clock.
    """

    model: str
    study: str | None = None
    campaign: str | None = None
    task: str | None = None
    tokenizer: str | None = None
    identity: str | None = None
    window_tokens: int | None = None
    score_name: str = "score"
    primary: str | None = None
    scorer_version: str | None = None
    provenance: Mapping[str, Any] = field(default_factory=dict)
    warnings: Sequence[str] = ()
    copied_share: float | None = None
    created_at: str | None = None
    per_bin: int | None = None
    looks: Sequence[Look] = ()
    controls: Sequence[ControlAnswers] = ()
    attention: AttentionSample | None = None

    @property
    def names(self) -> dict[str, Any]:
        """What every result says of where it comes from."""
        return {name: getattr(self, name) for name in ("created_at", "study", "campaign", "model")}


@dataclass(frozen=True, slots=True)
class ModelProfile:
    """The analysis of one model: what is written as ``metrics.json`` and ``cliffs.json``."""

    metrics: Metrics
    cliffs: Cliffs
