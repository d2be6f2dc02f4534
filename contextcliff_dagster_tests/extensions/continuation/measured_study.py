"""A simulated study with its metrics of prose: planted figures, real passages of an author."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd

from contextcliff_dagster.analysis.bin_statistics import ProfileContext
from contextcliff_dagster.analysis.records import AnalysisSettings
from contextcliff_dagster.extensions.continuation.analysis.metric_means import with_metrics
from contextcliff_dagster.extensions.continuation.analysis.model import analyse_model
from contextcliff_dagster.extensions.continuation.noise import Authors
from contextcliff_dagster.extensions.continuation.results import ContinuationResult
from contextcliff_dagster.extensions.continuation.tables import METRICS
from contextcliff_dagster_tests.extensions.continuation.prose import passages
from contextcliff_dagster_tests.support.simulated_study import SimulatedStudy

QUICK = AnalysisSettings(resamples=200)
STUDY = SimulatedStudy(sizes=(512, 1024, 2048, 4096), passages=8, rounds=3)
UNMEASURED = ("coherence", "far_coherence", "near_coherence")


def authors() -> Authors:
    """Three points and six other passages of our own prose."""
    texts = [passages.HARBOUR, passages.ORCHARD, passages.LETTER]
    rows = [
        {"kind": "author", "source": "t", "passage": f"t-{i:02d}", "text": text}
        for i, text in enumerate(texts)
    ]
    rows += [{"kind": "human", "source": "t", "passage": "", "text": text} for text in texts * 2]
    return Authors.of(rows)


def measured_rows(arms: tuple[str, ...] = ("base",), study: SimulatedStudy = STUDY) -> pd.DataFrame:
    """Outcomes of every arm with columns of metrics; from 2,048 tokens on the later arms loop."""
    rng = np.random.default_rng(0)
    found = []
    for number, arm in enumerate(arms):
        law = replace(study, share=0.6, from_size=2048) if number else study
        rows = law.draw(rng).assign(arm=arm)
        columns = {
            name: np.round(rng.normal(10 + place, 1, len(rows)), 3)
            for place, name in enumerate(METRICS)
            if name != "words" and name not in UNMEASURED
        }
        runs = {"longest_run": rng.integers(1, 6, len(rows)), "shared_runs": 0.0}
        found.append(rows.assign(**columns, **runs))
    return pd.concat(found, ignore_index=True)


def measured_result(rows: pd.DataFrame) -> ContinuationResult:
    """The result of these rows, with metrics."""
    arms = list(dict.fromkeys(rows["arm"]))
    context = ProfileContext(model="tiny", tokenizer="tiktoken:o200k_base")
    human = np.random.default_rng(1).random(50)
    result = analyse_model(rows, settings=QUICK, context=context, arms=arms, human=human)
    return with_metrics(result, rows, authors(), QUICK)
