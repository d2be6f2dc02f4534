"""What attention says of one model: the result with its sentences.

Does entropy, or the share on the evidence, foretell a wrong answer at equal length?

Both change with length, and so do answers: over all lengths anything that grows with length would
foretell wrong answers. Pairs of a wrong and a right answer therefore lie in one length bin, and
within each bin the predictor is less its least-squares line on the logarithm of the length. What is
left is judged by the area under the ROC curve (`statistics.stratified_auc`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from contextcliff_dagster.analysis.attention.entropy_threshold import CHANCE, fit_threshold
from contextcliff_dagster.analysis.attention.matched import attention_by_bin, match_attention
from contextcliff_dagster.analysis.attention.rope_failure import (
    find_entropy_change,
    predict_rope_failure,
)
from contextcliff_dagster.analysis.statistics.sign_flips import holm
from contextcliff_dagster.analysis.statistics.stratified_auc import permuted_auc, stratified_auc
from contextcliff_dagster.contracts.results.attention import (
    AttentionResult,
    Predictor,
    WrongAnswers,
)
from contextcliff_dagster.contracts.results.fields import nulls

if TYPE_CHECKING:
    from collections.abc import Sequence

    from contextcliff_dagster.analysis.attention.matched import MatchedAttention
    from contextcliff_dagster.analysis.attention.sample import AttentionSample
    from contextcliff_dagster.analysis.cliff.verdict import Finding
    from contextcliff_dagster.analysis.records.samples import Sample
    from contextcliff_dagster.analysis.records.settings import AnalysisSettings
    from contextcliff_dagster.contracts import LengthBin
    from contextcliff_dagster.contracts.arrays import Floats, Ints
    from contextcliff_dagster.contracts.results.attention import (
        BalancedError,
        EntropyThreshold,
        WrongAnswers,
    )


LEAST_OF_A_CLASS = 5
"""Documents with right answers, and with wrong ones, that an AUC needs."""
_SIGN: dict[Predictor, float] = {"entropy": 1.0, "evidence": -1.0}
"""The side of a predictor that is expected of wrong answers."""


def foretell_wrong_answers(
    matched: MatchedAttention, bins: Sequence[LengthBin], settings: AnalysisSettings
) -> list[WrongAnswers]:
    """One result for each predictor; p-values are Holm's over those that could be judged."""
    results = [_judge(matched, name, bins, settings) for name in _SIGN]
    adjusted = holm([one.p_value for one in results])
    level = 1.0 - settings.confidence
    return [_called(one, p, level) for one, p in zip(results, adjusted, strict=True)]


def _called(one: WrongAnswers, p_value: float | None, level: float) -> WrongAnswers:
    """With the adjusted p-value, and whether p-value and interval both exclude chance."""
    if p_value is None or one.ci_low is None or one.ci_high is None:
        return one
    certain = p_value <= level + 1e-9 and not one.ci_low <= 0.5 <= one.ci_high
    return replace(one, p_value=p_value, foretells=certain)


def _judge(
    matched: MatchedAttention,
    name: Predictor,
    bins: Sequence[LengthBin],
    settings: AnalysisSettings,
) -> WrongAnswers:
    predictor = _SIGN[name] * matched.examples[name].to_numpy(np.float64)
    index = matched.examples["bin_index"].to_numpy(np.int64)
    known = np.isfinite(predictor) & (index >= 0)
    if not known.any():
        why = "the position of the evidence in the prompt is unknown"
        return nulls(
            WrongAnswers, predictor=name, n=0, n_wrong=0, one_class_bins=[], refused_because=why
        )
    wrong = matched.wrong
    mixed = [i for i in range(len(bins)) if len(np.unique(wrong[known & (index == i)])) == 2]
    one_class = [
        b.bin for i, b in enumerate(bins) if i not in mixed and (known & (index == i)).any()
    ]
    used = known & np.isin(index, mixed)
    empty = nulls(
        WrongAnswers,
        predictor=name,
        n=int(used.sum()),
        n_wrong=int(wrong[used].sum()),
        one_class_bins=one_class,
    )
    if not mixed:
        return replace(empty, refused_because="no length bin has right and wrong answers")
    document = matched.document
    classes = [len(np.unique(document[used & (wrong == one)])) for one in (True, False)]
    if min(classes) < LEAST_OF_A_CLASS:
        return replace(
            empty,
            refused_because=f"in the bins that have both, {classes[0]} documents have wrong "
            f"answers and {classes[1]} right ones, and {LEAST_OF_A_CLASS} of each are needed",
        )
    rest = without_trend(predictor[used], np.log(matched.length_tokens[used]), index[used])
    given = rest, wrong[used], index[used], document[used]
    value, low, high = stratified_auc(*given, settings.confidence)
    rng = np.random.default_rng((settings.seed, 9))
    p_value = permuted_auc(*given, settings.permutations, rng)
    return replace(empty, auc=value, ci_low=low, ci_high=high, p_value=p_value)


def without_trend(values: Floats, x: Floats, stratum: Ints) -> Floats:
    """``values`` less their least-squares line on ``x`` within each stratum (N)."""
    _, own = np.unique(stratum, return_inverse=True)
    count = np.bincount(own)

    def centred(of: Floats) -> Floats:
        out: Floats = of - (np.bincount(own, weights=of) / count)[own]
        return out

    x, values = centred(x), centred(values)
    spread = np.bincount(own, weights=x**2)
    slope = np.bincount(own, weights=x * values) / np.maximum(spread, 1e-300)
    # What is left of a straight line is rounding alone, and would be ranked.
    rest = values - slope[own] * x
    least = 1e-9 * max(float(np.abs(values).max(initial=0.0)), 1e-12)
    return np.where(np.abs(rest) < least, 0.0, rest)


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
