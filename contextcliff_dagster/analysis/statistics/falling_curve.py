"""The falling curve: its posterior given the scores, and all quantities derived from it.

The mean of cell g is m r_g: m in (0, 1) has a flat prior, and r is a Markov process on a grid of
shares from 1 down to nearly 0, over the fraction of the examples that are shorter. It is *still* or
*sliding*. While still, it sometimes jumps down, to each lower level with equal probability, or
starts to slide; while sliding, it falls level by level until it stops. The rates are unknown, so a
few regimes are averaged by their evidence. Scores are quasi-binomial,

    log likelihood of cell g  =  [s_g log mu + (n_g - s_g) log(1 - mu)] / phi_g.

If guessing scores c, no mean falls below c: the mean is c + (m - c) r_g, and the shares kept refer
to the baseline's distance from c.

Sums over all paths are exact (forward-backward: Rabiner 1989, Proceedings of the IEEE 77, 257-286).
No shape is assumed: a step, a ramp, stairs and a smooth decay are all paths, and paths that
contradict the scores lose their weight. The only assumption is that the mean never rises.

The quantity of interest is the share kept *of the baseline*, the mean of the shortest cells, not of
m. So at the end of the baseline region each state (m, r) is exchanged for (the baseline's mean, the
share of it that is kept). The baseline's mean is m times the mean of r over the region, given the
state at its end; a separate forward sum computes it.

The posterior gives each cell's probabilities. `part_reached` and `draw_curves` answer questions
about several lengths of one curve, such as where a part of its drop has happened: the former sums
over pairs of cells, the longest and one other; the latter draws whole curves from the posterior.

Neighbouring documents are summed into cells (`merge_cells`), to which all curves are fitted.

Caps at every tolerance, lengths of a loss, the drop, its midpoint, the plotted line and its band
come from one posterior (`FallingCurve`), so they cannot contradict each other: the chance of a loss
grows with length and shrinks with the size of the loss.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING, overload

import numpy as np

from contextcliff_dagster.analysis.statistics.intervals import (
    chi_square_quantile,
    local_dispersion,
    rank_groups,
)
from contextcliff_dagster.contracts.results.cliffs import CurvePoint

if TYPE_CHECKING:
    from contextcliff_dagster.analysis.records import Documents
    from contextcliff_dagster.contracts.arrays import Floats, Ints

LEVELS: Floats = np.array([
    1.0, 0.97, 0.94, 0.91, 0.88, 0.85, 0.82, 0.79, 0.765, 0.74, 0.72, 0.70, 0.68, 0.66, 0.63,
    0.60, 0.56, 0.52, 0.48, 0.44, 0.40, 0.35, 0.30, 0.25, 0.20, 0.15, 0.10, 0.05, 0.01,
])  # fmt: skip
"""Grid of the shares kept; it is finest in the range of the tolerances."""
REGIMES = (
    # jumps, starts, slides, stops, weight
    (0.5, 0.0, 0.0, 0.0, 0.5),
    (1.5, 0.0, 0.0, 0.0, 0.2),
    (0.2, 1.5, 20.0, 2.0, 0.1),
    (0.2, 1.5, 60.0, 4.0, 0.1),
    (0.2, 1.5, 150.0, 8.0, 0.1),
)
"""Rates, per whole range of lengths, at which a still mean jumps or starts to slide, and a sliding
mean falls by `_SLIDE` or stops; last, the prior weight. Chosen by benchmarks/accept.py."""
_SLIDE = 0.04
_MEANS = 25
"""Number of values of m, on the arcsine scale within about 4 SE of the baseline's mean."""
_LEAST, _MOST = 1e-3, 1.0 - 1e-3
_TERMS = 16
MODES = 2
"""The modes are still and sliding; a state is a mode and a level, ordered by mode, then level."""
_KEPT: Floats = np.tile(LEVELS, MODES)


@dataclass(frozen=True, eq=False)
class FallingPosterior:
    """Posterior distribution of every cell given the scores, shortest first.

    Attributes:
        kept: probability of each of `LEVELS` as the share kept of the baseline's mean, in the cells
            beyond the baseline region (G - B, K).
        mean: possible values of the mean score, ascending (V).
        chance: probability of each of these values in every cell (G, V).
        regimes: probability of each of `REGIMES`.
        states: probability of each state beyond the baseline region given the scores up to there,
            in each regime (G - B, R, M, S).
        fit: likelihood of the scores in these cells (G - B, M, S).
        moves, step: distinct transition matrices (D, R, S, S), and the one that leads to each cell.
        baseline: possible values of the baseline's mean (M).
        baseline_chance: probability of each of these values (M).
    """

    kept: Floats
    mean: Floats
    chance: Floats
    regimes: Floats
    states: Floats
    fit: Floats
    moves: Floats
    step: Ints
    baseline: Floats
    baseline_chance: Floats

    def chance_lost(self, share: float) -> Floats:
        """Return P(at least ``share`` of the baseline is lost) for each cell beyond it (G - B)."""
        at_most = np.cumsum(self.kept[:, ::-1], axis=1)
        ascending = LEVELS[::-1]
        lower = int(np.clip(np.searchsorted(ascending, 1.0 - share) - 1, 0, len(LEVELS) - 2))
        on = (1.0 - share - ascending[lower]) / (ascending[lower + 1] - ascending[lower])
        on = min(max(on, 0.0), 1.0)
        chance: Floats = (1.0 - on) * at_most[:, lower] + on * at_most[:, lower + 1]
        return chance


def falling_posterior(
    n: Floats,
    s: Floats,
    dispersion: Floats,
    baseline: int,
    share: Floats | None = None,
    guessing: float = 0.0,
) -> FallingPosterior:
    """Return the posterior of cells with ``n`` examples and summed scores ``s`` (G), in order.

    Args:
        dispersion: phi of each cell (G).
        baseline: number of cells in the baseline region; at least one.
        share: fraction of the population in each cell (G); by default its fraction of ``n``.
        guessing: mean score of guessing.
    """
    share = n / n.sum() if share is None else share
    scored = float(n[:baseline].sum()), float(s[:baseline].sum())
    m = _plateaus(*scored, float(dispersion[0]), guessing)
    mu = np.clip(kept_of(m[:, None], _KEPT, guessing), _LEAST, _MOST)
    right, wrong = s / dispersion, (n - s) / dispersion
    fit = right[:, None, None] * np.log(mu) + wrong[:, None, None] * np.log1p(-mu)
    fit = np.exp(fit - fit.max(axis=(1, 2), keepdims=True))
    moves, step = _moves(np.append(0.0, 0.5 * (share[1:] + share[:-1])))

    evidence: Floats = np.log([regime[-1] for regime in REGIMES])
    state = np.zeros((len(REGIMES), *mu.shape))
    state[:, :, 0] = np.gradient(m) / np.gradient(m).sum()
    kept_so_far = np.zeros_like(state)
    states = np.empty((len(n), *state.shape))
    exchange = None
    for cell in range(len(n)):
        move = moves[step[cell]]
        state = state @ move
        total = (state * fit[cell]).sum(axis=(1, 2))
        evidence = evidence + np.log(total)
        scale = fit[cell] / total[:, None, None]
        state = state * scale
        states[cell] = state
        if cell < baseline:
            kept_so_far = (kept_so_far @ move) * scale + share[cell] * _KEPT * state
        if cell == baseline - 1:
            exchange = _Exchange(m, state, kept_so_far / share[:baseline].sum(), guessing)
            state = exchange.forward(state)
    assert exchange is not None

    weight = np.exp(evidence - evidence.max())
    weight /= weight.sum()
    ahead = np.ones_like(state)
    chance = np.empty((len(n), *mu.shape))
    for cell in range(len(n) - 1, -1, -1):
        both = states[cell] * ahead
        chance[cell] = np.tensordot(weight / both.sum(axis=(1, 2)), both, axes=1)
        ahead = (ahead * fit[cell]) @ moves[step[cell]].transpose(0, 2, 1)
        ahead /= ahead.max(axis=(1, 2), keepdims=True)
        if cell == baseline:
            ahead = exchange.back(ahead)
    order = np.argsort(mu, axis=None, kind="stable")
    by_value = chance.reshape(len(n), -1)[:, order]
    kept = chance[baseline:].sum(axis=1).reshape(-1, MODES, len(LEVELS)).sum(axis=1)
    at_end = chance[min(baseline, len(n) - 1)].sum(axis=1)
    beyond = states[baseline:], fit[baseline:], moves, step[baseline:]
    mean = mu.ravel()[order]
    return FallingPosterior(kept, mean, by_value, weight, *beyond, m, at_end)


@overload
def kept_of(level: float, kept: float, guessing: float) -> float: ...
@overload
def kept_of(level: Floats | float, kept: Floats, guessing: float) -> Floats: ...
def kept_of(level: Floats | float, kept: Floats | float, guessing: float) -> Floats | float:
    """Return the mean that keeps the share ``kept`` of the distance from guessing to ``level``."""
    return guessing + (level - guessing) * kept


class _Exchange:
    """Exchange of the states (m, r) at the end of the baseline region for (its mean, share kept).

    Both new values are split between their two neighbours on the grid.

    Args:
        m: plateaus (M). state: their probabilities with each level (R, M, K).
        kept: mean of r over the region, times the probability of the state (R, M, K).
    """

    def __init__(self, m: Floats, state: Floats, kept: Floats, guessing: float) -> None:
        likely = state > 1e-200
        mean_kept = np.where(likely, kept / np.where(likely, state, 1.0), _KEPT)
        mean_kept = mean_kept.clip(_KEPT, 1.0)
        lower, upward = _between(m, kept_of(m[:, None], mean_kept, guessing))
        deeper, shallower = _between(LEVELS[::-1], _KEPT / mean_kept)
        count, states = state.shape[1:]
        mode = np.repeat(np.arange(MODES), len(LEVELS)) * len(LEVELS)
        regime = np.arange(len(state))[:, None, None]
        self._shape = state.shape
        self._parts: list[tuple[Ints, Floats]] = []
        for one, of_mean in ((0, 1.0 - upward), (1, upward)):
            for other, of_level in ((0, 1.0 - shallower), (1, shallower)):
                level = mode + len(LEVELS) - 1 - (deeper + other)
                place = (regime * count + lower + one) * states + level
                self._parts.append((place, of_mean * of_level))

    def forward(self, state: Floats) -> Floats:
        """Return the probabilities of the new states."""
        out = np.zeros(state.size)
        for place, share in self._parts:
            out += np.bincount(place.ravel(), (state * share).ravel(), state.size)
        return out.reshape(self._shape)

    def back(self, ahead: Floats) -> Floats:
        """Return the backward sums of the old states."""
        out = np.zeros(self._shape)
        for place, share in self._parts:
            out += share * ahead.ravel()[place]
        return out


def _between(grid: Floats, values: Floats) -> tuple[Ints, Floats]:
    """Return the grid point at or below each value, and its distance (0..1) towards the next."""
    lower = np.clip(np.searchsorted(grid, values, side="right") - 1, 0, len(grid) - 2)
    on = (values - grid[lower]) / (grid[lower + 1] - grid[lower])
    return lower, on.clip(0.0, 1.0)


def _plateaus(n: float, s: float, dispersion: float, guessing: float) -> Floats:
    """Return the values of m that the baseline supports, and higher ones in case of an early fall.

    They are on the arcsine scale of the part above guessing, which is less certain near guessing.
    """
    ends, left = (0.02, np.pi / 2 - 0.02), 1.0 - guessing
    mean = (s + 0.5) / (n + 1.0)
    part = max((mean - guessing) / left, np.sin(ends[0]) ** 2)
    angle = np.arcsin(np.sqrt(part)).clip(*ends)
    reach = 2.0 / np.sqrt(max(n / dispersion, 1.0))
    if guessing:
        reach = min(reach * np.sqrt(mean / (left * part)), ends[1])
    angles = np.linspace(angle - reach, angle + 1.6 * reach, _MEANS)
    return np.unique(guessing + left * np.sin(angles.clip(*ends)) ** 2)


def _moves(steps: Floats) -> tuple[Floats, Ints]:
    """Return the transition matrices of each regime for steps, given as shares of the range (G).

    Returns the matrices of the distinct steps (D, R, S, S), and the index of each step (G).

    Halves each step until it is short, sums the exponential series, and squares the result as often
    (Moler and Van Loan 2003, SIAM Review 45, 3-49).
    """
    powers = _rate_powers()
    distinct, index = np.unique(steps.round(6), return_inverse=True)
    fastest = -float(powers[1].min()) * distinct
    halvings = np.ceil(np.log2(np.maximum(fastest, 1.0))).astype(np.int64)
    short = distinct / 2.0**halvings
    moves = np.tensordot(short[:, None] ** np.arange(_TERMS), powers, axes=1)
    for done in range(int(halvings.max(initial=0))):
        longer = halvings > done
        moves[longer] = moves[longer] @ moves[longer]
    return moves.clip(0.0), index


@cache
def _rate_powers() -> Floats:
    """Return Q^j / j! for each regime's rates Q, the exponential series' terms (terms, R, S, S)."""
    width = np.abs(np.gradient(LEVELS))
    count = len(LEVELS)
    rates = np.zeros((len(REGIMES), MODES * count, MODES * count))
    for rate, (jumps, starts, slides, stops, _) in zip(rates, REGIMES, strict=True):
        for still in range(count - 1):
            sliding = count + still
            below = width[still + 1 :]
            rate[still, still + 1 : count] = jumps * below / below.sum()
            rate[still, sliding] = starts
            rate[sliding, sliding + 1] = slides * _SLIDE / (LEVELS[still] - LEVELS[still + 1])
            rate[sliding, still] = stops
        rate[np.diag_indices(len(rate))] = -rate.sum(axis=1)
    powers = [np.broadcast_to(np.eye(MODES * count), rates.shape)]
    for term in range(1, _TERMS):
        powers.append(powers[-1] @ rates / term)
    return np.array(powers)


_ENDS = 5
"""Number of groups of levels at the longest length, each with its own mean."""
_CONTRADICTED = 5e-3


def part_reached(posterior: FallingPosterior, part: float, least: float) -> Floats:
    """Return P(``part`` of the drop has happened), counting only drops of at least ``least``.

    The drop is the loss at the longest length. One value per cell beyond the baseline (G - B).
    """
    counts = (1.0 - least + 1e-9 >= LEVELS).astype(np.float64)
    end = posterior.states[-1] * np.tile(counts, MODES)
    weight = posterior.regimes * end.sum(axis=(1, 2))
    # Means and regimes that contradict the scores would only cost time.
    at_end = weight[:, None] * end.sum(axis=2)
    r = np.flatnonzero(at_end.sum(axis=1) > _CONTRADICTED * at_end.sum())
    m = np.flatnonzero(at_end.sum(axis=0) > _CONTRADICTED * at_end.sum())
    states, fit, weight = posterior.states[:, r[:, None], m], posterior.fit[:, m], weight[r]
    level = np.tensordot(posterior.regimes, end, axes=1).sum(axis=0)
    level = level.reshape(MODES, -1).sum(axis=0)
    group = (np.cumsum(level) - 0.5 * level) / level.sum() * _ENDS
    group = np.where(level > 0.0, group.astype(np.int64), -1)
    inside = group == np.unique(group[group >= 0])[:, None]
    lost = 1.0 - (inside * level) @ LEVELS / (inside @ level)
    # A level within half a step of the threshold is partly beyond it.
    width = np.abs(np.gradient(LEVELS))
    beyond = (1.0 - part * lost[:, None] - LEVELS) / width + 0.5
    beyond = np.tile(beyond.clip(0.0, 1.0), MODES)
    ahead = np.broadcast_to(
        np.tile(inside, MODES)[:, None, None].astype(np.float64), (len(lost), *states.shape[1:])
    )
    out = np.empty(len(states))
    for cell in range(len(states) - 1, -1, -1):
        both = ahead * states[cell]
        chance = np.einsum("erms,r->es", both, weight / both.sum(axis=(0, 2, 3)))
        out[cell] = (chance * beyond).sum() / chance.sum()
        ahead = (ahead * fit[cell]) @ posterior.moves[posterior.step[cell]][r].transpose(0, 2, 1)
        ahead = ahead / ahead.max(axis=(0, 2, 3), keepdims=True)
    return out


def draw_curves(
    posterior: FallingPosterior, count: int, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """Draw curves from the posterior: the baseline's mean (count), the share kept (count, G - B).

    Uses backward sampling (Chib 1996, Journal of Econometrics 75, 79-97): the state at the longest
    length first, then each state given the next.
    """
    states = posterior.states
    at_end = (posterior.regimes[:, None, None] * states[-1]).ravel()
    drawn = rng.choice(len(at_end), size=count, p=at_end / at_end.sum())
    regime, mean, state = np.unravel_index(drawn, states.shape[1:])
    kept = np.empty((count, len(states)))
    for cell in range(len(states) - 1, -1, -1):
        kept[:, cell] = LEVELS[state % len(LEVELS)]
        if cell:
            move = posterior.moves[posterior.step[cell]]
            summed = np.cumsum(states[cell - 1][regime, mean] * move[regime, :, state], axis=1)
            state = (summed < rng.random(count)[:, None] * summed[:, -1:]).sum(axis=1)
    return posterior.baseline[mean], kept


MAX_CELLS = 200
"""Maximum number of cells in a curve; more take time and move a cap by less than 0.5% of ranks."""
BASELINE_SHARE = 0.15
"""Fraction of the samples, shortest first, in the baseline; no decline is located within it."""


@dataclass(frozen=True, eq=False)
class Cells:
    """Sums over cells of neighbouring documents; arrays of length G, shortest first.

    ``x``: mean log length; ``low``, ``high``: shortest and longest length in tokens;
    ``baseline_share``: fraction of the samples in the baseline.
    """

    x: Floats
    low: Ints
    high: Ints
    n: Floats
    s: Floats
    baseline_share: float = BASELINE_SHARE

    @cached_property
    def edges(self) -> Floats:
        """Return the log lengths that separate neighbouring cells (G - 1)."""
        return 0.5 * (np.log(self.high[:-1]) + np.log(self.low[1:]))

    @cached_property
    def baseline_cells(self) -> int:
        """Return the number of cells in the baseline region (at least one)."""
        reached = np.searchsorted(np.cumsum(self.n), self.baseline_share * self.n.sum() - 1e-9)
        return int(min(reached + 1, len(self.n)))


def merge_cells(
    documents: Documents, at_most: int = MAX_CELLS, baseline_share: float = BASELINE_SHARE
) -> Cells:
    """Sum documents into at most ``at_most`` cells of similar n; equal lengths share a cell."""
    lengths, group = np.unique(documents.length_tokens, return_inverse=True)
    n = np.bincount(group, weights=documents.n)
    s = np.bincount(group, weights=documents.s)
    cell = rank_groups(n, at_most) if len(lengths) > at_most else np.arange(len(lengths))
    _, first = np.unique(cell, return_index=True)
    last_index = np.append(first[1:], len(lengths)) - 1
    total: Floats = np.add.reduceat(n, first)
    x = np.add.reduceat(n * np.log(lengths), first) / total
    summed = np.add.reduceat(s, first)
    return Cells(x, lengths[first], lengths[last_index], total, summed, baseline_share)


LEAST_DROP = 0.10
"""Smallest drop whose location is estimated."""
_INSIDE = 0.2
_POINTS = 60
_TAIL = 0.25
"""Share of the error rate beyond each end of the drop's interval and the plotted band; with .5 the
coverage was .84 to .98 (benchmarks/graded_coverage.py, curve_bands.py)."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """An estimated value with its interval."""

    value: float
    low: float
    high: float

    @property
    def tokens(self) -> tuple[int, int, int]:
        """Return value and limits as whole tokens, with the interval rounded outwards."""
        return round(self.value), int(self.low), int(np.ceil(self.high))


@dataclass(frozen=True, eq=False)
class FallingCurve:
    """The posterior over the cells of one sample; ``dispersion`` is that of each cell (G)."""

    documents: Documents
    cells: Cells
    dispersion: Floats
    posterior: FallingPosterior

    @property
    def beyond_baseline(self) -> bool:
        """Return whether any cell lies beyond the baseline region; otherwise no estimate exists."""
        return self.cells.baseline_cells < len(self.cells.n)

    @cached_property
    def tail(self) -> Tail:
        cells = self.cells
        phi = self.dispersion[np.searchsorted(cells.high, self.documents.length_tokens)]
        return tail_of(self.documents, phi, int(cells.high[cells.baseline_cells - 1]))

    @property
    def baseline_mean(self) -> float:
        """Return the posterior mean of the baseline."""
        return float(self.posterior.baseline @ self.posterior.baseline_chance)

    def supported(
        self, share: float, confidence: float, baseline: float | None = None
    ) -> int | None:
        """Return the longest length (tokens) that the longest answers support; None: all lengths.

        Args:
            share: fraction of the baseline that must not be lost.
            baseline: mean of the baseline; by default the posterior mean.
        """
        baseline = self.baseline_mean if baseline is None else baseline
        least = kept_of(baseline, 1.0 - share, self.documents.chance)
        return self.tail.supported(least, confidence)

    def first_cell(self, share: float, chance: float) -> int:
        """Return the first cell where P(``share`` is lost) exceeds ``chance``; G if none does."""
        likely = np.flatnonzero(self.posterior.chance_lost(share) > chance)
        return self.cells.baseline_cells + int(likely[0]) if len(likely) else len(self.cells.n)

    def drop(self, confidence: float) -> Estimate:
        """Return the loss at the longest length relative to the baseline: median and interval."""
        at_most = np.cumsum(self.posterior.kept[-1, ::-1])
        tail = _TAIL * (1.0 - confidence)
        low, value, high = np.interp([1.0 - tail, 0.5, tail], at_most, LEVELS[::-1])
        # The grid resolves a drop only to half a step.
        width = 0.5 * np.interp([low, high], LEVELS[::-1], np.abs(np.gradient(LEVELS))[::-1])
        low, high = min(low + width[0], 1.0), max(high - width[1], 0.0)
        return Estimate(1.0 - float(value), 1.0 - float(low), 1.0 - float(high))

    def lost_at(self, share: float, confidence: float) -> Estimate:
        """Return the length (tokens) at which the loss reaches ``share``; may be infinite."""
        tail = 0.5 * (1.0 - confidence)
        value, low, high = (self.first_cell(share, at) for at in (0.5, tail, 1.0 - tail))
        between = np.append(np.exp(self.cells.edges), np.inf)
        after = np.append(self.cells.low, np.inf)
        return Estimate(
            float(between[value - 1]), float(self.cells.high[low - 1]), float(after[high])
        )

    @cached_property
    def _half_reached(self) -> Floats:
        return part_reached(self.posterior, 0.5, LEAST_DROP)

    @property
    def drop_may_be_in_baseline(self) -> bool:
        """Return whether half of the drop may have happened within the baseline region."""
        several = self.cells.low[0] < self.cells.high[self.cells.baseline_cells - 1]
        return bool(several and self._half_reached[0] > _INSIDE)

    def drop_place(self, confidence: float) -> Estimate:
        """Return the length (tokens) at which half of the measured drop has happened."""
        tail = 0.5 * (1.0 - confidence)
        first = self.cells.baseline_cells
        at = np.exp(self.cells.edges)[first - 1 :]
        before, after = self.cells.high[first - 1 : -1], self.cells.low[first:]

        def cell(least: float) -> int:
            return min(int(np.searchsorted(self._half_reached, least)), len(after) - 1)

        value = at[cell(0.5)]
        # A single outlying document must not separate the interval from the place.
        low = before[max(cell(tail) - 1, 0)]
        high = after[min(cell(1.0 - tail) + 1, len(after) - 1)]
        return Estimate(float(value), float(min(low, value)), float(max(high, value)))

    def mean(self, quantile: float | None = None) -> Floats:
        """Return the mean score in every cell (G), or a quantile of its posterior."""
        values, chance = self.posterior.mean, self.posterior.chance
        if quantile is None:
            return chance @ values
        reached = (np.cumsum(chance, axis=1) < quantile).sum(axis=1)
        out: Floats = values[np.minimum(reached, len(values) - 1)]
        return out


def fit_falling_curve(documents: Documents, baseline_share: float) -> FallingCurve:
    """Fit a falling curve to the documents.

    >>> lengths = np.arange(100, 4_100, 100)
    >>> right = np.where(lengths <= 2_000, 1.0, 0.0)
    >>> from contextcliff_dagster.analysis.records import Documents
    >>> curve = fit_falling_curve(Documents(lengths, np.ones(40), right, True), 0.15)
    >>> round(curve.lost_at(0.3, 0.95).value)
    2049
    """
    cells = merge_cells(documents, baseline_share=baseline_share)
    phi = local_dispersion(documents, cells.high)
    posterior = falling_posterior(
        cells.n, cells.s, phi, cells.baseline_cells, guessing=documents.chance
    )
    return FallingCurve(documents, cells, phi, posterior)


def fitted_mean(curve: FallingCurve, tokens: Ints, dip: tuple[int, int] | None = None) -> Floats:
    """Return the mean score at lengths ``tokens`` (P): the curve, or the means around and in a dip.

    ``dip``: the dip's first length and the first length after it.
    """
    if dip is None:
        return np.interp(np.log(tokens), curve.cells.x, curve.mean(0.5))
    return _window_bounds(curve, tokens, dip, 0.0)[0]


def curve_points(
    curve: FallingCurve, confidence: float, dip: tuple[int, int] | None = None
) -> list[CurvePoint]:
    """Return the ``curve`` of ``cliffs.json``: median and interval of the mean at each length."""
    cells = curve.cells
    low, high = int(cells.low[0]), int(cells.high[-1])
    tokens = np.unique(np.geomspace(low, high, _POINTS).round().astype(np.int64))
    if dip is not None:
        lines = _window_bounds(curve, tokens, dip, chi_square_quantile(confidence))
    else:
        tail, lengths = _TAIL * (1.0 - confidence), np.log(tokens)
        middle, lower, upper = (
            np.interp(lengths, cells.x, curve.mean(q)) for q in (0.5, tail, 1.0 - tail)
        )
        lines = middle, np.minimum(lower, curve.tail.lower(tokens, tail)), upper
    return [
        CurvePoint(int(t), *(min(max(float(v), 0.0), 1.0) for v in of))
        for t, *of in zip(tokens, *lines, strict=True)
    ]


def _window_bounds(
    curve: FallingCurve, tokens: Ints, dip: tuple[int, int], z2: float
) -> tuple[Floats, Floats, Floats]:
    """Return the means before, in and beyond ``dip``, with Wilson's limits, at ``tokens`` (P)."""
    of_cell = np.searchsorted(dip, curve.cells.low, side="right")
    n = np.bincount(of_cell, curve.cells.n, 3)
    s = np.bincount(of_cell, curve.cells.s, 3)
    phi = np.bincount(of_cell, curve.cells.n * curve.dispersion, 3)
    mean, trials = s / np.maximum(n, 1e-9), np.maximum(n**2 / np.maximum(phi, 1e-9), 1e-9)
    middle = (mean + 0.5 * z2 / trials) / (1.0 + z2 / trials)
    reach = np.sqrt(z2 * mean * (1.0 - mean) / trials + (0.5 * z2 / trials) ** 2)
    reach /= 1.0 + z2 / trials
    at = np.searchsorted(dip, tokens, side="right")
    return mean[at], (middle - reach)[at], (middle + reach)[at]


ANSWERS, SHARE = 40.0, 0.2
"""Size of the tail: this many of the longest answers, after division by their dispersion, but at
most this fraction of all. The curve's prior certifies nothing within it (benchmarks/accept.py); a
drop before it is located by the posterior."""


@dataclass(frozen=True, eq=False)
class Tail:
    """Evidence from the answers on the longest documents alone, independent of the curve.

    A drop within the last few per cent of the answers is unlikely a priori, so a posterior rules it
    out with hardly any answers there: one right answer at 64,000 tokens would move a cap from 4,000
    to 64,000. A length near the end is therefore safe only if the answers at or beyond it refute
    the loss by themselves.

    Attributes:
        low: lengths of the last answers, ascending, tokens (T).
        before: longest scored length before each (T).
        n, s: answers at or beyond each and their summed scores, divided by the dispersion (T).
    """

    low: Ints
    before: Ints
    n: Floats
    s: Floats

    def supported(self, mean: float, confidence: float) -> int | None:
        """Return the longest length (tokens) before the first unsupported one; None if all are.

        A length is supported if the answers at or beyond it refute that their mean is at most
        ``mean``, by the one-sided binomial tail, continued to fractions. Tests start at the short
        side, each at full level, and stop at the first failure, so errors do not add up (Maurer,
        Hothorn and Lehmacher 1995, Biometrie in der chemisch-pharmazeutischen Industrie 6, 3-18).
        """
        from scipy.special import betainc

        wrong = np.maximum(self.n - self.s, 0.0)
        as_many = betainc(np.maximum(self.s, 1e-9), wrong + 1.0, mean)
        failed = np.flatnonzero(as_many > 1.0 - confidence)
        return int(self.before[failed[0]]) if len(failed) else None

    def lower(self, tokens: Ints, quantile: float) -> Floats:
        """Return the lower limit of the mean at or beyond ``tokens`` (P); 1 before the tail."""
        from scipy.special import betaincinv

        wrong = np.maximum(self.n - self.s, 0.0)
        limit = betaincinv(np.maximum(self.s, 1e-9), wrong + 1.0, quantile)
        at = np.searchsorted(np.append(self.before[:1], self.low), tokens)
        return np.append(1.0, np.append(np.minimum.accumulate(limit), 0.0))[at]


def tail_of(documents: Documents, dispersion: Floats, after: int) -> Tail:
    """Return the tail of ``documents`` beyond ``after`` tokens; ``dispersion``: of each (D)."""
    lengths, start = np.unique(documents.length_tokens, return_index=True)
    worth = np.add.reduceat(documents.n / dispersion, start)
    right = np.add.reduceat(documents.s / dispersion, start)
    n, s = np.cumsum(worth[::-1])[::-1], np.cumsum(right[::-1])[::-1]
    beyond = np.searchsorted(lengths, after, side="right")
    worth_seen = min(ANSWERS, SHARE * float(n[0]))
    kept = slice(int(max(beyond, np.searchsorted(-n, -worth_seen - 1e-9))), None)
    return Tail(lengths[kept], np.append(0, lengths[:-1])[kept], n[kept], s[kept])
