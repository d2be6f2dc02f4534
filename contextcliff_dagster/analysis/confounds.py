"""Whether length itself explains a drop: question mix, evidence position, time, levels.

Question mix (`audit_confounds`). Where long documents come with harder questions a curve over
length falls though length does nothing. The records may name a question's task, kind, level,
domain, source and evidence position. For each of these the examples before and beyond the loss are
compared at the same mix (`standardise`): the overall mix of the categories that both sides have.
This says nothing of properties that no record names, such as how hard a question is within its
category.

Evidence position (`evidence_curve`). A model may use facts at the start or the end of a text and
miss those between (Liu et al. 2024, Lost in the Middle, TACL 12, 157-173). Two curves show it: the
score against the place of the evidence, in fifths of the text, and, for questions that need two
pieces, against their distance in tokens, in groups of equal size. Places and distances may go with
length, so that each group's mean is given at the same mix of length bins as well (`standardise`).

Whether the curve differs from a flat one is tested at equal length. With r_i the score of example i
less the mean of its length bin, and T_g the sum of r_i over group g,

    z = max_g |T_g - mean of T_g| / (standard deviation of T_g),

mean, deviation and the chance of a larger z taken over exchanges of places: a document gives its
examples' places to another document of its length bin with as many questions (`exchanges`;
single-step maximum, Westfall and Young 1993).

Time (`time_warnings`). A server's load, a deployment or a bad spell changes scores and times. Where
answers come in order of length that looks like an effect of length, and no test of the scores alone
can tell the two apart; so three things are examined: the order itself, bins measured apart, and
drift of the scores over time at equal length.

Levels (`compare_levels`): questions that need one place, and those that need several. A model may
lose the second kind long before the first: a simple and a complex cliff. Each kind is concluded by
itself, as if the others had not been asked, at the settings of the whole.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from contextcliff_dagster.analysis.cliff import (
    AdjustedDrop,
    DropWindow,
    baseline_of,
    conclude,
    drop_window,
    judge_adjusted_drop,
    percent,
)
from contextcliff_dagster.analysis.control_tests import judge_controls
from contextcliff_dagster.analysis.records import CATEGORIES
from contextcliff_dagster.analysis.statistics.falling_curve import Estimate
from contextcliff_dagster.analysis.statistics.intervals import bin_means, document_interval
from contextcliff_dagster.analysis.statistics.rank_tests import cells_of, exchanges, standardise
from contextcliff_dagster.contracts.results.json_form import nulls
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
    from collections.abc import Iterator, Sequence

    import pandas as pd

    from contextcliff_dagster.analysis.cliff import Finding
    from contextcliff_dagster.analysis.control_tests import ControlAnswers
    from contextcliff_dagster.analysis.records import AnalysisSettings, Sample
    from contextcliff_dagster.contracts.arrays import Floats, Ints
    from contextcliff_dagster.contracts.results.json_form import Identified

LEAST_IN_A_CATEGORY = 5
"""Documents of a category that either side needs to be compared by it."""
LEAST_COVERED = 0.5
"""Share of either side's examples that must be of such categories."""


@dataclass(frozen=True, slots=True)
class Audit:
    """``confounds``, ``mix`` and ``controls`` of ``cliffs.json``, and ``warnings``."""

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
    """Judge the loss of ``finding`` at an equal mix of each category that the records name, and
    by the controls.

    ``no``: of some category, (a) less than half of the examples on a side are of values that both
    sides have (5 documents each); (b) at an equal mix less than half of the loss remains, or too
    little to be sure of any (`CHOSEN`); or (c) no loss is shown, and at an equal mix the drop
    differs by 5/6 of the tolerance. ``yes`` else.
    ``not_assessed``: no category has two values, or length itself was not judged.
    """
    examples = sample.examples
    rows: list[CategoryMix] = []
    reasons: dict[Identified, list[str]] = {"no": [], "yes": []}
    beyond = drop_window(finding, examples["length_tokens"].to_numpy(np.int64))
    document = np.asarray(examples["document"].factorize()[0], np.int64)
    for known in _known(examples):
        row, reason = _by_category(sample, known, document, beyond, finding, settings)
        rows.append(row)
        if reason:
            reasons[row.identified].append(reason)
    judged_controls = judge_controls(controls, sample, beyond, finding, settings)
    for control in judged_controls:
        if control.identified in reasons:
            reasons[control.identified].append(control.says[-1])
    identified: Identified = "no" if reasons["no"] else "yes" if reasons["yes"] else "not_assessed"
    decisive = Confounds(identified, reasons.get(identified, []))
    return Audit(decisive, rows, judged_controls, reasons["no"])


def _known(examples: pd.DataFrame) -> Iterator[tuple[Category, list[str], Ints]]:
    """The categories with two values or more: name, values, and the number of each example's.

    Domains and sources with less than 5 documents each are names of single files.
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
        if (covered < LEAST_COVERED).any():
            row = replace(row, identified="no")
            reason = (
                f"Length and {words} cannot be separated: only {covered[1]:.0%} of the examples "
                f"{beyond.words} and {covered[0]:.0%} of the others have {words} that occur on "
                f"both sides in {LEAST_DOCUMENTS} documents or more; a drop may come from other "
                f"{words}."
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
                head = (
                    f"With an equal mix of {words}, the drop {beyond.words} is "
                    f"{percent(drop.value)} [{percent(drop.low)}, {percent(drop.high)}], and "
                    f"{percent(measured)} as measured"
                )
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
    """1 - mean[1] / mean[0], its interval (linearised), and how many times its reach it is."""
    z = NormalDist().inv_cdf(0.5 + 0.5 * confidence)
    ratio = float(mean[1] / mean[0])
    reach = z * float(np.sqrt(variance[1] + ratio**2 * variance[0]) / mean[0])
    value = 1.0 - ratio
    return Estimate(value, value - reach, min(value + reach, 1.0)), value / reach


def _bins(
    sample: Sample, category: Ints, document: Ints, score: Floats, mix: Floats, confidence: float
) -> list[MixBin]:
    """Counts by category of every bin, its mean, and its mean at the mix ``mix``."""
    index = sample.examples["bin_index"].to_numpy(np.int64)
    cells = cells_of(index, category, document, score, (len(sample.bins), len(mix)))
    equal = standardise(cells, mix, 2)
    z = NormalDist().inv_cdf(0.5 + 0.5 * confidence)
    rows = []
    for i, length_bin in enumerate(sample.bins):
        n, known = cells.n[i].sum(), equal.covered[i] >= LEAST_COVERED
        mean, half = equal.mean[i], z * np.sqrt(equal.variance[i])
        rows.append(
            MixBin(
                bin=length_bin.bin,
                n=cells.n[i].astype(np.int64).tolist(),
                mean=float(cells.s[i].sum() / n) if n else None,
                standardised=float(mean) if known else None,
                ci_low=float(max(mean - half, 0.0)) if known else None,
                ci_high=float(min(mean + half, 1.0)) if known else None,
                covered=float(min(equal.covered[i], 1.0)),
            )
        )
    return rows


FIFTHS = 5
LEAST_EXAMPLES, LEAST_DOCUMENTS = 40, 20
"""With a known evidence position, for a curve at all."""
LEAST_OF_GROUP = 8
"""Examples of a group with a mean."""
"""Share of the length mix that a group must have for a mean at equal length."""
MOST_TESTED = 20_000
"""Examples that the test takes, whole documents drawn: more tell nothing new and take long."""


def evidence_curve(
    sample: Sample, axis: EvidenceAxis, settings: AnalysisSettings
) -> EvidenceCurve | None:
    """The curve over ``axis``; ``None`` where no record has it."""
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
    """Fifth of the text, 0..4, in which each place lies; -1 where it is not known."""
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
        inside = group == g
        n, of_documents = int(inside.sum()), len(np.unique(document[inside]))
        low, high = float(edges[g]), float(edges[min(g + 1, len(edges) - 1)])
        if n < LEAST_OF_GROUP:
            rows.append(EvidenceGroup(low, high, n, of_documents, *[None] * 6))
            continue
        _, place = np.unique(document[inside], return_inverse=True)
        counts, sums = (np.bincount(place, of).astype(np.float64) for of in (None, score[inside]))
        limits = document_interval(counts, sums, settings, 2, g)
        at_equal: tuple[float, float, float] | tuple[None, None, None] = (None, None, None)
        if equal.covered[g] >= LEAST_COVERED:
            mean, half = float(equal.mean[g]), z * float(np.sqrt(equal.variance[g]))
            at_equal = mean, max(mean - half, 0.0), min(mean + half, 1.0)
        raw_mean = float(score[inside].mean())
        rows.append(EvidenceGroup(low, high, n, of_documents, raw_mean, *limits, *at_equal))
    return tuple(rows)


def _tested(
    curve: EvidenceCurve, examples: pd.DataFrame, group: Ints, settings: AnalysisSettings
) -> EvidenceCurve:
    rng = np.random.default_rng((settings.seed, 3))
    document, score, index = _columns(examples)
    taken = _drawn(document, rng)
    moved = exchanges(document[taken], index[taken], settings.permutations, rng)
    in_bin = np.maximum(np.bincount(index[taken]), 1)
    bin_mean = np.bincount(index[taken], weights=score[taken]) / in_bin
    residual = score[taken] - bin_mean[index[taken]]
    if not (np.abs(residual) > 1e-9).any():
        return replace(curve, refused_because="all scores of each length bin are equal")
    sums = moved.sums(residual, group[taken], len(curve.groups))
    spread = sums[1:].std(axis=0)
    if not (spread > 1e-9).any():
        why = "no two documents of one length bin differ in it"
        return replace(curve, refused_because=why)
    standard = np.where(spread > 1e-9, spread, np.inf)
    z = np.abs(sums - sums[1:].mean(axis=0)) / standard
    most = z.max(axis=1)
    p_value = float((1 + (most[1:] >= most[0] - 1e-9).sum()) / len(most))
    worst = int(np.argmax(z[0]))
    curve = replace(curve, p_value=p_value, group=worst)
    # Its mean less that of the others, at the mix of length bins of all.
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
    """All examples, or those of documents drawn until `MOST_TESTED` are reached."""
    if len(document) <= MOST_TESTED:
        return np.arange(len(document))
    sizes = np.bincount(document)
    order = rng.permutation(len(sizes))
    kept = np.zeros(len(sizes), np.bool_)
    kept[order[np.cumsum(sizes[order]) <= MOST_TESTED]] = True
    return np.flatnonzero(kept[document])


def evidence_sentence(curve: EvidenceCurve | None, confidence: float) -> str | None:
    """A sentence on a curve that is not flat; ``None`` if it is flat."""
    if curve is None or curve.p_value is None or curve.group is None or curve.difference is None:
        return None
    if curve.p_value > 1.0 - confidence + 1e-9:
        return None
    group = curve.groups[curve.group]
    way = "lower" if curve.difference < 0 else "higher"
    where = (
        f"Evidence position matters: from {group.low:.0%} to {group.high:.0%} of the text,"
        if curve.axis == "evidence_position"
        else "Distance between two pieces of evidence matters: at "
        f"{group.low:,.0f} to {group.high:,.0f} tokens,"
    )
    return (
        f"{where} the score is {way} than elsewhere at the same lengths (difference "
        f"{curve.difference:+.2f} [{curve.difference_low:+.2f}, {curve.difference_high:+.2f}], "
        f"p = {curve.p_value:.3f})."
    )


LEAST_ANSWERS = 20
IN_ORDER = 0.5
"""Rank correlation from which on length and time are indistinguishable."""
APART = 5
"""Least answers of a bin that counts as measured apart."""
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
    """Names and the values they hold; rows without a level are in none."""
    named = [value for value in values if value]
    try:
        simple = tuple(value for value in named if float(value) <= 1)
        complex_ = tuple(value for value in named if float(value) > 1)
    except ValueError:
        return [(value, (value,)) for value in named] if len(named) <= MOST_NAMED else []
    return [(n, v) for n, v in (("simple", simple), ("complex", complex_)) if v]
