"""Attention of the last prompt token as length grows, and whether it predicts wrong answers.

The verdict and the cap never use it. `inference` measures attention.

Entropy threshold of the degraded region (`fit_threshold`). The region is a range of lengths, so a
threshold that only marks long documents would match it without adding information. It is therefore
judged on answers: fitted on half of the documents, its balanced error (the mean of the share of
wrong answers missed and of right answers flagged) is measured on the other half and compared with
the error of a length threshold fitted on the same half. The threshold is supported if the upper
limit of its error is below .5 (chance) and the lower limit of its gain over length is above 0.

Entropy change (`find_entropy_change`): the length at which entropy departs from its trend, and
whether the score also drops there. Entropy drifts smoothly with length in any model. The trend is a
parabola in the logarithm of the length; a change is a jump and a bend added to it at one length.
The statistic is the largest fraction of the residual variance that a change at any length explains;
its p-value comes from residuals permuted over the documents (Freedman and Lane 1983, Journal of
Business & Economic Statistics 1, 292-298), and the maximum over lengths makes it one test. The
interval contains the lengths whose deviance n log(SSE / least SSE) is within 7.35 of the best, as
for the score's change points.

Prediction of wrong answers at equal length (`foretell_wrong_answers`), by entropy or by the share
on the evidence. Both change with length, as do answers: over all lengths, anything that grows with
length would predict wrong answers. So each pair of a wrong and a right answer lies in one length
bin, and within each bin the predictor's least-squares line on log length is subtracted. The
residual is judged by the area under the ROC curve (`rank_tests.stratified_auc`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Literal

import numpy as np

from contextcliff_dagster.analysis.records import AnalysisSettings, Sample, documents_of
from contextcliff_dagster.analysis.statistics.intervals import (
    band_quantile,
    design_effect,
    score_correlation,
    wilson_limits,
)
from contextcliff_dagster.analysis.statistics.permutation_scan import SPLIT_LIMIT
from contextcliff_dagster.analysis.statistics.rank_tests import holm, permuted_auc, stratified_auc
from contextcliff_dagster.contracts import ContextCliffError, LengthBin, Verdict
from contextcliff_dagster.contracts.results.attention import (
    AttentionBin,
    AttentionResult,
    BalancedError,
    EntropyChange,
    EntropyThreshold,
    Predictor,
    RopeFailure,
    WrongAnswers,
)
from contextcliff_dagster.contracts.results.json_form import MeanScore, nulls

if TYPE_CHECKING:
    import pandas as pd

    from contextcliff_dagster.analysis.cliff import Drop, Finding
    from contextcliff_dagster.contracts.arrays import Bools, Floats, Ints


@dataclass(frozen=True, slots=True, eq=False)
class AttentionSample:
    """Attention of the last prompt token over the prompt, for n examples of one model.

    Attributes:
        example_ids: ids of the examples (n), each once.
        tokens: prompt lengths, in the model's own tokens (n).
        entropy: entropy of the attention divided by the logarithm of ``tokens``: 0 if one token
            has all of it, 1 if all have the same (n, layers, heads).
        sinks: fraction of the attention on the first tokens of the prompt (n, layers, heads).
        evidence: share on the evidence's tokens, without sinks; NaN if unknown (n, layers,
            heads). All three are NaN if a layer lacks the head.
        trained_tokens: context length used in training; None if unknown.

    Raises:
        ContextCliffError: array shapes do not match, an example occurs twice, or a value is
            outside 0..1.
    """

    example_ids: tuple[str, ...]
    tokens: Ints
    entropy: Floats
    sinks: Floats
    evidence: Floats
    trained_tokens: int | None

    def __post_init__(self) -> None:
        count = len(self.example_ids)
        shapes = {values.shape for values in (self.entropy, self.sinks, self.evidence)}
        (shape, *others) = shapes
        if others or len(shape) != 3 or shape[0] != count or self.tokens.shape != (count,):
            raise ContextCliffError(
                f"Attention of {count} examples has arrays of shapes {sorted(shapes)} and "
                f"{self.tokens.shape}; each must be (examples, layers, heads), and tokens "
                "(examples,)."
            )
        if len(set(self.example_ids)) < count:
            raise ContextCliffError("Attention has an example twice; give each example once.")
        for name in ("entropy", "sinks", "evidence"):
            values = getattr(self, name)
            if ((values < -_ROUNDING) | (values > 1 + _ROUNDING)).any():
                raise ContextCliffError(f"Attention has values of {name!r} outside 0..1.")


_ROUNDING = 1e-5


RIGHT = 0.5
"""Minimum score of an answer that counts as right."""


@dataclass(frozen=True, slots=True)
class MatchedAttention:
    """Examples that have both an answer and attention, in order of length.

    Attributes:
        examples: their rows of `Sample.examples` (n), with ``entropy``, ``sinks`` and ``evidence``
            as means over layers and heads; ``evidence`` is NaN if unknown.
        entropy_by_layer, evidence_by_layer: means over the heads of each layer with attention
            (n, layers).
        prompt_tokens: prompt lengths in the model's own tokens (n).
    """

    examples: pd.DataFrame
    entropy_by_layer: Floats
    evidence_by_layer: Floats
    prompt_tokens: Ints

    @property
    def wrong(self) -> Bools:
        """Return whether each answer is wrong (n)."""
        return self.examples["score"].to_numpy(np.float64) < RIGHT

    @property
    def length_tokens(self) -> Ints:
        """Return the lengths of the documents (n)."""
        return self.examples["length_tokens"].to_numpy(np.int64)

    @property
    def document(self) -> Ints:
        """Return the index of each example's document (n)."""
        return self.examples["document"].to_numpy(np.int64)


def match_attention(attention: AttentionSample, sample: Sample) -> MatchedAttention | None:
    """Return the examples of ``sample`` that have attention data; None if there are none."""
    place = {name: i for i, name in enumerate(attention.example_ids)}
    rows = sample.examples["example_id"].astype(str).map(place)
    has_attention = rows.notna().to_numpy()
    if not has_attention.any():
        return None
    index = rows[has_attention].to_numpy(np.int64)
    measures = {name: getattr(attention, name)[index] for name in ("entropy", "sinks", "evidence")}
    examples = sample.examples[has_attention].assign(
        **{name: _mean_known(values, (1, 2)) for name, values in measures.items()}
    )
    attends = np.isfinite(attention.entropy).any(axis=(0, 2))
    entropy, evidence = (
        _mean_known(measures[name][:, attends], (2,)) for name in ("entropy", "evidence")
    )
    return MatchedAttention(examples, entropy, evidence, attention.tokens[index])


def _mean_known(values: Floats, axes: tuple[int, ...]) -> Floats:
    """Return the mean of the non-NaN values over ``axes``; NaN if all are NaN."""
    known = np.isfinite(values)
    count = known.sum(axis=axes)
    total = np.where(known, values, 0.0).sum(axis=axes)
    out: Floats = np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0)
    return out


def attention_by_bin(
    matched: MatchedAttention, bins: list[LengthBin], settings: AnalysisSettings
) -> list[AttentionBin]:
    """Return the means of each non-empty bin, with Student's t intervals over documents."""
    rows = []
    index = matched.examples["bin_index"].to_numpy(np.int64)
    for i, length_bin in enumerate(bins):
        in_bin = index == i
        if not in_bin.any():
            continue
        examples, document = matched.examples[in_bin], matched.document[in_bin]
        entropy, sinks, evidence = (
            _mean(examples[name].to_numpy(np.float64), document, settings.confidence)
            for name in ("entropy", "sinks", "evidence")
        )
        rows.append(
            AttentionBin(
                bin=length_bin.bin,
                tokens=int(examples["length_tokens"].median()),
                entropy=entropy,
                sinks=sinks,
                evidence=evidence,
                entropy_by_layer=_layers(matched.entropy_by_layer[in_bin]),
                evidence_by_layer=_layers(matched.evidence_by_layer[in_bin]),
            )
        )
    return rows


def _layers(values: Floats) -> list[float]:
    """Return each layer's mean over the examples whose values are known."""
    known = np.isfinite(values).all(axis=1)
    return [float(x) for x in values[known].mean(axis=0)] if known.any() else []


def _mean(values: Floats, document: Ints, confidence: float) -> MeanScore:
    """Return the mean of the known values; the interval is null if there is only one document."""
    from scipy.special import stdtrit

    known = np.isfinite(values)
    values, document = values[known], document[known]
    if not len(values):
        return MeanScore(0, None, None, None)
    mean = float(values.mean())
    _, unit = np.unique(document, return_inverse=True)
    parts = np.bincount(unit, weights=values - mean) / len(values)
    count = len(parts)
    if count < 2:
        return MeanScore(len(values), mean, None, None)
    error = float(np.sqrt(parts @ parts * count / (count - 1)))
    half = float(stdtrit(count - 1, 0.5 + 0.5 * confidence)) * error
    return MeanScore(len(values), mean, max(mean - half, 0.0), min(mean + half, 1.0))


LEAST_TO_FIT_AND_JUDGE = 10
"""Minimum number of right answers, and of wrong answers, in each half."""
CHANCE = 0.5


@dataclass(frozen=True, slots=True)
class Cut:
    """A threshold, and which side of it is flagged as wrong."""

    value: float
    side: Literal["above", "below"]

    def flags(self, values: Floats) -> Bools:
        """Return whether each of ``values`` is flagged."""
        return values > self.value if self.side == "above" else values < self.value


def fit_threshold(matched: MatchedAttention, settings: AnalysisSettings) -> EntropyThreshold:
    """Fit a threshold on one half of the documents and measure its error on the other."""
    fit, wrong = first_half(matched), matched.wrong
    sizes = {"n_fit": int(fit.sum()), "n_test": int((~fit).sum())}
    classes = [int((wrong[half] == kind).sum()) for half in (fit, ~fit) for kind in (True, False)]
    if min(classes) < LEAST_TO_FIT_AND_JUDGE:
        why = (
            f"the halves have {classes[0]} and {classes[2]} wrong answers and {classes[1]} and "
            f"{classes[3]} right ones, and it needs {LEAST_OF_A_CLASS} of each"
        )
        return nulls(EntropyThreshold, supported=False, refused_because=why, **sizes)
    entropy = matched.examples["entropy"].to_numpy(np.float64)
    length = matched.length_tokens.astype(np.float64)
    cut = best_cut(entropy[fit], wrong[fit])
    by_length = best_cut(length[fit], wrong[fit])
    test, document = wrong[~fit], matched.document[~fit]
    lost = cut.flags(entropy[~fit]) != test
    lost_by_length = by_length.flags(length[~fit]) != test
    error = balanced_error(lost, test, document, settings.confidence)
    length_error = balanced_error(lost_by_length, test, document, settings.confidence)
    gain = _gain(lost_by_length.astype(float) - lost, test, document, settings.confidence)
    return EntropyThreshold(
        supported=error.ci_high < CHANCE and gain[1] > 0,
        value=cut.value,
        side=cut.side,
        error=error,
        length_error=length_error,
        gain=gain[0],
        gain_ci_low=gain[1],
        gain_ci_high=gain[2],
        refused_because=None,
        **sizes,
    )


def first_half(matched: MatchedAttention) -> Bools:
    """Return whether each example's document is in the fitting half, by a hash of its name."""
    frame = matched.examples
    documents = frame["document_id"].astype(str)
    names = documents.where(documents != "", frame["example_id"].astype(str))
    halves = {name: sha256(f"threshold:{name}".encode()).digest()[0] % 2 for name in set(names)}
    return np.array([halves[name] == 0 for name in names], dtype=bool)


def best_cut(values: Floats, wrong: Bools) -> Cut:
    """Return the first cut with the smallest balanced error; it lies midway between two values."""
    order = np.argsort(values, kind="stable")
    ranked, bad = values[order], wrong[order].astype(np.float64)
    ends = np.flatnonzero(np.append(np.diff(ranked) > 0, True))
    missed = np.cumsum(bad)[ends] / bad.sum()
    spared = np.cumsum(1 - bad)[ends] / (1 - bad).sum()
    error = 0.5 * (missed + 1 - spared)  # flagged: all above
    above, below = int(np.argmin(error)), int(np.argmax(error))
    place, side = (above, "above") if error[above] <= 1 - error[below] else (below, "below")
    at = ends[place]
    following = ranked[min(at + 1, len(ranked) - 1)]
    middle = 0.5 * (ranked[at] + following)
    return Cut(float(middle), "above" if side == "above" else "below")


def balanced_error(lost: Bools, wrong: Bools, document: Ints, confidence: float) -> BalancedError:
    """Return the balanced error of the judgements ``lost`` (N), with an interval from Wilson's.

    Counts are divided by the design effect (`intervals.design_effect`) of questions on one
    document. Limits are combined as in Newcombe (1998, Statistics in Medicine 17, 873-890).
    """
    z = band_quantile(confidence, 1)
    value = below = above = 0.0
    for kind in (True, False):
        of_class = lost[wrong == kind].astype(np.float64)
        units = document[wrong == kind]
        rho, _ = score_correlation(units, of_class, np.zeros(len(of_class), np.int64))
        _, sizes = np.unique(units, return_counts=True)
        n = len(of_class) / design_effect(sizes, rho)
        share = float(of_class.mean())
        low, high = wilson_limits(share, n, z)
        value += 0.5 * share
        below += (share - low) ** 2
        above += (high - share) ** 2
    low, high = value - 0.5 * math.sqrt(below), value + 0.5 * math.sqrt(above)
    return BalancedError(value=value, ci_low=max(low, 0.0), ci_high=min(high, 1.0))


def _gain(
    saved: Floats, wrong: Bools, document: Ints, confidence: float
) -> tuple[float, float, float]:
    """Return the mean of ``saved`` (N) over both classes, with Student's interval by document."""
    from scipy.special import stdtrit

    means = {kind: float(saved[wrong == kind].mean()) for kind in (True, False)}
    parts = np.zeros(len(saved))
    for kind, mean in means.items():
        of_class = wrong == kind
        parts[of_class] = 0.5 * (saved[of_class] - mean) / of_class.sum()
    _, unit = np.unique(document, return_inverse=True)
    sums = np.bincount(unit, weights=parts)
    error = math.sqrt(float(sums @ sums) * len(sums) / max(len(sums) - 1, 1))
    half = float(stdtrit(max(len(sums) - 1, 1), 0.5 + 0.5 * confidence)) * error
    value = 0.5 * (means[True] + means[False])
    return value, max(value - half, -1.0), min(value + half, 1.0)


APPROACHED = 0.9
"""Prompts of at least this fraction of the trained length count as near it."""
_LEAST_DOCUMENTS, _LEAST_SIDE, _SIDE_SHARE = 30, 6, 0.08
_MOST_UNITS, _MOST_PLACES = 400, 60


@dataclass(frozen=True, slots=True)
class _Scan:
    """Orthonormal columns of the trend (n, 3) and of each change beyond it (n, 2 K)."""

    trend: Floats
    changes: Floats

    def explained(self, rows: Floats) -> tuple[Floats, Floats]:
        """Return squares explained per change (B, K) and left by the trend (B); rows (B, n)."""
        parts = (rows @ self.changes) ** 2
        total = (rows**2).sum(axis=1) - ((rows @ self.trend) ** 2).sum(axis=1)
        return parts.reshape(len(rows), -1, 2).sum(axis=2), total


def find_entropy_change(
    matched: MatchedAttention, settings: AnalysisSettings
) -> EntropyChange | None:
    """Return the entropy change; None if it is not significant or documents are too few."""
    lengths, entropy = _units(matched)
    count = len(lengths)
    side = max(_LEAST_SIDE, int(np.ceil(_SIDE_SHARE * count)))
    cuts = np.flatnonzero(np.diff(lengths) > 0) + 1
    cuts = cuts[(cuts >= side) & (cuts <= count - side)]
    if count < _LEAST_DOCUMENTS or not len(cuts):
        return None
    cuts = cuts[np.unique(np.linspace(0, len(cuts) - 1, _MOST_PLACES).round().astype(np.int64))]
    scan = _scan(np.log(lengths), cuts)
    residual = entropy - scan.trend @ (scan.trend.T @ entropy)
    explained, total = scan.explained(residual[None, :])
    if total[0] <= 1e-12 * max(float(entropy @ entropy), 1e-12):
        return None  # the trend explains everything
    rng = np.random.default_rng((settings.seed, 10))
    drawn = rng.permuted(np.tile(residual, (settings.permutations, 1)), axis=1)
    shares, totals = scan.explained(drawn)
    largest = (shares.max(axis=1) / np.maximum(totals, 1e-300)) >= (
        explained.max() / total[0] - 1e-12
    )
    p_value = float((1 + largest.sum()) / (1 + len(largest)))
    if p_value > 1.0 - settings.confidence:
        return None
    left = np.maximum(total[0] - explained[0], 1e-12 * total[0])
    near = np.flatnonzero(count * np.log(left / left.min()) <= SPLIT_LIMIT)
    best = int(np.argmin(left))
    # The change lies after the last length before it, with untried places in between.
    low = lengths[cuts[near[0] - 1]] if near[0] else lengths[cuts[near[0]] - 1]
    high = lengths[cuts[min(near[-1] + 1, len(cuts) - 1)]]
    return EntropyChange(
        location_tokens=int(lengths[cuts[best]]),
        ci_low=int(min(low, lengths[cuts[best]])),
        ci_high=int(np.ceil(high)),
        p_value=p_value,
    )


def predict_rope_failure(
    matched: MatchedAttention,
    change: EntropyChange | None,
    finding: Finding,
    trained_tokens: int | None,
    window_tokens: int | None,
) -> RopeFailure | None:
    """Return the drop's position as a fraction of the window; None unless all of these hold:

    - the trained length and the window are known, and the longest prompt has at least 90% of the
      trained length;
    - the score drops and does not recover, and entropy changes;
    - the midpoint of the drop lies in the interval of the entropy change, and the entropy change
      in the interval of the midpoint;
    - the interval of the midpoint reaches 90% of the trained length.
    """
    drop = finding.cliff
    if trained_tokens is None or not window_tokens or change is None or drop is None:
        return None
    if matched.prompt_tokens.max() < APPROACHED * trained_tokens:
        return None
    if finding.verdict is Verdict.DIP or not _agree(drop, change):
        return None
    slope, constant = np.polyfit(matched.length_tokens, matched.prompt_tokens, 1)
    place, low, high = (float(constant + slope * tokens) for tokens in drop.location.tokens)
    if slope <= 0 or high < APPROACHED * trained_tokens:
        return None
    return RopeFailure(
        prompt_tokens=round(place),
        share=place / window_tokens,
        ci_low=max(low, 0.0) / window_tokens,
        ci_high=high / window_tokens,
    )


def _agree(drop: Drop, change: EntropyChange) -> bool:
    place, low, high = drop.location.tokens
    return change.ci_low <= place <= change.ci_high and low <= change.location_tokens <= high


def _units(matched: MatchedAttention) -> tuple[Floats, Floats]:
    """Return each document's length and mean entropy, in order; merges neighbours above 400."""
    of_example = matched.examples["entropy"].to_numpy(np.float64)
    documents = documents_of(matched.document, matched.length_tokens, of_example)
    lengths, entropy = documents.length_tokens.astype(np.float64), documents.s / documents.n
    if len(lengths) <= _MOST_UNITS:
        return lengths, entropy
    group = np.arange(len(lengths)) * _MOST_UNITS // len(lengths)
    size = np.bincount(group)
    return np.bincount(group, lengths) / size, np.bincount(group, entropy) / size


def _scan(x: Floats, cuts: Ints) -> _Scan:
    scaled = (x - x.mean()) / max(float(x.std()), 1e-9)
    trend, _ = np.linalg.qr(np.column_stack([np.ones(len(x)), scaled, scaled**2]))
    place = np.arange(len(x))[:, None]
    after = (place >= cuts[None, :]).astype(np.float64)
    bend = after * (scaled[:, None] - scaled[cuts][None, :])
    columns = []
    for jump, slope in zip(after.T, bend.T, strict=True):
        both = np.column_stack([jump, slope])
        both -= trend @ (trend.T @ both)
        columns.append(np.linalg.qr(both)[0])
    return _Scan(trend, np.concatenate(columns, axis=1))


LEAST_OF_A_CLASS = 5
"""An AUC needs this many documents with right answers, and as many with wrong answers."""
_SIGN: dict[Predictor, float] = {"entropy": 1.0, "evidence": -1.0}
"""Sign of a predictor's expected association with wrong answers."""


def foretell_wrong_answers(
    matched: MatchedAttention, bins: Sequence[LengthBin], settings: AnalysisSettings
) -> list[WrongAnswers]:
    """Judge each predictor, adjusting the p-values of all judged predictors by Holm's method."""
    results = [_judge(matched, name, bins, settings) for name in _SIGN]
    adjusted = holm([result.p_value for result in results])
    level = 1.0 - settings.confidence
    return [_called(result, p, level) for result, p in zip(results, adjusted, strict=True)]


def _called(one: WrongAnswers, p_value: float | None, level: float) -> WrongAnswers:
    """Add the adjusted p-value, and whether p-value and interval both exclude chance."""
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
    classes = [len(np.unique(document[used & (wrong == is_wrong)])) for is_wrong in (True, False)]
    if min(classes) < LEAST_OF_A_CLASS:
        return replace(
            empty,
            refused_because=f"in the bins that have both, {classes[0]} documents have wrong "
            f"answers and {classes[1]} right ones, and {LEAST_OF_A_CLASS} of each are needed",
        )
    residual = without_trend(predictor[used], np.log(matched.length_tokens[used]), index[used])
    given = residual, wrong[used], index[used], document[used]
    value, low, high = stratified_auc(*given, settings.confidence)
    rng = np.random.default_rng((settings.seed, 9))
    p_value = permuted_auc(*given, settings.permutations, rng)
    return replace(empty, auc=value, ci_low=low, ci_high=high, p_value=p_value)


def without_trend(values: Floats, x: Floats, stratum: Ints) -> Floats:
    """Return ``values`` minus their least-squares line on ``x`` within each stratum (N)."""
    _, group = np.unique(stratum, return_inverse=True)
    count = np.bincount(group)

    def centred(of: Floats) -> Floats:
        out: Floats = of - (np.bincount(group, weights=of) / count)[group]
        return out

    x, values = centred(x), centred(values)
    spread = np.bincount(group, weights=x**2)
    slope = np.bincount(group, weights=x * values) / np.maximum(spread, 1e-300)
    # The residual of a straight line is only rounding and must not be ranked.
    residual = values - slope[group] * x
    least = 1e-9 * max(float(np.abs(values).max(initial=0.0)), 1e-12)
    return np.where(np.abs(residual) < least, 0.0, residual)


def judge_attention(
    attention: AttentionSample | None,
    sample: Sample,
    finding: Finding,
    window_tokens: int | None,
    settings: AnalysisSettings,
) -> AttentionResult | None:
    """Return the attention result; None if no scored example has attention data.

    ``finding``: the verdict, based on the scores alone. ``window_tokens``: the model's window, in
    its own tokens.
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
"""How wrong answers are described if the AUC is above .5, and if it is below .5."""


def sentences(result: AttentionResult) -> AttentionResult:
    """Add sentences on the predictors of wrong answers and on the threshold to ``result``."""
    says = [_foretelling(predictor) for predictor in result.wrong_answers]
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
