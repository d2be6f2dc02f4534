"""Results of the contract's shape with made-up but plausible numbers, to test rendering alone."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from contextcliff_dagster.contracts.results import Cliffs, from_json
from contextcliff_dagster.reporting.length_profile.page import report_page
from contextcliff_dagster.reporting.markdown import as_page

BINS, PER_BIN = 10, 20
PLATEAU, SLOPE = 0.98, 3.16
NAMES = ("stable", "transition", "degraded")


def result_of(cliffs: Mapping[str, Any]) -> Cliffs:
    """The result that ``cliffs.json`` with this content holds."""
    return from_json(Cliffs, cliffs)


def results_of(cliffs: Iterable[Mapping[str, Any]]) -> list[Cliffs]:
    return [result_of(one) for one in cliffs]


def page_of(cliffs: Sequence[Cliffs], title: str = "t", **options: Any) -> str:
    """The whole page of the results as Markdown."""
    return as_page(report_page(cliffs, title=title, **options).flat())


def control_of(name: str) -> dict[str, Any]:
    """A control that was asked and had no answer."""
    unknown = ("mean", "ci_low", "ci_high", "before", "beyond")
    drop = ("drop", "drop_ci_low", "drop_ci_high")
    return {
        "name": name,
        "n": 0,
        "n_askable": 0,
        "n_all": 0,
        "missing": 0,
        **dict.fromkeys((*unknown, *drop)),
        "bins": [],
        "identified": "not_assessed",
        "says": [],
    }


def true_score(tokens: np.ndarray | float, l70: float, plateau: float = PLATEAU) -> Any:
    """A logistic curve in log length that has lost 30% of its plateau at ``l70``."""
    half = l70 * math.exp(math.log(0.7 / 0.3) / SLOPE)
    return plateau / (1 + (np.asarray(tokens, dtype=float) / half) ** SLOPE)


def wilson(mean: float, n: int) -> tuple[float, float]:
    z = 1.96
    centre = (mean + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(mean * (1 - mean) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    return max(0.0, centre - half), min(1.0, centre + half)


def sample_lengths(
    seed: int = 0, bins: int = BINS, per_bin: int = PER_BIN, low: int = 60, high: int = 6500
) -> np.ndarray:
    draw = np.random.default_rng(seed)
    edges = np.geomspace(low, high, bins + 1)
    parts = [
        np.sort(np.exp(draw.uniform(math.log(a), math.log(b), per_bin))) for a, b in pairwise(edges)
    ]
    return np.concatenate(parts).astype(int)


def sample(
    model: str = "reference-short",
    *,
    l70: float = 440,
    seed: int = 1,
    bins: int = BINS,
    per_bin: int = PER_BIN,
    low: int = 60,
    high: int = 6500,
    window: int | None = 8192,
    graded: bool = False,
    plateau: float = PLATEAU,
) -> tuple[dict[str, Any], pd.DataFrame]:
    """One model's result and its records: a ramp with 30% lost at ``l70``."""
    draw = np.random.default_rng(seed)
    lengths = sample_lengths(7, bins, per_bin, low, high)
    p = true_score(lengths, l70, plateau)
    if graded:
        score = np.where(
            draw.random(len(p)) < 0.35,
            draw.random(len(p)) < p,
            draw.beta(6 * p + 0.05, 6 * (1 - p) + 0.05),
        )
        score = np.round(score.astype(float), 3)
    else:
        score = (draw.random(len(p)) < p).astype(float)
    edges = np.geomspace(low, high, bins + 1).astype(int)
    keys = [f"b{i:02d}" for i in range(bins)]
    bin_of = np.repeat(keys, per_bin)
    tags = np.where(
        score > 0,
        None,
        draw.choice(
            ["hallucination", "wrong_evidence", "incompleteness"], len(p), p=[0.2, 0.7, 0.1]
        ),
    )
    records = pd.DataFrame(
        {
            "model": model,
            "bin": bin_of,
            "length_tokens": lengths,
            "score": score,
            "failure": tags,
            "document_id": [f"d{i:04d}" for i in range(len(p))],
        }
    )

    half = l70 * math.exp(math.log(0.7 / 0.3) / SLOPE)
    longest = int(lengths.max())
    has_cliff = longest > half
    cap = min(int(l70 * 0.87), longest)
    before = records[records.length_tokens <= l70 * 0.6]
    base_mean = float(before.score.mean()) if len(before) else None
    base_ci = wilson(base_mean, len(before)) if base_mean is not None else (None, None)
    first_failing = next(
        (k for k in keys if records[records.bin == k].score.mean() < 0.7 * (base_mean or 1)), None
    )
    grid = np.geomspace(lengths.min(), lengths.max(), 60)
    fit = true_score(grid, l70 * 1.03, plateau)
    spread = 0.02 + 0.35 * fit * (1 - fit)
    drop = (
        1 - float(records.score[records.length_tokens > half].mean()) / base_mean
        if has_cliff and base_mean
        else None
    )
    stop = longest + 1
    zone_edges = [0, cap + 1, min(int(half * 1.7), stop), stop] if has_cliff else [0, stop]
    zones = [
        {"name": name, "from_tokens": a, "to_tokens": b, "mean": _mean(records, a, b)}
        for name, a, b in zip(NAMES, zone_edges, zone_edges[1:], strict=False)
        if b > a
    ]
    cliffs: dict[str, Any] = {
        "schema_version": "1.1",
        "created_at": "2026-11-21T10:00:00+00:00",
        "study": "reference",
        "model": model,
        "campaign": "2026-11-21",
        "task": "lookup",
        "tokenizer": "reference",
        "identity": "3f9c2ab1d0e4",
        "window_tokens": window,
        "length_unit": "document",
        "score": {"name": "f1" if graded else "em", "scale": 1},
        "n": len(records),
        "n_documents": len(records),
        "missing": {"transport_error": 0, "invalid_truncated": 0, "context_overflow": 0},
        "missing_share": 0.0,
        "verdict": "cliff" if has_cliff else "stable",
        "safe_cap_tokens": cap,
        "safe_cap_reason": "Up to here, a drop of 30% is excluded; beyond that, it is not.",
        "cap_prompt_tokens": cap + 14,
        "critical_threshold": {"tokens": int(half), "share": half / window}
        if has_cliff and window
        else None,
        "confidence": 0.95,
        "tolerance": 0.3,
        "caps_by_tolerance": [
            {"tolerance": t, "safe_cap_tokens": int(cap * f)}
            for t, f in ((0.1, 0.6), (0.2, 0.8), (0.3, 1))
        ],
        "certify": {"n_needed": None},
        "baseline": {
            "mean": base_mean,
            "ci_low": base_ci[0],
            "ci_high": base_ci[1],
            "n": len(before),
            "to_tokens": int(l70 * 0.6),
        },
        "cliff": {
            "location_tokens": int(half),
            "ci_low": int(half * 0.83),
            "ci_high": int(half * 1.22),
            "drop": drop,
            "drop_ci_low": max(0.0, drop - 0.07),
            "drop_ci_high": min(1.0, drop + 0.05),
            "p_value": 0.001,
        }
        if drop is not None
        else None,
        "zones": zones,
        "curve": [
            {
                "tokens": int(x),
                "mean": float(m),
                "ci_low": max(0.0, float(m - s)),
                "ci_high": min(1.0, float(m + s)),
            }
            for x, m, s in zip(grid, fit, spread, strict=True)
        ],
        "bins": [
            _bin(records[records.bin == k], k, int(a), int(b))
            for k, a, b in zip(keys, edges, edges[1:], strict=False)
        ],
        "rules": _rules(first_failing),
        "definitions": {
            "ruler_85_6": {"tokens": int(l70 * 0.8), "censored": None, "threshold": 0.856},
            "nolima_0_85": {"tokens": int(l70 * 0.9), "censored": None, "threshold": 0.83},
            "mecw_5pct": {"tokens": None, "censored": "<", "threshold": 0.93},
            "drop_30pct": {
                "tokens": longest if not has_cliff else int(l70),
                "censored": None if has_cliff else ">",
                "threshold": 0.69,
            },
            "longscore": {
                "base": base_mean,
                "base_tokens": [120],
                "by_length": [{"tokens": 480, "value": -0.21}, {"tokens": 960, "value": -0.8}],
                "mean": -0.51,
            },
        },
        "detectors": [
            {"name": "logistic", "location_tokens": int(half), "agrees": True},
            {"name": "rules", "location_tokens": int(l70), "agrees": True},
        ],
        "sensitivity": [
            {
                "factor": factor,
                "value": value,
                "reported": factor != "tolerance",
                "n": len(records),
                "verdict": "cliff" if has_cliff else "stable",
                "safe_cap_tokens": int(cap * share),
                "location_tokens": int(half) if has_cliff else None,
            }
            for factor, value, share in (("as reported", "", 1.0), ("tolerance", "10%", 0.6))
        ],
        "joint_cap": None,
        "confounds": {"identified": "not_assessed", "reasons": []},
        "warnings": [],
        "provenance": {
            "hashes": {"manifest": "ab12" * 16, "recipe": "cd34" * 16},
            "versions": {"contextcliff": "0.1.0", "dagster": "1.13.0"},
            "seeds": {"sampling": 0, "bootstrap": 0},
            "times": {
                "measured_from": "2026-11-21T09:58:00+00:00",
                "measured_to": "2026-11-21T09:59:10+00:00",
            },
        },
    }
    return cliffs, records


def sample_pair() -> tuple[list[dict[str, Any]], pd.DataFrame]:
    short, short_records = sample("reference-short", l70=440, seed=1)
    long, long_records = sample("reference-long", l70=1700, seed=2)
    return [short, long], pd.concat([short_records, long_records], ignore_index=True)


def _mean(records: pd.DataFrame, low: int, high: int) -> float | None:
    inside = records[(records.length_tokens >= low) & (records.length_tokens < high)]
    return float(inside.score.mean()) if len(inside) else None


def _bin(rows: pd.DataFrame, key: str, low: int, high: int) -> dict[str, Any]:
    mean, n = float(rows.score.mean()), len(rows)
    ci = wilson(mean, n)
    sd = float(rows.score.std(ddof=1)) if n > 1 else 0.0
    return {
        "bin": key,
        "n": n,
        "n_documents": n,
        "edge_low": low,
        "edge_high": high,
        "min_tokens": int(rows.length_tokens.min()),
        "median_tokens": int(rows.length_tokens.median()),
        "max_tokens": int(rows.length_tokens.max()),
        "mean": mean,
        "ci_low": ci[0],
        "ci_high": ci[1],
        "sd": sd,
        "variance": sd * sd,
        "failure_rate": float((rows.score == 0).mean()),
        "failures": {str(k): int(v) for k, v in rows.failure.value_counts().items()},
        "missing": 0,
        "ci_width": ci[1] - ci[0],
        "rolling_variance": sd * sd,
        "bimodality": None,
        "instability": None,
        "ttft_excess": 1.0,
        "ttft_ms": {"p50": 12.0 + high / 20, "p95": 20.0 + high / 18, "sd": 3.0},
        "duration_ms": {"p50": 30.0 + high / 20, "p95": 50.0 + high / 18, "sd": 6.0},
    }


def _rules(first: str | None) -> list[dict[str, Any]]:
    fired = first is not None

    def rule(
        name: str,
        value: float | None,
        threshold: float | None,
        hit: bool = True,
        reachable: bool = True,
    ) -> dict[str, Any]:
        at = first if fired and hit else None
        return {
            "name": name,
            "fired": at is not None,
            "at_bin": at,
            "reachable": reachable,
            "value": value,
            "threshold": threshold,
        }

    return [
        rule("transition_sd", 0.47, 0.9, hit=False, reachable=False),
        rule("variance", 0.22, 0.1),
        rule("mean_drop", 0.41 if fired else 0.05, 0.3),
        rule("failure_rate_spike", 0.45 if fired else 0.05, 0.1),
        rule("first_failing_edge", 624 if fired else None, None),
        rule("critical_threshold", 0.076 if fired else None, None),
    ]
