"""Coverage of the intervals, and error rates of "no decline" and "no difference" verdicts.

    python benchmarks/continuation.py coverage [--studies 1000] [--jobs 2]
    python benchmarks/continuation.py arms [--studies 1000] [--jobs 2]

Texts, passages and rounds are drawn anew for each simulated study. "coverage": how many 95%
intervals of the mean and of the decline at the largest size contain the truth, how many locations
contain the step, and how many studies are called free of decline. If the decline is exactly the
margin, at the largest size only, that last share is the verdict's worst-case error rate.

"arms": verdicts on arms of the same passages that do not differ, and on one that is worse by
exactly the margin at the largest size alone.
"""

from __future__ import annotations

import argparse
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
import pandas as pd

from contextcliff_dagster.analysis.records import AnalysisSettings
from contextcliff_dagster.extensions.continuation.analysis.model import analyse_model
from contextcliff_dagster_tests.support.simulated_study import SimulatedStudy, Spoiled, mean_score

SIZES = SimulatedStudy().sizes
MARGIN = 0.1
SETTINGS = AnalysisSettings(resamples=500)


def worse(kind: Spoiled, *, passages: int, texts: int, mu: float = 0.0) -> SimulatedStudy:
    """Return effects that are worse by exactly the margin, at the largest size only."""
    whole = mean_score(mu)
    lost = 1.0 if kind == "looped" else whole - mean_score(mu, kind)
    return SimulatedStudy(
        passages=passages,
        texts=texts,
        mu=mu,
        spoiled=kind,
        share=MARGIN / lost,
        from_size=SIZES[-1],
    )


class Held(NamedTuple):
    """Which truths one study's intervals contain, 1 or 0; NaN if there is no interval."""

    mean: float
    decline: float
    location: float
    no_decline: float


def coverage_of(study: SimulatedStudy, seed: int) -> Held:
    rows = study.draw(np.random.default_rng((seed, 5)))
    arm = analyse_model(rows, MARGIN, settings=SETTINGS).arms[0]
    last = arm.score.sizes[-1]
    assert last.decline is not None
    whole = mean_score(study.mu)
    spoiled = mean_score(study.mu, study.spoiled)
    truth = whole - study.share * (whole - spoiled)
    found = arm.score.location
    location = np.nan
    if found is not None and study.share:
        before = SIZES[SIZES.index(study.from_size) - 1]
        location = float(found.low_tokens <= before and study.from_size <= found.high_tokens)
    return Held(
        float((last.ci_low or 0.0) <= truth <= (1.0 if last.ci_high is None else last.ci_high)),
        float((last.decline.ci_low or 0.0) <= whole - truth <= (last.decline.ci_high or 0.0)),
        location,
        float(arm.verdict == "no_decline"),
    )


def show_coverage(given: argparse.Namespace) -> None:
    print("coverage of mean and decline at the last size, of locations; called free of decline:")
    planted = SimulatedStudy(texts=20, spoiled="simplified", share=0.4)
    for study in (
        worse("simplified", passages=40, texts=40),
        SimulatedStudy(texts=20),
        worse("looped", passages=40, texts=40),
        worse("shuffled", passages=40, texts=40),
        SimulatedStudy(texts=5),
        SimulatedStudy(),
        SimulatedStudy(texts=8, passages=24),
        SimulatedStudy(texts=20, of_size=0.2),
        SimulatedStudy(texts=8, passages=8, rounds=3),
        replace(planted, from_size=SIZES[1]),
        replace(planted, from_size=SIZES[3]),
        worse("simplified", passages=40, texts=40, mu=-0.8),
        worse("shuffled", passages=40, texts=8),
    ):
        with ProcessPoolExecutor(given.jobs) as pool:
            run = partial(coverage_of, study)
            rows = np.array(list(pool.map(run, range(given.studies), chunksize=10)))
        mean, decline, location, free = np.nansum(rows, axis=0)
        placed = int((~np.isnan(rows[:, 2])).sum())
        print(
            f"  {_named(study)}: {mean:.0f}, {decline:.0f}, {location:.0f}/{placed}; "
            f"{free:.0f} of {given.studies}",
            flush=True,
        )


def _named(study: SimulatedStudy) -> str:
    planted = f", {study.share:.3f} {study.spoiled} from {study.from_size:,}" * bool(study.share)
    return (
        f"{study.passages} passages of {study.texts} texts x {study.rounds}, mu {study.mu:g}, "
        f"sizes' own effect {study.of_size:g}{planted}"
    )


def arms_of(study: SimulatedStudy, arms: int, seed: int) -> list[str]:
    """Return verdicts on arms that share texts, passages and size effects, but not rounds."""
    many = replace(study, rounds=arms * study.rounds)
    # The same seed gives the same latent scores, spoiled or not: the first arm is the clean one.
    clean, spoiled = (
        one.draw(np.random.default_rng((seed, 6))) for one in (replace(many, share=0.0), many)
    )
    first = clean["round"] < study.rounds
    rows = pd.concat([clean[first], spoiled[~first]])
    rows = rows.assign(arm="arm " + (rows["round"] // study.rounds).astype(str))
    return [one.verdict for one in analyse_model(rows, MARGIN, settings=SETTINGS).comparisons]


def show_arms(given: argparse.Namespace) -> None:
    print("arms of the same passages, studies with each verdict:")
    for study, arms in (
        (SimulatedStudy(texts=20), 2),
        (SimulatedStudy(texts=20), 3),
        (SimulatedStudy(texts=8, passages=8, rounds=3), 2),
        (SimulatedStudy(texts=40, passages=40), 2),
        (worse("looped", passages=40, texts=40), 2),
        (worse("simplified", passages=40, texts=40), 2),
        (worse("shuffled", passages=40, texts=40), 2),
        (worse("simplified", passages=80, texts=40), 2),
    ):
        with ProcessPoolExecutor(given.jobs) as pool:
            run = partial(arms_of, study, arms)
            found = list(pool.map(run, range(given.studies), chunksize=10))
        several = Counter(one for verdicts in found for one in set(verdicts))
        wrong = sum(bool({"better", "worse", "mixed"} & set(one)) for one in found)
        print(
            f"  {arms} arms, {_named(study)}: different {wrong}, alike {several['alike']} "
            f"of {given.studies} {dict(several)}",
            flush=True,
        )
