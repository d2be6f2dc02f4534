"""Scores and attention with a planted relation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from contextcliff_dagster.analysis.attention import AttentionSample


@dataclass(frozen=True)
class Planted:
    """What is planted; lengths run from 200 to 16,000 tokens.

    Attributes:
        fall: length at which answers turn from 90% right to 30%; beyond 16,000: nowhere.
        jump: length at which entropy jumps by .1.
        link: standard deviations that the entropy of wrong answers is higher at equal length.
        evidence: whether the share on the evidence is known.
    """

    fall: float = 3_000
    jump: float = 1e9
    link: float = 0.0
    evidence: bool = True
    count: int = 200
    trained: int | None = 4_000


def draw(planted: Planted, seed: int = 0) -> tuple[pd.DataFrame, AttentionSample]:
    """Records, and attention of the same examples by 3 layers of 2 heads."""
    rng, count = np.random.default_rng(seed), planted.count
    tokens = np.sort(np.exp(rng.uniform(np.log(200), np.log(16_000), count)).astype(np.int64))
    score = (rng.random(count) < np.where(tokens < planted.fall, 0.9, 0.3)).astype(np.float64)
    entropy = 0.4 + 0.03 * np.log(tokens / 200) + 0.1 * (tokens >= planted.jump)
    entropy += 0.02 * (rng.normal(size=count) + planted.link * (1 - score))
    names = [f"e{i}" for i in range(count)]
    records = pd.DataFrame(
        {
            "document_id": [f"d{i}" for i in range(count)],
            "example_id": names,
            "length_tokens": tokens,
            "score": score,
        }
    )
    by_head = entropy[:, None, None] + np.array([[-0.2, 0.0], [0.0, 0.0], [0.15, 0.05]])
    share = 0.2 + 0.01 * rng.normal(size=(count, 3, 2))
    attention = AttentionSample(
        example_ids=tuple(names),
        tokens=tokens + 40,
        entropy=by_head.clip(0, 1),
        sinks=np.full((count, 3, 2), 0.3),
        evidence=share if planted.evidence else np.full((count, 3, 2), np.nan),
        trained_tokens=planted.trained,
    )
    return records, attention
