"""What `contextcliff visibility run` prints of a run, and the trace that it writes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from contextcliff_dagster.cli.display.output import print_json

if TYPE_CHECKING:
    from contextcliff_dagster.extensions.visibility.runs.traces import Trace


def print_run(trace: Trace, file: Path, report: Path, *, as_json: bool, steps: bool) -> None:
    """Print the outcome of a run, its stability metrics, and where trace and report lie.

    ``steps``: print every step, too.
    """
    if as_json:
        run = {"run_id": trace.run.key, "trace": str(file), "report": str(report)}
        print_json({**run, **trace.summary})
        return
    if steps:
        for step in trace.steps:
            click.echo(_step(step))
        click.echo()
    for line in _outcome(trace.summary):
        click.echo(line)
    click.echo(f"Trace   {file}")
    click.echo(f"Report  {report}")


def print_calls(trace: Trace) -> None:
    """Print what the model read and wrote, step by step."""
    for number, (prompt, step) in enumerate(zip(trace.prompts, trace.steps, strict=True), start=1):
        for role, text in prompt:
            click.echo(f"--- step {number}, {role}\n{text}")
        reply = step["proposal"]["raw_reply"]
        click.echo(f"--- step {number}, reply\n{'(none)' if reply is None else reply}\n")


def _step(step: Mapping[str, Any]) -> str:
    score = "failed" if step["validation"] is None else f"{step['validation']:.4f}"
    mark = "  best" if step["best_step"] == step["step"] else ""
    who = "" if step["source"] == "model" else "  (the reply set nothing)"
    return f"Step {step['step']:>3}  {score}{mark}  {_config(step['config'])}{who}"


def _outcome(summary: Mapping[str, Any]) -> list[str]:
    better = "higher" if summary["higher_is_better"] else "lower"
    best, stability = summary["best_validation"], summary["stability_metrics"]
    behaviour = summary["behaviour"]
    test = summary["reported_test"]
    lines = [
        f"Best    {_score(best)} {summary['score']} on validation ({better} is better), step "
        f"{summary['best_step']} of {summary['steps']}: {_config(summary['best_config'])}",
        f"Test    {_score(test)} of that configuration, on rows that the model never saw",
        "Search  " + ", ".join(f"{name} {_share(behaviour[name])}" for name in _SHOWN),
        "        " + ", ".join(f"{name} {_number(value)}" for name, value in stability.items()),
    ]
    lost = behaviour["fallback_share"]
    if lost:
        lines.append(
            f"        {lost:.0%} of the steps set nothing ({_share(behaviour['unparsable_share'])} "
            "of the replies could not be read)"
        )
    return lines


_SHOWN = ("churn", "stagnation", "oscillation", "novelty")


def _score(value: float | None) -> str:
    return "none" if value is None else f"{value:.4f}"


def _share(value: float | None) -> str:
    return "none" if value is None else f"{value:.2f}"


def _number(value: float) -> str:
    return f"{value:g}" if isinstance(value, int) else f"{value:.3f}"


def _config(config: Mapping[str, Any]) -> str:
    return json.dumps({name: _rounded(value) for name, value in config.items()})


def _rounded(value: Any) -> Any:
    return float(f"{value:.4g}") if isinstance(value, float) else value
