"""Error rates of verdict and cap in a design, found by simulation.

They are known before a token is spent, or from a pilot. Samples are drawn from planted curves, by
the design of a study. A pool of documents with one or more questions each is cut into quantile
bins, ``per_bin`` questions are drawn from every bin, and each is scored. A document has a
probability of its own around the curve's mean, p_d ~ Beta with correlation rho between its
questions (k = 1 / rho - 1 prior answers; Kleinman 1973, JASA 68, 46-54), and a question scores 0 or
1 with it, or partly: a graded score is 1 or 0 for one half of the questions and
Beta(p_d c, (1 - p_d) c) for the other.

The samples are concluded upon like measured ones, so that the rates are those of the whole
instrument for this number of documents, questions and scores.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from contextcliff_dagster.analysis.cliff import baseline_of, conclude
from contextcliff_dagster.analysis.design.true_curves import (
    DIP,
    FLAT,
    KINDS,
    ORDER,
    STEP,
    draw_curve,
    drops,
)
from contextcliff_dagster.analysis.records import Documents
from contextcliff_dagster.analysis.statistics.intervals import agreeing_interval
from contextcliff_dagster.contracts import DROPS

if TYPE_CHECKING:
    from contextcliff_dagster.analysis.design.true_curves import Curve
    from contextcliff_dagster.analysis.records import AnalysisSettings
    from contextcliff_dagster.contracts.arrays import Bools, Floats, Ints

CONFIDENCE = 0.95
"""Confidence of the limits on the simulation's own error, not of the simulated intervals."""


@dataclass(frozen=True, slots=True)
class Rate:
    """A share of simulations with the 95% limits of its Monte Carlo error (Wilson's; exact ones at
    0 and 1); nulls where there was none to count."""

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
    """Caps as shares of the samples that are safe in truth, no cap counting as 0: quartiles, and
    95% limits of the median (by its order statistics)."""

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
"""Prior answers behind the probability of one question where its calls are repeated: questions are
mostly always right or always wrong."""


@dataclass(frozen=True, slots=True)
class Design:
    """What a study measures of one model.

    Attributes:
        bins, per_bin: quantile bins and questions drawn from each.
        questions: least and most questions a document of the pool has.
        pool: questions in the pool; ``None``: only those that are drawn, so that the sample itself
            has that many questions a document.
        binary: scores are 0 or 1; else graded.
        correlation: of two questions on one document, 0..1, as 0/1 scores of single calls have it;
            graded and averaged scores have another (`of_chances`).
        replicates: calls of each question, averaged.
        log_sd: of the documents' log-normal lengths.
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
    """A simulated sample and the population it comes from.

    ``documents`` as the analysis takes them; of every question of the pool, ascending, ``share``
    (of the questions on shorter documents) and ``log_length``: what shares are counted in.
    """

    documents: Documents
    share: Floats
    log_length: Floats

    def share_up_to(self, tokens: float) -> float:
        """Share of the pool's questions on documents of at most ``tokens``."""
        count = np.searchsorted(self.log_length, np.log(tokens) + 1e-9, side="right")
        return float(count / len(self.log_length))


def simulate(design: Design, curve: Curve, rng: np.random.Generator) -> Drawn:
    """One sample of ``design`` where the truth is ``curve``."""
    pool = simulate_pool(design, curve, rng)
    # `per_bin` questions of every quantile bin
    cuts = (np.arange(design.bins + 1) * len(pool.score) / design.bins).astype(np.int64)
    parts = [a + rng.permutation(b - a)[: design.per_bin] for a, b in pairwise(cuts)]
    return pool.drawn(np.sort(np.concatenate(parts)))


def simulate_sample(
    lengths: Ints, questions: Ints, design: Design, curve: Curve, rng: np.random.Generator
) -> Drawn:
    """Answers to a sample that is drawn already, which is its own population.

    Args:
        lengths, questions: tokens of the documents, ascending, and questions on each (D).
        design: its scores, correlation and replicates; the sample has the rest.
    """
    document = np.repeat(np.arange(len(lengths)), questions)
    pool = _answered(lengths, document, design, curve, rng)
    return pool.drawn(np.arange(len(document)))


def _spread(mean: Floats, correlation: float, rng: np.random.Generator) -> Floats:
    """A probability of its own for every unit, Beta around ``mean``."""
    if correlation <= 0:
        return mean
    prior = 1.0 / correlation - 1.0
    inside = np.clip(mean, _EDGE, 1.0 - _EDGE)
    return rng.beta(inside * prior, (1.0 - inside) * prior)


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
    inside = np.clip(p, _EDGE, 1.0 - _EDGE)
    partly = rng.beta(inside * GRADED_CONCENTRATION, (1.0 - inside) * GRADED_CONCENTRATION)
    noisy = (share >= curve.noisy_from) & (share < curve.place)
    graded = (rng.random(len(p)) < GRADED_SHARE) & ~noisy
    return np.where(graded, partly, whole)


@dataclass(frozen=True)
class Pool:
    """Every question of a simulated pool with its answer, shortest first; arrays of length Q.

    ``document`` numbers the documents of length D, ``length_tokens`` is each question's document's.
    """

    length_tokens: Ints
    document: Ints
    score: Floats
    share: Floats

    def documents(self, asked: Bools | Ints) -> Documents:
        """The questions ``asked`` as the analysis takes them."""
        kept, first, group = np.unique(self.document[asked], return_index=True, return_inverse=True)
        scores = self.score[asked]
        return Documents(
            self.length_tokens[asked][first],
            np.bincount(group, minlength=len(kept)).astype(np.float64),
            np.bincount(group, weights=scores, minlength=len(kept)).astype(np.float64),
            bool(np.isin(scores, (0.0, 1.0)).all()),
        )

    def drawn(self, asked: Ints) -> Drawn:
        """The questions ``asked`` as a sample of this pool."""
        return Drawn(self.documents(asked), self.share, np.log(self.length_tokens))


def simulate_pool(design: Design, curve: Curve, rng: np.random.Generator) -> Pool:
    """Answers to the whole pool of ``design``, for samples that are drawn step by step."""
    wanted = design.bins * design.per_bin if design.pool is None else design.pool
    low, high = design.questions
    questions = rng.integers(low, high + 1, size=wanted // low + 1)
    questions = questions[: int(np.searchsorted(np.cumsum(questions), wanted)) + 1]
    lengths = np.exp(rng.normal(np.log(8_000.0), design.log_sd, len(questions)))
    lengths = np.sort(np.maximum(lengths.round(), 1.0)).astype(np.int64)
    document = np.repeat(np.arange(len(questions)), questions)
    return _answered(lengths, document, design, curve, rng)


def _answered(
    lengths: Ints, document: Ints, design: Design, curve: Curve, rng: np.random.Generator
) -> Pool:
    length = lengths[document]
    # Equal lengths have one truth: no cap can part them.
    share = np.searchsorted(length, length) / len(length)
    first = np.searchsorted(document, np.arange(len(lengths)))
    if curve.stretch > 1.0:
        length = np.where(share < curve.place, length, np.round(length * curve.stretch))
        length = length.astype(np.int64)
    p = _spread(curve.mean(share, np.log(length))[first], design.correlation, rng)
    return Pool(length, document, _scores(design, p[document], share, curve, rng), share)


ASSUMED = ("baseline", "correlation")
"""Properties that the model and its answers fix, not the design."""
_PERMUTATIONS = 199
_M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD = -3, -1


@dataclass(frozen=True)
class Plan:
    """Inputs of one simulation.

    Attributes:
        design: its ``correlation`` is of the scores of two questions on one document.
        baseline: mean score at the short end.
        sample: where the sample is drawn already, its documents' tokens, ascending, and questions
            on each; in place of the design's bins, questions and pool.
    """

    design: Design
    baseline: float
    sample: tuple[tuple[int, ...], tuple[int, ...]] | None = None

    @property
    def examples(self) -> int:
        return sum(self.sample[1]) if self.sample else self.design.bins * self.design.per_bin

    def draw(self, curve: Curve, rng: np.random.Generator) -> Drawn:
        """A sample of the plan from ``curve``."""
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
        found: verdicts cliff, gradual decline, decline or dip (on flat curves: false alarms).
        unsafe: caps beyond the first length at which the tolerance is lost; of the curves that
            lose it.
        without_cap: of all runs. cap: of the truth; flat: of the whole range.
        held: the location's interval holds the place of the step; of the steps that were found.
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

    ``unsafe`` over all curves that lose the tolerance, without dips where the cap assumes that
    there are none; ``held`` over all steps.
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
    """Correlation of the documents' chances, from the correlation of the scores.

    Scores scatter around their document's chance p with a variance of c p (1 - p), so that a
    correlation r of the scores is one of rho = r c / (1 - r + r c) of the chances; c is 1 for 0/1
    scores, less for graded ones and means of repeated calls (see `_scores`).
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
    """Simulate ``plan`` and count.

    The same seed gives the same result whatever the number of processes.

    Args:
        simulations: samples in all, by `true_curves.ORDER`; of 22 six are flat and five have the
            drop whose power is reported.
        jobs: processes. With several, call it under ``if __name__ == "__main__"`` in a script.
        on_progress: called with the simulations done and all.
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
    of = {row.kind: row for row in planted}
    falling = [run for run in runs if run.kind != DIP or settings.assumption == "any"]
    unsafe, held = _unsafe(falling), _held(runs)
    return Calibration(simulations, seed, of[FLAT].found, unsafe, of[STEP].found, held, planted)


def _mapped(function: Callable[[int], _Run], numbers: Sequence[int], jobs: int) -> Iterator[_Run]:
    """`map`, here or over ``jobs`` processes, one thread each: the matrices are small."""
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
    import ctypes
    import signal

    from threadpoolctl import threadpool_limits

    # Ctrl-C reaches every process of a terminal; the first one ends the others.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threadpool_limits(1)
    # glibc gives large arrays back to the system at once and fetches them again for the next one:
    # a fifth of the time. (Other C libraries have no such switch.)
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
    drawn = plan.draw(curve, rng)
    documents = replace(drawn.documents, chance=settings.chance)
    # Each sample its own permutations: shared ones would err together. At 95% confidence fewer of
    # them keep the same level exactly, at a little less power.
    fewer = _PERMUTATIONS if settings.confidence <= 0.95 else settings.permutations
    permutations = min(fewer, settings.permutations)
    run_settings = replace(settings, seed=number, resamples=100, permutations=permutations)
    conclusion = conclude(documents, run_settings, baseline_of(documents, run_settings))
    # All questions of one length have the share of the first.
    shares = drawn.share[np.searchsorted(drawn.log_length, drawn.log_length)]
    lost_at = curve.first_loss(
        settings.tolerance, shares, drawn.log_length, settings.baseline_share
    )
    first = None if lost_at is None else int(np.searchsorted(drawn.share, lost_at))
    loss, tokens = conclusion.finding.cliff, conclusion.cap.tokens
    held = None
    if loss is not None and curve.shape == "step" and first is not None and first > 0:
        # The step lies between the last length before it and the first one after.
        before, after = np.exp(drawn.log_length[[first - 1, first]])
        held = bool(loss.location.low <= after + 0.5 and loss.location.high >= before - 0.5)
    return _Run(
        kind,
        conclusion.finding.verdict in DROPS,
        None if tokens is None else drawn.share_up_to(tokens),
        None if first is None else first / len(drawn.share),
        held,
    )


def describe(plan: Plan) -> dict[str, Any]:
    """The plan as JSON, a drawn sample's documents summed up; ``sha256`` of all but ``ASSUMED``."""
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
