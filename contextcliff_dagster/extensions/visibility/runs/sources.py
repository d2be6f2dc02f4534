"""The calls of a study: the first prompt of each run, and those that rest on the replies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.contracts import StudyError
from contextcliff_dagster.experiments.common.experiment import Source
from contextcliff_dagster.experiments.common.generated import GeneratedSamples, Made
from contextcliff_dagster.experiments.common.kept_documents import DEFAULT_TOKENIZER
from contextcliff_dagster.extensions.visibility.agent.prompts import TEMPLATE, system_text
from contextcliff_dagster.extensions.visibility.agent.replies import reply_schema
from contextcliff_dagster.extensions.visibility.agent.state import Usage
from contextcliff_dagster.extensions.visibility.axes import PlannedRun, runs_of
from contextcliff_dagster.extensions.visibility.landscape.grounds import section_of
from contextcliff_dagster.extensions.visibility.runs.tuning import Benches, History
from contextcliff_dagster.inference.requests.call_plan import PlannedCall, follow_up
from contextcliff_dagster.inference.requests.sampling import Sampling

if TYPE_CHECKING:
    from contextcliff_dagster.inference.requests.outcome import Outcome
    from contextcliff_dagster.inference.requests.recipe import Recipe
    from contextcliff_dagster.studies import Study

_LEFT_ALONE = ("template", "instructions", "output_schema")


@dataclass(frozen=True)
class NextStep:
    """The call that comes after one with an outcome, until a run has all its steps.

    Each prompt is whole in itself: the earlier ones are not repeated before it, only what the axes
    show of them. A call's key rests on those of all calls before it.
    """

    runs: Mapping[str, PlannedRun]
    benches: Benches
    steps: int
    _histories: dict[tuple[str, str], History] = field(default_factory=dict, repr=False)

    def __call__(self, call: PlannedCall, outcome: Outcome) -> PlannedCall | None:
        """Return it; None where the run is whole."""
        run, parts = self.runs[call.bin], call.parts or {}
        bench = self.benches[run.benchmark]
        made = int(parts.get("step", 1))
        if made >= self.steps:
            return None
        before = self._histories.get((call.bin, call.call_key)) or bench.begin(run)
        history = bench.after(run, before, outcome.raw_output, usage_of(outcome))
        _, question = bench.prompt(run, history)
        following = follow_up(call, outcome.raw_output or "", question, step=made + 1)
        following = replace(following, turns=())
        self._histories[call.bin, following.call_key] = history
        return following


def usage_of(answer: Outcome | Mapping[str, Any]) -> Usage | None:
    """Return the tokens that a call was recorded with; None where none are known."""
    get = answer.get if isinstance(answer, Mapping) else lambda name: getattr(answer, name)
    read = get("prompt_tokens")
    read = get("own_prompt_tokens") if read is None else read
    written = get("completion_tokens")
    return None if read is None and written is None else Usage(read or 0, written or 0)


def sources_of(study: Study, benches: Benches) -> list[Source]:
    """Return one source for each recipe: a seed where replies are drawn, a benchmark where the
    engine keeps to its schema.

    Raises:
        StudyError: the study has a key of `prompt` that these prompts leave no room for.
    """
    section = section_of(study)
    groups: dict[tuple[int | None, str | None], dict[str, PlannedRun]] = {}
    for run in runs_of(section):
        seed = run.seed if section.temperature > 0 else None
        task = run.benchmark if section.replies == "schema" else None
        groups.setdefault((seed, task), {})[run.key] = run
    count = _counter(study)
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
    """Return how the prompts are sent: the study's way, with our words.

    Args:
        seed: draws the replies; None: the likeliest ones.
        task: the benchmark whose parameters a reply must have; None: replies are free.

    Raises:
        StudyError: as `sources_of`.
    """
    from contextcliff_dagster.extensions.visibility.tasks.catalogue import task_named

    section = section_of(study)
    if not study.has_corpus:
        for key in _LEFT_ALONE:
            if getattr(study.prompt, key) is not None:
                raise StudyError(
                    f"Study {study.name!r}: the prompts of `visibility` are its own, so "
                    f"`prompt.{key}` would change nothing; leave it out."
                )
        if study.prompt.replicates > 1:
            raise StudyError(
                f"Study {study.name!r}: a run is repeated by `visibility.seeds`; leave "
                "`prompt.replicates` out."
            )
    recipe = study.recipe()
    plain = recipe.mode == "completion"
    return replace(
        recipe,
        template=f"{system_text()}\n\n{TEMPLATE}" if plain else TEMPLATE,
        system=None if plain else recipe.system or system_text(),
        instructions=("{question}",),
        max_output_tokens=section.max_tokens,
        temperature=section.temperature,
        output_schema=None if task is None else reply_schema(task_named(task)),
        constrained=task is not None,
        sampling=None if seed is None else Sampling(seed=seed, rounds=1),
    )


def _counter(study: Study) -> Any:
    from contextcliff_dagster.inference.models.tokenizers import open_any_tokenizer
    from contextcliff_dagster.studies.study_paths import refuse_without_leave

    refuse_without_leave(study, "tokenizer")
    return open_any_tokenizer(study.tokenizer_name or DEFAULT_TOKENIZER).count
