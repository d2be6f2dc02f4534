"""Other people's definitions of an effective context length, on the same data.

Each is applied to a table of measured lengths and mean scores, as its authors apply it; none of
them knows sampling noise. RULER: arXiv 2404.06654. NoLiMa: arXiv 2502.05167. MECW (arXiv
2509.21361) and LongScore (100-LongBench, arXiv 2505.19293) by secondary description.

The plain threshold rules of practice, exactly as people write them.

They compare each bin with the first one and know nothing of sampling noise: they are shown next to
the verdict, never as it. A score in [0, 1] has an SD of at most 0.5, so some of them cannot fire on
some data; each rule says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from contextcliff_dagster.contracts.results.cliffs import (
    Definitions,
    EffectiveLength,
    LongScore,
    LongScoreAt,
    Rule,
)
from contextcliff_dagster.contracts.results.fields import BinResult, nulls

RULER_THRESHOLD = 0.856
"""Llama-2-7B at 4k tokens, RULER's reference; its appendix has others for other tables."""
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
    """The ``definitions`` of ``cliffs.json`` and warnings, from a table in order of length.

    * ``ruler_85_6``: longest length with a score of at least ``threshold`` (default .856).
    * ``nolima_0_85``: longest length with a score of at least .85 x ``base_score`` (default: the
      first length's score).
    * ``mecw_5pct``: longest length before the first whose score is more than 5% below that of the
      shortest (``base_score``).
    * ``drop_30pct``: longest length before the first more than 30% below ``baseline`` (default
      ``base_score``).
    * ``longscore``: mean of (score - base) / base over the lengths beyond the base, base = mean
      score of the lengths up to 6,000 tokens (the shortest alone where all or none are).

    ``tokens`` is null with censored "<" where no length meets the rule, and the longest length with
    ">" where it does.

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
        sum(one.value for one in longer) / len(longer) if longer else None,
    )


_MOST_SD, _MOST_VARIANCE = 0.5, 0.25
_ROUNDING = 1e-9
"""1 - 0.7 is 0.30000000000000004: a value on its threshold counts as on it, not above."""


def threshold_rules(bins: Sequence[BinResult], window_tokens: int | None) -> list[Rule]:
    """The ``rules`` of ``cliffs.json`` from its ``bins``; the first with a mean is the baseline.

    ``value`` is that of the firing bin, else the most extreme after the baseline. With a baseline
    SD of 0 every spread at all is more than a multiple of it: the SD and variance rules then fire
    at the first bin whose scores are not all equal.
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
"""A bin fails where its SD or its mean does; the cap is the lower token edge of the first."""


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
    seen = [(row.bin, value) for row in later if (value := value_of(row)) is not None]
    hit = None
    if threshold is not None and reachable:
        hit = next(((key, v) for key, v in seen if fires(v, threshold)), None)
    value = hit[1] if hit else max((v for _, v in seen), default=None)
    return Rule(
        name=name,
        fired=hit is not None,
        at_bin=hit[0] if hit else None,
        reachable=bool(reachable and seen),
        value=value,
        threshold=threshold,
    )
