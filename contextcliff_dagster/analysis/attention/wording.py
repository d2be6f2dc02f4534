"""The sentences of an attention result."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from contextcliff_dagster.analysis.attention.entropy_threshold import CHANCE
from contextcliff_dagster.contracts.results.attention import Predictor

if TYPE_CHECKING:
    from contextcliff_dagster.contracts.results.attention import (
        AttentionResult,
        BalancedError,
        EntropyThreshold,
        WrongAnswers,
    )

_NAMES: dict[Predictor, str] = {
    "entropy": "attention entropy",
    "evidence": "the share of attention on the evidence",
}
_SIDES: dict[Predictor, tuple[str, str]] = {
    "entropy": ("higher entropy", "lower entropy"),
    "evidence": ("less attention on the evidence", "more attention on the evidence"),
}
"""What wrong answers have with an AUC above .5, and below it."""


def sentences(result: AttentionResult) -> AttentionResult:
    """``result`` with its sentences: what foretells a wrong answer, and the threshold."""
    says = [_foretelling(one) for one in result.wrong_answers]
    says.append(_threshold(result.threshold))
    if lacking := result.layers_without:
        of = result.layers + lacking
        says.append(
            f"{lacking} of the model's {of} layers have no attention weights (such as linear "
            "attention or a convolution) and are in none of these figures."
        )
    return replace(result, says=says)


def _foretelling(one: WrongAnswers) -> str:
    name = _NAMES[one.predictor]
    if one.auc is None or one.ci_low is None or one.ci_high is None or one.p_value is None:
        return (
            f"Whether {name} foretells a wrong answer at equal length is not estimable: "
            f"{one.refused_because}."
        )
    chance = " (which holds .5)" if one.ci_low <= CHANCE <= one.ci_high else ""
    interval = f"[{one.ci_low:.2f}, {one.ci_high:.2f}]{chance}"
    area = f"AUC {one.auc:.2f} {interval}, p = {one.p_value:.3f}"
    left_out = ""
    if one.one_class_bins:
        bins = ", ".join(one.one_class_bins)
        left_out = f" Left out, with right or wrong answers alone: {bins}."
    if not one.foretells:
        head = f"At equal length, {name} is not shown to foretell a wrong answer"
    else:
        side = _SIDES[one.predictor][0 if one.auc >= 0.5 else 1]
        head = f"At equal length, wrong answers have {side} than right ones"
    return f"{head}: {area} ({one.n_wrong:,} wrong of {one.n:,}).{left_out}"


def _threshold(one: EntropyThreshold | None) -> str:
    if one is None:
        return "Entropy threshold of the degraded region: none, as no degraded region was found."
    head = "Entropy threshold of the degraded region: not supported"
    if one.value is None or one.error is None or one.length_error is None:
        return f"{head}; {one.refused_because}."
    half = (
        f"balanced error of {_error(one.error)} on the half of the documents not fitted on "
        f"(n = {one.n_test:,}), and of {_error(one.length_error)} by length alone"
    )
    if one.supported:
        return f"Entropy threshold of the degraded region: {one.side} {one.value:.3f}; {half}."
    return f"{head}. The best one, {one.side} {one.value:.3f}, has a {half}."


def _error(one: BalancedError) -> str:
    return f"{one.value:.2f} [{one.ci_low:.2f}, {one.ci_high:.2f}]"
