"""Runs of the continuation experiment as other people's folders and files hold them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from contextcliff_dagster.extensions.continuation.compat.metrics import text_metrics
from contextcliff_dagster.extensions.continuation.compat.result_files import (
    ContextResult,
    Run,
    write_run,
)

AT = "2026-11-23T12:00:00"
FAMILIAR = frozenset("a and boat came down he lay light on out river she the to was went".split())
_SOUNDS = "ba den fi gor hul kas len mo nir pos ru sel tam vo wic".split()
_WORDS = [*sorted(FAMILIAR)] * 12 + [one + other for one in _SOUNDS for other in _SOUNDS]

OLD_CSV = """\
model_name,max_tokens,temperature,top_k,top_p,min_p,rep_pen,context_length,actual_context_tokens,\
reading_level,cloze_score,vocabulary_diversity,sentence_length_variance,bigram_repetition_rate,\
num_rounds,cloze_score_std
tiny-1B,1024,1.0,100,1.0,0.1,1.01,1024,944,11-12,26.715,0.4699,87.63,0.1491,2,0.46
tiny-1B,1024,1.0,100,1.0,0.1,1.01,4096,4003,11-12,23.01,0.4295,90.79,0.196,3,4.774
tiny-1B,1024,1.0,100,1.0,0.1,1.01,2048,2002,9-10,29.5,0.5013,76.02,0.1333,3,
"""
"""The columns of the first version: no coherence, and the size in the middle."""


def letters(sentences: Any) -> list[list[float]]:
    """A vector of each sentence: how often each letter occurs."""
    return [
        [float(one.lower().count(c)) for c in "abcdefghijklmnopqrstuvwxyz"] for one in sentences
    ]


def prose(rng: random.Random, words: int = 300) -> str:
    """Sentences of random words."""
    pieces = [rng.choice(_WORDS) + ("." if rng.random() < 0.1 else "") for _ in range(words)]
    return " ".join(pieces)


def looped(words: int = 300) -> str:
    """One phrase for ever, without a full stop."""
    return " ".join(["gordenful lantern"] * (words // 2))


def made_run(rounds: int = 4, collapse_from: int | None = None, name: str = "tiny/1B") -> Run:
    """A run of four sizes; from ``collapse_from`` tokens on its texts are loops."""
    rng = random.Random(rounds)
    contexts = {}
    for size in (1024, 2048, 4096, 8192):
        made = []
        for number in range(1, rounds + 1):
            gone = collapse_from is not None and size >= collapse_from
            text = looped() if gone else prose(rng)
            figures = text_metrics(text, FAMILIAR, letters)
            head = {"round_number": number, "continuation_length": len(text), "timestamp": AT}
            made.append({**head, "continuation_text": text, **figures})
        info = {"context_length_target": size, "ground_truth_text": "He went. \u201cOut!\u201d"}
        contexts[size] = ContextResult(size, tuple(made), info)
    author = text_metrics(prose(rng), FAMILIAR, letters)
    settings = {"max_tokens": 300, "temperature": 1.0, "top_k": 100, "top_p": 1.0}
    metadata = {
        "model_name": name,
        "model_id": "a b",
        "source_text_name": "river.txt",
        "num_rounds": rounds,
        "generation_params": settings,
    }
    return Run(metadata, contexts, author, (1024, 2048, 4096, 8192))


def write_made_run(folder: Path, **options: Any) -> Path:
    """Write a run of `made_run` into ``folder`` and return that."""
    write_run(folder, made_run(**options), AT)
    return folder
