"""The caps of fresh samples against the models' known truth.

    python benchmarks/fresh_caps.py [--seeds 20] [--first N] [--store DIR] [--json FILE]

Profiles both reference models over fresh samples, one `contextcliff profile --seed S` each, and
compares every cap with L70 of the model cards: the document length at which the model has really
lost 30% of its plateau. The seeds follow from the commit, so nobody has looked at them while the
code was written. With --store, an interrupted benchmark goes on where it stopped.

Goals: at most one of 40 caps beyond L70, at most four below half of it (no cap at all counts as
such), the longer model's cap the longer one at every seed. Exit code 1 where one is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SHORT, LONG = "reference-short", "reference-long"
LEVEL = 1
MOST_BEYOND, MOST_BELOW_HALF = 1, 4  # of 40


def first_seed() -> int:
    """A number that nobody chose: the commit's hash."""
    done = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return int(done.stdout[:6], 16) + 1


def profile(seed: int, store: Path) -> dict[str, Any]:
    """Caps and verdicts of both models over the sample of ``seed``."""
    keep = {k: v for k, v in os.environ.items() if not k.startswith(("CONTEXTCLIFF_", "DAGSTER_"))}
    command = (sys.executable, "-m", "contextcliff_dagster.cli", "profile")
    options = ("--seed", str(seed), "--store", str(store), "--yes", "--json")
    done = subprocess.run(
        [*command, *options], cwd=ROOT, env=keep, stdout=subprocess.PIPE, text=True, check=True
    )
    cliffs = json.loads(done.stdout)["cliffs"]
    return {c["model"]: {"cap": c["safe_cap_tokens"], "verdict": c["verdict"]} for c in cliffs}


def truth() -> dict[str, float]:
    """L70 of both models' cards."""
    from contextcliff_dagster.reference.card import load_card

    return {name: load_card(name).level(LEVEL).l70_tokens for name in (SHORT, LONG)}


def judge(runs: Sequence[dict[str, Any]], l70: dict[str, float]) -> dict[str, int]:
    """How many caps miss which goal."""
    ratios = [(run[m]["cap"] or 0) / l70[m] for run in runs for m in (SHORT, LONG)]
    ordered = [(run[SHORT]["cap"] or 0) < (run[LONG]["cap"] or 0) for run in runs]
    return {
        "caps": len(ratios),
        "beyond_l70": sum(ratio > 1 for ratio in ratios),
        "below_half": sum(ratio < 0.5 for ratio in ratios),
        "none": sum(run[m]["cap"] is None for run in runs for m in (SHORT, LONG)),
        "wrong_order": ordered.count(False),
    }


def measure(seeds: Sequence[int], store: Path, l70: dict[str, float]) -> list[dict[str, Any]]:
    runs = []
    print(f"{'SEED':>9}  {'SHORT':>6} {'/ L70':>6}  {'LONG':>6} {'/ L70':>6}  VERDICTS")
    for seed in seeds:
        started = time.monotonic()
        run = profile(seed, store)
        caps = [(run[m]["cap"] or 0, (run[m]["cap"] or 0) / l70[m]) for m in (SHORT, LONG)]
        print(
            f"{seed:>9}  "
            + "  ".join(f"{cap:>6,} {ratio:>6.2f}" for cap, ratio in caps)
            + f"  {run[SHORT]['verdict']}, {run[LONG]['verdict']}"
            + f"  ({time.monotonic() - started:.0f} s)",
            flush=True,
        )
        runs.append({"seed": seed, **run})
    return runs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20, help="how many")
    parser.add_argument("--first", type=int, help="the first of them (default: by the commit)")
    parser.add_argument("--store", type=Path, help="keep the measurements here")
    parser.add_argument("--json", type=Path, help="write the caps to this file")
    given = parser.parse_args()
    first = first_seed() if given.first is None else given.first
    l70 = truth()
    print(f"L70: {SHORT} {l70[SHORT]:,.0f}, {LONG} {l70[LONG]:,.0f} tokens")
    with tempfile.TemporaryDirectory(prefix="contextcliff-caps-") as folder:
        runs = measure(range(first, first + given.seeds), given.store or Path(folder), l70)
    said = judge(runs, l70)
    print(
        f"{said['caps']} caps: {said['beyond_l70']} beyond L70, {said['below_half']} below half of "
        f"it ({said['none']} of them none at all); wrong order at {said['wrong_order']} of "
        f"{len(runs)} seeds"
    )
    if given.json:
        given.json.write_text(json.dumps({"l70": l70, "runs": runs, **said}, indent=1))
    share = said["caps"] / 40
    if (
        said["beyond_l70"] > max(MOST_BEYOND * share, 1)
        or said["below_half"] > max(MOST_BELOW_HALF * share, 1)
        or said["wrong_order"]
    ):
        sys.exit(1)


if __name__ == "__main__":
    main()
