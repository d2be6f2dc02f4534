"""Robustness checks of a verdict: other definitions of a cliff, other settings, other tokens.

Published definitions of an effective context length (`effective_lengths`). Each is applied to a
table of measured lengths and mean scores, as by its authors; none accounts for sampling noise.
RULER: arXiv 2404.06654. NoLiMa: arXiv 2502.05167. MECW (arXiv 2509.21361) and LongScore
(100-LongBench, arXiv 2505.19293) follow secondary descriptions.

Simple threshold rules used in practice (`threshold_rules`). They compare each bin with the first
one and ignore sampling noise: they are shown next to the verdict but do not affect it. A score in
[0, 1] has an SD of at most 0.5, so some rules cannot fire on some data; the result of each rule
states this.

Sensitivity (`sensitivity`): how cap and verdict change if one choice of the analysis changes.
Each variant is concluded like the result itself (``conclusion``), from the same calls, with one
choice changed and, if the scan is repeated, with fewer permutations (99). Nothing is averaged or
corrected, and no variant is preferable to the result. The choices:

- ``tolerance``: 10 to 50%;
- ``bins``: every document at the median length of its bin, for 5, 10 and 20 quantile bins, as in a
  table by bins (the result itself uses every length and no bins);
- ``baseline``: the shortest 10 and 25% of the examples instead of 15%;
- ``tokenizer``: lengths in the model's own prompt token counts, if nearly all calls have them;
  caps are converted back to document tokens by the line that gives ``cap_prompt_tokens``;
- ``score``: exact match, token F1, containment, if nearly all records have them;
- ``replicates``: an example's first or worst replicate instead of their mean;
- ``missing``: calls without an answer count as wrong or as right. Documents beyond the window
  (``context_overflow``) are not imputed: they have no answer because of their length, and no cap
    exceeds the longest scored document.

If there are more than 2,000 documents, neighbouring ones are summed first.

Variance signal (`variance_signal`): whether scores scatter more over some range of lengths than
their mean explains. A score in 0..1 with mean m has a variance of at most m (1 - m), so a spread
that grows because the mean moves toward 1/2 is not a separate signal. The test uses the remainder:
with the fitted mean m of each example,

    v = (y - m)^2 / (m (1 - m)),

whose expectation is the scores' fraction of the largest possible variance. Statistic: the largest
standardised difference between the mean of v inside and outside a window of lengths; windows hold
8 to 60% of the examples. p-value: whole documents are permuted over the lengths, with the largest
statistic of each permutation, so that it is one test over all windows.

With 0/1 scores v has expectation 1 at every length, for any model: the test is refused if fewer
than 5% of the scores lie strictly between 0 and 1. Examples with a fitted mean below .15 or above
.85 are left out, because there a single unusual score outweighs all others and is not comparable
with scores elsewhere; if they are more than half, the test is also refused. The test assumes that
the fitted mean is right: a misfit (a shelf that the fit cannot follow) counts as scatter.
docs/method.md reports how often that misleads.

Token ratio (`token_ratio`): the model's tokens divided by the study's, by bin, and the cap in
prompt tokens. Bins and the cap are in tokens of the study's tokenizer. If the ratio differs
between long and short documents (code among prose, another script), bins that look twice as long
are not twice as long for the model. For each answered call with the server's
``prompt_tokens`` and the study's own count of the text around the document
(``scaffold_tokens``)::

    ratio = (prompt_tokens - scaffold_tokens - t) / length_tokens

``t``, the chat template's own tokens, is unknown. It is estimated as the number in 0..64 for which
the medians of the shorter half of the bins, where it matters most, lie closest together (least sum
of the absolute differences of their logarithms from the middle one). The template cannot explain
the remaining differences.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from contextcliff_dagster.analysis.cliff import baseline_of, cap_of, conclude, conclude_again
from contextcliff_dagster.analysis.records import Documents, clean_records, documents_of
from contextcliff_dagster.analysis.statistics.falling_curve import curve_points
from contextcliff_dagster.contracts.results.cliffs import (
    BinRatio,
    CapAtTolerance,
    Definitions,
    EffectiveLength,
    Factor,
    LongScore,
    LongScoreAt,
    Rule,
    SensitivityRow,
    TokenRatio,
    VarianceSignal,
)
from contextcliff_dagster.contracts.results.json_form import BinResult, nulls

if TYPE_CHECKING:
    import pandas as pd

    from contextcliff_dagster.analysis.cliff import Conclusion, Finding
    from contextcliff_dagster.analysis.records import AnalysisSettings, Sample
    from contextcliff_dagster.contracts.arrays import Floats, Ints

RULER_THRESHOLD = 0.856
"""Score of Llama-2-7B at 4k tokens, RULER's threshold; its appendix has other thresholds."""
NOLIMA_SHARE = 0.85
MECW_LOSS = 0.05
BLUEPRINT_LOSS = 0.30
LONGSCORE_BASE_TOKENS = 6_000
_NAMES = {"ruler_85_6": "RULER", "nolima_0_85": "NoLiMa"}
_NO_LONGSCORE = LongScore(None, [], [], None)


def effective_lengths(
    lengths: Sequence[int],
    scores: Sequence[float],
    *,
    base_score: float | None = None,
    threshold: float | None = None,
    baseline: float | None = None,
) -> tuple[Definitions, list[str]]:
    """Return the ``definitions`` of ``cliffs.json`` and warnings, from a table sorted by length.

    * ``ruler_85_6``: longest length with a score of at least ``threshold`` (default .856).
    * ``nolima_0_85``: longest length with a score of at least .85 x ``base_score`` (default: the
      first length's score).
    * ``mecw_5pct``: longest length before the first whose score is more than 5% below that of the
      shortest (``base_score``).
    * ``drop_30pct``: longest length before the first more than 30% below ``baseline`` (default
      ``base_score``).
    * ``longscore``: mean of (score - base) / base over the lengths beyond the base, base = mean
      score of the lengths up to 6,000 tokens (only the shortest if all or none are).

    ``tokens`` is null with censored "<" if no length meets the rule, and the longest length with
    ">" if it does.

    Args:
        lengths: tokens (L), ascending. scores: 0..1 (L).
    """
    if not len(lengths):
        empty = EffectiveLength(None, None, None)
        return Definitions(empty, empty, empty, empty, _NO_LONGSCORE), []
    base = scores[0] if base_score is None else base_score
    thresholds = {
        "ruler_85_6": RULER_THRESHOLD if threshold is None else threshold,
        "nolima_0_85": NOLIMA_SHARE * base,
        "mecw_5pct": (1 - MECW_LOSS) * base,
        "drop_30pct": (1 - BLUEPRINT_LOSS) * (base if baseline is None else baseline),
    }
    warnings: list[str] = []
    if base <= 0:
        warnings.append(
            "The base score is 0: every length meets the definitions relative to it, so they are "
            "not informative."
        )
    out: dict[str, EffectiveLength] = {}
    for name, level in thresholds.items():
        meets = [score >= level - 1e-9 for score in scores]
        if name in ("mecw_5pct", "drop_30pct"):
            last = (meets.index(False) if False in meets else len(meets)) - 1
        else:
            last = max((i for i, good in enumerate(meets) if good), default=-1)
            if not all(meets[: last + 1]):
                warnings.append(
                    f"{_NAMES[name]}'s rule already fails below {lengths[last]:,} tokens."
                )
        censored: Literal["<", ">"] | None = (
            "<" if last < 0 else ">" if last == len(lengths) - 1 else None
        )
        tokens = None if last < 0 else int(lengths[last])
        out[name] = EffectiveLength(tokens, censored, float(level))
    return Definitions(**out, longscore=_longscore(lengths, scores)), warnings


def _longscore(lengths: Sequence[int], scores: Sequence[float]) -> LongScore:
    short = sum(length <= LONGSCORE_BASE_TOKENS for length in lengths)
    if short in (0, len(lengths)):
        short = 1
    base = sum(scores[:short]) / short
    if base <= 0:
        return _NO_LONGSCORE
    longer = [
        LongScoreAt(int(length), float((score - base) / base))
        for length, score in zip(lengths[short:], scores[short:], strict=True)
    ]
    return LongScore(
        float(base),
        [int(length) for length in lengths[:short]],
        longer,
        sum(row.value for row in longer) / len(longer) if longer else None,
    )


_MOST_SD, _MOST_VARIANCE = 0.5, 0.25
_ROUNDING = 1e-9
"""Rounding tolerance, so that 1 - 0.7 = 0.30000000000000004 counts as equal to 0.3."""


def threshold_rules(bins: Sequence[BinResult], window_tokens: int | None) -> list[Rule]:
    """Return the ``rules`` of ``cliffs.json``; the first of ``bins`` with a mean is the baseline.

    ``value`` is that of the bin at which the rule fires, or else the most extreme one after the
    baseline. With a baseline SD of 0, every spread exceeds a multiple of it, so the SD and variance
    rules fire at the first bin whose scores are not all equal.
    """
    scored = [row for row in bins if row.mean is not None]
    base = scored[0] if scored else nulls(BinResult)
    later, mean, rate = scored[1:], base.mean or 0.0, base.failure_rate

    def drop(row: BinResult) -> float:
        return 1.0 - (row.mean or 0.0) / mean if mean > 0 else 0.0

    double_sd = None if base.sd is None else 2.0 * base.sd
    double_variance = None if base.variance is None else 2.0 * base.variance
    spike = None if rate is None else max(2.0 * rate, rate + 0.10)
    rules = [
        _rule(
            "transition_sd", later, lambda r: r.sd, double_sd,
            lambda v, t: _at_least(v, t) and v > 0, double_sd is not None and double_sd <= _MOST_SD,
        ),
        _rule(
            "variance", later, lambda r: r.variance, double_variance,
            _above, double_variance is not None and double_variance < _MOST_VARIANCE,
        ),
        _rule("mean_drop", later, drop, 0.30, _above, mean > 0),
        _rule(
            "failure_rate_spike", later, lambda r: r.failure_rate, spike,
            _at_least, spike is not None and spike <= 1.0,
        ),
    ]  # fmt: skip
    keys = [row.bin for row in bins]
    failing = [keys.index(r.at_bin) for r in rules if r.at_bin is not None and r.name in _FAILING]
    first = bins[min(failing)] if failing else None
    edge = first.edge_low if first else None
    share = edge / window_tokens if edge is not None and window_tokens else None
    able = any(r.reachable for r in rules if r.name in _FAILING)
    for name, value, reachable in (
        ("first_failing_edge", edge, able),
        ("critical_threshold", share, able and bool(window_tokens)),
    ):
        rules.append(
            Rule(
                name=name,
                fired=value is not None,
                at_bin=None if first is None or value is None else first.bin,
                reachable=bool(reachable),
                value=value,
                threshold=None,
            )
        )
    return rules


_FAILING = ("transition_sd", "mean_drop")
"""Rules by which a bin fails; the rules' cap is the lower edge of the first failing bin."""


def _above(value: float, threshold: float) -> bool:
    return value > threshold + _ROUNDING


def _at_least(value: float, threshold: float) -> bool:
    return value >= threshold - _ROUNDING


def _rule(
    name: str,
    later: Sequence[BinResult],
    value_of: Callable[[BinResult], float | None],
    threshold: float | None,
    fires: Callable[[float, float], bool],
    reachable: bool,
) -> Rule:
    values = [(row.bin, value) for row in later if (value := value_of(row)) is not None]
    hit = None
    if threshold is not None and reachable:
        hit = next(((key, v) for key, v in values if fires(v, threshold)), None)
    value = hit[1] if hit else max((v for _, v in values), default=None)
    return Rule(
        name=name,
        fired=hit is not None,
        at_bin=hit[0] if hit else None,
        reachable=bool(reachable and values),
        value=value,
        threshold=threshold,
    )


TOLERANCES = (0.10, 0.20, 0.30, 0.40, 0.50)
REPORTED_TOLERANCES = TOLERANCES[:3]
BIN_COUNTS = (5, 10, 20)
BASELINES = (0.10, 0.15, 0.25)
SCORES = {"em": "exact match", "f1": "token F1", "contained": "containment"}
_PERMUTATIONS, _RESAMPLES = 99, 100
_MOST_DOCUMENTS = 2_000
_MOST_CALLS = 50_000
"""With more calls than this, variants that must clean the records again (tokenizer, replicates,
missing) are left out, because they would take longer than everything else."""
_NEARLY_ALL = 0.95


def sensitivity(
    sample: Sample,
    documents: Documents,
    conclusion: Conclusion,
    settings: AnalysisSettings,
    primary: str | None,
    share: float = 1.0,
    limit: int | None = None,
) -> list[SensitivityRow]:
    """Return the ``sensitivity`` of ``cliffs.json``; the first row is the result as reported.

    Empty if the result has no fit to vary.

    Args:
        documents: documents of ``sample``.
        primary: which of ``em``, ``f1``, ``contained`` the score is, if any.
        share: factor of the usual chance of loss, for caps beyond earlier ones (`cap_after_looks`).
        limit: cap that missing answers allow, tokens; ``None`` if they do not limit it.
    """
    if conclusion.finding.curve is None:
        return []
    longest = int(documents.length_tokens[-1])
    quick = replace(
        settings,
        permutations=min(settings.permutations, _PERMUTATIONS),
        resamples=min(settings.resamples, _RESAMPLES),
    )
    result = _row(conclusion, documents)
    rows = [result]
    for factor, value, changed, chosen in _variants(sample, documents, quick, primary):
        line = prompt_line(sample.calls) if factor == "tokenizer" else None
        if chosen is None:
            row = result
        elif factor == "tolerance":
            row = _row(_stricter(conclude_again(conclusion, chosen), chosen, share), documents)
        else:
            baseline = baseline_of(changed, chosen)
            other = _stricter(conclude(changed, chosen, baseline), chosen, share)
            row = _row(other, changed)
            if factor == "score" and other.finding.curve is not None:
                row = _with_curve(row, other.finding, chosen, share, limit)
            del other  # each fit is freed before the next
        most = longest if limit is None or factor == "missing" else limit
        cap = _document_tokens(row.safe_cap_tokens, line, most) or None
        location = _document_tokens(row.location_tokens, line, longest)
        row = replace(row, factor=factor, value=value, reported=chosen is None)
        rows.append(replace(row, safe_cap_tokens=cap, location_tokens=location))
    return rows


def _row(conclusion: Conclusion, documents: Documents) -> SensitivityRow:
    cliff = conclusion.finding.cliff
    return SensitivityRow(
        factor="as reported",
        value="",
        reported=True,
        n=int(documents.n.sum()),
        verdict=conclusion.finding.verdict,
        safe_cap_tokens=conclusion.cap.tokens,
        location_tokens=None if cliff is None else cliff.location.tokens[0],
    )


def _with_curve(
    row: SensitivityRow,
    finding: Finding,
    settings: AnalysisSettings,
    share: float,
    limit: int | None,
) -> SensitivityRow:
    """Return the row of another score with its baseline, curve and caps, which the page draws."""
    curve = finding.curve
    assert curve is not None
    tolerances = sorted({*REPORTED_TOLERANCES, settings.tolerance})
    caps = [cap_of(finding, replace(settings, tolerance=at), share).tokens for at in tolerances]
    if limit is not None:
        caps = [cap and (min(cap, limit) or None) for cap in caps]
    return replace(
        row,
        baseline=curve.baseline_mean,
        curve=curve_points(curve, settings.confidence, finding.dip_window),
        caps_by_tolerance=list(map(CapAtTolerance, tolerances, caps)),
    )


def _stricter(conclusion: Conclusion, settings: AnalysisSettings, share: float) -> Conclusion:
    return replace(conclusion, cap=cap_of(conclusion.finding, settings, share))


def _document_tokens(
    tokens: float | None, line: tuple[float, float] | None, longest: int
) -> int | None:
    """Return ``tokens`` as document tokens, within the measured lengths; ``line`` converts them."""
    if tokens is not None and line is not None:
        tokens = max((tokens - line[1]) / line[0], 1.0)
    return None if tokens is None else min(int(tokens), longest)


Variant = tuple[Factor, str, Documents, "AnalysisSettings | None"]
"""Factor, value in words, documents, and settings; settings None marks the result itself."""


def _variants(
    sample: Sample, documents: Documents, quick: AnalysisSettings, primary: str | None
) -> Iterator[Variant]:
    few = _summed(documents)
    for tolerance in TOLERANCES:
        same = abs(tolerance - quick.tolerance) < 1e-9
        chosen = None if same else replace(quick, tolerance=tolerance)
        yield "tolerance", f"{tolerance:.0%}", documents, chosen
    for share in BASELINES:
        same = abs(share - quick.baseline_share) < 1e-9
        chosen = None if same else replace(quick, baseline_share=share)
        yield "baseline", f"shortest {share:.0%}", few, chosen
    for count in BIN_COUNTS:
        yield "bins", f"using only {count} length groups", _binned(few, count), quick
    for name, words in SCORES.items():
        column = sample.examples[name]
        if name == primary:
            yield "score", words, few, None
        elif len(column) and column.notna().mean() >= _NEARLY_ALL:
            scored = sample.examples[column.notna()].assign(score=column[column.notna()])
            changed = replace(sample, examples=scored).documents()
            yield "score", words, _summed(changed), quick
    if len(sample.calls) <= _MOST_CALLS:
        yield from _by_records(sample, quick)


def _by_records(sample: Sample, quick: AnalysisSettings) -> Iterator[Variant]:
    """Yield the variants that change calls, whose records are cleaned and summed again."""
    calls = sample.calls
    answered = calls[calls["answered"]]
    counted = answered[answered["prompt_tokens"].notna()]
    if len(counted) >= _NEARLY_ALL * len(answered) and prompt_line(calls) is not None:
        changed = counted.assign(length_tokens=counted["prompt_tokens"])
        yield "tokenizer", "the model's own count", _documents(changed, sample), quick
    if len(sample.examples) and (sample.examples["replicates"] > 1).any():
        keys = ["document_id", "example_id"]
        for value, by in (("the first", "replicate"), ("the worst", "score")):
            kept = answered.sort_values(by, kind="stable").drop_duplicates(keys)
            yield "replicates", value, _documents(kept, sample), quick
    missing = ~calls["answered"] & calls["failure"].ne("context_overflow")
    if missing.any():
        for value, score in (("wrong", 0.0), ("right", 1.0)):
            filled = calls[calls["answered"] | missing].copy()
            unanswered = ~filled["answered"]
            filled["failure"] = ""
            filled.loc[unanswered, "score"] = score
            words = f"{int(unanswered.sum())} missing calls as {value}"
            yield "missing", words, _documents(filled, sample), quick


def _documents(records: pd.DataFrame, sample: Sample) -> Documents:
    return _summed(clean_records(records, [], sample.chance).documents())


def _summed(documents: Documents) -> Documents:
    """Return at most 2,000 documents, summing neighbours at the length of the middle one."""
    count = len(documents.n)
    if count <= _MOST_DOCUMENTS:
        return documents
    group = np.arange(count) * _MOST_DOCUMENTS // count
    first = np.flatnonzero(np.diff(group, prepend=-1))
    last = np.append(first[1:], count) - 1
    lengths = documents.length_tokens[(first + last) // 2]
    lengths[0], lengths[-1] = documents.length_tokens[0], documents.length_tokens[-1]
    n, s = np.add.reduceat(documents.n, first), np.add.reduceat(documents.s, first)
    return replace(documents, length_tokens=lengths, n=n, s=s)


def _binned(documents: Documents, count: int) -> Documents:
    """Return the documents with each length replaced by the median of its quantile bin."""
    lengths = documents.length_tokens
    cuts = np.unique(np.quantile(lengths, np.linspace(0, 1, count + 1)[1:-1], method="higher"))
    bins = np.searchsorted(cuts, lengths, side="right")
    in_bin, index = np.unique(bins, return_inverse=True)
    medians = np.array([np.median(lengths[bins == b]) for b in in_bin]).astype(np.int64)
    return replace(documents, length_tokens=medians[index])


LEAST_BETWEEN = 0.05
_LEAST_DOCUMENTS = 20
_LEAST_ROOM = 0.5
_MOST_UNITS = 400
_KNOTS = 40
_SHARES = (0.08, 0.60)
_LEAST_MEAN, _MOST_MEAN = 0.15, 0.85


def variance_signal(
    document: Ints,
    length_tokens: Ints,
    scores: Floats,
    mean: Floats | None,
    *,
    permutations: int,
    seed: int,
) -> VarianceSignal:
    """Return the ``variance_signal`` of ``metrics.json``: p-value and window, or why not tested.

    Args:
        document, length_tokens, scores: of each example (N).
        mean: fitted mean of each example (N); ``None`` if the data support no fit.
    """
    between = float(np.mean((scores > 0) & (scores < 1))) if len(scores) else 0.0
    if mean is None or len(np.unique(document)) < _LEAST_DOCUMENTS:
        return _refused(f"fewer than {_LEAST_DOCUMENTS} documents, or no fitted curve")
    if between < LEAST_BETWEEN:
        return _refused(
            f"{between:.0%} of the scores lie strictly between 0 and 1 (needed: "
            f"{LEAST_BETWEEN:.0%}): the variance of 0/1 scores is mean x (1 - mean) and adds "
            "nothing to the mean"
        )
    room = (mean >= _LEAST_MEAN) & (mean <= _MOST_MEAN)
    if room.mean() < _LEAST_ROOM or len(np.unique(document[room])) < _LEAST_DOCUMENTS:
        return _refused(
            f"the fitted mean lies below {_LEAST_MEAN} or above {_MOST_MEAN} for "
            f"{1 - room.mean():.0%} of the examples, which leaves scores no room to scatter"
        )
    document, length_tokens, m = document[room], length_tokens[room], mean[room]
    v = (scores[room] - m) ** 2 / (m * (1.0 - m))
    documents = documents_of(document, length_tokens, v)
    lengths, n, s = documents.length_tokens, documents.n, documents.s
    group = np.arange(len(n)) * min(len(n), _MOST_UNITS) // len(n)
    first = np.flatnonzero(np.diff(group, prepend=-1))
    n, s = np.add.reduceat(n, first), np.add.reduceat(s, first)
    start, end = _windows(n)
    if not len(start):
        return _refused("no stretch of lengths with enough examples inside and outside")

    rng = np.random.default_rng((seed, 4))
    count = len(n)
    rows = np.vstack([np.arange(count), rng.random((permutations, count)).argsort(axis=1)])
    cum_n, cum_s = np.zeros((len(rows), count + 1)), np.zeros((len(rows), count + 1))
    np.cumsum(n[rows], axis=1, out=cum_n[:, 1:])
    np.cumsum(s[rows], axis=1, out=cum_s[:, 1:])
    inside_n, inside = cum_n[:, end] - cum_n[:, start], cum_s[:, end] - cum_s[:, start]
    rest_n = n.sum() - inside_n
    more = inside / inside_n - (s.sum() - inside) / rest_n
    contrast = more * np.sqrt(inside_n * rest_n / n.sum())
    best = int(np.argmax(contrast[0]))
    largest = contrast.max(axis=1)
    last = np.append(first[1:], len(lengths)) - 1
    inside_share = float(inside[0, best] / inside_n[0, best])
    outside_share = inside_share - float(more[0, best])
    return VarianceSignal(
        p_value=float(np.mean(largest >= largest[0] - 1e-9)),
        from_tokens=int(lengths[first[start[best]]]),
        to_tokens=int(lengths[last[end[best] - 1]]) + 1,
        # Around a fitted mean it may exceed the largest possible variance.
        inside=min(inside_share, 1.0),
        outside=min(outside_share, 1.0),
        refused_because=None,
    )


def variance_sentence(signal: VarianceSignal, alpha: float = 0.05) -> str | None:
    """Return a sentence on the variance signal; ``None`` if there is none."""
    if signal.p_value is None or signal.p_value > alpha:
        return None
    return (
        f"Scores scatter more between {signal.from_tokens:,} and {signal.to_tokens:,} tokens "
        f"than their mean explains: {signal.inside:.2f} of the largest possible variance, "
        f"{signal.outside:.2f} elsewhere, p = {signal.p_value:.3f}."
    )


def _refused(reason: str) -> VarianceSignal:
    return nulls(VarianceSignal, refused_because=reason)


def _windows(n: Floats) -> tuple[Ints, Ints]:
    """Return window starts and ends (exclusive), on at most 41 edges of units of size ``n``."""
    count = len(n)
    knots = np.unique(np.linspace(0, count, min(count, _KNOTS) + 1).round().astype(np.int64))
    start, end = (side.ravel() for side in np.meshgrid(knots, knots, indexing="ij"))
    cum = np.concatenate([[0.0], np.cumsum(n)])
    inside = cum[end] - cum[start]
    good = (start < end) & (inside >= _SHARES[0] * cum[-1]) & (inside <= _SHARES[1] * cum[-1])
    return start[good], end[good]


UNEQUAL_RATIO = 0.10
"""A warning is given if the bins' median ratios differ by this much, relative to the smallest."""
_MOST_TEMPLATE_TOKENS = 64
_FEWEST_CALLS = 3


def unequal_sentence(ratio: TokenRatio | None, tokenizer: str | None) -> str | None:
    """Return a warning if the bins' token ratios differ by more than `UNEQUAL_RATIO`, else None."""
    if ratio is None or ratio.spread is None or ratio.spread <= UNEQUAL_RATIO:
        return None
    known = [b for b in ratio.bins if b.median is not None and b.n >= _FEWEST_CALLS]
    least = min(known, key=lambda b: b.median or 0.0)
    most = max(known, key=lambda b: b.median or 0.0)
    return (
        f"For one token of {tokenizer or 'the study'} the server counts {least.median:.2f} in "
        f"{least.bin} and {most.median:.2f} in {most.bin}, more than {UNEQUAL_RATIO:.0%} "
        "apart: bins and cap are not equal lengths for this model; give its own tokenizer in "
        "the study (`contextcliff tokenizers`)."
    )


def token_ratio(sample: Sample) -> TokenRatio | None:
    """Return the token ratio by bin; None if the calls lack either of the two counts."""
    calls = sample.calls
    lengths = calls["length_tokens"].to_numpy(np.float64)
    scaffold = calls["scaffold_tokens"].to_numpy(np.float64)
    around = calls["prompt_tokens"].to_numpy(np.float64) - scaffold
    index = calls["bin_index"].to_numpy(np.int64)
    reported = calls["answered"].to_numpy() & np.isfinite(around) & (index >= 0)
    if not reported.any():
        return None
    groups = [reported & (index == place) for place in range(len(sample.bins))]
    large = [ratios_of for ratios_of in groups if ratios_of.sum() >= _FEWEST_CALLS]

    def medians(template: int) -> Floats:
        ratios = (around - template) / lengths
        return np.array([np.median(ratios[ratios_of]) for ratios_of in large])

    def apart(template: int) -> float:
        shorter = medians(template)[: max(len(large) // 2, 2)]
        if shorter.min() <= 0:
            return np.inf
        logs = np.log(shorter)
        return float(np.abs(logs - np.median(logs)).sum())

    several = len(large) > 1
    template = min(range(_MOST_TEMPLATE_TOKENS + 1), key=apart) if several else 0
    ratios = (around - template) / lengths
    rows = []
    for bin, ratios_of in zip(sample.bins, groups, strict=True):
        of_bin = ratios[ratios_of]
        if len(of_bin):
            median, low, high = float(np.median(of_bin)), float(of_bin.min()), float(of_bin.max())
            rows.append(BinRatio(bin.bin, len(of_bin), median, low, high))
        else:
            rows.append(nulls(BinRatio, bin=bin.bin, n=0))
    spread = None
    if several and (final := medians(template)).min() > 0:
        spread = float(final.max() / final.min() - 1)
    return TokenRatio(template, spread, rows)


def cap_in_prompt_tokens(calls: pd.DataFrame, cap: int | None) -> int | None:
    """Return the prompt tokens of a call with a document of ``cap`` tokens; ``None`` if unknown.

    Uses the least-squares line of ``prompt_tokens`` on ``length_tokens``: the two tokenizers differ
    by a factor, and the scaffold adds a constant.
    """
    line = prompt_line(calls)
    if cap is None or line is None:
        return None
    slope, constant = line
    return max(int(constant + slope * cap), 0)


def prompt_line(calls: pd.DataFrame) -> tuple[float, float] | None:
    """Return slope and intercept of the line of ``prompt_tokens`` on ``length_tokens``.

    ``None`` if fewer than two lengths have both counts, or the slope is not positive.
    """
    known = calls.loc[calls["answered"] & calls["prompt_tokens"].notna()]
    lengths = known["length_tokens"].to_numpy(np.float64)
    prompts = known["prompt_tokens"].to_numpy(np.float64)
    if len(np.unique(lengths)) < 2:
        return None
    slope, constant = np.polyfit(lengths, prompts, 1)
    return (float(slope), float(constant)) if slope > 0 else None
