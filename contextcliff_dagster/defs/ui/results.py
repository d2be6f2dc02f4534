"""Metadata of what was measured and judged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import dagster as dg

from contextcliff_dagster.defs.ui.rendering import curve_line, inline, picture, table
from contextcliff_dagster.store import Store, slug
from contextcliff_dagster.studies import Study

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

    from contextcliff_dagster.contracts.results import Cliffs

Metadata = dict[str, Any]


def records_metadata(folder: Path, campaign: str, records: pa.Table) -> Metadata:
    """Counts, failures by tag, and which bins of which model are missing."""
    cells: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    columns = ["model", "bin", "score", "failed", "failure"]
    for row in records.select(columns).to_pylist():
        cells.setdefault((row["model"], row["bin"]), []).append(row)
    summary = [
        {
            "model": model,
            "bin": bin,
            "n": len(rows),
            "mean score": _mean([row["score"] for row in rows if row["score"] is not None]),
            "failed": sum(bool(row["failed"]) for row in rows),
            "not scored": sum(row["score"] is None for row in rows),
        }
        for (model, bin), rows in sorted(cells.items())
    ]
    tags = Counter(row["failure"] for rows in cells.values() for row in rows if row["failure"])
    return {
        "dagster/row_count": records.num_rows,
        "campaign": campaign,
        "path": dg.MetadataValue.path(str(folder)),
        "by_model_and_bin": table(summary),
        "failures": table([{"failure": tag, "n": n} for tag, n in tags.most_common()]),
        **{f"failure/{tag}": n for tag, n in sorted(tags.items())},
    }


def metrics_metadata(
    study: Study, store: Store, campaign: str, cliffs: Sequence[Cliffs]
) -> Metadata:
    """The per-bin table of all models."""
    rows = [
        {
            "model": result.model,
            "bin": bin.bin,
            "tokens (median)": bin.median_tokens,
            "n": bin.n,
            "mean": bin.mean,
            "ci low": bin.ci_low,
            "ci high": bin.ci_high,
            "sd": bin.sd,
            "failure rate": bin.failure_rate,
            "ttft p50 ms": bin.ttft_ms and bin.ttft_ms.p50,
            "missing": bin.missing,
        }
        for result in cliffs
        for bin in result.bins
    ]
    return {
        "dagster/row_count": len(rows),
        "campaign": campaign,
        "path": dg.MetadataValue.path(str(store.profiles_dir(study.name, campaign))),
        "bins": table(rows),
    }


def cliffs_metadata(
    study: Study, store: Store, campaign: str, cliffs: Sequence[Cliffs]
) -> Metadata:
    """Verdict and cap per model; numbers under keys of their own, so that the UI plots them."""
    numbers: Metadata = {}
    for result in cliffs:
        model = slug(result.model)
        if (cap := result.safe_cap_tokens) is not None:
            numbers[f"safe_cap_tokens/{model}"] = cap
        if (baseline := result.baseline.mean) is not None:
            numbers[f"baseline_mean/{model}"] = baseline
        numbers[f"verdict/{model}"] = result.verdict.value
    return {
        "summary": inline(curve_line(result) for result in cliffs),
        "campaign": campaign,
        "verdicts": table([_verdict_row(result) for result in cliffs]),
        "path": dg.MetadataValue.path(str(store.profiles_dir(study.name, campaign))),
        "dagster/row_count": len(cliffs),
        **numbers,
    }


def rounds_metadata(rounds: Mapping[str, Mapping[str, Any]]) -> Metadata:
    """What is asked next of each model and why; nothing for a study that is not measured so."""
    if not rounds:
        return {}
    return {
        "next_round": dg.MetadataValue.json({m: dict(of) for m, of in rounds.items()}),
        **{f"round/{slug(model)}": str(of["why"]) for model, of in rounds.items()},
        **{f"examples_asked/{slug(model)}": int(of["asked"]) for model, of in rounds.items()},
    }


def report_metadata(campaign: str, page: Path, png: Path, cliffs: Sequence[Cliffs]) -> Metadata:
    """The verdicts in place; the picture and the whole text behind a click."""
    return {
        "summary": inline(curve_line(result) for result in cliffs),
        "picture": picture(png.read_bytes(), "report"),
        "report": dg.MetadataValue.md(page.read_text(encoding="utf-8")),
        "campaign": campaign,
        "path": dg.MetadataValue.path(str(page.parent)),
    }


def _verdict_row(result: Cliffs) -> dict[str, Any]:
    cliff = result.cliff
    return {
        "model": result.model,
        "verdict": result.verdict.value,
        "safe cap (tokens)": result.safe_cap_tokens,
        "confidence": result.confidence,
        "n": result.n,
        "cliff at (tokens)": cliff and cliff.location_tokens,
        "between": cliff and cliff.ci_low,
        "and": cliff and cliff.ci_high,
        "missing share": result.missing_share,
        "why": result.safe_cap_reason,
    }


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
