"""Records of readers that lose a format from a length on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

KINDS = ("lookup", "aggregate", "as_of", "chain")
TOKENS = {"jsonl": 1.0, "prose": 1.25, "csv": 0.75, "markdown": 0.9}
"""Tokens of a rendering for each of the JSON rendering's."""


def planted_records(
    lost_at: Mapping[str, float],
    *,
    benchmarks: Sequence[str] = ("warehouse", "constraints", "network"),
    scales: Sequence[int] = (1, 2, 4, 8, 16, 32),
    seeds: int = 10,
    questions: int = 4,
    top: float = 1.0,
    chance: float = 0.0,
    arms: Mapping[str, float] | None = None,
    rng_seed: int = 0,
) -> pd.DataFrame:
    """``lost_at``: format (or format of a benchmark, ``prose/network``) -> JSON tokens from which
    answers are right by ``chance`` alone. ``arms``: arm -> added to the chance of being right."""
    rng = np.random.default_rng(rng_seed)
    formats = sorted({name.partition("/")[0] for name in lost_at})
    rows = []
    for arm, added in {"base": 0.0, **(arms or {})}.items():
        for benchmark in benchmarks:
            for format in formats:
                at = lost_at.get(f"{format}/{benchmark}", lost_at.get(format, np.inf))
                for scale in scales:
                    right = (top if scale * 1000 < at else chance) + added
                    for seed in range(seeds):
                        for question in range(questions):
                            rows.append(
                                {
                                    "benchmark": benchmark,
                                    "format": format,
                                    "arm": arm,
                                    "scale": f"{scale}k",
                                    "scale_tokens": scale * 1000,
                                    "seed": seed,
                                    "document_key": f"{benchmark}/{scale}k/{seed}",
                                    "question": question,
                                    "question_kind": KINDS[question % 4],
                                    "expected": str(question),
                                    "records": scale * 40,
                                    "length_tokens": int(scale * 1000 * TOKENS[format]) + seed,
                                    "evidence_position": rng.random(),
                                    "score": float(rng.random() < right),
                                    "failure": None,
                                }
                            )
    return pd.DataFrame(rows)
