"""The command `visibility`: how what an agent is shown affects its tuning of hyper-parameters."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from contextcliff_dagster.cli.display.output import print_either, print_json
from contextcliff_dagster.cli.measuring.made_study import (
    RunOptions,
    check_budget,
    measure_made_study,
    run_made_study,
)
from contextcliff_dagster.cli.measuring.options import SectionOptions, digest, named_study
from contextcliff_dagster.cli.options import (
    Decorator,
    Finite,
    common_options,
    count_option,
    folder_option,
    spending_options,
    together,
    with_answers_option,
)
from contextcliff_dagster.contracts import EngineError, StudyError
from contextcliff_dagster.extensions.visibility.section import (
    AXES,
    VisibilitySection,
    runs_of,
    section_of,
)
from contextcliff_dagster.extensions.visibility.tasks import kaggle
from contextcliff_dagster.inference.models.models_file import ModelEntry, get_model
from contextcliff_dagster.reporting.wording import count, score
from contextcliff_dagster.store import Store
from contextcliff_dagster.studies import Study, known_study

if TYPE_CHECKING:
    from contextcliff_dagster.extensions.visibility.runs.traces import Trace
    from contextcliff_dagster.extensions.visibility.section import PlannedRun
    from contextcliff_dagster.run.study import Profiled


DEFAULT_MODEL = "gpt-4o-mini"
_NAMES = {
    "benchmarks": "--benchmark",
    "steps": "--num-steps",
    "first_seed": "--seed",
    "history": "--history-window",
    "start": "--init",
}
"""Map a section key to its command-line option where their names differ."""


def made_study(
    keys: Mapping[str, Any], models: Sequence[str], command: str, name: str | None = None
) -> Study:
    """Return the study that the options describe.

    Args:
        keys: values for the keys of the section.
        command: `run` or `grid`, for error messages.
        name: the study's name; None derives it from the options.

    Raises:
        StudyError: a model is unknown, an option has an invalid value, or ``name`` is invalid or
            belongs to a study with other options.
    """
    _read_keys([get_model(model) for model in models])
    levels = {axis: f"--levels {axis}=" for axis in AXES} if command == "grid" else {}
    study = SectionOptions(
        "visibility",
        VisibilitySection,
        f"contextcliff visibility {command}",
        keys=(),
        names={**_NAMES, **levels},
        help={},
    ).study(
        keys,
        description="Tuning hyper-parameters: what an agent is shown",
        models=list(dict.fromkeys(models)),
    )
    if name is not None:
        return named_study(study, name, "--run-id", "run")
    section = study.sections["visibility"]
    some = "-".join(section.benchmarks) if len(section.benchmarks) < 3 else "several"
    # Replaced seeds do not decide the name: the same command finds the study, and keeps its seeds.
    decides = section.model_dump(mode="json", exclude={"skipped_seeds"})
    study = study.changed(name=f"visibility-{some}-{digest(decides)}")
    known = known_study(study.name)
    return study if known is None else _skipping(study, section_of(known).skipped_seeds)


def _skipping(study: Study, seeds: Sequence[int]) -> Study:
    keys = {**section_of(study).model_dump(mode="json"), "skipped_seeds": list(seeds)}
    return study.changed(visibility=keys)


def _read_keys(entries: Sequence[ModelEntry]) -> None:
    """Read API keys of the models that the environment lacks from ``.env`` in this folder."""
    from dotenv import dotenv_values

    file = Path(".env")
    variables = {entry.api_key_env for entry in entries if entry.api_key_env} - os.environ.keys()
    if not variables or not file.is_file():
        return
    try:
        # Not interpolated: a value with a dollar sign is a key as it is.
        values = dotenv_values(file, interpolate=False)
    except (OSError, ValueError) as error:
        raise StudyError(
            f".env in {Path.cwd()} cannot be read ({type(error).__name__}); write lines such as "
            "OPENAI_API_KEY=... in UTF-8, or set the variable."
        ) from None
    for name in variables:
        if value := values.get(name):
            os.environ[name] = value


_BOTH = ("hidden", "shown")

GRIDS: Mapping[str, Mapping[str, Sequence[str | int]]] = {
    "48": {
        "task": _BOTH,
        "metric": _BOTH,
        "resources": _BOTH,
        "bounds": ("hidden",),
        "direction": ("hidden",),
        "history": (0, 5),
        "start": ("default",),
    },
    "144": {
        "task": _BOTH,
        "metric": _BOTH,
        "resources": ("hidden",),
        "bounds": _BOTH,
        "direction": ("hidden",),
        "history": (0, 4),
        "start": ("low", "neutral", "high"),
    },
}
"""Grids from context-eval: map the number of runs per benchmark with three seeds to the levels."""
RUN_STEPS, GRID_SEEDS, GRID_STEPS = 3, 3, 10


def levels_of(given: Sequence[str]) -> dict[str, list[str | int]]:
    """Parse texts ``AXIS=LEVEL,LEVEL`` into the levels of each axis; raise ValueError."""
    levels: dict[str, list[str | int]] = {}
    for text in given:
        axis, _, values = text.partition("=")
        parts = [part.strip() for part in values.split(",") if part.strip()]
        if axis not in AXES or not parts:
            raise ValueError(
                f"{text!r} is not AXIS=LEVELS; use e.g. direction=hidden,shown, with an axis of "
                f"{', '.join(AXES)}."
            )
        levels[axis] = [int(part) if part.isdecimal() else part for part in parts]
    return levels


@click.command()
@click.argument("name")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--float32", is_flag=True, help="Store features in half the memory.")
@click.option(
    "--max-samples",
    type=click.IntRange(1),
    metavar="N",
    help="Keep N rows, always the same ones (default: all).",
)
@common_options
def prepare(name: str, file: Path, float32: bool, max_samples: int | None, as_json: bool) -> None:
    """Prepare the benchmark NAME from FILE, without network access.

    NAME is nomad, jigsaw, leaf, forest or housing. FILE is the download from Kaggle: train.csv, a
    zip file with it, or a zip file with train.csv.zip. Replaces an earlier preparation.

    \b
    Example:
      kaggle competitions download -c leaf-classification
      contextcliff visibility prepare leaf leaf-classification.zip
    """
    store = Store.default()
    summary = kaggle.prepare(store, name, file, float32=float32, most_rows=max_samples)
    folder = kaggle.prepared_dir(store, name)
    rows, features = count(summary.rows, "row"), count(len(summary.features), "feature")
    print_either(
        {**asdict(summary), "folder": str(folder)},
        f"{name}: {rows} of {features} in {folder}",
        as_json=as_json,
    )


def command_of(run: PlannedRun, section: VisibilitySection, model: str) -> str:
    """Return the command line that makes one run of a grid."""
    levels = {name: getattr(run.axes, name) for name in AXES}
    words = ["--benchmark", run.benchmark, "--model", model, "--seed", str(run.seed)]
    words += ["--num-steps", str(section.steps)]
    if section.landscape != "full":
        words += ["--landscape", section.landscape]
    if section.temperature:
        words += ["--temperature", f"{section.temperature:g}"]
    if section.replies != "free":
        words += ["--replies", section.replies]
    if "placebo" in levels.values():  # has no option of `run`
        words += ["--seeds", "1"]
        for name, level in levels.items():
            words += ["--levels", f"{name}={level}"]
        return shlex.join(["contextcliff", "visibility", "grid", *words])
    words += [f"--show-{name}" for name in _SHOWN if levels[name] == "shown"]
    for option, name, default in (
        ("--history-window", "history", 0),
        ("--base", "base", "last"),
        ("--init", "start", "default"),
    ):
        words += [option, str(levels[name])] if levels[name] != default else []
    return shlex.join(["contextcliff", "visibility", "run", *words])


def print_plan(study: Study, options: RunOptions) -> None:
    """Print a grid's runs as commands, its calls, its landscapes and the seeds that it skips."""
    from contextcliff_dagster.cli.commands.profile import say_notes
    from contextcliff_dagster.cli.display.samples import print_prepared
    from contextcliff_dagster.extensions.visibility.kept_landscapes import landscapes_left
    from contextcliff_dagster.run.study import prepare_study

    store = Store.default()
    work = landscapes_left(study, store)
    study = study if work else with_headroom(study, writes=False)
    section = section_of(study)
    prepared = prepare_study(study, campaign=options.campaign, keep=False, store=store)
    say_notes(prepared)
    commands = [command_of(run, section, m) for m in study.models for run in runs_of(section)]
    skipped, seeds = list(section.skipped_seeds), list(section.seed_numbers)
    if options.as_json:
        print_json(
            {
                "study": study.name,
                "estimate": prepared.estimate.to_dict(),
                "landscapes": [asdict(part) for part in work],
                "skipped_seeds": skipped,
                "seeds": seeds,
                "commands": commands,
            }
        )
        return
    for command in commands:
        click.echo(command)
    click.echo()
    print_prepared(prepared, store, as_json=False)
    if work:
        click.echo("Seeds without headroom are skipped once the landscapes exist.")
    if skipped:
        click.echo(
            f"Skipped seeds: {', '.join(map(str, skipped))}; nothing could be gained on their "
            f"splits. The seeds are {', '.join(map(str, seeds))}."
        )


def with_headroom(study: Study, *, writes: bool = True) -> Study:
    """Return a grid with other seeds for those on whose splits nothing can be gained.

    A grid that has begun keeps its seeds, and a single run keeps its own. Missing landscapes are
    tabulated; ``writes``: whether trainings are kept.

    Raises:
        StudyError, DataError, StoreError: see `kept_landscapes.grounds_of`.
    """
    from contextcliff_dagster.extensions.visibility.kept_landscapes import ground_named
    from contextcliff_dagster.extensions.visibility.runs.tuning import Benches, seeds_to_skip

    store, section = Store.default(), section_of(study)
    if len(runs_of(section)) == 1 or known_study(study.name) is not None:
        return study
    grounds = {name: ground_named(name, store, section) for name in section.benchmarks}
    return _skipping(study, seeds_to_skip(section, Benches(store, grounds, writes)))


def print_run(trace: Trace, file: Path, report: Path, *, as_json: bool, steps: bool) -> None:
    """Print a run's outcome, its stability metrics, and the paths of trace and report.

    ``steps``: whether to print every step as well.
    """
    if as_json:
        run = {"run_id": trace.run_id, "trace": str(file), "report": str(report)}
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
    """Print every prompt and reply, step by step."""
    for number, (prompt, step) in enumerate(zip(trace.prompts, trace.steps, strict=True), start=1):
        for role, text in prompt:
            click.echo(f"--- step {number}, {role}\n{text}")
        reply = step["proposal"]["raw_reply"]
        click.echo(f"--- step {number}, reply\n{'(none)' if reply is None else reply}\n")


def _step(step: Mapping[str, Any]) -> str:
    validation = "failed" if step["validation"] is None else f"{step['validation']:.4f}"
    mark = "  best" if step["best_step"] == step["step"] else ""
    who = "" if step["source"] == "model" else "  (the reply set nothing)"
    return f"Step {step['step']:>3}  {validation}{mark}  {_config(step['config'])}{who}"


def _outcome(summary: Mapping[str, Any]) -> list[str]:
    better = "higher" if summary["higher_is_better"] else "lower"
    best, stability = summary["best_validation"], summary["stability_metrics"]
    behaviour = summary["behaviour"]
    test = summary["reported_test"]
    lines = [
        f"Best    {_score(best)} {summary['score']} on validation ({better} is better), step "
        f"{summary['best_step']} of {summary['steps']}: {_config(summary['best_config'])}",
        f"Test    {_score(test)} of that configuration, on rows that the model never saw",
        f"Final   {_score(summary['final_validation'])} on validation, after the last step",
        "Search  " + ", ".join(f"{name} {score(behaviour[name], 'none')}" for name in _PRINTED),
        "        " + ", ".join(f"{name} {_number(value)}" for name, value in stability.items()),
    ]
    lost, unparsable = behaviour["fallback_share"], behaviour["unparsable_share"]
    if lost:
        lines.append(
            f"        {lost:.0%} of the steps set nothing ({score(unparsable, 'none')} of the "
            "replies could not be read)"
        )
    return lines


_PRINTED = ("churn", "stagnation", "oscillation", "novelty")


def _score(value: float | None) -> str:
    return "none" if value is None else f"{value:.4f}"


def _number(value: float) -> str:
    return f"{value:g}" if isinstance(value, int) else f"{value:.3f}"


def _config(config: Mapping[str, Any]) -> str:
    return json.dumps({name: _rounded(value) for name, value in config.items()})


def _rounded(value: Any) -> Any:
    return float(f"{value:.4g}") if isinstance(value, float) else value


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
        help="Temperature; above 0 the replies vary with the seed (default: 0).",
    ),
    click.option(
        "--replies",
        type=click.Choice(["free", "schema"]),
        default="free",
        help="schema: the engine can only write an object of the parameters.",
    ),
    click.option(
        "--base",
        type=click.Choice(["last", "best"]),
        default="last",
        help="Configuration that each proposal changes (default: last).",
    ),
    click.option(
        "--landscape",
        type=click.Choice(["full", "coarse"]),
        default="full",
        help="coarse: measure the regret by 256 trainings instead of 2,560 (default: full).",
    ),
)
_SEED = count_option(
    "--seed",
    0,
    100_000,
    "Seed of split, model, start and draws; the first of several (default: 0).",
    into="first_seed",
    default=0,
)


@click.group()
def visibility() -> None:
    """Measure how shown information changes an agent's tuning of hyper-parameters."""


visibility.add_command(prepare)


def _benchmark_options(more: str) -> Decorator:
    """Return a decorator that takes benchmarks as arguments and as `--benchmark`."""
    return together(
        click.argument("names", metavar="[NAME]...", nargs=-1),
        click.option(
            "--benchmark", "named", multiple=True, metavar="NAME", help=f"{_BENCHMARKS}{more}."
        ),
    )


@visibility.command()
@_benchmark_options(" (default: toy)")
@click.option("--show-task", "task", is_flag=True, help="Show a text about data and model.")
@click.option("--show-metric", "metric", is_flag=True, help="Show a text about the score.")
@click.option(
    "--show-resources", "resources", is_flag=True, help="Show tokens, cost and latency so far."
)
@click.option("--show-bounds", "bounds", is_flag=True, help="Show the bounds of each parameter.")
@click.option(
    "--show-direction", "direction", is_flag=True, help="Show whether a higher score is better."
)
@count_option(
    "--history-window", 0, 1000, "Number of earlier steps listed with scores (default: 0)."
)
@count_option(
    "--feedback-depth", 1, 1001, "The same plus the current step: 1 lists no earlier step."
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
@click.option("--run-id", metavar="ID", help="Name of the run (default: made from the options).")
@click.option("--debug-show-llm", is_flag=True, help="Print every prompt and reply.")
@folder_option("--traces", "Folder of the traces (default: traces).", default="traces")
@spending_options
@with_answers_option
@common_options
def run(
    names: tuple[str, ...],
    named: tuple[str, ...],
    history_window: int | None,
    feedback_depth: int | None,
    run_id: str | None,
    debug_show_llm: bool,
    traces: Path,
    models: tuple[str, ...],
    **given: Any,
) -> None:
    """Let a model tune one benchmark, and write the trace of its steps.

    Repeat the same command to continue an interrupted run.

    \b
    Examples:
      contextcliff visibility run --benchmark toy --model my-model
      contextcliff visibility run --benchmark digits --show-task --show-bounds --history-window 5
          Use gpt-4o-mini, whose key is OPENAI_API_KEY in the environment or in .env.
    """
    if history_window is not None and feedback_depth is not None:
        raise click.UsageError("--history-window and --feedback-depth set the same; give one.")
    keys = {name: given.pop(name) for name in (*_SHOWN, "start", "first_seed", *_OF_AGENT)}
    keys["steps"] = keys["steps"] or RUN_STEPS
    keys["history"] = feedback_depth - 1 if feedback_depth else history_window or 0
    options = RunOptions(**given)
    check_budget()
    benchmarks = [*names, *named] or ["toy"]
    for what, several in (("--model", models), ("--benchmark", benchmarks)):
        if len(several) > 1:
            raise click.UsageError(f"A run has one {what}; `visibility grid` takes several.")
    study = made_study(
        {**keys, "benchmarks": benchmarks, "seeds": 1}, models or (DEFAULT_MODEL,), "run", run_id
    )
    # Here --verbose means the steps of the run, not Dagster's log.
    profiled = run_made_study(study, replace(options, verbose=False))
    if profiled is None:
        return

    (trace,) = _traces(profiled)
    trace = trace.named(run_id) if run_id else trace
    if debug_show_llm and not options.as_json:
        print_calls(trace)
    file = trace.write(traces)
    print_run(
        trace,
        file,
        profiled.report.html or profiled.report.md,
        as_json=options.as_json,
        steps=options.verbose,
    )
    _require_whole(trace, profiled)


next(option for option in run.params if option.name == "verbose").help = "Print every step."


@visibility.command()
@_benchmark_options("; repeatable")
@click.option(
    "--runs",
    type=click.Choice(list(GRIDS)),
    default="48",
    help="Runs per benchmark: 48 (history, task, metric, resources), or 144 (start, history, task, "
    "metric, bounds).",
)
@click.option(
    "--levels",
    multiple=True,
    metavar="AXIS=LEVELS",
    help="Other levels of an axis, e.g. task=placebo,shown; repeatable.",
)
@count_option(
    "--seeds", 1, 1000, f"Runs per combination (default: {GRID_SEEDS}).", default=GRID_SEEDS
)
@_SEED
@_AGENT_OPTIONS
@folder_option("--traces", "Also write the trace of every run below this folder.")
@spending_options
@with_answers_option
@common_options
def grid(
    names: tuple[str, ...],
    named: tuple[str, ...],
    runs: str,
    levels: tuple[str, ...],
    traces: Path | None,
    models: tuple[str, ...],
    **given: Any,
) -> None:
    """Let a model tune under every combination of shown information, and print the report.

    \b
    Examples:
      contextcliff visibility grid toy --model my-model --dry-run
          Show 48 runs of 10 steps as commands, and their cost, without a call.
      contextcliff visibility grid digits friedman --runs 144 --model my-model
      contextcliff visibility grid toy --levels direction=hidden,shown --seeds 10 --model my-model
    """
    try:
        own_levels = levels_of(levels)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--levels") from None
    if not (benchmarks := [*names, *named]):
        raise click.UsageError("A grid needs a benchmark; name one, e.g. toy.")
    keys = {name: given.pop(name) for name in ("seeds", "first_seed", *_OF_AGENT)}
    keys["steps"] = keys["steps"] or GRID_STEPS
    section_keys = {**GRIDS[runs], **keys, **own_levels, "benchmarks": benchmarks}
    options = RunOptions(**given)
    check_budget()
    study = made_study(section_keys, models or (DEFAULT_MODEL,), "grid")
    if options.dry_run:
        print_plan(study, options)
        return
    if traces is None:
        measure_made_study(study, options, complete=with_headroom)
        return
    from contextcliff_dagster.cli.commands.report import print_profiled

    profiled = run_made_study(study, options, complete=with_headroom)
    assert profiled is not None
    for trace in _traces(profiled):
        trace.write(traces)
    print_profiled(profiled, as_json=options.as_json)


_SHOWN = ("task", "metric", "resources", "bounds", "direction")
_OF_AGENT = ("steps", "temperature", "replies", "base", "landscape")


def _require_whole(trace: Trace, done: Profiled) -> None:
    """Raise EngineError if the model left a step without a reply."""
    steps, planned = (trace.summary[name] for name in ("steps", "planned_steps"))
    if steps < planned:
        from contextcliff_dagster.experiments.common.study_run import StudyRun

        with StudyRun.open(done.study, Store.default(), done.campaign) as study_run:
            failure = study_run.ledger.last_failure(done.study.name, done.campaign)
        why = f" ({failure})" if failure else ""
        raise EngineError(
            f"The run has {steps} of its {planned} steps, because the next one got no reply{why}; "
            "repeat the command to continue."
        )


def _traces(done: Profiled) -> list[Trace]:
    from contextcliff_dagster.experiments.common.study_run import StudyRun
    from contextcliff_dagster.extensions.visibility.experiment import VISIBILITY

    with StudyRun.open(done.study, Store.default(), done.campaign) as study_run:
        return [
            trace for model in done.study.models for trace in VISIBILITY.traces(study_run, model)
        ]
