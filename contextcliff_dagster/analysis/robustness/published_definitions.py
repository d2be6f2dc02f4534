"""Other people's definitions of an effective context length, on the same data.

Each is applied to a table of measured lengths and mean scores, as its authors apply it; none of
them knows sampling noise. RULER: arXiv 2404.06654. NoLiMa: arXiv 2502.05167. MECW (arXiv
2509.21361) and LongScore (100-LongBench, arXiv 2505.19293) by secondary description.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from contextcliff_dagster.contracts.results.cliffs import (
    Definitions,
    EffectiveLength,
    LongScore,
    LongScoreAt,
)

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
