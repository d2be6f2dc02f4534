"""KV policies in figures: what they cost and save, and how often the claim of equal score errs.

    python benchmarks/kv.py statistics [--simulations 2000]
    python benchmarks/kv.py policies [--model reference-short] [--policies snapkv random]
        [--documents 40] [--out DIR]

`statistics`: how often "at equal score up to Y tokens" is wrong, on planted drops, and how often it
is made where nothing changed. `policies` needs `make install-kv`: kept entries against the budget,
memory and times over length, and random at 50% against snapkv at 50%.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from contextcliff_dagster.analysis.comparison.equal_score import equal_score
from contextcliff_dagster.analysis.comparison.pairing import Pairs, Side

Floats = NDArray[np.float64]
MARGIN, CONFIDENCE = 0.1, 0.95
POLICIES = ("snapkv", "h2o", "streaming_llm", "knorm", "tova", "expected_attention", "random")

DROPS: dict[str, Callable[[Floats], Floats]] = {
    "none": lambda x: 0.0 * x,
    "the margin everywhere": lambda x: MARGIN + 0.0 * x,
    "0.15 everywhere": lambda x: 0.15 + 0.0 * x,
    "0.5 from the middle on": lambda x: 0.5 * (x > 0.5),
    "0.2 over the second quarter": lambda x: 0.2 * ((x > 0.25) & (x <= 0.5)),
    "rising to 0.4": lambda x: 0.4 * x,
}
"""Mean drop by rank of length, 0 to 1."""


def planted_pairs(documents: int) -> Pairs:
    """Single questions on so many documents, log-uniform lengths; the scores are filled in."""
    lengths = np.geomspace(40, 8_000, documents).astype(np.int64)
    ones, bins = np.ones(documents), np.zeros(documents, np.int64)
    side = Side(lengths, ones, ones, bins)
    return Pairs(True, side, side, [], ones, ones, np.arange(documents), 0, 0)


def statistics(simulations: int) -> None:
    """Print the error rate and the power of the claim for each planted drop and churn."""
    print(f"{'drop':<30} {'gains':>5} {'n':>4} {'claimed':>8} {'wrong':>7} {'median share':>13}")
    rng = np.random.default_rng(1)
    for name, drop in DROPS.items():
        for gains in (0.0, 0.1):
            for documents in (100, 200, 400):
                mean = drop((np.arange(documents) + 0.5) / documents)
                claimed, wrong, reached = 0, 0, []
                for _ in range(simulations):
                    u = rng.random(documents)
                    change = np.where(u < mean + gains, 1.0, 0.0) - np.where(
                        u > 1 - gains, 1.0, 0.0
                    )
                    pairs = planted_pairs(documents)
                    filled = replace(pairs, b=replace(pairs.b, s=pairs.b.s - change))
                    equal = equal_score(filled, MARGIN, CONFIDENCE)
                    inside = pairs.a.length_tokens
                    claimed += equal.tokens is not None
                    # Wrong: the true mean drop of a window that is called equal is the margin.
                    wrong += any(
                        window.equal
                        and mean[
                            (inside >= window.from_tokens) & (inside <= window.to_tokens)
                        ].mean()
                        >= MARGIN - 1e-12
                        for window in equal.windows
                    )
                    reached.append((inside <= (equal.tokens or 0)).mean())
                row = (claimed / simulations, wrong / simulations, float(np.median(reached)))
                print(
                    f"{name:<30} {gains:>5.2f} {documents:>4} {row[0]:>8.1%} {row[1]:>7.1%} "
                    f"{row[2]:>13.0%}"
                )


def policies(model: str, named: Sequence[str], documents: int, out: Path | None) -> None:
    """Measure policies at 50% and print what each keeps, costs and saves."""
    from contextcliff_dagster.analysis.comparison.comparison import Measured, compare
    from contextcliff_dagster.analysis.comparison.kv_family import kv_family
    from contextcliff_dagster.contracts.results.kv import KvPolicy
    from contextcliff_dagster.defs.run import profile_study
    from contextcliff_dagster.experiments.common.preparation import load_frozen
    from contextcliff_dagster.experiments.common.record_tables import read_records
    from contextcliff_dagster.store import Store
    from contextcliff_dagster.studies import load_studies

    names = [f"{model}+none", *(f"{model}+{policy}@0.5" for policy in named)]
    study = load_studies()["quick"].with_models(names).with_samples(-(-documents // 5))
    with tempfile.TemporaryDirectory() as folder:
        store = Store(out or Path(folder))
        done = profile_study(study, store=store)
        records = read_records(study, store, done.campaign)
        bins = load_frozen(study, store).bins
    kept = records["extra"].map(json.loads)
    errors = [
        abs(one["kv_kept"] - (0.5 if "@" in name else 1.0) * one["kv_tokens"])
        for one, name in zip(kept, records["model"], strict=True)
    ]
    print(f"{len(records)} answers; kept entries differ from the budget by at most {max(errors):g}")
    cliffs = {c.model: c for c in done.cliffs}
    sides = [
        Measured(
            name,
            records[records["model"] == name],
            cliffs[name],
            KvPolicy(model, name.split("+")[1].split("@")[0], 0.5 if "@" in name else 1.0),
        )
        for name in names
    ]
    family = kv_family(sides, dict.fromkeys(names[1:], names[0]), bins, study.analysis_settings())
    print(f"{'policy':<24} {'mean':>5} {'drop':>22} {'saved':>6} {'press ms':>9} {'token ms':>9}")
    for member in family.members:
        if member.comparison is None or member.comparison.kv is None:
            continue
        overall, kv = member.comparison.overall, member.comparison.kv
        last = {cost.quantity: cost.b for cost in kv.costs if cost.bin == bins[-1].bin}
        drop = f"{-overall.difference:+.2f} [{-overall.ci_high:+.2f}, {-overall.ci_low:+.2f}]"
        times = (last[name].median for name in ("kv_press_ms", "kv_decode_ms"))
        press, decode = times
        print(
            f"{member.kv.label:<24} {overall.mean_b:>5.2f} {drop:>22} {kv.saved_share:>6.0%} "
            f"{press:>9.1f} {decode:>9.1f}"
        )
    chosen = {one.kv.policy: one for one in sides if one.kv}
    if {"random", "snapkv"} <= set(chosen):
        pair = chosen["random"], chosen["snapkv"]
        print(compare(*pair, bins, study.analysis_settings()).sentence)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parts = parser.add_subparsers(dest="part", required=True)
    simulated = parts.add_parser("statistics")
    simulated.add_argument("--simulations", type=int, default=2_000)
    measured = parts.add_parser("policies")
    measured.add_argument("--model", default="reference-short")
    measured.add_argument("--policies", nargs="+", default=POLICIES)
    measured.add_argument("--documents", type=int, default=40)
    measured.add_argument("--out", type=Path, help="store to keep the answers in")
    given = parser.parse_args()
    if given.part == "statistics":
        statistics(given.simulations)
    else:
        policies(given.model, given.policies, given.documents, given.out)


if __name__ == "__main__":
    main()
