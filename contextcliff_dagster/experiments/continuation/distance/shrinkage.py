"""Covariance of few rows of many columns, shrunk so that it can be inverted."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def ledoit_wolf(rows: Floats) -> Floats:
    """Covariance of centred ``rows`` (n x p), shrunk towards its mean variance times identity.

    Ledoit and Wolf 2004, "A well-conditioned estimator for large-dimensional covariance matrices",
    J. Multivariate Analysis 88: the convex combination of least expected squared error.
    """
    n, p = rows.shape
    sample = rows.T @ rows / n
    scale = float(np.trace(sample)) / p
    target = scale * np.eye(p)
    spread = float(((sample - target) ** 2).sum())
    # Sum over rows of |x x' - S|^2, without the n matrices: |x|^4 - 2 x'Sx + |S|^2.
    fourth = float(((rows**2).sum(axis=1) ** 2).sum()) / n
    noise = (fourth - float((sample**2).sum())) / n
    share = min(max(noise / spread, 0.0), 1.0) if spread > 0 else 1.0
    shrunk: Floats = share * target + (1.0 - share) * sample
    return shrunk
