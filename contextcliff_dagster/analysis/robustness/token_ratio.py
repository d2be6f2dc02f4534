"""The study's tokens and the model's: their ratio by bin, and the cap in prompt tokens.

Bins and the cap are in tokens of the study's tokenizer. Where the model's own tokenizer gives more
tokens for long documents than for short ones (code among prose, another script), bins that look
twice as long are not twice as long for the model.

For each answered call with the server's ``prompt_tokens`` and the study's own count of the words
around the document (``scaffold_tokens``)::

    ratio = (prompt_tokens - scaffold_tokens - t) / length_tokens

``t``, the chat template's own tokens, is not known. It is taken to be the number of 0..64 that lets
the medians of the shorter half of the bins, where it weighs most, lie closest together (least sum
of the absolute differences of their logarithms from the middle one): what differs after that is no
template.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from contextcliff_dagster.contracts.results.cliffs import BinRatio, TokenRatio
from contextcliff_dagster.contracts.results.fields import nulls

if TYPE_CHECKING:
    import pandas as pd

    from contextcliff_dagster.analysis.records.samples import Sample
    from contextcliff_dagster.contracts.arrays import Floats

UNEQUAL_RATIO = 0.10
"""Above this difference of the bins' median ratios, relative to the least, a warning is due."""
_MOST_TEMPLATE_TOKENS = 64
_FEWEST_CALLS = 3


def unequal_sentence(ratio: TokenRatio | None, tokenizer: str | None) -> str | None:
    """The warning, where the bins differ by more than `UNEQUAL_RATIO`."""
    if ratio is None or ratio.spread is None or ratio.spread <= UNEQUAL_RATIO:
        return None
    known = [b for b in ratio.bins if b.median is not None and b.n >= _FEWEST_CALLS]
    least = min(known, key=lambda b: b.median or 0.0)
    most = max(known, key=lambda b: b.median or 0.0)
    return (
        f"For one token of {tokenizer or 'the study'} the server counts {least.median:.2f} in "
        f"{least.bin} and {most.median:.2f} in {most.bin}, more than {UNEQUAL_RATIO:.0%} "
        "apart: bins and cap are not equal lengths for this model; name its own tokenizer in "
        "the study (`contextcliff tokenizers`)."
    )


def token_ratio(sample: Sample) -> TokenRatio | None:
    """The ratio by bin; None where the calls do not carry both counts."""
    calls = sample.calls
    lengths = calls["length_tokens"].to_numpy(np.float64)
    scaffold = calls["scaffold_tokens"].to_numpy(np.float64)
    around = calls["prompt_tokens"].to_numpy(np.float64) - scaffold
    index = calls["bin_index"].to_numpy(np.int64)
    reported = calls["answered"].to_numpy() & np.isfinite(around) & (index >= 0)
    if not reported.any():
        return None
    groups = [reported & (index == place) for place in range(len(sample.bins))]
    large = [of for of in groups if of.sum() >= _FEWEST_CALLS]

    def medians(template: int) -> Floats:
        ratios = (around - template) / lengths
        return np.array([np.median(ratios[of]) for of in large])

    def apart(template: int) -> float:
        shorter = medians(template)[: max(len(large) // 2, 2)]
        if shorter.min() <= 0:
            return np.inf
        logs = np.log(shorter)
        return float(np.abs(logs - np.median(logs)).sum())

    several = len(large) > 1
    template = min(range(_MOST_TEMPLATE_TOKENS + 1), key=apart) if several else 0
    ratios = (around - template) / lengths
    rows = []
    for bin, of in zip(sample.bins, groups, strict=True):
        own = ratios[of]
        if len(own):
            median, low, high = float(np.median(own)), float(own.min()), float(own.max())
            rows.append(BinRatio(bin.bin, len(own), median, low, high))
        else:
            rows.append(nulls(BinRatio, bin=bin.bin, n=0))
    spread = None
    if several and (final := medians(template)).min() > 0:
        spread = float(final.max() / final.min() - 1)
    return TokenRatio(template, spread, rows)


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
