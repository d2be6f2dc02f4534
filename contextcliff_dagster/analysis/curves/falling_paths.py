"""What depends on several lengths of one curve at once: where a part of its drop has happened.

The posterior of `falling_process` gives each cell's chances. Here are sums over two cells, the
longest and another, and whole curves drawn from it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from contextcliff_dagster.analysis.curves.falling_process import LEVELS, MODES

if TYPE_CHECKING:
    from contextcliff_dagster.analysis.curves.falling_process import FallingPosterior
    from contextcliff_dagster.contracts.arrays import Floats

_ENDS = 5
"""Groups of levels at the longest length, each with its mean."""
_CONTRADICTED = 5e-3


def part_reached(posterior: FallingPosterior, part: float, least: float) -> Floats:
    """Chance that this part of the whole drop has happened, of drops by at least ``least``.

    The drop is what is lost at the longest length; of each cell beyond the baseline region (G - B).
    """
    counts = (1.0 - least + 1e-9 >= LEVELS).astype(np.float64)
    end = posterior.states[-1] * np.tile(counts, MODES)
    weight = posterior.regimes * end.sum(axis=(1, 2))
    # Means and regimes that the scores contradict would only cost time.
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
    # A level within half a step of the bar is partly beyond it.
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
    """Curves from the posterior: the baseline's mean (count), the share kept (count, G - B).

    Backward sampling (Chib 1996, Journal of Econometrics 75, 79-97): the state at the longest
    length, then each one given the next.
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
