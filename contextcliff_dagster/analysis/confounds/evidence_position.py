"""Does it matter where the evidence stands, and how far apart two pieces of it are?

A model may answer what stands at the start or the end of a text and lose what stands between (Liu
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

from collections.abc import Sequence
from dataclasses import replace
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from contextcliff_dagster.analysis.curves.fitted_curve import Estimate
from contextcliff_dagster.analysis.statistics.direct_standardization import cells_of, standardise
from contextcliff_dagster.analysis.statistics.intervals import document_interval
from contextcliff_dagster.analysis.statistics.restricted_permutation import exchanges
from contextcliff_dagster.contracts.results.questions import (
    EvidenceAxis,
    EvidenceCurve,
    EvidenceGroup,
)

if TYPE_CHECKING:
    import pandas as pd

    from contextcliff_dagster.analysis.records.samples import Sample
    from contextcliff_dagster.analysis.records.settings import AnalysisSettings
    from contextcliff_dagster.contracts.arrays import Bools, Floats, Ints

FIFTHS = 5
LEAST_EXAMPLES, LEAST_DOCUMENTS = 40, 20
"""That say where their evidence stands, for a curve at all."""
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
    if n < LEAST_EXAMPLES or documents < LEAST_DOCUMENTS:
        why = (
            f"it is known for only {n} examples on {documents} documents, "
            f"and {LEAST_EXAMPLES} on {LEAST_DOCUMENTS} are needed"
        )
        return _untested(axis, n, len(sample.examples), refused_because=why)
    value = examples[axis].to_numpy(np.float64)
    edges = _edges(axis, value)
    group = np.clip(np.searchsorted(edges, value, side="right") - 1, 0, len(edges) - 2)
    groups = _groups(examples, group, edges, sample, settings)
    curve = _untested(axis, n, len(sample.examples), groups)
    used = np.array([g.mean is not None for g in curve.groups])
    if used.sum() < 2:
        return replace(curve, refused_because="nearly all evidence has one position")
    return _tested(curve, examples[used[group]], group[used[group]], settings)


def _untested(
    axis: EvidenceAxis,
    n: int,
    n_all: int,
    groups: Sequence[EvidenceGroup] = (),
    refused_because: str | None = None,
) -> EvidenceCurve:
    return EvidenceCurve(
        axis=axis,
        n=n,
        n_all=n_all,
        groups=groups,
        p_value=None,
        group=None,
        difference=None,
        difference_low=None,
        difference_high=None,
        refused_because=refused_because,
    )


def place_of(position: Floats) -> Ints:
    """Fifth of the text, 0..4, in which each place lies; -1 where it is not known."""
    fifth = np.clip(np.floor(np.nan_to_num(position, nan=-1.0) * FIFTHS), -1, FIFTHS - 1)
    out: Ints = fifth.astype(np.int64)
    return out


def _edges(axis: EvidenceAxis, value: Floats) -> Floats:
    if axis == "evidence_position":
        return np.linspace(0.0, 1.0, FIFTHS + 1)
    count = int(np.clip(len(value) // LEAST_EXAMPLES, 2, FIFTHS))
    cuts = np.quantile(value, np.linspace(0.0, 1.0, count + 1), method="higher")
    return np.unique(cuts)


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
        interval = document_interval(
            np.bincount(place).astype(np.float64),
            np.bincount(place, weights=score[inside]).astype(np.float64),
            confidence=settings.confidence,
            resamples=settings.resamples,
            rng=np.random.default_rng((settings.seed, 2, g)),
        )
        ci_low, ci_high = interval or (None, None)
        at_equal: tuple[float, float, float] | tuple[None, None, None] = (None, None, None)
        if equal.covered[g] >= LEAST_COVERED:
            mean, half = float(equal.mean[g]), z * float(np.sqrt(equal.variance[g]))
            at_equal = mean, max(mean - half, 0.0), min(mean + half, 1.0)
        rows.append(
            EvidenceGroup(
                low,
                high,
                n,
                of_documents,
                float(score[inside].mean()),
                ci_low,
                ci_high,
                *at_equal,
            )
        )
    return tuple(rows)


def _tested(
    curve: EvidenceCurve, examples: pd.DataFrame, group: Ints, settings: AnalysisSettings
) -> EvidenceCurve:
    rng = np.random.default_rng((settings.seed, 3))
    document, score, index = _columns(examples)
    taken = _drawn(document, rng)
    moved = exchanges(document[taken], index[taken], settings.permutations, rng)
    residual = score[taken] - _bin_means(score[taken], index[taken])
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
    found = _difference(document, score, index, group == worst, settings.confidence)
    if found is None:
        return replace(curve, p_value=p_value, group=worst)
    return replace(
        curve,
        p_value=p_value,
        group=worst,
        difference=found.value,
        difference_low=found.low,
        difference_high=found.high,
    )


def _difference(
    document: Ints, score: Floats, index: Ints, inside: Bools, confidence: float
) -> Estimate | None:
    """Mean of those ``inside`` less that of the others, at the mix of length bins of all."""
    bins = int(index.max()) + 1
    mix = np.bincount(index, minlength=bins) / len(index)
    cells = cells_of(inside.astype(np.int64), index, document, score, (2, bins))
    mix = np.where((cells.documents >= 2).all(axis=0), mix, 0.0)
    if mix.sum() < LEAST_COVERED:
        return None
    found = standardise(cells, mix / mix.sum(), 2)
    value = float(found.mean[1] - found.mean[0])
    half = NormalDist().inv_cdf(0.5 + 0.5 * confidence) * float(np.sqrt(found.variance.sum()))
    return Estimate(value, value - half, value + half)


def _bin_means(score: Floats, index: Ints) -> Floats:
    count = np.maximum(np.bincount(index), 1)
    out: Floats = (np.bincount(index, weights=score) / count)[index]
    return out


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
    if curve.axis == "evidence_position":
        low, high = f"{group.low:.0%}", f"{group.high:.0%}"
        where = f"Evidence position matters: from {low} to {high} of the text,"
    else:
        low, high = f"{group.low:,.0f}", f"{group.high:,.0f}"
        where = f"Distance between two pieces of evidence matters: at {low} to {high} tokens,"
    return (
        f"{where} the score is {way} than elsewhere at the same lengths (difference "
        f"{curve.difference:+.2f} [{curve.difference_low:+.2f}, {curve.difference_high:+.2f}], "
        f"p = {curve.p_value:.3f})."
    )
