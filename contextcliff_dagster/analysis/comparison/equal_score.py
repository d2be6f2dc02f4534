"""Up to which length a paired drop stays below a margin: what "at equal score" rests on.

The documents are cut into windows of at least `LEAST_DOCUMENTS`, in order of length. In each, the
hypothesis is that the mean drop A minus B reaches the margin. The windows are tested from the
shortest on, at the same level, until one is not rejected: as in a hierarchy given beforehand, the
level holds for all of them together (Maurer, Hothorn and Lehmacher 1995, in: Vollmar (ed.),
Biometrie in der chemisch-pharmazeutischen Industrie 6). A window in which A itself scores no more
than the margin ends the claim, too: nothing could drop by the margin there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from contextcliff_dagster.analysis.statistics.length_at_loss import rank_groups
from contextcliff_dagster.contracts.results.kv import EqualScore, EqualWindow

if TYPE_CHECKING:
    from contextcliff_dagster.analysis.comparison.pairing import Pairs
    from contextcliff_dagster.contracts.arrays import Floats

EQUAL_MARGIN = 0.1
LEAST_DOCUMENTS = 50
"""With fewer than 39, a drop of 0.1 is not excluded even where no answer changed."""
MOST_WINDOWS = 5
"""More documents make the windows larger: smaller drops are then set apart from the margin."""
_BETA = 0.005
_GRID = 21


def equal_score(pairs: Pairs, margin: float, confidence: float) -> EqualScore:
    """Return the windows of paired documents and the length up to which all of them are equal.

    Args:
        margin: a mean drop below it counts as equal, in units of the score; above 0, below 1.
        confidence: of the statement over all windows, one-sided.
    """
    drops = (pairs.a.s - pairs.b.s) / pairs.a.n
    windows: list[EqualWindow] = []
    equal_to: int | None = None
    begun = True
    for rows in _windows(pairs):
        p_value = drop_p_value(drops[rows], margin)
        can_drop = float((pairs.a.s / pairs.a.n)[rows].mean()) > margin
        begun = begun and can_drop and p_value <= 1.0 - confidence
        lengths = pairs.a.length_tokens[rows]
        if begun:
            equal_to = int(lengths.max())
        windows.append(
            EqualWindow(
                from_tokens=int(lengths.min()),
                to_tokens=int(lengths.max()),
                n_documents=int(rows.sum()),
                drop=float(drops[rows].mean()),
                p_value=p_value,
                equal=begun,
            )
        )
    return EqualScore(margin=margin, confidence=confidence, tokens=equal_to, windows=windows)


def _windows(pairs: Pairs) -> list[np.ndarray]:
    """Documents of each window as masks (D); those of one length are in one window."""
    documents = len(pairs.a.n)
    count = min(max(documents // LEAST_DOCUMENTS, 1), MOST_WINDOWS)
    place = rank_groups(np.ones(documents), count)
    first = np.searchsorted(pairs.a.length_tokens, pairs.a.length_tokens)
    place = place[first]
    return [place == window for window in range(count) if (place == window).any()]


def drop_p_value(drops: Floats, margin: float, beta: float = _BETA) -> float:
    """P-value of the hypothesis that the mean drop is at least ``margin``.

    Exact for drops that are -1, 0 or 1: the probability of a sum as low as theirs under a trinomial
    distribution of mean ``margin``, at the least favourable share of gains. That share is searched
    below a limit of confidence 1 - ``beta`` on the share of changed documents, and ``beta`` added
    (Berger and Boos 1994, JASA 89, 1012-1016). Of all drops in [-1, 1] with the same mean and the
    same mean size, those three values vary most, so that others are judged as if they were such.

    Args:
        drops: A minus B of each document, in [-1, 1] (D).
    """
    from scipy.special import betaincinv

    count = len(drops)
    changed = float(np.abs(drops).sum())
    most = 1.0 if changed >= count else float(betaincinv(changed + 1, count - changed, 1.0 - beta))
    gains = np.linspace(0.0, max(0.5 * (most - margin), 0.0), _GRID)
    gains = gains[margin + 2.0 * gains <= 1.0]
    if not len(gains) or most < margin:  # so many changes as the margin takes are excluded
        return beta
    reached = int(np.ceil(float(drops.sum()) - 1e-9))
    worst = max(_below(count, margin + gain, gain, reached) for gain in gains)
    return min(worst + beta, 1.0)


def _below(count: int, loss: float, gain: float, reached: int) -> float:
    """P(losses - gains <= ``reached``) among ``count`` documents, each lost or gained so likely."""
    size = 2 * count + 1
    step = np.zeros(size)
    step[[0, 1, -1]] = 1.0 - loss - gain, loss, gain
    of_sum = np.fft.irfft(np.fft.rfft(step) ** count, n=size)  # sums -count..count, modulo size
    sums = np.concatenate([np.arange(count + 1), np.arange(-count, 0)])
    return float(np.clip(of_sum[sums <= reached].sum(), 0.0, 1.0))
