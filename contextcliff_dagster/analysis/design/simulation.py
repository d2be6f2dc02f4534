"""Samples drawn from a planted curve, by the design of a study.

A pool of documents with one or more questions each is cut into quantile bins, ``per_bin`` questions
are drawn from every bin, and each is scored. A document has a probability of its own around the
curve's mean, p_d ~ Beta with correlation rho between its questions (k = 1 / rho - 1 prior answers;
Kleinman 1973, JASA 68, 46-54), and a question scores 0 or 1 with it, or partly: a graded score is
1 or 0 for one half of the questions and Beta(p_d c, (1 - p_d) c) for the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from contextcliff_dagster.analysis.records.samples import Documents

if TYPE_CHECKING:
    from contextcliff_dagster.analysis.design.true_curves import Curve
    from contextcliff_dagster.contracts.arrays import Bools, Floats, Ints

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
            graded and averaged scores have another (`correlation.of_chances`).
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
        own = _spread(p, 1.0 / (1.0 + _OWN_QUESTION), rng)
        out: Floats = rng.binomial(design.replicates, own) / design.replicates
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
