"""Whether time passes for length: the order of the answers, bins measured apart, and drift.

A server's load, a deployment or a bad spell changes scores and times. Where answers come in order
of length that looks like an effect of length, and no test of the scores alone can tell the two
apart; so the order itself is looked at, and what changed over time at equal length.

Levels side by side: questions that need one place, and those that need several.

A model may lose the second kind long before the first: a simple and a complex cliff. Each kind is
concluded by itself, as if the others had not been asked, at the settings of the whole.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import numpy as np

from contextcliff_dagster.analysis.cliff.conclusion import baseline_of, conclude
from contextcliff_dagster.analysis.statistics.intervals import bin_means
from contextcliff_dagster.contracts.results.questions import LevelResult

if TYPE_CHECKING:
    import pandas as pd

    from contextcliff_dagster.analysis.records.samples import Sample
    from contextcliff_dagster.analysis.records.settings import AnalysisSettings
    from contextcliff_dagster.contracts.arrays import Floats, Ints


LEAST_ANSWERS = 20
IN_ORDER = 0.5
"""Rank correlation of length and time from which on they cannot be told apart."""
APART = 5
"""Least answers of a bin that is said to have been measured apart."""
DRIFT_ALPHA = 0.01
_MOST_UNITS, _PERMUTATIONS, _LEAST_SIDE = 1_000, 199, 6


def time_warnings(sample: Sample, settings: AnalysisSettings, rho: float | None) -> list[str]:
    """Sentences on the order of measuring (``rho``: `length_time_correlation`); none without it."""
    if rho is None:
        return []
    if abs(rho) >= IN_ORDER:
        return [
            f"The answers came in order of length (rank correlation with time {rho:.2f}): whatever "
            "changed over the run, such as the server's load, would look like an effect of length."
        ]
    timed = _timed(sample)
    sentences = [_apart(sample, timed), _drift(timed, settings)]
    return [sentence for sentence in sentences if sentence]


def length_time_correlation(sample: Sample) -> float | None:
    """Spearman's correlation of the answers' lengths and times.

    None where times are unknown, and for documents of one length.
    """
    timed = _timed(sample)
    if timed["finished_s"].nunique() < LEAST_ANSWERS or timed["length_tokens"].nunique() < 2:
        return None
    return float(timed["length_tokens"].rank().corr(timed["finished_s"].rank()))


def _timed(sample: Sample) -> pd.DataFrame:
    calls = sample.calls
    return calls[calls["answered"] & calls["finished_s"].notna()]


def _apart(sample: Sample, timed: pd.DataFrame) -> str | None:
    """Bins with nine in ten answers later, or earlier, than three quarters of the others."""
    bins = timed["bin_index"].to_numpy(np.int64)
    at = timed["finished_s"].to_numpy(np.float64)
    apart = []
    for index, of in enumerate(sample.bins):
        mine, others = at[bins == index], at[bins != index]
        if len(mine) < APART or len(others) < APART:
            continue
        early, late = np.quantile(others, (0.25, 0.75))
        first, last = np.quantile(mine, (0.1, 0.9))
        if first > late or last < early:
            apart.append(of.bin)
    if not apart:
        return None
    return (
        f"Measured at another time than the other lengths: {', '.join(apart)}. A difference may be "
        "one of time."
    )


def _drift(timed: pd.DataFrame, settings: AnalysisSettings) -> str | None:
    """Whether scores changed over time at equal length: a permutation test over all moments."""
    at, off, score = _in_time(timed)
    change = find_change(off, min(settings.permutations, _PERMUTATIONS), settings.seed)
    if change is None or change[1] > DRIFT_ALPHA:
        return None
    place, p_value = change
    before, after = score[:place].mean(), score[place:].mean()
    moment = datetime.fromtimestamp(at[place], UTC).strftime("%Y-%m-%d %H:%M UTC")
    return (
        f"Scores changed over the run at equal length (p = {p_value:.3f}): mean "
        f"{before:.2f} until {moment}, {after:.2f} afterwards. Something other than length changed."
    )


def find_change(values: Floats, permutations: int, seed: int) -> tuple[int, float] | None:
    """The largest standardised difference of means before and after any place, by permutation.

    Index of the first value after it, and its p-value: the maximum over all places makes it one
    test. ``None`` with fewer than 12 values.

    >>> find_change(np.repeat([0.9, 0.1], 20), permutations=199, seed=0)
    (20, 0.005)
    """
    count = len(values)
    if count < 2 * _LEAST_SIDE:
        return None
    rng = np.random.default_rng((seed, 7))
    centred = values - values.mean()
    orders = np.vstack([centred, rng.permuted(np.tile(centred, (permutations, 1)), axis=1)])
    place = np.arange(_LEAST_SIDE, count - _LEAST_SIDE + 1)
    reach = np.abs(np.cumsum(orders, axis=1)[:, place - 1])
    reach /= np.sqrt(place * (count - place) / count)
    largest = reach.max(axis=1)
    chance = float(np.mean(largest >= largest[0] - 1e-9))
    return int(place[int(np.argmax(reach[0]))]), chance


def _in_time(timed: pd.DataFrame) -> tuple[Floats, Floats, Floats]:
    """Time, score less its bin's mean, and score of each document, in order of time.

    More than 1,000 documents are summed with those that follow.
    """
    score = timed["score"].to_numpy(np.float64)
    bins = timed["bin_index"].to_numpy(np.int64) + 1
    mean = np.bincount(bins, score) / np.maximum(np.bincount(bins), 1)
    names = timed["document_id"].cat.codes.to_numpy(np.int64)
    nameless = timed["document_id"].to_numpy() == ""
    unit = np.where(nameless, names.max() + 1 + np.arange(len(names)), names)
    at, off, score = _means(unit, timed["finished_s"], score - mean[bins], score)
    order = np.argsort(at, kind="stable")
    at, off, score = at[order], off[order], score[order]
    if len(at) > _MOST_UNITS:
        at, off, score = _means(np.arange(len(at)) * _MOST_UNITS // len(at), at, off, score)
    return at, off, score


def _means(unit: Ints, *columns: Floats | pd.Series[float]) -> list[Floats]:
    _, index = np.unique(unit, return_inverse=True)
    count = np.bincount(index)
    return [np.bincount(index, column) / count for column in columns]


MOST_NAMED = 4
"""Levels that are names are compared where there are no more than this."""


def compare_levels(sample: Sample, settings: AnalysisSettings) -> list[LevelResult]:
    """One result a kind of level; empty where the records name none or only one."""
    if "level" not in sample.examples.columns:
        return []
    column = sample.examples["level"].astype(str)
    groups = _groups(sorted(set(column)))
    if len(groups) < 2:
        return []
    results = []
    for name, levels in groups:
        examples = sample.examples[column.isin(levels)].reset_index(drop=True)
        documents = replace(sample, examples=examples).documents()
        baseline = baseline_of(documents, settings)
        conclusion = conclude(documents, settings, baseline)
        cliff, cap = conclusion.finding.cliff, conclusion.cap
        location, low, high = (None, None, None) if cliff is None else cliff.tokens
        result = LevelResult(
            name=name,
            levels=levels,
            n=len(examples),
            n_documents=len(documents.n),
            verdict=conclusion.finding.verdict,
            safe_cap_tokens=cap.tokens,
            safe_cap_reason=cap.reason,
            baseline=baseline.mean,
            location_tokens=location,
            ci_low=low,
            ci_high=high,
            bins=bin_means(sample.bins, examples, settings, 4),
        )
        results.append(result)
    return results


def _groups(values: list[str]) -> list[tuple[str, tuple[str, ...]]]:
    """Names and the values they hold; rows without a level are in none."""
    named = [value for value in values if value]
    try:
        simple = tuple(value for value in named if float(value) <= 1)
        complex_ = tuple(value for value in named if float(value) > 1)
    except ValueError:
        return [(value, (value,)) for value in named] if len(named) <= MOST_NAMED else []
    return [(n, v) for n, v in (("simple", simple), ("complex", complex_)) if v]
