"""How often the conclusions of `continuation` are right, on studies of known truth.

    python benchmarks/continuation.py null [--studies 1000] [--jobs 2]
    python benchmarks/continuation.py planted [--studies 200] [--jobs 2]
    python benchmarks/continuation.py coverage [--studies 1000] [--jobs 2]
    python benchmarks/continuation.py analysis

Six sizes, 2,048 to 65,536 tokens. "simulated": scores of `SimulatedStudy`. "prose": passages of the
novels in data/prose (`make prose`), cut to equal length; half of them make the noise floor. A
study's authors' passages are drawn from the other half, and so are its "generations", from the
same novel, whatever the size.

"null": share of studies that show a decline or a collapse where there is none.

"planted": a share of the generations, from a size on that is drawn for each study, is looped (one
phrase of the passage for ever), simplified (words of more than six letters left out, sentences cut
to six words) or shuffled (words in random order). Planned: as many passages as `passages_needed`
says for the loss that the planting makes, power .9, from the variance of one study without any.
"shown": studies that show a decline or a collapse. "held": of the locations, how many hold the step
between the two sizes where it was planted; "steps": how many steps of sizes they are wide.

"coverage": share of 95% intervals of the mean and of a decline that hold the truth, with texts,
passages and rounds drawn anew; and share of studies called free of decline where a decline is
exactly the margin at every size but the smallest.

"analysis": seconds for 10 sizes x 20 passages x 5 rounds of three arms.
"""

from __future__ import annotations

import argparse
import os
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import cache, partial
from typing import Literal, NamedTuple

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import numpy as np
import pandas as pd

from contextcliff_dagster.analysis.records.settings import AnalysisSettings
from contextcliff_dagster.experiments.continuation.analysis.model import analyse_model
from contextcliff_dagster.experiments.continuation.analysis.planning import passages_needed
from contextcliff_dagster.experiments.continuation.analysis.simulation import (
    SimulatedStudy,
    Spoiled,
)
from contextcliff_dagster.experiments.continuation.distance.human_noise import HumanNoise
from contextcliff_dagster.experiments.continuation.prose.metrics import (
    ProseMetrics,
    prose_metrics,
)
from contextcliff_dagster.experiments.continuation.results import ContinuationResult

Kind = Literal["", "looped", "simplified", "shuffled"]
KINDS: tuple[Spoiled, ...] = ("looped", "simplified", "shuffled")
SIZES = SimulatedStudy().sizes
TESTS = 2 * len(SIZES)
WORDS, LONG = 200, 6
SETTINGS = AnalysisSettings(resamples=500)


class Passage(NamedTuple):
    """Metrics of a passage as it is and spoiled; its novel."""

    novel: int
    metrics: dict[Kind, ProseMetrics]


class Prose(NamedTuple):
    """The noise floor, and passages that it does not hold."""

    noise: HumanNoise
    passages: Sequence[Passage]


def spoil(words: list[str], kind: Kind, rng: np.random.Generator) -> str:
    """The passage as it is, or one of three ways worse."""
    if kind == "looped":
        start = int(rng.integers(0, WORDS - 8))
        return " ".join((words[start : start + 8] * WORDS)[:WORDS])
    if kind == "shuffled":
        return " ".join(rng.permutation(words))
    if kind == "simplified":
        short = [word.strip(",;:.!?\"'()_-") for word in words if len(word) <= LONG]
        groups = [short[i : i + 6] for i in range(0, len(short), 6)]
        return " ".join(" ".join(group).capitalize() + "." for group in groups)
    return " ".join(words)


@cache
def prose() -> Prose:
    """Every second passage of the novels for the noise floor, the rest for studies."""
    from tools.fetch_prose import prose_folder

    rng = np.random.default_rng(0)
    floor: dict[str, list[ProseMetrics]] = {}
    passages = []
    for novel, path in enumerate(sorted(prose_folder().glob("*.txt"))):
        words = path.read_text(encoding="utf-8").split()
        starts = range(0, len(words) - WORDS, WORDS)
        texts = [words[start : start + WORDS] for start in starts]
        floor[path.stem] = [prose_metrics(" ".join(text)) for text in texts[::4]]
        for text in texts[1::4]:
            kinds: tuple[Kind, ...] = ("", *KINDS)
            metrics = {kind: prose_metrics(spoil(text, kind, rng)) for kind in kinds}
            passages.append(Passage(novel, metrics))
    if not passages:
        raise SystemExit("data/prose is empty: `make prose` fetches the novels.")
    return Prose(HumanNoise.fit(floor), passages)


def prose_study(study: SimulatedStudy, rng: np.random.Generator) -> pd.DataFrame:
    """As `SimulatedStudy.draw`, with passages of novels and their real scores."""
    known = prose()
    novels = np.array([one.novel for one in known.passages])
    rows = []
    for number, author in enumerate(rng.choice(len(novels), study.passages, replace=False)):
        others = np.flatnonzero(novels == novels[author])
        others = others[others != author]
        drawn = rng.choice(others, (len(SIZES), study.rounds))
        for size, tokens in enumerate(SIZES):
            for turn in range(study.rounds):
                bad = tokens >= study.from_size and rng.random() < study.share
                kind: Kind = study.spoiled if bad else ""
                one = known.passages[drawn[size, turn]].metrics[kind]
                score = known.noise.score(one, known.passages[author].metrics[""])
                text = f"novel {novels[author]}"
                rows.append((text, str(number), tokens, turn, "base", score, ""))
    columns = ["text", "passage", "context_tokens", "round", "arm", "score", "collapse"]
    return pd.DataFrame(rows, columns=columns)


def analysed(study: SimulatedStudy, source: str, seed: int) -> ContinuationResult:
    rng = np.random.default_rng((seed, study.passages, len(study.spoiled)))
    if study.share:
        study = replace(study, from_size=int(rng.choice(SIZES[1:])))
    rows = study.draw(rng) if source == "simulated" else prose_study(study, rng)
    return analyse_model(rows, settings=SETTINGS)


def verdict_of(study: SimulatedStudy, source: str, seed: int) -> str:
    return analysed(study, source, seed).verdict


def planted_of(study: SimulatedStudy, source: str, seed: int) -> tuple[str, int, int, int]:
    """Verdict; locations, how many hold the step, how many steps wide they are together."""
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
    """The study with as many passages as its loss needs, and that loss; seen in one study."""
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


def show_null(given: argparse.Namespace) -> None:
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
    print("planted at the planned n, onset at any of five sizes:")
    for source in ("simulated", "prose"):
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


def coverage_of(study: SimulatedStudy, seed: int) -> tuple[int, int, bool]:
    """Whether the last size's mean and decline are held; whether a decline was called absent."""
    rng = np.random.default_rng((seed, 5))
    arm = analyse_model(study.draw(rng), settings=SETTINGS).arms[0]
    last = arm.score.sizes[-1]
    truth = 0.5 * (1.0 - study.share)
    assert last.ci_low is not None
    assert last.ci_high is not None
    decline = last.decline
    assert decline is not None
    assert decline.ci_low is not None
    assert decline.ci_high is not None
    return (
        last.ci_low <= truth <= last.ci_high,
        decline.ci_low <= 0.5 - truth <= decline.ci_high,
        arm.verdict == "no_decline",
    )


def show_coverage(given: argparse.Namespace) -> None:
    print("coverage of the mean and of the decline at the last size; called free of decline:")
    for study in (
        SimulatedStudy(texts=20),
        SimulatedStudy(texts=8, passages=24),
        SimulatedStudy(texts=20, of_size=0.2),
        SimulatedStudy(texts=20, share=0.2, from_size=SIZES[1]),
        SimulatedStudy(texts=40, passages=40, share=0.2, from_size=SIZES[1]),
    ):
        with ProcessPoolExecutor(given.jobs) as pool:
            run = partial(coverage_of, study)
            rows = np.array(list(pool.map(run, range(given.studies), chunksize=10)), float)
        mean, decline, free = rows.mean(axis=0)
        print(
            f"  {study.passages} passages of {study.texts} texts, share looped {study.share:g}, "
            f"sizes' own effect {study.of_size:g}: {mean:.3f}, {decline:.3f}; {free:.3f}",
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
