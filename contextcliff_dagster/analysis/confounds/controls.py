"""What controls say of the curve: the same questions without the document, or its evidence alone.

A question that the model answers without the document does not measure how it reads: a curve cannot
be expected below the share of these. And where the evidence alone, a few lines, is answered as well
for long documents as for short ones, a fall is not that of harder questions.

Both are compared example by example. With m0 and m1 the mean scores before and beyond the place of
the loss, and o0 and o1 those with the evidence alone, the drop at equal difficulty is

    1 - (m1 / m0) / (o1 / o0),

with an interval by resampling documents; it is judged like a drop at an equal mix (`confounds`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from contextcliff_dagster.analysis.confounds.control_tests import (
    ControlMeans,
    Pairs,
    no_context,
    oracle,
)
from contextcliff_dagster.analysis.records.samples import clean_records
from contextcliff_dagster.analysis.statistics.intervals import bin_means, mean_score
from contextcliff_dagster.contracts.results.questions import Control, ControlResult

if TYPE_CHECKING:
    import pandas as pd

    from contextcliff_dagster.analysis.cliff.adjusted_loss import DropWindow
    from contextcliff_dagster.analysis.cliff.verdict import Finding
    from contextcliff_dagster.analysis.records.samples import Sample
    from contextcliff_dagster.analysis.records.settings import AnalysisSettings

LEAST_DOCUMENTS = 10
"""Documents on either side of the loss that a judgement needs."""


@dataclass(frozen=True)
class ControlAnswers:
    """The scored answers of one control, lengths and documents those of the whole document.

    ``askable``: examples of the sample that this control can ask.
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
    """One result a control with an answer; the measured examples are those of ``sample``."""
    names = sample.examples["example_id"].astype(str)
    results = []
    for control in controls:
        asked = clean_records(control.records, sample.bins)
        if not len(asked.examples):
            continue
        place, judge = (5, oracle) if control.name == "oracle" else (6, no_context)
        whole = mean_score(asked.examples, settings, place, 0)
        bins = bin_means(sample.bins, asked.examples, settings, place, 1)
        same = sample.examples[names.isin(set(asked.examples["example_id"].astype(str)))]
        pairs = _paired(asked, sample, beyond)
        near = far = None
        if pairs is not None and beyond is not None:
            side = beyond.of(asked.examples["length_tokens"].to_numpy(np.int64))
            near = mean_score(asked.examples[~side], settings, place, 2)
            far = mean_score(asked.examples[side], settings, place, 3)
        means = ControlMeans(whole, bins, near, far)
        drop, identified, says = judge(means, pairs, beyond, finding, settings)
        result = ControlResult(
            name=control.name,
            n=whole.n,
            n_askable=int(names.isin(control.askable).sum()),
            n_all=len(names),
            missing=int((~asked.calls["answered"]).sum()),
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
    """The examples that both answered; None where a side of the loss has too few documents."""
    if beyond is None:
        return None
    columns = ["example_id", "score", "document", "length_tokens"]
    measured = sample.examples[columns].astype({"example_id": str})
    other = asked.examples[["example_id", "score"]].astype({"example_id": str})
    both = measured.merge(other, on="example_id", suffixes=("", "_control"))
    both = both[both["example_id"] != ""]
    side = beyond.of(both["length_tokens"].to_numpy(np.int64))
    document = np.asarray(both["document"].factorize()[0], np.int64)
    if min(len(np.unique(document[side])), len(np.unique(document[~side]))) < LEAST_DOCUMENTS:
        return None
    score = both["score"].to_numpy(np.float64)
    return Pairs(score, both["score_control"].to_numpy(np.float64), document, side)
