"""The safe cap of a KV policy against what the whole cache scores on short documents.

A cap is about a drop from a baseline. A policy that scores low on the shortest documents already
has a low baseline of its own, from which little can drop: its own cap may be long, and yet no
length is safe for those who had the whole cache before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from contextcliff_dagster.analysis.cliff.cap import DEPTH, chance_allowed, tail_confidence
from contextcliff_dagster.analysis.curves.falling_curve import fit_falling_curve
from contextcliff_dagster.analysis.records.samples import Documents
from contextcliff_dagster.contracts.results.kv import KvCap

if TYPE_CHECKING:
    from contextcliff_dagster.analysis.comparison.pairing import Pairs, Side
    from contextcliff_dagster.analysis.curves.falling_curve import FallingCurve
    from contextcliff_dagster.analysis.records.settings import AnalysisSettings
    from contextcliff_dagster.contracts.arrays import Floats


@dataclass(frozen=True, eq=False)
class LossAgainst:
    """Losses of ``curve`` as shares of the baseline of ``other``.

    The two are taken as independent. Curves of the same documents move together, so that what is
    lost is known better than this says.
    """

    curve: FallingCurve
    other: FallingCurve

    def chance_lost(self, share: float) -> Floats:
        """Chance that the mean is at most 1 - ``share`` of that baseline, in each cell (G)."""
        of_baseline = self.other.posterior
        guessing = self.curve.documents.chance
        least = guessing + (self.curve.posterior.mean - guessing) / max(1.0 - share, 1e-9)
        chance = of_baseline.baseline_chance
        reached = np.cumsum(chance) - 0.5 * chance
        below = np.interp(least, of_baseline.baseline, reached, left=0.0, right=1.0)
        lost: Floats = self.curve.posterior.chance @ (1.0 - below)
        return np.maximum.accumulate(lost)

    def longest_safe(self, share: float, chance: float) -> int:
        """Longest length (tokens) up to which the chance of that loss is at most ``chance``.

        0 where it is larger at the shortest length already.
        """
        likely = np.flatnonzero(self.chance_lost(share) > chance)
        last = int(likely[0]) if len(likely) else len(self.curve.cells.n)
        return int(self.curve.cells.high[last - 1]) if last else 0

    def lost_at(self, share: float, confidence: float) -> tuple[int | None, int | None, int | None]:
        """Length (tokens) at which that share is lost, with its interval.

        None: not within the measured lengths. The shortest length: from there on, or earlier.
        """
        cells, tail = self.curve.cells, 0.5 * (1.0 - confidence)
        starts = np.exp(np.concatenate([np.log(cells.low[:1]), cells.edges]))
        lost = self.chance_lost(share)

        def first(chance: float) -> int | None:
            likely = np.flatnonzero(lost > chance)
            return round(float(starts[likely[0]])) if len(likely) else None

        return first(0.5), first(tail), first(1.0 - tail)


def kv_cap(pairs: Pairs, own_cap: int | None, settings: AnalysisSettings) -> KvCap:
    """Return B's cap against A's baseline.

    It is never longer than B's own, so that all that bars or shortens that one (too few examples,
    a floor, a dip, missing answers, several looks) does so here.

    Args:
        pairs: paired documents of A and B.
        own_cap: of B, against its own baseline, tokens.
    """
    whole, pressed = (_curve(side, settings) for side in (pairs.a, pairs.b))
    baseline = _baseline(whole)
    if not pressed.beyond_baseline:
        return KvCap(None, baseline, None, None, None)
    loss = LossAgainst(pressed, whole)
    chance = chance_allowed(settings.tolerance, settings.confidence, float(pressed.cells.n.sum()))
    safe = loss.longest_safe(DEPTH * settings.tolerance, chance)
    sure = tail_confidence(settings.confidence)
    if (supported := pressed.supported(settings.tolerance, sure, baseline)) is not None:
        safe = min(safe, supported)
    end = int(pressed.cells.high[pressed.cells.baseline_cells - 1])
    tokens = min(safe, own_cap) if own_cap is not None and safe > end else None
    return KvCap(tokens, baseline, *loss.lost_at(settings.tolerance, settings.confidence))


def own_loss(side: Side, settings: AnalysisSettings) -> tuple[int | None, int | None, int | None]:
    """Return the length (tokens) at which the tolerance of the own baseline is lost, and its
    interval; None: not within the measured lengths.
    """
    curve = _curve(side, settings)
    if not curve.beyond_baseline:
        return None, None, None
    at = curve.lost_at(settings.tolerance, settings.confidence)
    value, low, high = (
        round(end) if np.isfinite(end) else None for end in (at.value, at.low, at.high)
    )
    return value, low, high


def _curve(side: Side, settings: AnalysisSettings) -> FallingCurve:
    documents = Documents(side.length_tokens, side.n, side.s, side.binary, settings.chance)
    return fit_falling_curve(documents, settings.baseline_share)


def _baseline(curve: FallingCurve) -> float:
    cells = curve.cells
    region = slice(cells.baseline_cells)
    return float(cells.s[region].sum() / cells.n[region].sum())
