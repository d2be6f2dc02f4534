"""The cap in the model's own prompt tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pandas as pd


def cap_in_prompt_tokens(calls: pd.DataFrame, cap: int | None, overhead: int | None) -> int | None:
    """Prompt tokens of a call whose document has ``cap`` tokens; ``None`` where unknown.

    Read off a least-squares line of the recorded ``prompt_tokens`` on ``length_tokens`` (the two
    tokenizers differ by a factor, the scaffold adds a constant); without records, ``cap`` +
    ``overhead``.
    """
    if cap is None:
        return None
    known = calls.loc[calls["answered"] & calls["prompt_tokens"].notna()]
    lengths = known["length_tokens"].to_numpy(np.float64)
    prompts = known["prompt_tokens"].to_numpy(np.float64)
    if len(np.unique(lengths)) >= 2:
        slope, constant = np.polyfit(lengths, prompts, 1)
        if slope > 0:
            return max(int(constant + slope * cap), 0)
    return None if overhead is None else cap + overhead
