"""KV policies: their costs and savings, and the error rate of the claim of equal score.

    python benchmarks/kv.py statistics [--simulations 2000]
    python benchmarks/kv.py caps [--simulations 500]
    python benchmarks/kv.py policies [--model reference-short] [--policies snapkv random]
        [--documents 40] [--out DIR]
    python benchmarks/kv.py costs [--lengths 1000 4000] [--dtype float32] [--policies snapkv h2o]
        [--budgets 0.5 0.2] [--output-tokens 16]

`statistics`: how often "at equal score up to Y tokens" is wrong, on planted drops, and how often it
is made where nothing changed. `caps`: how often a cap against the whole cache's baseline lies
beyond the length at which the tolerance of it is lost. `policies` needs `make install-kv`: kept
entries against the budget, memory and times over length, and random at 50% against snapkv at 50%.
`costs`, likewise, with torch and transformers: memory and times of a model with random weights in
the shape of Qwen2-0.5B, on a GPU where there is one.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contextcliff_dagster.analysis.contrast import Pairs, Side
from contextcliff_dagster.analysis.kv_costs import equal_score, kv_cap
from contextcliff_dagster.analysis.records import AnalysisSettings

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
"""Planted drops: mean drop by rank of length (0 to 1)."""


def planted_pairs(documents: int) -> Pairs:
    """Return one question per document, with log-uniform lengths; scores are filled in later."""
    lengths = np.geomspace(40, 8_000, documents).astype(np.int64)
    ones, bins = np.ones(documents), np.zeros(documents, np.int64)
    side = Side(lengths, ones, ones, bins, True)
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


SHARES: dict[str, Callable[[Floats], Floats]] = {
    "the same": lambda x: 1.0 + 0.0 * x,
    "0.9 everywhere": lambda x: 0.9 + 0.0 * x,
    "0.8 everywhere": lambda x: 0.8 + 0.0 * x,
    "0.72 everywhere": lambda x: 0.72 + 0.0 * x,
    "0.69 everywhere": lambda x: 0.69 + 0.0 * x,
    "0.9, then half of it": lambda x: np.where(x < 0.5, 0.9, 0.45),
    "0.85, then 0.65": lambda x: np.where(x < 0.5, 0.85, 0.65),
    "from 1 down to 0.2": lambda x: 1.0 - 0.8 * x,
    "from 0.85 down to 0.4": lambda x: 0.85 - 0.45 * x,
}
"""Planted shares of the whole cache's score that a policy keeps, by rank of length (0 to 1)."""


def caps(simulations: int) -> None:
    """Print how often a cap is too long, and how long it is, for each planted share kept.

    Wrong: the policy's mean at the cap is at most 70% of the whole cache's over the shortest 15%.
    The own cap, which limits it in practice, is set aside.
    """
    tolerance = 0.3
    print(
        f"{'kept':<24} {'whole':>6} {'answers':>12} {'n':>4} {'wrong':>7} "
        f"{'capped':>7} {'of safe':>8}"
    )
    rng = np.random.default_rng(2)
    for name, kept in SHARES.items():
        for level in (0.5, 0.9):
            for paired in (True, False):
                for documents in (100, 200):
                    x = (np.arange(documents) + 0.5) / documents
                    whole, pressed = np.full(documents, level), level * kept(x)
                    lost = pressed <= (1.0 - tolerance) * level
                    last = int(np.argmax(lost)) if lost.any() else documents
                    wrong, reached = 0, []
                    for _ in range(simulations):
                        u, v = rng.random((2, documents))
                        pairs = planted_pairs(documents)
                        a = replace(pairs.a, s=(u < whole).astype(np.float64))
                        b = replace(pairs.b, s=((u if paired else v) < pressed).astype(np.float64))
                        lengths = pairs.a.length_tokens
                        cap = kv_cap(replace(pairs, a=a, b=b), int(lengths[-1]), AnalysisSettings())
                        safe = int((lengths <= (cap.tokens or 0)).sum())
                        wrong += safe > last
                        reached.append(safe)
                    share = f"{np.mean(reached) / last:.0%}" if last else "-"
                    print(
                        f"{name:<24} {level:>6} {'the same' if paired else 'independent':>12} "
                        f"{documents:>4} {wrong / simulations:>7.1%} "
                        f"{np.mean(np.array(reached) > 0):>7.0%} {share:>8}",
                        flush=True,
                    )


def policies(model: str, named: Sequence[str], documents: int, out: Path | None) -> None:
    """Measure policies at 50% and print what each keeps, costs and saves."""
    from contextcliff_dagster.analysis.comparison import Measured, compare
    from contextcliff_dagster.analysis.kv_family import kv_family
    from contextcliff_dagster.contracts.results.comparison import KvPolicy
    from contextcliff_dagster.experiments.common.preparation import load_frozen
    from contextcliff_dagster.experiments.common.records import read_records
    from contextcliff_dagster.run.study import profile_study
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


COSTS = {
    "kv_prefill_ms": "read ms",
    "kv_press_ms": "press ms",
    "kv_question_ms": "question ms",
    "kv_decode_ms": "token ms",
    "kv_bytes": "cache MB",
    "kv_peak_bytes": "peak MB",
}


def costs(given: argparse.Namespace) -> None:
    """Print what each policy and budget takes, at each length, of a model with random weights."""
    from attention import SENTENCE, random_weights

    from contextcliff_dagster.inference.engines.base import Decoding, EngineSession
    from contextcliff_dagster.inference.execution.single_request import Answer, ask
    from contextcliff_dagster.inference.models.models_file import ModelEntry
    from contextcliff_dagster.inference.requests.recipe import Prompt, Recipe, SharedText

    def prompt(sentences: int) -> Prompt:
        return Recipe().render(SharedText(SENTENCE * sentences), "Where did item 417 go?")

    async def measured(engine: Any) -> list[list[Answer]]:
        """Return the answers at each length: without a policy, then for each policy and budget."""
        counts = [(await engine.count_prompt_tokens(prompt(n))).tokens for n in (1, 11)]
        a_sentence = (counts[1] - counts[0]) / 10
        prompts = [prompt(round(length / a_sentence)) for length in given.lengths]
        decoding = Decoding(given.output_tokens, prefix_cache=False)
        of = []
        for entry in entries:
            engine.switch_to(entry)
            # One document for nothing first: libraries are loaded then, kernels chosen.
            await ask(engine, prompts[-1], decoding)
            of.append([await ask(engine, one, decoding) for one in prompts])
        return of

    kept = [(policy, budget) for policy in given.policies for budget in given.budgets]
    with random_weights(given.dtype) as folder:
        fields = {"engine": "kvpress", "weights": folder, "dtype": given.dtype}
        entries = [
            ModelEntry.model_validate(
                {"name": "random", "kv": {"policy": policy, "budget": budget}, **fields}
            )
            for policy, budget in [("none", 1.0), *kept]
        ]
        with EngineSession(entries[0]) as session:
            found = session.submit(measured(session.engine)).result()
            device = session.engine.identity().fields["server_device"]
    print(f"{device}, {given.dtype}\n| policy | tokens | {' | '.join(COSTS.values())} |")
    print("|---|--:" + "|--:" * len(COSTS) + "|")
    for entry, answers in zip(entries, found, strict=True):
        assert entry.kv is not None
        label = f"{entry.kv.policy} {entry.kv.budget:.0%}"
        for answer in answers:
            values = {name: float(answer.extra[name] or 0) for name in COSTS}
            cells = [f"{v / 1e6 if 'bytes' in n else v:,.1f}" for n, v in values.items()]
            print(f"| {label} | {answer.extra['kv_tokens']:,} | {' | '.join(cells)} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parts = parser.add_subparsers(dest="part", required=True)
    simulated = parts.add_parser("statistics")
    simulated.add_argument("--simulations", type=int, default=2_000)
    capped = parts.add_parser("caps")
    capped.add_argument("--simulations", type=int, default=500)
    measured = parts.add_parser("policies")
    measured.add_argument("--model", default="reference-short")
    measured.add_argument("--policies", nargs="+", default=POLICIES)
    measured.add_argument("--documents", type=int, default=40)
    measured.add_argument("--out", type=Path, help="store to keep the answers in")
    costly = parts.add_parser("costs")
    costly.add_argument("--lengths", type=int, nargs="+", default=[1_000, 4_000])
    costly.add_argument("--dtype", default="float32")
    costly.add_argument("--policies", nargs="+", default=["snapkv", "h2o"])
    costly.add_argument("--budgets", type=float, nargs="+", default=[0.5, 0.2])
    costly.add_argument("--output-tokens", type=int, default=16)
    given = parser.parse_args()
    if given.part == "costs":
        costs(given)
    elif given.part == "statistics":
        statistics(given.simulations)
    elif given.part == "caps":
        caps(given.simulations)
    else:
        policies(given.model, given.policies, given.documents, given.out)


if __name__ == "__main__":
    main()
