"""What a user may choose about the analysis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from contextcliff_dagster.contracts import StudyError


@dataclass(frozen=True, slots=True)
class AnalysisSettings:
    """Choices of the analysis; everything else is fixed by the method.

    Attributes:
        tolerance: loss relative to the baseline that still counts as safe, 0.05..0.5.
        confidence: of every interval and of the cap, 0.5..0.999.
        resamples: bootstrap resamples of documents, per bin.
        seed: of every resampling; the same records and seed give the same result.
        rolling: bins in the trailing window of ``rolling_variance``.
        permutations: of whole documents over the lengths, for the scan's p-value; at least so many,
            and more where the confidence needs smaller p-values.
        baseline_share: of the examples, shortest first, that are the baseline, 0.05..0.5; 0.15 is
            what error rates are stated for.
        chance: mean score of guessing, 0..0.9: what is lost is measured above it.
        assumption: what the cap assumes of a model that fails at a length: ``falling``, that it
            does not recover at a longer one; ``any``, nothing.
        ttft_limit_ms: the user's limit on the 95th percentile of the time to the first token.
        second_opinions: whether `profile_model` also gives the sensitivity of the cap and what more
            data would buy; they take most of its time and decide nothing.

    Raises:
        StudyError: a value is outside its range.
    """

    tolerance: float = 0.30
    confidence: float = 0.95
    resamples: int = 2_000
    seed: int = 0
    rolling: int = 3
    permutations: int = 999
    baseline_share: float = 0.15
    chance: float = 0.0
    assumption: Literal["falling", "any"] = "falling"
    ttft_limit_ms: float | None = None
    second_opinions: bool = True

    def __post_init__(self) -> None:
        for name, low, high in (
            ("tolerance", 0.05, 0.5),
            ("confidence", 0.5, 0.999),
            ("resamples", 100, 100_000),
            ("rolling", 1, 100),
            ("permutations", 99, 100_000),
            ("baseline_share", 0.05, 0.5),
            ("chance", 0.0, 0.9),
        ):
            value = getattr(self, name)
            if not low <= value <= high:
                raise StudyError(
                    f"Analysis setting {name!r} is {value}; choose {low:g} to {high:g}."
                )
        if self.assumption not in {"falling", "any"}:
            raise StudyError(
                f"Analysis setting 'assumption' is {self.assumption!r}; choose 'falling' or 'any'."
            )
