"""Error rates of the verdict and the cap for a study design, by simulation.

The simulation needs no measurement but can use a pilot. Samples are drawn from planted curves
according to the study's design. A pool of documents with one or more questions each is cut into
quantile bins, ``per_bin`` questions are drawn from every bin, and each is scored. Each document has
its own probability around the curve's mean, p_d ~ Beta with correlation rho between its questions
(k = 1 / rho - 1 prior answers; Kleinman 1973, JASA 68, 46-54). A question scores 1 with this
probability, else 0. A graded score is 1 or 0 for half of the questions and
Beta(p_d c, (1 - p_d) c) for the other half.

Simulated samples are analysed like measured ones, so the rates describe the whole method for this
number of documents, questions and scores.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from contextcliff_dagster.analysis.cliff import baseline_of, conclude
from contextcliff_dagster.analysis.design.true_curves import (
    DIP,
    FLAT,
    KINDS,
    ORDER,
    STEP,
    Curve,
    draw_curve,
    drops,
)
from contextcliff_dagster.analysis.records import AnalysisSettings, Documents, documents_of
from contextcliff_dagster.analysis.statistics.intervals import agreeing_interval
from contextcliff_dagster.contracts import DROPS
from contextcliff_dagster.contracts.arrays import Bools, Floats, Ints

CONFIDENCE = 0.95
"""Confidence level of the Monte Carlo limits, not of the simulated intervals."""


@dataclass(frozen=True, slots=True)
class Rate:
    """A share of simulations with the 95% limits of its Monte Carlo error (Wilson's; exact at 0 and
    1); null if there was nothing to count."""

    hits: int
    runs: int
    value: float | None
    low: float | None
    high: float | None

    @classmethod
    def of(cls, hits: Sequence[bool]) -> Rate:
        runs, count = len(hits), sum(hits)
        if not runs:
            return cls(0, 0, None, None, None)
        low, high = agreeing_interval(count / runs, runs, CONFIDENCE)
        return cls(count, runs, count / runs, low, high)


@dataclass(frozen=True, slots=True)
class Reach:
    """Caps as shares of the truly safe range (0 without a cap): quartiles, and 95% limits of the
    median, from order statistics."""

    median: float | None
    low: float | None
    high: float | None
    quarter: float | None
    three_quarters: float | None

    @classmethod
    def of(cls, shares: Sequence[float]) -> Reach:
        if not shares:
            return cls(None, None, None, None, None)
        ordered = np.sort(np.array(shares))
        half, away = 0.5 * len(ordered), 0.98 * np.sqrt(len(ordered))
        low = ordered[max(int(np.floor(half - away)), 0)]
        high = ordered[min(int(np.ceil(half + away)), len(ordered) - 1)]
        quarter, median, three = np.quantile(ordered, (0.25, 0.5, 0.75))
        return cls(float(median), float(low), float(high), float(quarter), float(three))


GRADED_SHARE = 0.5
GRADED_CONCENTRATION = 4.0
_EDGE = 1e-3
_OWN_QUESTION = 1.0
"""Prior answers for the chance of a right answer when one question is asked repeatedly: most
questions are either always right or always wrong."""


@dataclass(frozen=True, slots=True)
class Design:
    """The design of a study's measurement of one model.

    Attributes:
        bins, per_bin: number of quantile bins, and of questions drawn from each.
        questions: least and largest number of questions per document in the pool.
        pool: questions in the pool; ``None``: the pool has only the drawn questions, so the sample
            itself has that many questions per document.
        binary: whether scores are 0 or 1 rather than graded.
        correlation: between two questions on one document, 0..1, for 0/1 scores of single calls;
            graded and averaged scores have another correlation (`of_chances`).
        replicates: calls per question, averaged.
        log_sd: SD of the documents' log-normal lengths.
    """

    bins: int = 10
    per_bin: int = 20
    questions: tuple[int, int] = (1, 1)
    pool: int | None = 2_000
    binary: bool = False
    correlation: float = 0.15
    replicates: int = 1
    log_sd: float = 1.0


@dataclass(frozen=True)
class Drawn:
    """A simulated sample and its population.

    ``documents`` is the input of the analysis. ``share`` and ``log_length`` describe the pool's
    questions, shortest first; ``share`` is the fraction of questions on shorter documents.
    """

    documents: Documents
    share: Floats
    log_length: Floats

    def share_up_to(self, tokens: float) -> float:
        """Return the fraction of the pool's questions on documents of at most ``tokens``."""
        count = np.searchsorted(self.log_length, np.log(tokens) + 1e-9, side="right")
        return float(count / len(self.log_length))


def simulate(design: Design, curve: Curve, rng: np.random.Generator) -> Drawn:
    """Return one simulated sample of ``design`` with ``curve`` as the true mean."""
    pool = simulate_pool(design, curve, rng)
    # `per_bin` questions of every quantile bin
    cuts = (np.arange(design.bins + 1) * len(pool.score) / design.bins).astype(np.int64)
    parts = [a + rng.permutation(b - a)[: design.per_bin] for a, b in pairwise(cuts)]
    return pool.drawn(np.sort(np.concatenate(parts)))


def simulate_sample(
    lengths: Ints, questions: Ints, design: Design, curve: Curve, rng: np.random.Generator
) -> Drawn:
    """Return simulated answers to a given sample, treated as the whole population.

    Args:
        lengths, questions: tokens of the documents, ascending, and number of questions on each (D).
        design: used only for the kind of score, the correlation and the replicates.
    """
    document = np.repeat(np.arange(len(lengths)), questions)
    pool = _answered(lengths, document, design, curve, rng)
    return pool.drawn(np.arange(len(document)))


def _spread(mean: Floats, correlation: float, rng: np.random.Generator) -> Floats:
    """Return a probability for each unit, drawn from a Beta distribution around ``mean``."""
    if correlation <= 0:
        return mean
    prior = 1.0 / correlation - 1.0
    clipped = np.clip(mean, _EDGE, 1.0 - _EDGE)
    return rng.beta(clipped * prior, (1.0 - clipped) * prior)


def _scores(
    design: Design, p: Floats, share: Floats, curve: Curve, rng: np.random.Generator
) -> Floats:
    if design.replicates > 1:
        chance = _spread(p, 1.0 / (1.0 + _OWN_QUESTION), rng)
        out: Floats = rng.binomial(design.replicates, chance) / design.replicates
        return out
    whole = (rng.random(len(p)) < p).astype(np.float64)
    if design.binary:
        return whole
    clipped = np.clip(p, _EDGE, 1.0 - _EDGE)
    partly = rng.beta(clipped * GRADED_CONCENTRATION, (1.0 - clipped) * GRADED_CONCENTRATION)
    noisy = (share >= curve.noisy_from) & (share < curve.place)
    graded = (rng.random(len(p)) < GRADED_SHARE) & ~noisy
    return np.where(graded, partly, whole)


@dataclass(frozen=True)
class Pool:
    """The questions of a simulated pool with their scores, shortest first; arrays of length Q.

    ``document``: number of each question's document; ``length_tokens``: length of that document.
    """

    length_tokens: Ints
    document: Ints
    score: Floats
    share: Floats

    def documents(self, asked: Bools | Ints) -> Documents:
        """Return the documents of the questions ``asked``, as input for the analysis."""
        return documents_of(self.document[asked], self.length_tokens[asked], self.score[asked])

    def drawn(self, asked: Ints) -> Drawn:
        """Return the questions ``asked`` as a sample of this pool."""
        return Drawn(self.documents(asked), self.share, np.log(self.length_tokens))


def simulate_pool(design: Design, curve: Curve, rng: np.random.Generator) -> Pool:
    """Return the whole pool of ``design`` with its answers, for samples drawn in steps."""
    question_count = design.bins * design.per_bin if design.pool is None else design.pool
    low, high = design.questions
    questions = rng.integers(low, high + 1, size=question_count // low + 1)
    questions = questions[: int(np.searchsorted(np.cumsum(questions), question_count)) + 1]
    lengths = np.exp(rng.normal(np.log(8_000.0), design.log_sd, len(questions)))
    lengths = np.sort(np.maximum(lengths.round(), 1.0)).astype(np.int64)
    document = np.repeat(np.arange(len(questions)), questions)
    return _answered(lengths, document, design, curve, rng)


def _answered(
    lengths: Ints, document: Ints, design: Design, curve: Curve, rng: np.random.Generator
) -> Pool:
    length = lengths[document]
    # Equal lengths share one true mean, since no cap can separate them.
    share = np.searchsorted(length, length) / len(length)
    first_question = np.searchsorted(document, np.arange(len(lengths)))
    if curve.stretch > 1.0:
        length = np.where(share < curve.place, length, np.round(length * curve.stretch))
        length = length.astype(np.int64)
    p = _spread(curve.mean(share, np.log(length))[first_question], design.correlation, rng)
    return Pool(length, document, _scores(design, p[document], share, curve, rng), share)


ASSUMED = ("baseline", "correlation")
"""Inputs that depend on the model and its answers, not on the design."""
_PERMUTATIONS = 199
_M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD = -3, -1


@dataclass(frozen=True)
class Plan:
    """Inputs of one simulation.

    Attributes:
        design: the design; its ``correlation`` is between scores of two questions on one document.
        baseline: mean score of the shortest documents.
        sample: tokens of a given sample's documents, ascending, and questions on each; replaces
            the design's bins, questions and pool.
    """

    design: Design
    baseline: float
    sample: tuple[tuple[int, ...], tuple[int, ...]] | None = None

    @property
    def examples(self) -> int:
        return sum(self.sample[1]) if self.sample else self.design.bins * self.design.per_bin

    def draw(self, curve: Curve, rng: np.random.Generator) -> Drawn:
        """Return a sample of the plan with ``curve`` as the true mean."""
        design = replace(self.design, correlation=of_chances(self.design))
        if self.sample is None:
            return simulate(design, curve, rng)
        lengths, questions = (np.array(of, np.int64) for of in self.sample)
        return simulate_sample(lengths, questions, design, curve, rng)


@dataclass(frozen=True, slots=True)
class Planted:
    """Outcomes for one kind of planted curve.

    Attributes:
        drop: least and largest planted drop.
        found: rate of verdicts cliff, gradual decline, decline or dip (flat curves: false alarms).
        unsafe: rate of caps beyond the first length at which the loss reaches the tolerance, among
            curves whose loss does.
        without_cap: rate of runs without a cap. cap: caps relative to the safe (flat: whole) range.
        held: fraction of detected steps whose true place lies in the interval of the location.
    """

    kind: str
    drop: tuple[float, float]
    runs: int
    found: Rate
    unsafe: Rate
    without_cap: Rate
    cap: Reach
    held: Rate


@dataclass(frozen=True, slots=True)
class Calibration:
    """Error rates of one plan.

    ``unsafe`` covers all curves that lose the tolerance, without dips if the cap assumes that there
    are none; ``held`` covers all steps.
    """

    simulations: int
    seed: int
    false_alarms: Rate
    unsafe: Rate
    power: Rate
    held: Rate
    planted: list[Planted]


@dataclass(frozen=True, slots=True)
class _Run:
    kind: str
    found: bool
    cap: float | None
    truth: float | None
    held: bool | None


def of_chances(design: Design) -> float:
    """Return the correlation of the documents' chances, from the correlation of the scores.

    Scores vary around their document's chance p with variance c p (1 - p), so a correlation r
    of the scores corresponds to rho = r c / (1 - r + r c) of the chances; c is 1 for 0/1 scores,
    and less for graded scores and means of repeated calls (see `_scores`).
    """
    if design.replicates > 1:
        c = 0.5 * (1.0 + 1.0 / design.replicates)
    elif design.binary:
        c = 1.0
    else:
        c = 1.0 - GRADED_SHARE * GRADED_CONCENTRATION / (1.0 + GRADED_CONCENTRATION)
    r = design.correlation
    return r * c / (1.0 - r + r * c)


def calibrate(
    plan: Plan,
    settings: AnalysisSettings,
    *,
    simulations: int = 500,
    seed: int = 0,
    jobs: int = 1,
    on_progress: Callable[[int, int], None] | None = None,
) -> Calibration:
    """Return the error rates of ``plan`` from simulations.

    The same seed gives the same result for any number of processes.

    Args:
        simulations: number of samples, in the order of `true_curves.ORDER`; of 22, six are flat and
            five have the drop whose power is reported.
        jobs: processes. If several, scripts must call this under ``if __name__ == "__main__"``.
        on_progress: called with the number of finished simulations and their total.
    """
    runs: list[_Run] = []
    for run in _mapped(partial(_simulate, plan, settings, seed), range(simulations), jobs):
        runs.append(run)
        if on_progress:
            on_progress(len(runs), simulations)
    planted = [
        _count(kind, settings.tolerance, [run for run in runs if run.kind == kind])
        for kind in KINDS
    ]
    rows = {row.kind: row for row in planted}
    falling = [run for run in runs if run.kind != DIP or settings.assumption == "any"]
    unsafe, held = _unsafe(falling), _held(runs)
    return Calibration(simulations, seed, rows[FLAT].found, unsafe, rows[STEP].found, held, planted)


def _mapped(function: Callable[[int], _Run], numbers: Sequence[int], jobs: int) -> Iterator[_Run]:
    """Map ``function`` over ``jobs`` processes (1: this one), with one thread each."""
    if jobs <= 1:
        from threadpoolctl import threadpool_limits

        with threadpool_limits(1):
            yield from map(function, numbers)
        return
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    pool = ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=_begin_process)
    try:
        yield from pool.map(function, numbers, chunksize=5)
    finally:
        pool.shutdown(cancel_futures=True)


def _begin_process() -> None:
    import signal

    from threadpoolctl import threadpool_limits

    # Ctrl-C reaches every process of a terminal; the main process ends the others.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threadpool_limits(1)
    # glibc returns large arrays to the system at once and allocates them again, which takes a fifth
    # of the time. (Other C libraries have no such option.)
    with suppress(AttributeError, OSError):
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_MMAP_THRESHOLD, 1 << 30)
        libc.mallopt(_M_TRIM_THRESHOLD, 1 << 30)


def _count(kind: str, tolerance: float, runs: Sequence[_Run]) -> Planted:
    return Planted(
        kind,
        drops(kind, tolerance),
        len(runs),
        Rate.of([run.found for run in runs]),
        _unsafe(runs),
        Rate.of([run.cap is None for run in runs]),
        Reach.of([(run.cap or 0.0) / (run.truth or 1.0) for run in runs]),
        _held(runs),
    )


def _unsafe(runs: Sequence[_Run]) -> Rate:
    return Rate.of([(run.cap or 0.0) > run.truth + 1e-9 for run in runs if run.truth is not None])


def _held(runs: Sequence[_Run]) -> Rate:
    return Rate.of([run.held for run in runs if run.held is not None])


def _simulate(plan: Plan, settings: AnalysisSettings, seed: int, number: int) -> _Run:
    rng = np.random.default_rng((seed, number))
    kind = ORDER[number % len(ORDER)]
    curve = draw_curve(kind, plan.baseline, settings.tolerance, rng)
    curve = replace(curve, chance=settings.chance)
    sample = plan.draw(curve, rng)
    documents = replace(sample.documents, chance=settings.chance)
    # Each sample gets its own permutations, because shared ones would err together. At 95%
    # confidence fewer permutations keep the level exactly, with slightly less power.
    fewer = _PERMUTATIONS if settings.confidence <= 0.95 else settings.permutations
    permutations = min(fewer, settings.permutations)
    run_settings = replace(settings, seed=number, resamples=100, permutations=permutations)
    conclusion = conclude(documents, run_settings, baseline_of(documents, run_settings))
    # All questions of one length get the share of the first.
    shares = sample.share[np.searchsorted(sample.log_length, sample.log_length)]
    lost_at = curve.first_loss(
        settings.tolerance, shares, sample.log_length, settings.baseline_share
    )
    first = None if lost_at is None else int(np.searchsorted(sample.share, lost_at))
    loss, tokens = conclusion.finding.cliff, conclusion.cap.tokens
    held = None
    if loss is not None and curve.shape == "step" and first is not None and first > 0:
        # The step lies between the last length before it and the first length after it.
        before, after = np.exp(sample.log_length[[first - 1, first]])
        held = bool(loss.location.low <= after + 0.5 and loss.location.high >= before - 0.5)
    return _Run(
        kind,
        conclusion.finding.verdict in DROPS,
        None if tokens is None else sample.share_up_to(tokens),
        None if first is None else first / len(sample.share),
        held,
    )


def describe(plan: Plan) -> dict[str, Any]:
    """Return the plan as JSON with sample documents summarised; ``sha256`` omits ``ASSUMED``."""
    out: dict[str, Any] = {**asdict(plan.design), "baseline": plan.baseline}
    out |= {"questions": list(plan.design.questions), "examples": plan.examples}
    if plan.sample is not None:
        lengths, questions = plan.sample
        out |= {
            "documents": len(lengths),
            "shortest": lengths[0],
            "longest": lengths[-1],
            "questions": [min(questions), max(questions)],
            "pool": None,
            "log_sd": None,
        }
    exact = {name: value for name, value in out.items() if name not in ASSUMED}
    text = json.dumps([exact, plan.sample], sort_keys=True)
    return {**out, "sha256": hashlib.sha256(text.encode()).hexdigest()}
