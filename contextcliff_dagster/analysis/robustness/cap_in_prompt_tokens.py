"""The cap in the model's own prompt tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pandas as pd


def cap_in_prompt_tokens(calls: pd.DataFrame, cap: int | None) -> int | None:
    """Return the prompt tokens of a call whose document has ``cap`` tokens; ``None`` where unknown.

    Read off a least-squares line of the recorded ``prompt_tokens`` on ``length_tokens``: the two
    tokenizers differ by a factor, the scaffold adds a constant.
    """
    line = prompt_line(calls)
    if cap is None or line is None:
        return None
    slope, constant = line
    return max(int(constant + slope * cap), 0)


def prompt_line(calls: pd.DataFrame) -> tuple[float, float] | None:
    """Slope and constant of the line of ``prompt_tokens`` on ``length_tokens``.

    ``None`` where fewer than two lengths carry them or longer documents do not have longer prompts.
    """
    known = calls.loc[calls["answered"] & calls["prompt_tokens"].notna()]
    lengths = known["length_tokens"].to_numpy(np.float64)
    prompts = known["prompt_tokens"].to_numpy(np.float64)
    if len(np.unique(lengths)) < 2:
        return None
    slope, constant = np.polyfit(lengths, prompts, 1)
    return (float(slope), float(constant)) if slope > 0 else None
