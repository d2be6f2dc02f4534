"""Measure the reference models' curves and write their cards.

    python -m tools.reference_models.measure [--model short|long] [--folder DIR]

Every document is fresh, generated whole at one of a grid of lengths, and asked one question of each
level, so that the answers at one length are independent and their share is binomial. Exact match
is read off teacher-forced logits: greedy decoding spells the answer and ends exactly where the
argmax is right at every position, the end token included.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import math
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from contextcliff_dagster.reference.card import (
    REFERENCE_MODELS,
    CardPoint,
    LevelCurve,
    read_card,
    weights_path,
)
from contextcliff_dagster.reference.warehouse_documents import (
    MIN_RECORDS,
    TOKENS_PER_RECORD,
    ledger_tokens,
    records_for_tokens,
)
from tools.reference_models.batches import draw_batch
from tools.reference_models.model_card import model_card_markdown

DOCUMENTS = 1_000
LENGTHS = 22
REACH = 5.0
"""The longest length measured, as a multiple of the training length."""
FALL = (1.17, 1.2, 1.23, 1.26, 1.3, 1.38, 1.42, 1.46, 1.66, 1.8)
"""Further lengths, as multiples of the training length, where the curve falls."""
BATCH_TOKENS = 4_096


def record_grid(training_length: int) -> list[int]:
    """Numbers of records: even in log length from the shortest ledger to the longest measured,
    and closer where the curve falls."""
    lengths = np.geomspace(ledger_tokens(MIN_RECORDS), REACH * training_length, LENGTHS)
    falling = [share * training_length for share in FALL]
    return sorted(
        {max(MIN_RECORDS, records_for_tokens(length + 3)) for length in [*lengths, *falling]}
    )


def _counts(
    folder: Path, records: int, documents: int, seed: int
) -> tuple[int, dict[int, int], float]:
    """At one length: its records, right answers by level, mean distance of the two records.

    Runs in a process of its own; one thread each uses the cores better than several in one.
    """
    import torch
    from safetensors.torch import load_file

    from tools.reference_models.network import Architecture, answer_logits

    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    config = json.loads((folder / "config.json").read_text())
    fields = (field.name for field in dataclasses.fields(Architecture))
    architecture = Architecture(**{field: config[field] for field in fields})
    weights = load_file(folder / "model.safetensors")
    rng = np.random.default_rng((seed, records))
    correct, distances = {1: 0, 2: 0}, []
    at_once = max(1, BATCH_TOKENS // ledger_tokens(records))
    for first in range(0, documents, at_once):
        batch = draw_batch(rng, min(at_once, documents - first), records, (1, 1), varied=False)
        with torch.inference_mode():
            logits = answer_logits(weights, architecture, batch)
        for x, asked in zip(logits, batch.questions, strict=True):
            right = (x.argmax(-1).numpy() == asked.answer).all(-1)
            correct[asked.level] += int(right.sum())
        distances.append(float(TOKENS_PER_RECORD * batch.records_between.sum()))
    return records, correct, sum(distances) / documents


def _curves(
    folder: Path, training_length: int, documents: int, seed: int, processes: int
) -> list[LevelCurve]:
    """The curves of both levels, `documents` fresh documents at each length of the grid."""
    points: dict[int, list[CardPoint]] = {1: [], 2: []}
    grid = record_grid(training_length)
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        # The longest first: the processes then finish together.
        work = [pool.submit(_counts, folder, n, documents, seed) for n in reversed(grid)]
        for future in as_completed(work):
            records, correct, distance = future.result()
            length = ledger_tokens(records)
            for level, of_level in points.items():
                low, high = wilson_interval(correct[level], documents)
                of_level.append(
                    CardPoint(
                        length_tokens=length,
                        n=documents,
                        correct=correct[level],
                        exact_match=correct[level] / documents,
                        low=round(low, 4),
                        high=round(high, 4),
                        inter_evidence_tokens=round(distance, 1) if level == 2 else None,
                    )
                )
            one, two = (of_level[-1].exact_match for of_level in points.values())
            print(f"{length:5d} tokens  level 1 {one:.3f}  level 2 {two:.3f}", flush=True)
    curves = []
    for level, task in ((1, "lookup"), (2, "two_hop")):
        in_order = tuple(sorted(points[level], key=lambda point: point.length_tokens))
        top = plateau(in_order, training_length)
        l70, l50 = (round(length_at_loss(in_order, top, loss), 1) for loss in (0.3, 0.5))
        curves.append(LevelCurve(level, task, round(top, 4), l70, l50, in_order))
    return curves


def measure(name: str, folder: Path, documents: int, seed: int, processes: int) -> None:
    """Measure the model in `folder` and write its card.json and MODEL_CARD.md."""
    from safetensors.torch import load_file

    file = folder / "model.safetensors"
    training = json.loads((folder / "training.json").read_text())
    config = json.loads((folder / "config.json").read_text())
    training_length = int(training["recipe"]["training_length"])
    print(f"{name}: {documents} documents a length", flush=True)
    began = time.perf_counter()
    levels = _curves(folder, training_length, documents, seed, processes)
    card = {
        "name": name,
        "training_length_tokens": training_length,
        "window_tokens": int(config["max_position_embeddings"]),
        "parameters": sum(weight.numel() for weight in load_file(file).values()),
        "weights_sha256": hashlib.sha256(file.read_bytes()).hexdigest(),
        "measured": {
            "documents_per_length": documents,
            "seed": seed,
            "wall_seconds": round(time.perf_counter() - began, 1),
        },
        "levels": [dataclasses.asdict(curve) for curve in levels],
    }
    (folder / "card.json").write_text(json.dumps(card, indent=1) + "\n")
    (folder / "MODEL_CARD.md").write_text(model_card_markdown(read_card(folder)))


def main(arguments: Sequence[str] | None = None) -> None:
    """Command line: measure one model or both, and write card.json and MODEL_CARD.md."""
    parser = argparse.ArgumentParser(description="Measure the reference models' curves.")
    parser.add_argument("--model", choices=["short", "long"], help="only this one (default: both)")
    parser.add_argument("--folder", type=Path, default=weights_path(REFERENCE_MODELS[0]).parent)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--documents", type=int, default=DOCUMENTS, help="a length")
    parser.add_argument("--processes", type=int, default=2)
    given = parser.parse_args(arguments)
    for name in REFERENCE_MODELS:
        if given.model is None or name == f"reference-{given.model}":
            measure(name, given.folder / name, given.documents, given.seed, given.processes)


PLATEAU_SHARE = 0.8
"""The plateau is the mean over the lengths below this share of the training length."""


def wilson_interval(correct: int, n: int) -> tuple[float, float]:
    """Wilson's 95% score interval of a binomial share."""
    from scipy.stats import binomtest

    low, high = binomtest(correct, n).proportion_ci(0.95, method="wilson")
    return float(low), float(high)


def plateau(points: Sequence[CardPoint], training_length: int) -> float:
    """Mean exact match over the lengths below `PLATEAU_SHARE` of the training length."""
    low = [p.exact_match for p in points if p.length_tokens < PLATEAU_SHARE * training_length]
    return float(np.mean(low))


def length_at_loss(points: Sequence[CardPoint], plateau: float, loss: float) -> float:
    """Document tokens at which the curve has lost the share `loss` of its plateau.

    The curve is made non-increasing and interpolated linearly in log length. NaN where it never
    falls so far.
    """
    from scipy.optimize import isotonic_regression

    length = np.log([p.length_tokens for p in points])
    shares, n = [p.exact_match for p in points], [p.n for p in points]
    fitted = isotonic_regression(shares, weights=n, increasing=False).x
    below = np.flatnonzero(fitted <= (1 - loss) * plateau)
    if below.size == 0 or below[0] == 0:
        return math.nan
    right = int(below[0])
    drop = fitted[right - 1] - fitted[right]
    share = (fitted[right - 1] - (1 - loss) * plateau) / drop
    return float(np.exp(length[right - 1] + share * (length[right] - length[right - 1])))


if __name__ == "__main__":
    main()
