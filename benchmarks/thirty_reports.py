"""Thirty reports on varied data, to be read for contradictory statements.

    python benchmarks/thirty_reports.py FOLDER

For each data set FOLDER gets `NAME.txt`, the terminal's risk report, and `NAME.md`, the whole page.
The truth is in `DATA`, not in the reports.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from contextcliff_dagster.notebook.analyze import analyze
from contextcliff_dagster.reporting.length_profile.page import report_page
from contextcliff_dagster.reporting.markdown import as_page

STEP, LINE, DIP = "step", "line", "dip"
DATA: dict[str, dict[str, Any]] = {
    # shape, mean at the short end, share lost, place (share of the documents)
    "step_middle": {"curve": (STEP, 0.95, 0.6, 0.5)},
    "step_early": {"curve": (STEP, 0.9, 0.5, 0.2)},
    "step_in_baseline": {"curve": (STEP, 0.9, 0.6, 0.1)},
    "step_late": {"curve": (STEP, 0.9, 0.6, 0.93)},
    "step_very_late": {"curve": (STEP, 0.9, 0.9, 0.98)},
    "step_small": {"curve": (STEP, 0.9, 0.18, 0.5), "per_document": 1, "count": 600},
    "step_at_tolerance": {"curve": (STEP, 0.9, 0.31, 0.5)},
    "step_tolerance_10": {"curve": (STEP, 0.9, 0.2, 0.6), "tolerance": 0.1},
    "step_confidence_999": {"curve": (STEP, 0.95, 0.5, 0.5), "confidence": 0.999},
    "two_steps": {"curve": (STEP, 0.9, 0.25, 0.4), "then": (0.7, 0.75)},
    "line": {"curve": (LINE, 0.9, 0.6, 0.0)},
    "line_mild": {"curve": (LINE, 0.85, 0.25, 0.0)},
    "line_from_half": {"curve": (LINE, 0.9, 0.7, 0.5)},
    "dip": {"curve": (DIP, 0.9, 0.7, 0.4)},
    "dip_any": {"curve": (DIP, 0.9, 0.5, 0.5), "assumption": "any"},
    "flat_high": {"curve": (STEP, 0.97, 0.0, 0.5)},
    "flat_half": {"curve": (STEP, 0.55, 0.0, 0.5)},
    "flat_low": {"curve": (STEP, 0.25, 0.0, 0.5)},
    "flat_perfect": {"curve": (STEP, 1.0, 0.0, 0.5)},
    "flat_few": {"curve": (STEP, 0.8, 0.0, 0.5), "count": 40},
    "rise": {"curve": (STEP, 0.5, -0.6, 0.5)},
    "floor": {"curve": (STEP, 0.03, 0.0, 0.5)},
    "too_few": {"curve": (STEP, 0.9, 0.5, 0.5), "count": 18},
    "five_lengths": {"curve": (STEP, 0.94, 0.5, 0.2), "lengths": 5},
    "two_lengths": {"curve": (STEP, 0.9, 0.0, 0.5), "lengths": 2},
    "outliers": {"curve": (STEP, 0.9, 0.0, 0.5), "outliers": 4},
    "clustered": {"curve": (STEP, 0.9, 0.5, 0.6), "per_document": 6},
    "graded": {"curve": (STEP, 0.8, 0.5, 0.5), "graded": True},
    "unanswered_late": {"curve": (STEP, 0.9, 0.0, 0.5), "unanswered_from": 0.7},
    "window": {"curve": (STEP, 0.9, 0.6, 0.6), "window": 131_072},
}


def drawn(
    seed: int,
    curve: tuple[str, float, float, float],
    count: int = 200,
    lengths: int | None = None,
    per_document: int = 1,
    then: tuple[float, float] | None = None,
    outliers: int = 0,
    unanswered_from: float = 1.0,
    graded: bool = False,
    **options: Any,
) -> dict[str, Any]:
    """Draw data and return them as the arguments of `analyze`."""
    rng = np.random.default_rng(seed)
    shape, baseline, drop, place = curve
    documents = count // per_document
    tokens = np.sort(np.exp(rng.uniform(np.log(300), np.log(60_000), documents))).astype(int)
    rank = (np.arange(documents) + 0.5) / documents
    if lengths is not None:
        tokens = (1_000 * 2 ** np.floor(rank * lengths)).astype(int)
    if outliers:
        tokens[-outliers:] *= 20
    fallen = (rank >= place).astype(float)
    if shape == LINE:
        fallen = ((rank - place) / (1 - place)).clip(0, 1)
    elif shape == DIP:
        fallen = ((rank >= place) & (rank < place + 0.25)).astype(float)
    mean = baseline * (1 - drop * fallen)
    if then:
        mean = np.where(rank >= then[0], baseline * (1 - then[1]), mean)
    if per_document > 1:
        mean = rng.beta(3 * mean.clip(0.02, 0.98), 3 * (1 - mean.clip(0.02, 0.98)))
    chance = np.repeat(mean.clip(0, 1), per_document)
    scores = (rng.random(len(chance)) < chance).astype(float)
    if graded:
        scores = np.round(rng.beta(4 * chance, 4 * (1 - chance)), 2)
    missing = (np.repeat(rank, per_document) >= unanswered_from) & (rng.random(len(chance)) < 0.6)
    return {
        "lengths": np.repeat(tokens, per_document),
        "scores": np.where(missing, np.nan, scores),
        "documents": [f"d{i}" for i in np.repeat(np.arange(documents), per_document)],
        "failures": ["transport_error" if lost else None for lost in missing],
        **options,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    for seed, (name, given) in enumerate(DATA.items()):
        found = analyze(**drawn(seed, **given), name="model")
        (folder / f"{name}.txt").write_text(found.report() + "\n", "utf-8")
        page = as_page(report_page([found.cliffs], title="Report").flat())
        (folder / f"{name}.md").write_text(page, "utf-8")
        print(f"{name:20} {found!r}", flush=True)


if __name__ == "__main__":
    main()
