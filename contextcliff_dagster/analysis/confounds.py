"""Tests of whether length itself explains a drop: question mix, evidence position, time, levels.

Question mix (`audit_confounds`). If long documents come with harder questions, a curve over length
falls even though length has no effect. Records may state a question's task, kind, level, domain,
source and evidence position. For each of these, examples before and beyond the loss are compared at
the same mix (`standardise`): the overall mix of the categories that both sides have. Properties
that no record states, such as the difficulty of a question within its category, are not tested.

Evidence position (`evidence_curve`). A model may use facts at the start or the end of a text and
miss those between (Liu et al. 2024, Lost in the Middle, TACL 12, 157-173). Two curves show it: the
score against the position of the evidence, in fifths of the text, and, for questions that need two
pieces, against their distance in tokens, in groups of equal size. Positions and distances may
depend on length, so each group's mean is also given at the same mix of length bins (`standardise`).

A test at equal length compares the curve with a flat one. With r_i the score of example i minus the
mean of its length bin, and T_g the sum of r_i over group g,

    z = max_g |T_g - mean of T_g| / (standard deviation of T_g),

where mean, deviation and the chance of a larger z come from exchanges of positions: a document
gives its examples' positions to another document of its length bin with as many questions
(`exchanges`; single-step maximum, Westfall and Young 1993).

Time (`time_warnings`). A server's load, a deployment or an outage changes scores and times. If the
answers come in order of length, that looks like an effect of length, and no test of the scores
alone can distinguish the two. So three things are checked: the order itself, bins measured at
different times, and drift of the scores over time at equal length.

Levels (`compare_levels`): questions that need one passage, and questions that need several. A model
may fail on the second kind at much shorter lengths than on the first. Each kind gets its own
verdict and cap with the same settings, as if the others had not been asked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from contextcliff_dagster.analysis.cliff import (
    AdjustedDrop,
    DropWindow,
    Finding,
    baseline_of,
    conclude,
    drop_window,
    judge_adjusted_drop,
)
from contextcliff_dagster.analysis.control_tests import ControlAnswers, judge_controls
from contextcliff_dagster.analysis.records import CATEGORIES, AnalysisSettings, Sample, ranks_of
from contextcliff_dagster.analysis.statistics.falling_curve import Estimate
from contextcliff_dagster.analysis.statistics.intervals import bin_means, document_interval
from contextcliff_dagster.analysis.statistics.rank_tests import cells_of, exchanges, standardise
from contextcliff_dagster.contracts.results.json_form import Identified, nulls
from contextcliff_dagster.contracts.results.metrics import CATEGORY_WORDS
from contextcliff_dagster.contracts.results.questions import (
    Category,
    CategoryMix,
    Confounds,
    ControlResult,
    EvidenceAxis,
    EvidenceCurve,
    EvidenceGroup,
    LevelResult,
    MixBin,
)

if TYPE_CHECKING:
    import pandas as pd

    from contextcliff_dagster.contracts.arrays import Floats, Ints

LEAST_IN_A_CATEGORY = 5
"""A category is compared only with at least this many documents on each side."""
BALANCED = 0.01
"""Mixes are the same if no category's share differs by more between the sides of the drop."""
LEAST_COVERED = 0.5
"""Minimum fraction of each side's examples that must belong to comparable categories."""


@dataclass(frozen=True, slots=True)
class Audit:
    """The ``confounds``, ``mix`` and ``controls`` of ``cliffs.json``, and ``warnings``."""

    confounds: Confounds
    mix: list[CategoryMix]
    controls: list[ControlResult]
    warnings: list[str]


def audit_confounds(
    sample: Sample,
    finding: Finding,
    settings: AnalysisSettings,
    controls: Sequence[ControlAnswers] = (),
) -> Audit:
    """Judge whether length explains the loss of ``finding``, using each category in the records
    and the controls.

    ``no``, if for some category (a) less than half of the examples on a side have values that both
    sides have (5 documents each); (b) at an equal mix, less than half of the loss remains, or too
    little to be sure of any (`CHOSEN`); or (c) there is no loss, but at an equal mix the drop
    differs by 5/6 of the tolerance. ``yes`` otherwise.
    ``not_assessed``, if no category has two values, or length itself was not judged.
    """
    examples = sample.examples
    rows: list[CategoryMix] = []
    reasons: dict[Identified, list[str]] = {"no": [], "yes": []}
    window = drop_window(finding, examples["length_tokens"].to_numpy(np.int64))
    document = np.asarray(examples["document"].factorize()[0], np.int64)
    for category in _known(examples):
        row, reason = _by_category(sample, category, document, window, finding, settings)
        rows.append(row)
        if reason:
            reasons[row.identified].append(reason)
    judged_controls = judge_controls(controls, sample, window, finding, settings)
    for control in judged_controls:
        if control.identified in reasons:
            reasons[control.identified].append(control.says[-1])
    identified: Identified = "no" if reasons["no"] else "yes" if reasons["yes"] else "not_assessed"
    decisive = Confounds(identified, reasons.get(identified, []))
    return Audit(decisive, rows, judged_controls, reasons["no"])


def _known(examples: pd.DataFrame) -> Iterator[tuple[Category, list[str], Ints]]:
    """Yield categories with at least two values: name, values, and each example's value number.

    Skips domains and sources with fewer than 5 documents per value: they name single files.
    """
    documents = int(examples["document"].nunique())
    for name in CATEGORIES:
        if name not in examples.columns:
            continue
        column = examples[name].cat.remove_unused_categories()
        values = [value or "not named" for value in column.cat.categories]
        files = name in ("domain", "source") and len(values) * LEAST_IN_A_CATEGORY > documents
        if len(values) > 1 and not files:
            yield name, values, np.asarray(column.cat.codes, np.int64)
    if "evidence_position" in examples.columns:
        fifth = place_of(examples["evidence_position"].to_numpy(np.float64))
        present, of = np.unique(fifth, return_inverse=True)
        share = 100 // FIFTHS
        values = [f"{i * share} to {(i + 1) * share}%" if i >= 0 else "not named" for i in present]
        if len(values) > 1:
            yield "evidence_position", values, np.asarray(of, np.int64)


def _by_category(
    sample: Sample,
    known: tuple[Category, list[str], Ints],
    document: Ints,
    beyond: DropWindow | None,
    finding: Finding,
    settings: AnalysisSettings,
) -> tuple[CategoryMix, str | None]:
    name, values, category = known
    words = CATEGORY_WORDS[name]
    score = sample.examples["score"].to_numpy(np.float64)
    mix = np.bincount(category, minlength=len(values)) / len(category)
    row = nulls(CategoryMix, category=name, identified="not_assessed", values=values)
    reason = None
    if beyond is not None:
        lengths = sample.examples["length_tokens"].to_numpy(np.int64)
        side = beyond.of(lengths).astype(np.int64)
        sides = cells_of(side, category, document, score, (2, len(values)))
        common = (sides.documents >= LEAST_IN_A_CATEGORY).all(axis=0)
        covered = sides.n[:, common].sum(axis=1) / sides.n.sum(axis=1)
        row = replace(row, from_tokens=beyond.from_tokens, to_tokens=beyond.to_tokens)
        shares = sides.n / sides.n.sum(axis=1, keepdims=True)
        if np.allclose(shares[0], shares[1], atol=BALANCED):  # as in a grid
            row = replace(row, identified="yes")
            reason = f"Shorter and longer documents have the same mix of {words}."
        elif (covered < LEAST_COVERED).any():
            row = replace(row, identified="no")
            reason = (
                f"Length and {words} cannot be separated: {covered[1]:.0%} of the examples "
                f"{beyond.words} and {covered[0]:.0%} of the others have {words} with "
                f"{LEAST_IN_A_CATEGORY} documents on both sides. A drop may come from them."
            )
        else:
            mix = np.where(common, mix, 0.0)
            mix /= mix.sum()
            equal = standardise(sides, mix, LEAST_IN_A_CATEGORY)
            before, after = sides.s.sum(axis=1) / sides.n.sum(axis=1) - settings.chance
            alike = equal.mean - settings.chance
            if before > 0 and alike[0] > 0:
                drop, strength = _drop(alike, equal.variance, settings.confidence)
                measured = float(1.0 - after / before)
                head = f"With an equal mix of {words}, the drop {beyond.words} is"
                adjusted = AdjustedDrop(
                    drop, strength, measured, f"other {words}", "the changing mix"
                )
                identified, reason = judge_adjusted_drop(head, adjusted, finding, settings)
                row = replace(
                    row,
                    identified=identified,
                    drop=drop.value,
                    drop_ci_low=drop.low,
                    drop_ci_high=drop.high,
                    drop_as_measured=measured,
                )
    bins = _bins(sample, category, document, score, mix, settings.confidence)
    return replace(row, shares=mix.tolist(), bins=bins), reason


def _drop(mean: Floats, variance: Floats, confidence: float) -> tuple[Estimate, float]:
    """Return 1 - mean[1] / mean[0] with a linearised interval, and its ratio to the half-width."""
    z = NormalDist().inv_cdf(0.5 + 0.5 * confidence)
    ratio = float(mean[1] / mean[0])
    reach = z * float(np.sqrt(variance[1] + ratio**2 * variance[0]) / mean[0])
    value = 1.0 - ratio
    return Estimate(value, value - reach, min(value + reach, 1.0)), value / reach


def _bins(
    sample: Sample, category: Ints, document: Ints, score: Floats, mix: Floats, confidence: float
) -> list[MixBin]:
    """Return each bin's counts by category, measured mean, and mean at the category mix ``mix``."""
    index = sample.examples["bin_index"].to_numpy(np.int64)
    cells = cells_of(index, category, document, score, (len(sample.bins), len(mix)))
    equal = standardise(cells, mix, 2)
    z = NormalDist().inv_cdf(0.5 + 0.5 * confidence)
    rows = []
    for i, length_bin in enumerate(sample.bins):
        n, is_covered = cells.n[i].sum(), equal.covered[i] >= LEAST_COVERED
        mean, half = equal.mean[i], z * np.sqrt(equal.variance[i])
        rows.append(
            MixBin(
                bin=length_bin.bin,
                n=cells.n[i].astype(np.int64).tolist(),
                mean=float(cells.s[i].sum() / n) if n else None,
                standardised=float(mean) if is_covered else None,
                ci_low=float(max(mean - half, 0.0)) if is_covered else None,
                ci_high=float(min(mean + half, 1.0)) if is_covered else None,
                covered=float(min(equal.covered[i], 1.0)),
            )
        )
    return rows


FIFTHS = 5
LEAST_EXAMPLES, LEAST_DOCUMENTS = 40, 20
"""A curve needs this many examples and documents with a known evidence position."""
LEAST_OF_GROUP = 8
"""A group's mean is reported only with at least this many examples."""
"""It also gets a mean at equal length if it covers `LEAST_COVERED` of the length mix."""
MOST_TESTED = 20_000
"""Maximum number of examples tested, in whole documents; more would only take longer."""


def evidence_curve(
    sample: Sample, axis: EvidenceAxis, settings: AnalysisSettings
) -> EvidenceCurve | None:
    """Return the score's curve over ``axis``; None if no record has that property."""
    if axis not in sample.examples.columns:
        return None
    examples = sample.examples[sample.examples[axis].notna() & (sample.examples["bin_index"] >= 0)]
    n, documents = len(examples), int(examples["document"].nunique())
    curve = nulls(EvidenceCurve, axis=axis, n=n, n_all=len(sample.examples), groups=())
    if n < LEAST_EXAMPLES or documents < LEAST_DOCUMENTS:
        why = (
            f"it is known for only {n} examples on {documents} documents, "
            f"and {LEAST_EXAMPLES} on {LEAST_DOCUMENTS} are needed"
        )
        return replace(curve, refused_because=why)
    value = examples[axis].to_numpy(np.float64)
    if axis == "evidence_position":
        edges = np.linspace(0.0, 1.0, FIFTHS + 1)
    else:
        count = int(np.clip(n // LEAST_EXAMPLES, 2, FIFTHS))
        edges = np.unique(np.quantile(value, np.linspace(0.0, 1.0, count + 1), method="higher"))
    group = np.clip(np.searchsorted(edges, value, side="right") - 1, 0, len(edges) - 2)
    groups = _groups(examples, group, edges, sample, settings)
    curve = replace(curve, groups=groups)
    used = np.array([g.mean is not None for g in groups])
    if used.sum() < 2:
        return replace(curve, refused_because="nearly all evidence has one position")
    return _tested(curve, examples[used[group]], group[used[group]], settings)


def place_of(position: Floats) -> Ints:
    """Return the fifth of the text, 0..4, that holds each position; -1 if unknown."""
    fifth = np.clip(np.floor(np.nan_to_num(position, nan=-1.0) * FIFTHS), -1, FIFTHS - 1)
    return fifth.astype(np.int64)


def _groups(
    examples: pd.DataFrame, group: Ints, edges: Floats, sample: Sample, settings: AnalysisSettings
) -> tuple[EvidenceGroup, ...]:
    count = max(len(edges) - 1, 1)
    document, score, index = _columns(examples)
    shape = (count, len(sample.bins))
    mix = np.bincount(index, minlength=len(sample.bins)) / len(index)
    equal = standardise(cells_of(group, index, document, score, shape), mix, 2)
    z = NormalDist().inv_cdf(0.5 + 0.5 * settings.confidence)
    rows = []
    for g in range(count):
        in_group = group == g
        n, of_documents = int(in_group.sum()), len(np.unique(document[in_group]))
        low, high = float(edges[g]), float(edges[min(g + 1, len(edges) - 1)])
        if n < LEAST_OF_GROUP:
            rows.append(EvidenceGroup(low, high, n, of_documents, *[None] * 6))
            continue
        _, place = np.unique(document[in_group], return_inverse=True)
        counts, sums = (np.bincount(place, w).astype(np.float64) for w in (None, score[in_group]))
        limits = document_interval(counts, sums, settings, 2, g)
        at_equal: tuple[float, float, float] | tuple[None, None, None] = (None, None, None)
        if equal.covered[g] >= LEAST_COVERED:
            mean, half = float(equal.mean[g]), z * float(np.sqrt(equal.variance[g]))
            at_equal = mean, max(mean - half, 0.0), min(mean + half, 1.0)
        raw_mean = float(score[in_group].mean())
        rows.append(EvidenceGroup(low, high, n, of_documents, raw_mean, *limits, *at_equal))
    return tuple(rows)


def _tested(
    curve: EvidenceCurve, examples: pd.DataFrame, group: Ints, settings: AnalysisSettings
) -> EvidenceCurve:
    rng = np.random.default_rng((settings.seed, 3))
    document, score, index = _columns(examples)
    sample_rows = _drawn(document, rng)
    blocks = exchanges(document[sample_rows], index[sample_rows], settings.permutations, rng)
    in_bin = np.maximum(np.bincount(index[sample_rows]), 1)
    bin_mean = np.bincount(index[sample_rows], weights=score[sample_rows]) / in_bin
    residual = score[sample_rows] - bin_mean[index[sample_rows]]
    if not (np.abs(residual) > 1e-9).any():
        return replace(curve, refused_because="all scores of each length bin are equal")
    sums = blocks.sums(residual, group[sample_rows], len(curve.groups))
    spread = sums[1:].std(axis=0)
    if not (spread > 1e-9).any():
        why = "no two documents of one length bin differ in it"
        return replace(curve, refused_because=why)
    standard = np.where(spread > 1e-9, spread, np.inf)
    z = np.abs(sums - sums[1:].mean(axis=0)) / standard
    maxima = z.max(axis=1)
    p_value = float((1 + (maxima[1:] >= maxima[0] - 1e-9).sum()) / len(maxima))
    worst = int(np.argmax(z[0]))
    curve = replace(curve, p_value=p_value, group=worst)
    # Difference between the group's mean and the others', at the overall mix of length bins.
    bins = int(index.max()) + 1
    mix = np.bincount(index, minlength=bins) / len(index)
    cells = cells_of((group == worst).astype(np.int64), index, document, score, (2, bins))
    mix = np.where((cells.documents >= 2).all(axis=0), mix, 0.0)
    if mix.sum() < LEAST_COVERED:
        return curve
    equal = standardise(cells, mix / mix.sum(), 2)
    value = float(equal.mean[1] - equal.mean[0])
    reach = NormalDist().inv_cdf(0.5 + 0.5 * settings.confidence)
    half = reach * float(np.sqrt(equal.variance.sum()))
    return replace(
        curve, difference=value, difference_low=value - half, difference_high=value + half
    )


def _columns(examples: pd.DataFrame) -> tuple[Ints, Floats, Ints]:
    document = np.asarray(examples["document"].factorize()[0], np.int64)
    score = examples["score"].to_numpy(np.float64)
    return document, score, examples["bin_index"].to_numpy(np.int64)


def _drawn(document: Ints, rng: np.random.Generator) -> Ints:
    """Return all examples, or at most `MOST_TESTED`, those of documents drawn at random."""
    if len(document) <= MOST_TESTED:
        return np.arange(len(document))
    sizes = np.bincount(document)
    order = rng.permutation(len(sizes))
    kept_documents = np.zeros(len(sizes), np.bool_)
    kept_documents[order[np.cumsum(sizes[order]) <= MOST_TESTED]] = True
    return np.flatnonzero(kept_documents[document])


def evidence_sentence(curve: EvidenceCurve | None, confidence: float) -> str | None:
    """Return a sentence on how the curve differs from a flat one; ``None`` if it is flat."""
    if curve is None or curve.p_value is None or curve.group is None or curve.difference is None:
        return None
    if curve.p_value > 1.0 - confidence + 1e-9:
        return None
    group = curve.groups[curve.group]
    direction = "lower" if curve.difference < 0 else "higher"
    location = (
        f"Evidence position matters: from {group.low:.0%} to {group.high:.0%} of the text,"
        if curve.axis == "evidence_position"
        else "Distance between two pieces of evidence matters: at "
        f"{group.low:,.0f} to {group.high:,.0f} tokens,"
    )
    return (
        f"{location} the score is {direction} than elsewhere at the same lengths (difference "
        f"{curve.difference:+.2f} [{curve.difference_low:+.2f}, {curve.difference_high:+.2f}], "
        f"p = {curve.p_value:.3f})."
    )


LEAST_ANSWERS = 20
IN_ORDER = 0.5
"""From this rank correlation on, length and time cannot be distinguished."""
APART = 5
"""A bin needs this many answers to check whether it was measured at another time."""
DRIFT_ALPHA = 0.01
_MOST_UNITS, _PERMUTATIONS, _LEAST_SIDE = 1_000, 199, 6


def time_warnings(sample: Sample, settings: AnalysisSettings, rho: float | None) -> list[str]:
    """Return warnings about measurement order; ``rho`` is from `length_time_correlation`."""
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
    """Return Spearman's correlation between the lengths and times of the answers.

    None if times are unknown or all documents have the same length.
    """
    timed = _timed(sample)
    if timed["finished_s"].nunique() < LEAST_ANSWERS or timed["length_tokens"].nunique() < 2:
        return None
    return float(timed["length_tokens"].rank().corr(timed["finished_s"].rank()))


def _timed(sample: Sample) -> pd.DataFrame:
    calls = sample.calls
    return calls[calls["answered"] & calls["finished_s"].notna()]


def _apart(sample: Sample, timed: pd.DataFrame) -> str | None:
    """Return a warning on bins with 90% of answers later (or earlier) than 75% of the others."""
    bins = timed["bin_index"].to_numpy(np.int64)
    times = timed["finished_s"].to_numpy(np.float64)
    names = []
    for index, length_bin in enumerate(sample.bins):
        own_times, others = times[bins == index], times[bins != index]
        if len(own_times) < APART or len(others) < APART:
            continue
        early, late = np.quantile(others, (0.25, 0.75))
        first, last = np.quantile(own_times, (0.1, 0.9))
        if first > late or last < early:
            names.append(length_bin.bin)
    if not names:
        return None
    return (
        f"Measured at another time than the other lengths: {', '.join(names)}. A difference may be "
        "one of time."
    )


def _drift(timed: pd.DataFrame, settings: AnalysisSettings) -> str | None:
    """Return a warning if scores changed over time at equal length, by a permutation test."""
    times, off, score = _in_time(timed)
    change = find_change(off, min(settings.permutations, _PERMUTATIONS), settings.seed)
    if change is None or change[1] > DRIFT_ALPHA:
        return None
    place, p_value = change
    before, after = score[:place].mean(), score[place:].mean()
    moment = datetime.fromtimestamp(times[place], UTC).strftime("%Y-%m-%d %H:%M UTC")
    return (
        f"Scores changed over the run at equal length (p = {p_value:.3f}): mean "
        f"{before:.2f} until {moment}, {after:.2f} afterwards. Something other than length changed."
    )


def find_change(values: Floats, permutations: int, seed: int) -> tuple[int, float] | None:
    """Return the most likely change point of the mean, with its permutation p-value.

    The change point is the index of the first value after the change. The maximum standardised
    difference over all places makes it one test. ``None`` with fewer than 12 values.

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
    """Return each document's time, score minus its bin's mean, and score, in order of time.

    Consecutive documents are averaged to at most 1,000 units.
    """
    score = timed["score"].to_numpy(np.float64)
    bins = timed["bin_index"].to_numpy(np.int64) + 1
    mean = np.bincount(bins, score) / np.maximum(np.bincount(bins), 1)
    unit = ranks_of(timed["document_id"], np.arange(len(timed)))
    time, off, score = _means(unit, timed["finished_s"], score - mean[bins], score)
    order = np.argsort(time, kind="stable")
    time, off, score = time[order], off[order], score[order]
    if len(time) > _MOST_UNITS:
        time, off, score = _means(np.arange(len(time)) * _MOST_UNITS // len(time), time, off, score)
    return time, off, score


def _means(unit: Ints, *columns: Floats | pd.Series[float]) -> list[Floats]:
    _, index = np.unique(unit, return_inverse=True)
    count = np.bincount(index)
    return [np.bincount(index, column) / count for column in columns]


MOST_NAMED = 4
"""Maximum number of levels compared if they are names rather than numbers."""


def compare_levels(sample: Sample, settings: AnalysisSettings) -> list[LevelResult]:
    """Return one result per kind of level; empty if the records have fewer than two kinds."""
    if "level" not in sample.examples.columns:
        return []
    column = sample.examples["level"].astype(str)
    groups = _levels_together(sorted(set(column)))
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


def _levels_together(values: list[str]) -> list[tuple[str, tuple[str, ...]]]:
    """Return the name and values of each kind of level; rows without a level have no kind."""
    names = [value for value in values if value]
    try:
        simple = tuple(value for value in names if float(value) <= 1)
        complex_ = tuple(value for value in names if float(value) > 1)
    except ValueError:
        return [(value, (value,)) for value in names] if len(names) <= MOST_NAMED else []
    return [(n, v) for n, v in (("simple", simple), ("complex", complex_)) if v]
