"""Controls for the curve: the same questions without the document, or with only its evidence.

A question that the model answers without the document does not measure reading, so the curve is
not expected to fall below the fraction of such questions. And if answers from the evidence alone
are as good for long documents as for short ones, harder questions do not explain a drop.

Both are compared example by example. With m0 and m1 the mean scores before and beyond the place of
the loss, and o0 and o1 the mean scores with the evidence alone, the drop at equal difficulty is

    1 - (m1 / m0) / (o1 / o0),

with an interval from resampling documents; it is judged like a drop at an equal mix (`confounds`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from contextcliff_dagster.analysis.cliff import AdjustedDrop, judge_adjusted_drop
from contextcliff_dagster.analysis.records import AnalysisSettings, Sample, clean_records
from contextcliff_dagster.analysis.statistics.falling_curve import Estimate
from contextcliff_dagster.analysis.statistics.intervals import bin_means, mean_score
from contextcliff_dagster.contracts.results.json_form import BinMean, Identified, MeanScore
from contextcliff_dagster.contracts.results.questions import Control, ControlResult

if TYPE_CHECKING:
    import pandas as pd

    from contextcliff_dagster.analysis.cliff import DropWindow, Finding
    from contextcliff_dagster.contracts.arrays import Bools, Floats, Ints

LEAST_ORACLE = 0.1
"""Difficulty is judged only if the mean with the evidence alone is at least this."""
LEAST_KNOWN = 0.25
"""A bin is reported if at least this fraction of it is answered without the document."""
_AT_ONCE = 2_000_000


@dataclass(frozen=True)
class Pairs:
    """Examples answered in both: measured and control scores, and which lie beyond the loss."""

    score: Floats
    control: Floats
    document: Ints
    beyond: Bools

    def means(self) -> tuple[float, ...]:
        """Return the means before and beyond the loss, first as measured, then in the control."""
        sides = (~self.beyond, self.beyond)
        return tuple(float(of[side].mean()) for of in (self.score, self.control) for side in sides)


@dataclass(frozen=True, slots=True)
class ControlMeans:
    """Means of a control: over all its answers, by bin, before the loss and beyond it."""

    whole: MeanScore
    bins: Sequence[BinMean]
    before: MeanScore | None
    beyond: MeanScore | None


Judged = tuple[Estimate | None, Identified, list[str]]


def oracle(
    means: ControlMeans,
    pairs: Pairs | None,
    beyond: DropWindow | None,
    finding: Finding,
    settings: AnalysisSettings,
) -> Judged:
    near, far = means.before, means.beyond
    sentences = [f"With the evidence alone, the model scores {_mean_text(means.whole)}."]
    if pairs is None or beyond is None or near is None or far is None:
        return None, "not_assessed", sentences
    m0, m1, o0, o1 = (mean - settings.chance for mean in pairs.means())
    if min(o0, o1) < LEAST_ORACLE or m0 <= 0:
        sentences.append(
            "With the evidence alone, too few answers are right to measure how hard the questions "
            "are."
        )
        return None, "not_assessed", sentences
    drop = _drop_at_equal_difficulty(pairs, settings)
    measured = 1.0 - m1 / m0
    head = (
        f"With the evidence alone, the model scores {_mean_text(near)} before and "
        f"{_mean_text(far)} {beyond.words}; at equal difficulty the drop is"
    )
    strength = drop.value / max(drop.value - drop.low, 1e-9)
    adjusted = AdjustedDrop(drop, strength, measured, "harder questions", "a change of difficulty")
    identified, reason = judge_adjusted_drop(head, adjusted, finding, settings)
    return drop, identified, [reason]


def no_context(
    means: ControlMeans,
    pairs: Pairs | None,
    beyond: DropWindow | None,
    finding: Finding,
    settings: AnalysisSettings,
) -> Judged:
    sentences = [f"Without the document, the model scores {_mean_text(means.whole)}."]
    most = max(means.bins, key=lambda row: (row.ci_low or 0.0, row.mean or 0.0), default=None)
    if most is not None and (most.ci_low or 0.0) > 0 and (most.mean or 0.0) >= LEAST_KNOWN:
        sentences.append(
            f"In bin {most.bin}, the score without it is {_mean_text(most)}: the curve cannot be "
            "expected to fall below that."
        )
    if pairs is None or beyond is None or means.before is None or means.beyond is None:
        return None, "not_assessed", sentences
    m0, m1, c0, c1 = pairs.means()
    if finding.visible and m0 > m1 and c0 - c1 >= 0.5 * (m0 - m1):
        certain = _known_explains_half(pairs, settings)
        sentences.append(
            f"Without the document, the model answers {c1:.2f} of the questions {beyond.words} and "
            f"{c0:.2f} of the others: {'most' if certain else 'perhaps most'} of the drop "
            f"({m0:.2f} to {m1:.2f}) comes from questions that need no document."
        )
        return None, "no" if certain else "not_assessed", sentences
    if finding.visible and c1 >= 0.5 * m1 and c1 >= LEAST_KNOWN:
        sentences.append(
            f"Of the score {beyond.words}, {m1:.2f}, the model reaches {c1:.2f} without the "
            "document: it reads less there than the curve shows."
        )
    return None, "not_assessed", sentences


def _drop_at_equal_difficulty(pairs: Pairs, settings: AnalysisSettings) -> Estimate:
    """Return 1 - (m1 / m0) / (o1 / o0), of means above guessing, with its document interval."""
    sums = _sums(pairs, settings.chance)
    # The numbers of examples on a side cancel: both scores have the same examples.
    m0, m1, o0, o1 = np.vstack([sums.sum(axis=0), _resampled(sums, settings)])[:, :4].T
    with np.errstate(divide="ignore", invalid="ignore"):
        drops = 1.0 - (m1 * o0) / (m0 * o1)
    value, drawn = float(drops[0]), drops[1:][np.isfinite(drops[1:])]
    tail = 0.5 * (1.0 - settings.confidence)
    low, high = np.quantile(drawn, (tail, 1.0 - tail)) if len(drawn) else (value, value)
    return Estimate(value, float(min(low, value)), float(max(high, value)))


def _known_explains_half(pairs: Pairs, settings: AnalysisSettings) -> bool:
    """Return whether answers known without the document explain at least half of the drop.

    Resampling documents must give a lower limit above 0 for their drop minus half of the drop.
    """
    totals = _resampled(_sums(pairs), settings)
    totals = totals[(totals[:, 4:] > 0).all(axis=1)]
    m0, m1, c0, c1 = (totals[:, :4] / totals[:, (4, 5, 4, 5)]).T
    tail = 0.5 * (1.0 - settings.confidence)
    return len(totals) > 0 and bool(np.quantile((c0 - c1) - 0.5 * (m0 - m1), tail) > 0)


def _sums(pairs: Pairs, chance: float = 0.0) -> Floats:
    """Return per document, before and beyond: summed score, summed control score, examples.

    ``chance`` is subtracted from each score.
    """
    count = int(pairs.document.max()) + 1
    side = pairs.beyond.astype(np.float64)
    return np.stack(
        [
            np.bincount(pairs.document, weights=values * weight, minlength=count)
            for values in (pairs.score - chance, pairs.control - chance, np.ones(len(pairs.score)))
            for weight in (1.0 - side, side)
        ],
        axis=1,
    )


def _resampled(sums: Floats, settings: AnalysisSettings) -> Floats:
    """Return totals of ``sums`` over documents drawn with replacement (resamples x 6)."""
    count = len(sums)
    rng = np.random.default_rng((settings.seed, 7))
    even = np.full(count, 1.0 / count)
    step = max(1, _AT_ONCE // count)
    sizes = [min(step, settings.resamples - at) for at in range(0, settings.resamples, step)]
    return np.concatenate([rng.multinomial(count, even, size=size) @ sums for size in sizes])


def _mean_text(mean: MeanScore | BinMean) -> str:
    if mean.mean is None:
        return "nothing (no answers)"
    if mean.ci_low is None or mean.ci_high is None:
        return f"{mean.mean:.2f} (n = {mean.n:,})"
    return f"{mean.mean:.2f} [{mean.ci_low:.2f}, {mean.ci_high:.2f}] (n = {mean.n:,})"


LEAST_DOCUMENTS = 10
"""A judgement needs this many documents on each side of the loss."""


@dataclass(frozen=True)
class ControlAnswers:
    """The scored answers of one control; lengths and ids refer to the whole documents.

    ``askable``: number of the sample's examples to which this control applies.
    """

    name: Control
    records: pd.DataFrame
    askable: frozenset[str]


def judge_controls(
    controls: Sequence[ControlAnswers],
    sample: Sample,
    beyond: DropWindow | None,
    finding: Finding,
    settings: AnalysisSettings,
) -> list[ControlResult]:
    """Judge each control that has an answer; ``sample`` holds the measured examples."""
    names = sample.examples["example_id"].astype(str)
    results = []
    for control in controls:
        answers = clean_records(control.records, sample.bins)
        if not len(answers.examples):
            continue
        place, judge = (5, oracle) if control.name == "oracle" else (6, no_context)
        whole = mean_score(answers.examples, settings, place, 0)
        bins = bin_means(sample.bins, answers.examples, settings, place, 1)
        same = sample.examples[names.isin(set(answers.examples["example_id"].astype(str)))]
        pairs = _paired(answers, sample, beyond)
        near = far = None
        if pairs is not None and beyond is not None:
            side = beyond.of(answers.examples["length_tokens"].to_numpy(np.int64))
            near = mean_score(answers.examples[~side], settings, place, 2)
            far = mean_score(answers.examples[side], settings, place, 3)
        means = ControlMeans(whole, bins, near, far)
        drop, identified, says = judge(means, pairs, beyond, finding, settings)
        result = ControlResult(
            name=control.name,
            n=whole.n,
            n_askable=int(names.isin(control.askable).sum()),
            n_all=len(names),
            missing=int((~answers.calls["answered"]).sum()),
            mean=whole.mean,
            ci_low=whole.ci_low,
            ci_high=whole.ci_high,
            before=near,
            beyond=far,
            drop=drop.value if drop else None,
            drop_ci_low=drop.low if drop else None,
            drop_ci_high=drop.high if drop else None,
            bins=bins,
            identified=identified,
            says=says,
            document=mean_score(same, settings, place, 4),
        )
        results.append(result)
    return results


def _paired(asked: Sample, sample: Sample, beyond: DropWindow | None) -> Pairs | None:
    """Return the examples answered in both; None if a side has too few documents."""
    if beyond is None:
        return None
    columns = ["example_id", "score", "document", "length_tokens"]
    measured_scores = sample.examples[columns].astype({"example_id": str})
    other = asked.examples[["example_id", "score"]].astype({"example_id": str})
    common = measured_scores.merge(other, on="example_id", suffixes=("", "_control"))
    common = common[common["example_id"] != ""]
    side = beyond.of(common["length_tokens"].to_numpy(np.int64))
    document = np.asarray(common["document"].factorize()[0], np.int64)
    if min(len(np.unique(document[side])), len(np.unique(document[~side]))) < LEAST_DOCUMENTS:
        return None
    score = common["score"].to_numpy(np.float64)
    return Pairs(score, common["score_control"].to_numpy(np.float64), document, side)
