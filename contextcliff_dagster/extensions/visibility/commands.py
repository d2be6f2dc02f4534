"""`visibility`: what an agent that tunes hyper-parameters is shown, and how it then behaves."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from contextcliff_dagster.cli.measuring.made_study import (
    RunOptions,
    check_budget,
    measure_made_study,
    run_made_study,
)
from contextcliff_dagster.cli.options import (
    Finite,
    common_options,
    count_option,
    folder_option,
    spending_options,
    together,
    with_answers_option,
)
from contextcliff_dagster.contracts import EngineError
from contextcliff_dagster.extensions.visibility.made_study import (
    DEFAULT_MODEL,
    GRID_SEEDS,
    GRID_STEPS,
    GRIDS,
    RUN_STEPS,
    levels_of,
    made_study,
)
from contextcliff_dagster.extensions.visibility.prepare import prepare
from contextcliff_dagster.store import Store

if TYPE_CHECKING:
    from contextcliff_dagster.extensions.visibility.runs.traces import Trace
    from contextcliff_dagster.run.study import Profiled

_BENCHMARKS = (
    "toy, digits, breast-cancer, wine, diabetes, friedman; once prepared nomad, jigsaw, leaf, "
    "forest, housing"
)
_AGENT_OPTIONS = together(
    count_option(
        "--num-steps",
        1,
        200,
        f"Proposals in a run (default: {RUN_STEPS}, in a grid {GRID_STEPS}).",
        into="steps",
    ),
    click.option(
        "--temperature",
        type=Finite(0, 2),
        default=0.0,
        metavar="T",
        help="Of the replies; above 0 the seed draws (default: 0).",
    ),
    click.option(
        "--replies",
        type=click.Choice(["free", "schema"]),
        default="free",
        help="schema: the engine can write nothing but an object of the parameters.",
    ),
    click.option(
        "--base",
        type=click.Choice(["last", "best"]),
        default="last",
        help="Configuration that a proposal is put on (default: last).",
    ),
)
_SEED = count_option(
    "--seed",
    0,
    100_000,
    "Of split, model, start and draws; of several the first (default: 0).",
    into="first_seed",
    default=0,
)


@click.group()
def visibility() -> None:
    """What does an agent do with what it is shown? It tunes hyper-parameters step by step."""


visibility.add_command(prepare)


@visibility.command()
@click.option("--benchmark", default="toy", metavar="NAME", help=f"{_BENCHMARKS} (default: toy).")
@click.option("--show-task", "task", is_flag=True, help="Show a text about data and model.")
@click.option("--show-metric", "metric", is_flag=True, help="Show a text about the score.")
@click.option(
    "--show-resources", "resources", is_flag=True, help="Show tokens, cost and latency so far."
)
@click.option("--show-bounds", "bounds", is_flag=True, help="Show the bounds of each parameter.")
@click.option(
    "--show-direction", "direction", is_flag=True, help="Say whether a higher score is better."
)
@count_option(
    "--history-window", 0, 1000, "Earlier steps that are listed with their scores (default: 0)."
)
@count_option(
    "--feedback-depth", 1, 1001, "The same, the current step counted: 1 lists no earlier one."
)
@click.option(
    "--init",
    "start",
    type=click.Choice(["default", "low", "neutral", "high"]),
    default="default",
    help="How good the first configuration is (default: the benchmark's own).",
)
@_AGENT_OPTIONS
@_SEED
@click.option("--run-id", metavar="ID", help="Name of the run (default: made of the options).")
@click.option("--debug-show-llm", is_flag=True, help="Print every prompt and reply.")
@folder_option("--traces", "Folder of the traces (default: traces).", default="traces")
@spending_options
@with_answers_option
@common_options
def run(
    benchmark: str,
    history_window: int | None,
    feedback_depth: int | None,
    run_id: str | None,
    debug_show_llm: bool,
    traces: Path,
    models: tuple[str, ...],
    **given: Any,
) -> None:
    """Let a model tune one benchmark, and write the trace of its steps.

    The same options go on where they were stopped.

    \b
    Examples:
      contextcliff visibility run --benchmark toy --model my-model
      contextcliff visibility run --benchmark digits --show-task --show-bounds --history-window 5
          With gpt-4o-mini, whose key is OPENAI_API_KEY in the environment or in .env.
    """
    if history_window is not None and feedback_depth is not None:
        raise click.UsageError("--history-window and --feedback-depth are the same; give one.")
    keys = {name: given.pop(name) for name in (*_SHOWN, "start", "first_seed", *_OF_AGENT)}
    keys["steps"] = keys["steps"] or RUN_STEPS
    keys["history"] = feedback_depth - 1 if feedback_depth else history_window or 0
    options = RunOptions(**given)
    check_budget()
    if len(models) > 1:
        raise click.UsageError("A run has one --model; `visibility grid` takes several.")
    study = made_study(
        {**keys, "benchmarks": [benchmark], "seeds": 1}, models or (DEFAULT_MODEL,), "run", run_id
    )
    # Here --verbose means the steps of the run, not Dagster's log.
    done = run_made_study(study, replace(options, verbose=False))
    if done is None:
        return
    from contextcliff_dagster.extensions.visibility.print_run import print_calls, print_run

    (trace,) = _traces(done)
    if debug_show_llm and not options.as_json:
        print_calls(trace)
    file = trace.write(traces)
    print_run(
        trace,
        file,
        done.report.html or done.report.md,
        as_json=options.as_json,
        steps=options.verbose,
    )
    _require_whole(trace, done)


next(one for one in run.params if one.name == "verbose").help = "Print every step."


@visibility.command()
@click.argument("benchmarks", metavar="NAME...", nargs=-1, required=True)
@click.option(
    "--runs",
    type=click.Choice(list(GRIDS)),
    default="48",
    help="Of each benchmark: 48 (history, task, metric, resources), or 144 (start, history, task, "
    "metric, bounds).",
)
@click.option(
    "--levels",
    multiple=True,
    metavar="AXIS=LEVELS",
    help="Other levels of an axis, as task=placebo,shown; repeatable.",
)
@count_option(
    "--seeds", 1, 1000, f"Runs of each combination (default: {GRID_SEEDS}).", default=GRID_SEEDS
)
@_SEED
@_AGENT_OPTIONS
@folder_option("--traces", "Write the trace of every run below this folder, too.")
@spending_options
@with_answers_option
@common_options
def grid(
    benchmarks: tuple[str, ...],
    runs: str,
    levels: tuple[str, ...],
    traces: Path | None,
    models: tuple[str, ...],
    **given: Any,
) -> None:
    """Let a model tune in every combination of what it may be shown, and print the report.

    \b
    Examples:
      contextcliff visibility grid toy --model my-model --dry-run
          48 runs of 10 steps: what they would cost, no call.
      contextcliff visibility grid digits friedman --runs 144 --model my-model
      contextcliff visibility grid toy --levels direction=hidden,shown --seeds 10 --model my-model
    """
    try:
        changed = levels_of(levels)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--levels") from None
    keys = {name: given.pop(name) for name in ("seeds", "first_seed", *_OF_AGENT)}
    keys["steps"] = keys["steps"] or GRID_STEPS
    asked = {**GRIDS[runs], **keys, **changed, "benchmarks": list(benchmarks)}
    options = RunOptions(**given)
    check_budget()
    study = made_study(asked, models or (DEFAULT_MODEL,), "grid")
    if traces is None or options.dry_run:
        measure_made_study(study, options)
        return
    from contextcliff_dagster.cli.commands.report import print_profiled

    done = run_made_study(study, options)
    assert done is not None
    for trace in _traces(done):
        trace.write(traces)
    print_profiled(done, as_json=options.as_json)


_SHOWN = ("task", "metric", "resources", "bounds", "direction")
_OF_AGENT = ("steps", "temperature", "replies", "base")


def _require_whole(trace: Trace, done: Profiled) -> None:
    """Raise an EngineError where the model left a step without a reply."""
    made, planned = (trace.summary[name] for name in ("steps", "planned_steps"))
    if made < planned:
        from contextcliff_dagster.experiments.common.study_run import StudyRun

        with StudyRun.open(done.study, Store.default(), done.campaign) as measured:
            failure = measured.ledger.last_failure(done.study.name, done.campaign)
        why = f" ({failure})" if failure else ""
        raise EngineError(
            f"The run has {made} of its {planned} steps, because the next one got no reply{why}; "
            "the same command goes on."
        )


def _traces(done: Profiled) -> list[Trace]:
    from contextcliff_dagster.experiments.common.study_run import StudyRun
    from contextcliff_dagster.extensions.visibility.experiment import VISIBILITY

    with StudyRun.open(done.study, Store.default(), done.campaign) as measured:
        return [
            trace for model in done.study.models for trace in VISIBILITY.traces(measured, model)
        ]
