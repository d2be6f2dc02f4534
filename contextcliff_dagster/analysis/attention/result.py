"""What attention says of one model: the result with its sentences."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from contextcliff_dagster.analysis.attention.entropy_threshold import CHANCE, fit_threshold
from contextcliff_dagster.analysis.attention.equal_length import foretell_wrong_answers
from contextcliff_dagster.analysis.attention.matched import attention_by_bin, match_attention
from contextcliff_dagster.analysis.attention.rope_failure import (
    find_entropy_change,
    predict_rope_failure,
)
from contextcliff_dagster.contracts.results.attention import AttentionResult, Predictor

if TYPE_CHECKING:
    from contextcliff_dagster.analysis.attention.sample import AttentionSample
    from contextcliff_dagster.analysis.cliff.verdict import Finding
    from contextcliff_dagster.analysis.records.samples import Sample
    from contextcliff_dagster.analysis.records.settings import AnalysisSettings
    from contextcliff_dagster.contracts.results.attention import (
        BalancedError,
        EntropyThreshold,
        WrongAnswers,
    )


def judge_attention(
    attention: AttentionSample | None,
    sample: Sample,
    finding: Finding,
    window_tokens: int | None,
    settings: AnalysisSettings,
) -> AttentionResult | None:
    """Attention over length and what it foretells; None where no example has score and attention.

    ``finding``: the verdict, which rests on the scores alone. ``window_tokens``: of the model, its
    own tokens.
    """
    matched = None if attention is None else match_attention(attention, sample)
    if attention is None or matched is None:
        return None
    change = find_entropy_change(matched, settings)
    threshold = None if finding.cliff is None else fit_threshold(matched, settings)
    trained = attention.trained_tokens
    heads = np.isfinite(attention.entropy).any(axis=0).sum(axis=1)
    result = AttentionResult(
        n=len(matched.examples),
        n_all=len(sample.examples),
        layers=int((heads > 0).sum()),
        layers_without=int((heads == 0).sum()),
        heads=int(heads.max()),
        trained_tokens=trained,
        longest_prompt=int(matched.prompt_tokens.max()),
        bins=attention_by_bin(matched, sample.bins, settings),
        wrong_answers=foretell_wrong_answers(matched, sample.bins, settings),
        threshold=threshold,
        change=change,
        rope=predict_rope_failure(matched, change, finding, trained, window_tokens),
        says=[],
    )
    return sentences(result)


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
