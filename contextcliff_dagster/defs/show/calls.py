"""Metadata of calls to be made, being made, and made."""

from __future__ import annotations

import hashlib
import json
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import dagster as dg
from dagster._core.definitions.data_version import NULL_EVENT_POINTER

from contextcliff_dagster.defs.show.ui import table
from contextcliff_dagster.inference.cost import CostEstimate
from contextcliff_dagster.inference.progress import Progress

Rows = Sequence[Mapping[str, Any]]

LOG_EVERY_S = 10.0


def estimate_metadata(campaign: str, estimate: CostEstimate) -> dict[str, Any]:
    """Sums, and one row per model and bin with calls to make."""
    lines = [
        {
            "model": line.model,
            "bin": line.bin,
            "to send": line.calls - line.cached - line.overflow,
            "paid before": line.cached,
            "too long": line.overflow,
            "prompt tokens": line.prompt_tokens,
            "output tokens": line.output_tokens,
            "usd": line.usd,
            "seconds": line.seconds,
        }
        for line in estimate.lines
        if line.calls
    ]
    return {
        "campaign": campaign,
        "calls": estimate.calls,
        "calls_paid_before": estimate.cached,
        "tokens": estimate.tokens,
        "usd": float(estimate.usd),
        "usd_at_most": float(estimate.usd_at_most),
        "seconds": float(estimate.seconds),
        "models_without_price": ", ".join(estimate.unpriced) or "none",
        "lines": table(lines),
    }


def bin_metadata(campaign: str, rows: Rows, path: Path, merged_into: str | None) -> dict[str, Any]:
    """One finished bin of predictions."""
    no_answer = Counter(row["no_answer"] for row in rows if row["no_answer"])
    lengths = [row["length_tokens"] for row in rows]
    shown: dict[str, Any] = {
        "dagster/row_count": len(rows),
        "campaign": campaign,
        "prompt_tokens": sum(row.get("prompt_tokens") or 0 for row in rows),
        "completion_tokens": sum(row.get("completion_tokens") or 0 for row in rows),
        **_reasoning(rows),
        "cost_usd": float(sum(row.get("cost_usd") or 0.0 for row in rows)),
        **{f"no_answer/{kind}": count for kind, count in sorted(no_answer.items())},
    }
    if lengths:
        shown |= {"shortest_tokens": min(lengths), "longest_tokens": max(lengths)}
        shown["path"] = dg.MetadataValue.path(str(path))
    if merged_into:
        shown["merged_into"] = merged_into
    return shown


def _reasoning(rows: Rows) -> dict[str, int]:
    """Shown only where a model reasons."""
    tokens = sum(row.get("reasoning_tokens") or 0 for row in rows)
    return {"reasoning_tokens": tokens} if tokens else {}


def version_tags(rows: Rows, source: dg.AssetKey, source_version: str) -> dict[str, str]:
    """Tags of a materialization that is logged by hand: its data version, and its source's.

    Without the source's, a manifest materialized again without any change would turn every bin
    stale.
    """
    return {
        "dagster/data_version": rows_version(rows),
        "dagster/code_version": "1",
        f"dagster/input_data_version/{source.to_user_string()}": source_version,
        # Versions decide; which event brought them is not known here.
        f"dagster/input_event_pointer/{source.to_user_string()}": NULL_EVENT_POINTER,
    }


def rows_version(rows: Rows) -> str:
    """Data version of a bin: its calls and what came of them, times aside."""
    kept = [[row["call_key"], row["no_answer"], row.get("raw_output")] for row in rows]
    return hashlib.sha256(json.dumps(sorted(kept, key=str)).encode()).hexdigest()


def narrator(
    log: Callable[[str], None],
    model: str,
    on_progress: Callable[[str, Progress], None] | None,
) -> Callable[[Progress], None]:
    """Passes progress on, and every ten seconds writes a line of it into the run's log."""
    last = time.monotonic()

    def tell(progress: Progress) -> None:
        nonlocal last
        if on_progress is not None:
            on_progress(model, progress)
        if time.monotonic() - last >= LOG_EVERY_S:
            last = time.monotonic()
            left = progress.seconds_left
            log(
                f"{model}: {progress.done} of {progress.planned} calls, "
                f"{progress.prompt_tokens + progress.completion_tokens:,} tokens, "
                f"${progress.cost_usd:.4f}"
                + (f", about {left:.0f} s left" if left is not None else "")
            )

    return tell
