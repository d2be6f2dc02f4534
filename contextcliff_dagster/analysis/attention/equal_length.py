"""Does entropy, or the share on the evidence, foretell a wrong answer at equal length?

Both change with length, and so do answers: over all lengths anything that grows with length would
foretell wrong answers. Pairs of a wrong and a right answer therefore lie in one length bin, and
within each bin the predictor is less its least-squares line on the logarithm of the length. What is
left is judged by the area under the ROC curve (`statistics.stratified_auc`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from contextcliff_dagster.analysis.statistics.sign_flips import holm
from contextcliff_dagster.analysis.statistics.stratified_auc import permuted_auc, stratified_auc
from contextcliff_dagster.contracts.results.attention import Predictor, WrongAnswers
from contextcliff_dagster.contracts.results.fields import nulls

if TYPE_CHECKING:
    from collections.abc import Sequence

    from contextcliff_dagster.analysis.attention.matched import MatchedAttention
    from contextcliff_dagster.analysis.records.settings import AnalysisSettings
    from contextcliff_dagster.contracts import LengthBin
    from contextcliff_dagster.contracts.arrays import Floats, Ints

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
