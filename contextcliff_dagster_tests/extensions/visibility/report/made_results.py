"""Results of any size without an analysis: every field set, effects planted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations, product

import numpy as np

from contextcliff_dagster.extensions.visibility.results import (
    OUTCOMES,
    AxisEffect,
    BenchmarkEffect,
    Cell,
    Contrast,
    Curve,
    CurvePoint,
    EffectVerdict,
    Interaction,
    OutcomeName,
    Plan,
    SearchComparison,
    VisibilityResult,
)
from contextcliff_dagster.extensions.visibility.section import AXES

FIXED: Mapping[str, Sequence[str]] = {
    "task": ["hidden", "placebo", "shown"],
    "metric": ["hidden", "shown"],
    "resources": ["hidden"],
    "bounds": ["hidden", "shown"],
    "direction": ["shown"],
    "history": ["0", "5"],
    "base": ["last"],
    "start": ["low"],
}
PLANTED = {"bounds": -0.21, "history": -0.14, "task": 0.02, "metric": 0.0}


def made_result(
    model: str = "tuner",
    *,
    levels: Mapping[str, Sequence[str]] = FIXED,
    benchmarks: Sequence[str] = ("toy", "friedman"),
    steps: int = 10,
    fallback: float = 0.06,
) -> VisibilityResult:
    """A result of three seeds, in which bounds and history help."""
    rng = np.random.default_rng(0)
    compared = list(_compared(levels))
    cells = [
        _cell(dict(zip(AXES, chosen, strict=True)), fallback, rng)
        for chosen in product(*(levels[axis] for axis in AXES))
    ]
    seeds = 3 * len(benchmarks)
    return VisibilityResult(
        schema_version="1.0",
        created_at=None,
        study="shown",
        campaign="2026-11-21",
        model=model,
        benchmarks=list(benchmarks),
        steps=steps,
        seeds=[0, 1, 2],
        levels=levels,
        n_runs=len(cells) * seeds,
        missing=[],
        confidence=0.95,
        margin=0.1,
        seed=0,
        verdict="helps",
        headline=["Showing more helps: bounds lower the regret by 0.21 [0.13, 0.29]."],
        effects=[_effect(*one, name, benchmarks, rng) for name in OUTCOMES for one in compared],
        interactions=[
            _interaction(a, b, seeds) for a, b in combinations(compared, 2) if a[0] != b[0]
        ],
        plan=[_plan(axis, level, reference) for axis, level, reference, _ in compared],
        curves=_curves(levels, steps, len(cells) * seeds, seeds),
        searches=[
            _search(name, steps, seeds, 0.3 + 0.04 * place)
            for place, name in enumerate(("random", "sobol", "tpe", "hill_climb"))
        ],
        cells=cells,
        warnings=["The landscape of toy was tabulated with another version of scikit-learn."],
    )


def _compared(levels: Mapping[str, Sequence[str]]) -> list[tuple[str, str, str, Contrast]]:
    found: list[tuple[str, str, str, Contrast]] = []
    for axis, given in levels.items():
        for level in given[1:]:
            shown: Contrast = "shown" if (given[0], level) == ("hidden", "shown") else "level"
            found.append((axis, level, given[0], "length" if level == "placebo" else shown))
        if {"placebo", "shown"} <= set(given):
            found.append((axis, "shown", "placebo", "content"))
    return found


def _effect(
    axis: str,
    level: str,
    reference: str,
    contrast: Contrast,
    outcome: OutcomeName,
    benchmarks: Sequence[str],
    rng: np.random.Generator,
) -> AxisEffect:
    change = PLANTED.get(axis, 0.0) if contrast != "length" else 0.01
    if outcome not in ("regret", "area"):
        change = float(rng.choice([-0.3, -0.04, 0.0, 0.05, 0.22]))
    sure = abs(change) > 0.1
    verdict: EffectVerdict = "undecided"
    if outcome in ("regret", "area"):
        verdict = ("better" if change < 0 else "worse") if sure else "no_benefit"
    elif sure:
        verdict = "higher" if change > 0 else "lower"
    return AxisEffect(
        axis=axis,
        level=level,
        reference=reference,
        contrast=contrast,
        outcome=outcome,
        n_pairs=24,
        n_clusters=6,
        mean=0.4 + change / 2,
        mean_reference=0.4 - change / 2,
        difference=change,
        ci_low=change - 0.08,
        ci_high=change + 0.08,
        p_value=0.001 if sure else 0.6,
        p_exact=True,
        p_holm=0.004 if sure else 1.0,
        standardised=change / 0.2,
        excluded=None if sure else 0.07,
        verdict=verdict,
        by_benchmark=[
            BenchmarkEffect(
                benchmark=name,
                n_pairs=12,
                n_clusters=3,
                difference=change,
                ci_low=change - 0.1,
                ci_high=change + 0.1,
            )
            for name in benchmarks
        ],
    )


def _interaction(
    a: tuple[str, str, str, Contrast], b: tuple[str, str, str, Contrast], seeds: int
) -> Interaction:
    return Interaction(
        axis=a[0],
        level=a[1],
        reference=a[2],
        other=b[0],
        other_level=b[1],
        other_reference=b[2],
        n_fours=12,
        n_clusters=seeds,
        difference=-0.03,
        ci_low=-0.1,
        ci_high=0.04,
        p_value=0.4,
        p_holm=1.0,
    )


def _plan(axis: str, level: str, reference: str) -> Plan:
    return Plan(
        axis=axis,
        level=level,
        reference=reference,
        effect=0.2,
        power=0.8,
        significance=0.0125,
        run_sd=0.22,
        seed_sd=0.05,
        pair_sd=0.1,
        pairs_per_seed=4.0,
        seeds=3,
        seeds_needed=31,
    )


def _curves(levels: Mapping[str, Sequence[str]], steps: int, runs: int, seeds: int) -> list[Curve]:
    curves = [_curve(None, "all", steps, 0.25, runs, seeds)]
    for axis, given in levels.items():
        if len(given) > 1:
            for place, level in enumerate(given):
                floor = 0.25 + PLANTED.get(axis, 0.0) * (place / (len(given) - 1) - 0.5)
                curves.append(_curve(axis, level, steps, floor, runs // len(given), seeds))
    return curves


def _curve(axis: str | None, level: str, steps: int, floor: float, runs: int, seeds: int) -> Curve:
    means = [floor + (0.9 - floor) * 0.6**step for step in range(steps + 1)]
    points = [
        CurvePoint(step=step, regret=mean, ci_low=max(0.0, mean - 0.06), ci_high=mean + 0.06)
        for step, mean in enumerate(means)
    ]
    return Curve(axis=axis, level=level, n_runs=runs, n_clusters=seeds, points=points)


def _search(name: str, steps: int, seeds: int, regret: float) -> SearchComparison:
    return SearchComparison(
        name=name,
        n_clusters=seeds,
        regret=regret,
        area=regret + 0.1,
        difference=0.25 - regret,
        ci_low=0.15 - regret,
        ci_high=0.35 - regret,
        curve=_curve(None, name, steps, regret, seeds, seeds),
    )


def _cell(levels: Mapping[str, str], fallback: float, rng: np.random.Generator) -> Cell:
    values: dict[str, float | None] = {name: float(rng.uniform(0.1, 0.6)) for name in OUTCOMES}
    own = {"fallback_share": fallback, "unparsable_share": fallback / 2}
    return Cell(
        signature="-".join(levels.values()), levels=levels, n_runs=6, means={**values, **own}
    )
