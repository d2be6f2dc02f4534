"""Error rates of the conclusions of `continuation`, on studies of known truth.

    python benchmarks/continuation.py null [--studies 1000] [--jobs 2]
    python benchmarks/continuation.py planted [--studies 200] [--jobs 2]
    python benchmarks/continuation.py analysis

Six sizes, 2,048 to 65,536 tokens. "simulated": scores of `SimulatedStudy`. "prose": passages of the
novels in data/prose (`make prose`), through collapse, score and analysis
(continuation_prose_studies.py): a study's authors' passages and its "generations" are other
passages of the same novel, whatever the size.

"null": share of studies that show a decline or a collapse although there is none.

"planted": a share of the generations, from a size on that is drawn for each study, is looped (eight
words for ever after a quarter of the passage), simplified (words of more than six letters left out,
sentences cut to six words) or shuffled (words in random order). Planned: as many passages as
`passages_needed` says for the loss that the planting makes, power .9, from the variance of one
study without any.
"shown": studies that show a decline or a collapse. "held": of the locations, how many hold the step
between the two sizes where it was planted; "steps": how many steps of sizes they are wide.

"analysis": seconds for 10 sizes x 20 passages x 5 rounds of three arms.
"""

from __future__ import annotations

import argparse
import os
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import numpy as np
import pandas as pd
from continuation_prose_studies import KINDS, agreement, novels, prose_study

from contextcliff_dagster.analysis.records import AnalysisSettings
from contextcliff_dagster.extensions.continuation.analysis.arm import passages_needed
from contextcliff_dagster.extensions.continuation.analysis.model import analyse_model
from contextcliff_dagster.extensions.continuation.results import ContinuationResult
from contextcliff_dagster_tests.support.simulated_study import SimulatedStudy

SIZES = SimulatedStudy().sizes
TESTS = 2 * len(SIZES)
SETTINGS = AnalysisSettings(resamples=500)


def analysed(study: SimulatedStudy, source: str, seed: int) -> ContinuationResult:
    rng = np.random.default_rng((seed, study.passages, len(study.spoiled)))
    if study.share:
        study = replace(study, from_size=int(rng.choice(SIZES[1:])))
    rows = study.draw(rng) if source == "simulated" else prose_study(study, rng)
    return analyse_model(rows, settings=SETTINGS)


def verdict_of(study: SimulatedStudy, source: str, seed: int) -> str:
    return analysed(study, source, seed).verdict


def planted_of(study: SimulatedStudy, source: str, seed: int) -> tuple[str, int, int, int]:
    """Return the verdict, and of the locations: number, number with the step, total width."""
    rng = np.random.default_rng((seed, study.passages, len(study.spoiled)))
    step = SIZES.index(int(rng.choice(SIZES[1:])))
    result = analysed(study, source, seed)
    count = held = wide = 0
    for endpoint in (result.arms[0].score, result.arms[0].intact):
        found = endpoint.location
        if found is not None:
            low, high = SIZES.index(found.low_tokens), SIZES.index(found.high_tokens)
            count += 1
            held += low < step <= high
            wide += high - low
    return result.verdict, count, held, wide


def planned(study: SimulatedStudy, source: str) -> tuple[SimulatedStudy, float]:
    """Return the study with the passages its loss needs, and that loss, from one pilot study."""
    rng = np.random.default_rng(99)
    draw = SimulatedStudy.draw if source == "simulated" else prose_study
    many = replace(study, passages=40)
    clean = analyse_model(draw(replace(many, share=0.0), rng), settings=SETTINGS).arms[0]
    spoiled = draw(replace(many, share=1.0, from_size=SIZES[0]), rng)["score"].mean()
    means = [one.mean for one in clean.score.sizes if one.mean is not None]
    level = float(np.mean(means))
    loss = study.share * (level - float(spoiled))
    parts = clean.components
    assert parts is not None
    alpha = (1.0 - SETTINGS.confidence) / TESTS
    needed = passages_needed(parts, level, loss, 0.9, study.rounds, alpha)
    assert needed is not None
    return replace(study, passages=needed), loss


def prepared() -> None:
    """Read the novels before processes fork, and check some records against the product's."""
    novels()
    study = SimulatedStudy(passages=16, rounds=3, share=0.5, from_size=SIZES[0])
    found = [agreement(replace(study, spoiled=kind), 1) for kind in KINDS]
    same, count = map(sum, zip(*found, strict=True))
    print(f"records of prose that are those of score_rows: {same} of {count}", flush=True)


def show_null(given: argparse.Namespace) -> None:
    prepared()
    print("null, studies called a decline or a collapse:")
    for source, study in (
        ("prose", SimulatedStudy(passages=16, rounds=3)),
        ("simulated", SimulatedStudy(passages=8, rounds=3)),
        ("simulated", SimulatedStudy()),
        ("simulated", SimulatedStudy(passages=18, texts=6, mu=-1.0, missing=0.1)),
    ):
        with ProcessPoolExecutor(given.jobs) as pool:
            run = partial(verdict_of, study, source)
            found = Counter(pool.map(run, range(given.studies), chunksize=10))
        wrong = found["decline"] + found["collapse"]
        print(
            f"  {source}, {study.passages} passages x {study.rounds} rounds, mu {study.mu:g}: "
            f"{wrong} of {given.studies} ({dict(found)})",
            flush=True,
        )


def show_planted(given: argparse.Namespace) -> None:
    prepared()
    print("planted at the planned n, onset at any of five sizes:")
    for source in given.source:
        for kind in KINDS:
            study = SimulatedStudy(rounds=3, spoiled=kind, share=given.share)
            study, loss = planned(study, source)
            with ProcessPoolExecutor(given.jobs) as pool:
                run = partial(planted_of, study, source)
                rows = list(pool.map(run, range(given.studies), chunksize=5))
            shown = sum(row[0] in ("decline", "collapse") for row in rows)
            count, held, wide = (sum(row[i] for row in rows) for i in (1, 2, 3))
            print(
                f"  {source}, {kind}, {given.share:.0%} (loss {loss:.2f}): {study.passages} "
                f"passages x {study.rounds}: shown {shown} of {given.studies}; held "
                f"{held}/{count}; {wide / max(count, 1):.1f} steps",
                flush=True,
            )


def show_analysis(_: argparse.Namespace) -> None:
    study = SimulatedStudy(sizes=tuple(1024 * 2**i for i in range(10)))
    rng = np.random.default_rng(0)
    rows = pd.concat([study.draw(rng).assign(arm=arm) for arm in ("f16", "q8_0", "q4_0")])
    start, cpu = time.perf_counter(), time.process_time()
    analyse_model(rows)
    wall, cpu = time.perf_counter() - start, time.process_time() - cpu
    print(f"analysis: 10 sizes x 20 passages x 5 rounds x 3 arms: {wall:.1f} s ({cpu:.1f} CPU s)")
