"""A table of mean scores by length, without the answers behind it, to the same result.

What the means alone show, other people's definitions (`effective_lengths`), every table gets.
A verdict needs to know how sure a mean is. Where every length states its n, the n are taken as
independent examples scored 0 or 1 with the stated mean: no scores in [0, 1] of that mean scatter
more, so graded scores only get more caution than they need. Questions that share a
document do scatter more, and no table shows it: the result says so.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from contextcliff_dagster.analysis.profile.model_profile import profile_model
from contextcliff_dagster.analysis.robustness.published_definitions import (
    effective_lengths,
    threshold_rules,
)
from contextcliff_dagster.analysis.statistics.intervals import exact_interval
from contextcliff_dagster.contracts import LengthBin
from contextcliff_dagster.contracts.results.cliffs import Baseline, Zone
from contextcliff_dagster.contracts.results.fields import BinResult, nulls

if TYPE_CHECKING:
    import pandas as pd

    from contextcliff_dagster.analysis.profile.context import ProfileContext
    from contextcliff_dagster.analysis.records.settings import AnalysisSettings
    from contextcliff_dagster.contracts.results import Cliffs
    from contextcliff_dagster.score_files.mean_tables import MeansTable


MOST_EXAMPLES = 1_000_000
"""Of more, this many represent all, in proportion: the verdict is more cautious, not slower."""

ASSUMED = (
    "The table gives only means and n: each n is taken as that many independent examples scored 0 "
    "or 1. If questions share documents, intervals are too narrow and the cap may be too long; "
    "give the number of documents as n then."
)


def profile_table(table: MeansTable, settings: AnalysisSettings, context: ProfileContext) -> Cliffs:
    """``cliffs.json`` of a table of means: one bin a length, null where a table cannot know.

    ``definitions`` use the table's ``base_score`` in place of the first length's mean and its
    ``threshold`` in place of .856. Without n at every length the verdict is ``insufficient_data``,
    and only lengths with n have an interval.
    """
    tokens = table.length_tokens.tolist()
    bins = [
        LengthBin(f"b{i:02d}", low, high, low, low, low, 0, 0)
        for i, (low, high) in enumerate(pairwise([*tokens, tokens[-1] + 1]))
    ]
    known = bool(np.isfinite(table.n).all())
    result = profile_model(examples_of(table), bins, settings, context).cliffs
    rows = [_row(table, i, b, settings) for i, b in enumerate(bins)]
    definitions, warnings = effective_lengths(
        tokens,
        table.mean.tolist(),
        base_score=table.base_score,
        threshold=table.threshold,
    )
    baseline = _baseline(table, result.baseline.to_tokens if known else None, settings)
    own_warnings = [*context.warnings]
    if known:
        # Not those on scores that no table has, nor on definitions.
        other = ("RULER's", "NoLiMa's", "All answers of")
        of_verdict = [text for text in result.warnings if text not in context.warnings]
        own_warnings += [ASSUMED, *(text for text in of_verdict if not text.startswith(other))]
        low, high = baseline.ci_low or 0.0, baseline.ci_high or 0.0
        if table.base_score is not None and not low <= table.base_score <= high:
            own_warnings.append(
                f"The base score {table.base_score:.3f} differs from the shortest lengths' "
                f"({baseline.mean:.3f}): the definitions use it, verdict and cap do not."
            )
    else:
        without = int(np.isnan(table.n).sum())
        result = replace(
            result,
            safe_cap_reason=f"The table gives no n for {without} of its {len(table.n)} lengths: "
            "the means have no known precision and support neither a verdict nor a cap.",
            sensitivity=[],
        )
    return replace(
        result,
        n=int(np.nansum(table.n)),
        baseline=baseline,
        zones=[replace(zone, mean=_mean_within(table, zone)) for zone in result.zones],
        bins=rows,
        rules=threshold_rules(rows, context.window_tokens),
        definitions=definitions,
        warnings=[*own_warnings, *warnings],
    )


def examples_of(table: MeansTable) -> pd.DataFrame:
    """Examples scored 0 or 1 with the table's means: what is concluded from; none without every n.

    What rounding to whole examples takes from one length it gives to the next, so that the sum over
    any range of lengths is off by less than one.
    """
    import pandas as pd

    if not np.isfinite(table.n).all():
        return pd.DataFrame({"length_tokens": np.zeros(0), "score": np.zeros(0)})
    n = np.maximum(table.n * min(1.0, MOST_EXAMPLES / table.n.sum()), 1.0).astype(np.int64)
    hits = np.diff(np.round(np.cumsum(n * table.mean)), prepend=0.0).astype(np.int64)
    hits = np.clip(hits, 0, n)
    counts = np.column_stack([hits, n - hits]).ravel()
    scores = np.repeat(np.tile([1.0, 0.0], len(n)), counts)
    return pd.DataFrame({"length_tokens": np.repeat(table.length_tokens, n), "score": scores})


def _row(
    table: MeansTable, index: int, length_bin: LengthBin, settings: AnalysisSettings
) -> BinResult:
    n, mean = float(table.n[index]), float(table.mean[index])
    low, high = _interval(mean, n, settings)
    return nulls(
        BinResult,
        bin=length_bin.bin,
        n=0 if np.isnan(n) else int(n),
        edge_low=length_bin.edge_low,
        edge_high=length_bin.edge_high,
        min_tokens=length_bin.min_tokens,
        median_tokens=length_bin.median_tokens,
        max_tokens=length_bin.max_tokens,
        mean=mean,
        ci_low=low,
        ci_high=high,
        missing=0,
        ci_width=None if low is None or high is None else high - low,
    )


def _interval(
    mean: float, n: float, settings: AnalysisSettings
) -> tuple[float, float] | tuple[None, None]:
    return (None, None) if np.isnan(n) else exact_interval(mean * n, n, settings.confidence)


def _baseline(table: MeansTable, to_tokens: int | None, settings: AnalysisSettings) -> Baseline:
    """The shortest lengths that hold 15% of the examples; without n the base score or first mean.

    Args:
        to_tokens: longest length of the region, ``None`` where n is unknown.
    """
    if to_tokens is None:
        mean = float(table.mean[0]) if table.base_score is None else table.base_score
        first = int(table.length_tokens[0]) if table.base_score is None else None
        return Baseline(mean, None, None, 0, first)
    inside = table.length_tokens <= to_tokens
    n = float(table.n[inside].sum())
    mean = float((table.n * table.mean)[inside].sum()) / n
    low, high = _interval(mean, n, settings)
    return Baseline(mean, low, high, int(n), to_tokens)


def _mean_within(table: MeansTable, zone: Zone) -> float | None:
    tokens = table.length_tokens
    inside = (zone.from_tokens <= tokens) & (tokens < zone.to_tokens)
    return float(np.average(table.mean[inside], weights=table.n[inside])) if inside.any() else None
