"""Change points by ``ruptures``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from contextcliff_dagster.contracts.arrays import Floats

LEAST_SIZE = 5


def change_points(signal: Floats, penalty: float) -> list[int]:
    """Where segments of equal mean end in ``signal`` (n), the end of the last included.

    PELT with the squared-error cost and segments of at least five. The linear kernel is that, in C:
    the same splits in a thousandth of the time.

    >>> import numpy as np
    >>> change_points(np.repeat([0.9, 0.5, 0.1], 20), penalty=0.05)
    [20, 40, 60]
    """
    import ruptures

    search = ruptures.KernelCPD(kernel="linear", min_size=LEAST_SIZE).fit(signal)
    return [int(end) for end in search.predict(pen=penalty)]
