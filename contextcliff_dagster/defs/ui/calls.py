"""Metadata of calls in the UI: estimates beforehand, progress, and summaries."""

from __future__ import annotations

import hashlib
import json
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import dagster as dg

from contextcliff_dagster.defs.dagster_internals import NULL_EVENT_POINTER
from contextcliff_dagster.defs.ui import rendering
from contextcliff_dagster.defs.ui.rendering import MOST_CELLS, table
from contextcliff_dagster.inference.execution.cost_estimate import CostEstimate
from contextcliff_dagster.inference.requests.call_plan import MaybePaid
from contextcliff_dagster.inference.telemetry import Progress, RunSummary

Observe = Callable[[str, dict[str, Any]], None]
"""Callback that takes a line of text and the same information as numbers."""
_LEAST_S, _PARTS = 1.0, 6
"""Interval between two observations: at least 1 s and a sixth of the step's time so far. This puts
about 40 observations in the event log in the first hour, and 60 in the first day."""


class StepProgress:
    """A step's progress reports on the calls to its models, one model after another.

    ``on_progress`` gets every report, ``observe`` only some, at growing intervals. ``last`` is the
    latest progress of the current model.
    """

    def __init__(
        self,
        observe: Observe,
        on_progress: Callable[[str, Progress], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._observe, self._on_progress, self._clock = observe, on_progress, clock
        self._began = self._observed = clock()
        self._summaries: dict[str, RunSummary] = {}
        self.last: Progress | None = None

    def of(self, model: str) -> Callable[[Progress], None]:
        """Return a callback that takes every `Progress` of the calls to ``model``."""
        self.last = None

        def take(progress: Progress) -> None:
            self.last = progress
            if self._on_progress is not None:
                self._on_progress(model, progress)
            now = self._clock()
            if now - self._observed < max((now - self._began) / _PARTS, _LEAST_S):
                return
            self._observed = now
            shown = {"model": model, **progress_metadata(progress)}
            self._observe(f"{model}: {line(progress)}", shown)

        return take

    def ended(self, model: str, summary: RunSummary) -> None:
        """Record the summary of the calls to ``model``."""
        self._summaries[model] = summary

    def conclude(self) -> None:
        """Report one summary of all models' calls; report nothing if no call was sent."""
        sent = {model: totals for model, totals in self._summaries.items() if totals.sent}
        if not sent:
            return
        if len(sent) == 1:
            ((model, summary),) = sent.items()
            text = f"{model}: {json.dumps(summary.to_dict())}"
            self._observe(text, {"model": model, **summary_metadata(summary)})
            return
        rows = [{"model": model, **summary_metadata(totals)} for model, totals in sent.items()]
        common = [name for name in rows[0] if all(name in row for row in rows)]
        names = ("calls", "calls_sent", "retries", "calls_without_answer", "tokens", "cost_usd")
        sums = {name: sum(row[name] for row in rows) for name in names}
        text = f"{len(sent)} models: {sums['calls_sent']:,} calls sent, {sums['tokens']:,} tokens"
        table = rendering.table([{name: row[name] for name in common} for row in rows])
        self._observe(text, {"models": len(sent), **sums, "by_model": table})


def line(progress: Progress) -> str:
    """Return a line such as ``40 of 200 calls, 4 in flight, 48,100 tokens (1,230/s), $0.1200``."""
    tokens = progress.prompt_tokens + progress.completion_tokens
    pace = progress.tokens_per_s
    parts = [
        f"{progress.done:,} of {progress.planned:,} calls",
        f"{progress.in_flight} in flight",
        f"{tokens:,} tokens" + (f" ({pace:,.0f}/s)" if pace else ""),
        f"${progress.cost_usd:.4f}",
    ]
    if progress.retries:
        parts.append(f"{progress.retries:,} retries")
    if progress.cached_tokens:
        parts.append(f"{progress.cached_tokens / max(progress.prompt_tokens, 1):.0%} from cache")
    if progress.seconds_left is not None and progress.done < progress.planned:
        parts.append(f"about {progress.seconds_left:.0f} s left")
    return ", ".join(parts)


Rows = Sequence[Mapping[str, Any]]


def estimate_metadata(campaign: str, estimate: CostEstimate) -> dict[str, Any]:
    """Return totals, and one row for each model and bin that has calls to make."""
    lines = [
        {
            "model": line.model,
            "bin": line.bin,
            "control": line.control or "",
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
    batched = estimate.usd_in_batches
    both = {"usd_streamed": estimate.usd_streamed, "usd_in_batches": batched}
    return {
        "campaign": campaign,
        "calls": estimate.calls,
        "calls_paid_before": estimate.cached,
        "tokens": estimate.tokens,
        "usd": float(estimate.usd),
        "usd_at_most": float(estimate.usd_at_most),
        **(both if batched is not None else {}),
        "seconds": float(estimate.seconds),
        "models_without_price": ", ".join(estimate.unpriced) or "none",
        "lines": table(lines if len(lines) <= MOST_CELLS else _by_model(lines)),
    }


def _by_model(lines: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Sum each model's rows over bins and controls; a sum is None if any part is unknown."""
    import pandas as pd

    rows = pd.DataFrame(lines).drop(columns=["bin", "control"])
    of_models: Any = rows.groupby("model", sort=False)
    summed = of_models.agg(lambda of: of.sum(skipna=False)).reset_index()
    return list(summed.to_dict("records"))


def bin_metadata(
    campaign: str,
    rows: Rows,
    path: Path,
    merged_into: str | None,
    *,
    maybe_paid: MaybePaid | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Return metadata of a finished bin of predictions; ``progress`` is None if no calls ran."""
    no_answer = Counter(row["no_answer"] for row in rows if row["no_answer"])
    lengths = [row["length_tokens"] for row in rows]

    def total(name: str) -> Any:
        return sum(row.get(name) or 0 for row in rows)

    shown: dict[str, Any] = {
        "dagster/row_count": len(rows),
        "campaign": campaign,
        "prompt_tokens": total("prompt_tokens"),
        "completion_tokens": total("completion_tokens"),
        "cost_usd": float(total("cost_usd")),
        "retries": sum(max(row["attempts"] - 1, 0) for row in rows),
        **{f"no_answer/{kind}": count for kind, count in sorted(no_answer.items())},
    }
    if reasoning := total("reasoning_tokens"):
        shown["reasoning_tokens"] = reasoning
    if any(row.get("cached_tokens") is not None for row in rows):
        shown |= _cache_share(total("cached_tokens"), shown["prompt_tokens"])
    if maybe_paid is not None:
        shown |= _perhaps(maybe_paid.requests, maybe_paid.usd)
    if progress is not None and (pace := progress.tokens_per_s) is not None:
        shown |= {"tokens_per_s": pace, "concurrency": progress.concurrency}
    if lengths:
        shown |= {"shortest_tokens": min(lengths), "longest_tokens": max(lengths)}
        shown["path"] = dg.MetadataValue.path(str(path))
    if merged_into:
        shown["merged_into"] = merged_into
    return shown


def progress_metadata(progress: Progress) -> dict[str, Any]:
    """Return the progress of a model's calls as numbers that the UI plots over time."""
    return {
        "calls": progress.done,
        "calls_planned": progress.planned,
        "in_flight": progress.in_flight,
        "concurrency": progress.concurrency,
        "retries": progress.retries,
        "calls_without_answer": progress.failed,
        "tokens": progress.prompt_tokens + progress.completion_tokens,
        "tokens_per_s": progress.tokens_per_s or 0.0,
        "cost_usd": float(progress.cost_usd),
        **_cache_share(progress.cached_tokens, progress.prompt_tokens),
        **({} if progress.seconds_left is None else {"seconds_left": float(progress.seconds_left)}),
    }


def summary_metadata(summary: RunSummary) -> dict[str, Any]:
    """Return the outcome of a model's calls."""
    return {
        "calls": summary.planned,
        "calls_sent": summary.sent,
        "calls_known_before": summary.cached + summary.by_others,
        "concurrency": summary.concurrency,
        "retries": summary.retries,
        "calls_without_answer": summary.transport_errors,
        "unchecked_truncation": summary.unchecked_truncation,
        "tokens": summary.prompt_tokens + summary.completion_tokens,
        "tokens_per_s": summary.tokens_per_s or 0.0,
        "cost_usd": float(summary.cost_usd),
        "seconds": float(summary.seconds),
        **_cache_share(summary.cached_tokens, summary.prompt_tokens),
        **_perhaps(
            summary.maybe_paid + summary.orphans, summary.maybe_paid_usd + summary.orphans_usd
        ),
    }


def _cache_share(cached: int, prompt_tokens: int) -> dict[str, float]:
    """Return the fraction of prompt tokens that the server took from a cache."""
    return {"cache_share": cached / prompt_tokens} if prompt_tokens else {}


def _perhaps(requests: int, usd: float) -> dict[str, Any]:
    return {"requests_maybe_paid": requests, "maybe_paid_usd": float(usd)}


def version_tags(
    rows: Rows, code_version: str, sources: Mapping[dg.AssetKey, str]
) -> dict[str, str]:
    """Return version tags for a manually logged materialization and of its sources.

    ``sources``: the upstream assets with their versions. Without them, rematerializing an unchanged
    manifest would make every bin stale.
    """
    # The bin's calls and their outcomes, without times.
    outcomes = [[row["call_key"], row["no_answer"], row.get("raw_output")] for row in rows]
    version = hashlib.sha256(json.dumps(sorted(outcomes, key=str)).encode()).hexdigest()
    tags = {"dagster/data_version": version, "dagster/code_version": code_version}
    for source, source_version in sources.items():
        tags[f"dagster/input_data_version/{source.to_user_string()}"] = source_version
        # Versions decide; the event that brought them is unknown here.
        tags[f"dagster/input_event_pointer/{source.to_user_string()}"] = NULL_EVENT_POINTER
    return tags
