"""Planned runs: their calls, the matching searches and trainings, and the benchmarks they tune."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from contextcliff_dagster.experiments.common.documents import (
    DEFAULT_TOKENIZER,
    GeneratedSamples,
    Made,
    refuse_prompt_keys,
)
from contextcliff_dagster.experiments.common.experiment import Source
from contextcliff_dagster.extensions.visibility.agent import (
    SYSTEM,
    TEMPLATE,
    RunState,
    ShownTrial,
    Usage,
    parse_reply,
    prompt_of,
    reply_schema,
)
from contextcliff_dagster.extensions.visibility.baselines import (
    HillClimb,
    RandomSearch,
    Search,
    SobolSearch,
    TPESearch,
    regret_curve,
    run_search,
)
from contextcliff_dagster.extensions.visibility.behaviour import Step
from contextcliff_dagster.extensions.visibility.landscape import has_headroom, start_of
from contextcliff_dagster.extensions.visibility.runs.trainings import Trainings
from contextcliff_dagster.extensions.visibility.section import (
    PlannedRun,
    VisibilitySection,
    runs_of,
    section_of,
)
from contextcliff_dagster.extensions.visibility.tasks.catalogue import task_named
from contextcliff_dagster.extensions.visibility.tasks.task import Evaluation, clamp
from contextcliff_dagster.inference.requests.call_plan import PlannedCall, follow_up
from contextcliff_dagster.inference.requests.recipe import Sampling
from contextcliff_dagster.scoring.parse import parse_answer
from contextcliff_dagster.step_progress import report_step

if TYPE_CHECKING:
    from contextcliff_dagster.extensions.visibility.kept_landscapes import Ground
    from contextcliff_dagster.extensions.visibility.landscape import Landscape
    from contextcliff_dagster.extensions.visibility.tasks.task import Config, Floats, Task
    from contextcliff_dagster.inference.requests.call_plan import Outcome
    from contextcliff_dagster.inference.requests.recipe import Recipe
    from contextcliff_dagster.store import Store
    from contextcliff_dagster.studies import Study


@dataclass(frozen=True, slots=True)
class Tried:
    """A step and its configuration's scores; ``usage`` is None if no call was made."""

    step: Step
    scores: Evaluation
    usage: Usage | None = None


History: TypeAlias = tuple[Tried, ...]
"""The start and the steps so far."""


@dataclass(frozen=True)
class Bench:
    """A benchmark, with everything that runs need to tune it.

    Attributes:
        task: the tuned task.
        trainings: source of its configurations' scores; None when estimating the calls of a study:
            then all runs begin with the task's own start and nothing is trained.
        landscape: source of starts and regrets; a single run may have none.
    """

    task: Task
    trainings: Trainings | None
    landscape: Landscape | None
    _starts: dict[tuple[str, int], Tried] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, name: str, store: Store, ground: Ground | None, writes: bool = True) -> Bench:
        """Return the benchmark ``name``; ``ground`` is None for an estimate. Raise StudyError."""
        task = task_named(name)
        if ground is None:
            return cls(task, None, None)
        return cls(task, Trainings(task, store, ground.data_sha256, writes), ground.landscape)

    def begin(self, run: PlannedRun) -> History:
        """Return the history of a run at its start.

        Raise DataError for an empty stratum, and as `Trainings.evaluation`.
        """
        key = run.axes.start, run.seed
        if key not in self._starts:
            config = self._first(run)
            self._starts[key] = Tried(Step(config, "start"), self._scores(config, run.seed))
        return (self._starts[key],)

    def after(
        self, run: PlannedRun, history: History, reply: str | None, usage: Usage | None
    ) -> History:
        """Return the history extended by the trained proposal of ``reply``.

        A reply that sets no parameter keeps the configuration, and its step does not count as the
        model's. ``reply`` is None if there was no reply.

        Raises:
            DataError, StoreError: see `Trainings.evaluation`.
        """
        base = self.state(history).current(self.task, run.axes).config
        # Reasoning before the answer is no part of it.
        parsed = parse_reply(None if reply is None else parse_answer(reply).visible)
        if parsed.proposal is None:
            step = Step(dict(base), "fallback", unparsable=parsed.unparsable, base=base)
        else:
            clamped = clamp(self.task.space, parsed.proposal)
            step = Step(
                config=clamped.onto(base),
                source="model" if clamped.values else "fallback",
                proposed=parsed.recorded,
                events=clamped.events,
                base=base,
            )
        return (*history, Tried(step, self._scores(step.config, run.seed), usage))

    def prompt(self, run: PlannedRun, history: History) -> tuple[str, str]:
        """Return the next prompt: the part that is constant throughout a run, and the rest."""
        return prompt_of(self.task, run.axes, self.state(history))

    def state(self, history: History) -> RunState:
        """Convert a history to the run state from which prompts are built."""
        trials = tuple(
            ShownTrial(entry.step.config, finite(entry.scores.validation), entry.step.source)
            for entry in history
        )
        return RunState(trials, tuple(entry.usage for entry in history[1:]))

    def _first(self, run: PlannedRun) -> Config:
        stratum = run.axes.start
        if stratum == "default" or self.landscape is None:
            return self.task.space.start
        return start_of(self.landscape, stratum, run.seed).config

    def _scores(self, config: Config, seed: int) -> Evaluation:
        if self.trainings is None:
            return Evaluation(0.0, 0.0)
        return self.trainings.evaluation(config, seed)


@dataclass(frozen=True)
class Benches:
    """The benchmarks of a study by name, created on first use.

    ``grounds``: landscapes and data hashes by benchmark; a missing one means an estimate (`Bench`).
    ``writes``: whether trainings are cached.
    """

    store: Store
    grounds: Mapping[str, Ground]
    writes: bool = True
    _made: dict[str, Bench] = field(default_factory=dict, repr=False, compare=False)

    def __getitem__(self, name: str) -> Bench:
        if name not in self._made:
            self._made[name] = Bench.of(name, self.store, self.grounds.get(name), self.writes)
        return self._made[name]


def finite(score: float) -> float | None:
    """Return a score, or None for one that is nan or infinite."""
    return score if score - score == 0 else None


Begun: TypeAlias = tuple[str, int]
"""Benchmark and seed, by which runs are matched with searches."""

SEARCHES: Mapping[str, Callable[[Task, int], Search]] = {
    "random": lambda task, seed: RandomSearch(task.space, seed),
    "sobol": lambda task, seed: SobolSearch(task.space, seed),
    "tpe": lambda task, seed: TPESearch(
        task.space, seed, higher_is_better=task.score.higher_is_better
    ),
    "hill_climb": lambda task, seed: HillClimb(
        task.space, seed, higher_is_better=task.score.higher_is_better
    ),
}


def search_curves(
    runs: Mapping[str, PlannedRun], benches: Benches, steps: int
) -> dict[str, dict[Begun, Floats]]:
    """Return each search's normalised regret curves, start first, by benchmark and seed.

    If runs have several starts, their curves are averaged. Trainings are cached, so a second call
    trains nothing. A benchmark without a landscape has no regret, and is not searched.

    Raises:
        DataError, StoreError: see `runs.trainings.Trainings.evaluation`.
    """
    begun = {(run.benchmark, run.seed, run.axes.start): run for run in runs.values()}
    curves: dict[str, dict[Begun, list[Floats]]] = {name: {} for name in SEARCHES}
    for done, run in enumerate(begun.values()):
        report_step("searches without a model", done, len(begun))
        bench = benches[run.benchmark]
        if bench.landscape is None:
            continue
        for name, make in SEARCHES.items():
            curve = _curve(bench, run, make(bench.task, run.seed), steps)
            curves[name].setdefault((run.benchmark, run.seed), []).append(curve)
    report_step("searches without a model", len(begun), len(begun))
    return {
        name: {key: np.mean(of, axis=0) for key, of in by_key.items()}
        for name, by_key in curves.items()
    }


def _curve(bench: Bench, run: PlannedRun, search: Search, steps: int) -> Floats:
    trainings = bench.trainings
    assert trainings is not None
    assert bench.landscape is not None
    start = bench.begin(run)[0].step.config

    def objective(config: Config) -> Evaluation:
        return trainings.evaluation(config, run.seed)

    return regret_curve(
        run_search(search, objective, start, steps),
        bench.landscape.best,
        bench.landscape.worst,
        higher_is_better=bench.task.score.higher_is_better,
    )


def without_headroom(
    section: VisibilitySection, benches: Benches | Mapping[str, Bench]
) -> list[Begun]:
    """Return each benchmark and seed on which no run can gain more than noise from its start.

    Raise as `Trainings.evaluation`.
    """
    gains: dict[Begun, bool] = {}
    for run in {
        (run.benchmark, run.seed, run.axes.start): run for run in runs_of(section)
    }.values():
        bench, key = benches[run.benchmark], (run.benchmark, run.seed)
        if bench.landscape is not None and bench.trainings is not None and not gains.get(key):
            start, evaluate = bench.begin(run)[0].step.config, bench.trainings.evaluation
            gains[key] = has_headroom(bench.landscape, start, run.seed, evaluate)
    return [key for key, gain in gains.items() if not gain]


_MOST_SKIPPED = 10
"""Seeds skipped for each seed asked for; beyond it, the benchmark allows no gain anywhere."""


def seeds_to_skip(
    section: VisibilitySection, benches: Benches | Mapping[str, Bench]
) -> tuple[int, ...]:
    """Return the seeds to replace for lack of headroom on a benchmark, in order.

    There are none if too few seeds have headroom: other splits would not help. Raise as
    `without_headroom`.
    """
    while without := {seed for _, seed in without_headroom(section, benches)}:
        skipped = tuple(sorted({*section.skipped_seeds, *without}))
        if len(skipped) > _MOST_SKIPPED * section.seeds:
            return ()
        section = section.model_copy(update={"skipped_seeds": skipped})
    return section.skipped_seeds


@dataclass(frozen=True)
class NextStep:
    """A function that returns the call following an answered call, until the run has all its steps.

    Each prompt is self-contained and shows only the earlier steps that the axes allow. A call's
    key depends on the keys of all earlier calls.
    """

    runs: Mapping[str, PlannedRun]
    benches: Benches
    steps: int
    _histories: dict[tuple[str, str], History] = field(default_factory=dict, repr=False)

    def __call__(self, call: PlannedCall, outcome: Outcome) -> PlannedCall | None:
        """Return the next call; None if the run is complete."""
        run, parts = self.runs[call.bin], call.parts or {}
        bench = self.benches[run.benchmark]
        number = int(parts.get("step", 1))
        if number >= self.steps:
            return None
        before = self._histories.get((call.bin, call.call_key)) or bench.begin(run)
        history = bench.after(run, before, outcome.raw_output, usage_of(outcome))
        _, question = bench.prompt(run, history)
        following = follow_up(call, outcome.raw_output or "", question, step=number + 1)
        following = replace(following, turns=())
        self._histories[call.bin, following.call_key] = history
        return following


def usage_of(answer: Outcome | Mapping[str, Any]) -> Usage | None:
    """Return the token counts recorded for a call; None if there are none."""
    get = answer.get if isinstance(answer, Mapping) else lambda name: getattr(answer, name)
    n_input = get("prompt_tokens")
    n_input = get("own_prompt_tokens") if n_input is None else n_input
    n_output = get("completion_tokens")
    return None if n_input is None and n_output is None else Usage(n_input or 0, n_output or 0)


def sources_of(study: Study, benches: Benches) -> list[Source]:
    """Return one source per recipe: per seed if replies are sampled, per benchmark if the engine
    enforces its schema.

    Raises:
        StudyError: the study sets a key of `prompt` that these prompts cannot apply.
    """
    from contextcliff_dagster.inference.models.tokenizers import open_any_tokenizer
    from contextcliff_dagster.studies.study import refuse_without_leave

    refuse_without_leave(study, "tokenizer")
    count = open_any_tokenizer(study.tokenizer_name or DEFAULT_TOKENIZER).count
    section = section_of(study)
    groups: dict[tuple[int | None, str | None], dict[str, PlannedRun]] = {}
    for run in runs_of(section):
        seed = run.seed if section.temperature > 0 else None
        task = run.benchmark if section.replies == "schema" else None
        groups.setdefault((seed, task), {})[run.key] = run
    return [
        Source(
            GeneratedSamples(_first_prompts(benches, runs), count),
            recipe=recipe_of(study, seed, task, benches),
            follow_up=NextStep(runs, benches, section.steps),
            steps=section.steps,
        )
        for (seed, task), runs in groups.items()
    ]


def _first_prompts(benches: Benches, runs: Mapping[str, PlannedRun]) -> Any:
    def make(cell: str) -> Sequence[Made]:
        if (run := runs.get(cell)) is None:
            return ()
        bench = benches[run.benchmark]
        document, question = bench.prompt(run, bench.begin(run))
        # No answer is the right one; a configuration is trained instead.
        return (Made(document, question, (), run.benchmark, {"source": cell}),)

    return make


def recipe_of(
    study: Study, seed: int | None, task: str | None, benches: Benches | None = None
) -> Recipe:
    """Return the recipe for the prompts: the study's settings with this experiment's texts.

    Args:
        seed: seed for sampling replies; None for greedy decoding.
        task: the task whose parameters a reply must have; None for unconstrained replies.

    Raises:
        StudyError: see `sources_of`.
    """
    section = section_of(study)
    refuse_prompt_keys(study, "visibility", "seeds")
    recipe = study.recipe()
    plain = recipe.mode == "completion"
    return replace(
        recipe,
        template=f"{SYSTEM}\n\n{TEMPLATE}" if plain else TEMPLATE,
        system=None if plain else recipe.system or SYSTEM,
        instructions=("{question}",),
        max_output_tokens=section.max_tokens,
        temperature=section.temperature,
        output_schema=None if task is None else reply_schema(task_named(task)),
        constrained=task is not None,
        sampling=None if seed is None else Sampling(seed=seed, rounds=1),
    )
