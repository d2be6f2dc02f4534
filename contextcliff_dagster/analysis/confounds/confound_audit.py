"""Is it length at all? What the known categories of the questions explain of a loss.

Where long documents come with harder questions a curve over length falls though length does
nothing. Known of a question may be its task, kind, level, domain, source and evidence position. For
each of these the examples before and beyond the loss are compared at the same mix (`standardise`):
the overall mix of the categories that both sides have. Of what no record names, such as how hard a
question is within its category, this says nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from contextcliff_dagster.analysis.cliff.verdict import (
    AdjustedDrop,
    DropWindow,
    drop_window,
    judge_adjusted_drop,
    percent,
)
from contextcliff_dagster.analysis.confounds.control_tests import judge_controls
from contextcliff_dagster.analysis.confounds.evidence_position import FIFTHS, place_of
from contextcliff_dagster.analysis.curves.falling_curve import Estimate
from contextcliff_dagster.analysis.records.samples import CATEGORIES
from contextcliff_dagster.analysis.statistics.stratified_auc import cells_of, standardise
from contextcliff_dagster.contracts.results.fields import nulls
from contextcliff_dagster.contracts.results.questions import (
    CATEGORY_WORDS,
    Category,
    CategoryMix,
    Confounds,
    ControlResult,
    MixBin,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pandas as pd

    from contextcliff_dagster.analysis.cliff.verdict import Finding
    from contextcliff_dagster.analysis.confounds.control_tests import ControlAnswers
    from contextcliff_dagster.analysis.records.samples import Sample
    from contextcliff_dagster.analysis.records.settings import AnalysisSettings
    from contextcliff_dagster.contracts.arrays import Floats, Ints
    from contextcliff_dagster.contracts.results.fields import Identified

LEAST_DOCUMENTS = 5
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
    sides have (5 documents each); (b) at an equal mix less than half of the loss found remains, or
    too little to be sure of any (`CHOSEN`); or (c) none was found, and at an equal mix the drop is
    another by 5/6 of the tolerance. ``yes`` else.
    ``not_assessed``: no category has two values, or nothing is known of length at all.
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
        files = name in ("domain", "source") and len(values) * LEAST_DOCUMENTS > documents
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
        common = (sides.documents >= LEAST_DOCUMENTS).all(axis=0)
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
            equal = standardise(sides, mix, LEAST_DOCUMENTS)
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
