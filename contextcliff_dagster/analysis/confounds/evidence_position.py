"""Do the position of the evidence and the distance between two pieces of it matter?

A model may use facts at the start or the end of a text and miss those between (Liu
et al. 2024, Lost in the Middle, TACL 12, 157-173). Two curves show it: the score against the place
of the evidence, in fifths of the text, and, for questions that need two pieces, against their
distance in tokens, in groups of equal size. Places and distances may go with length, so that each
group's mean is given at the same mix of length bins as well (`standardise`).

Whether the curve differs from a flat one is tested at equal length. With r_i the score of example i
less the mean of its length bin, and T_g the sum of r_i over group g,

    z = max_g |T_g - mean of T_g| / (standard deviation of T_g),

mean, deviation and the chance of a larger z taken over exchanges of places: a document gives its
examples' places to another document of its length bin with as many questions (`exchanges`;
single-step maximum, Westfall and Young 1993).
"""

from __future__ import annotations

from dataclasses import replace
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from contextcliff_dagster.analysis.statistics.intervals import document_interval
from contextcliff_dagster.analysis.statistics.stratified_auc import cells_of, exchanges, standardise
from contextcliff_dagster.contracts.results.fields import nulls
from contextcliff_dagster.contracts.results.questions import (
    EvidenceAxis,
    EvidenceCurve,
    EvidenceGroup,
)

if TYPE_CHECKING:
    import pandas as pd

    from contextcliff_dagster.analysis.records.samples import Sample
    from contextcliff_dagster.analysis.records.settings import AnalysisSettings
    from contextcliff_dagster.contracts.arrays import Floats, Ints

FIFTHS = 5
LEAST_EXAMPLES, LEAST_DOCUMENTS = 40, 20
"""With a known evidence position, for a curve at all."""
LEAST_OF_GROUP = 8
"""Examples of a group with a mean."""
LEAST_COVERED = 0.5
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
        own = float(score[inside].mean())
        rows.append(EvidenceGroup(low, high, n, of_documents, own, *limits, *at_equal))
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
    """What a curve that is not flat says; ``None`` where none was found."""
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
