"""Scripted agents see what the prompt shows and nothing else; the analysis finds what they do."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import product

import numpy as np
import pytest

from contextcliff_dagster.extensions.visibility.agent import (
    TEMPLATE,
    RunState,
    ShownTrial,
    Usage,
    prompt_of,
)
from contextcliff_dagster.extensions.visibility.analysis.model import analyse_model
from contextcliff_dagster.extensions.visibility.controls import (
    ScriptedAgent,
    ignores_everything,
    read_prompt,
    uses_what_it_sees,
)
from contextcliff_dagster.extensions.visibility.landscape import Landscape, sobol_configs
from contextcliff_dagster.extensions.visibility.section import Axes, VisibilitySection
from contextcliff_dagster.extensions.visibility.tasks.catalogue import BUNDLED, task_named
from contextcliff_dagster.extensions.visibility.tasks.task import Number, Task
from contextcliff_dagster_tests.extensions.visibility.tabulated_runs import Tabulated


def _state(task: Task, steps: int = 4) -> RunState:
    trials = [ShownTrial(task.space.start, 0.5, "start")]
    configs = sobol_configs(task.space, steps, 0)
    for number, config in enumerate(configs):
        score = None if number == 1 else 0.5 + 0.01 * number
        source = "fallback" if number == 2 else "model"
        trials.append(ShownTrial(config, score, source))  # type: ignore[arg-type]
    return RunState(tuple(trials), (Usage(10, 5),) * steps)


def _prompt(task: Task, axes: Axes) -> str:
    document, question = prompt_of(task, axes, _state(task))
    return TEMPLATE.format(document=document, question=question)


@pytest.mark.parametrize("task", BUNDLED, ids=lambda task: task.name)
def test_a_view_is_what_the_prompt_shows(task: Task) -> None:
    state = _state(task)
    texts, levels = ("hidden", "placebo", "shown"), ("hidden", "shown")
    for text, bounds, direction, history in product(texts, levels, levels, (0, 2, 10)):
        axes = Axes(text, text, "shown", bounds, direction, history)  # type: ignore[arg-type]
        view = read_prompt(_prompt(task, axes))
        assert view.names == task.space.names
        assert view.current.config == state.trials[-1].config
        assert view.current.score == pytest.approx(0.53)
        # A step without a usable reply is listed as such, without a configuration.
        assert len(view.earlier) == {0: 0, 2: 1, 10: 3}[history]
        assert all(
            dict(one.config) in [dict(t.config) for t in state.trials] for one in view.earlier
        )
        higher = "higher" if task.score.higher_is_better else "lower"
        assert view.direction == (higher if direction == "shown" else None)
        assert set(view.bounds) == (set(view.names) if bounds == "shown" else set())
        for parameter in task.space.parameters if bounds == "shown" else ():
            read = view.bounds[parameter.name]
            if isinstance(parameter, Number) and isinstance(read, Number):
                shown = (read.low, read.high, read.integer)
                assert shown == (parameter.low, parameter.high, parameter.integer)
            else:
                assert read == parameter


def test_other_texts_are_no_prompt() -> None:
    with pytest.raises(ValueError, match="not one of the experiment visibility"):
        read_prompt("Tell me a joke.")


@pytest.mark.parametrize("agent", [uses_what_it_sees, ignores_everything])
def test_a_reply_rests_on_the_prompt_and_its_draws_alone(agent: ScriptedAgent) -> None:
    for task in BUNDLED:
        prompt = _prompt(task, Axes(bounds="shown", direction="shown", history=10))
        replies = [agent(prompt, np.random.default_rng(seed)) for seed in (1, 1, 2)]
        assert replies[0] == replies[1] != replies[2]
        assert set(json.loads(replies[0])) == set(task.space.names)


def test_what_is_ignored_changes_no_reply() -> None:
    task = task_named("friedman")
    shown = _prompt(task, Axes("shown", "shown", "shown", "shown", "shown", 10))
    hidden = _prompt(task, Axes())
    for seed in range(5):
        one, two = (
            ignores_everything(prompt, np.random.default_rng(seed)) for prompt in (shown, hidden)
        )
        assert one == two


def test_bounds_that_are_shown_are_kept() -> None:
    for task in BUNDLED:
        prompt = _prompt(task, Axes(bounds="shown", direction="shown", history=10))
        for seed in range(20):
            proposed = json.loads(uses_what_it_sees(prompt, np.random.default_rng(seed)))
            for one in task.space.parameters:
                assert 0 <= one.position(proposed[one.name]) <= 1
                if isinstance(one, Number):
                    assert one.low <= proposed[one.name] <= one.high


def _landscape(task: Task, height: Callable[[float], float]) -> Landscape:
    configs = tuple(sobol_configs(task.space, 128, 0))
    scores = np.array([[height(task.space.positions(config)[0])] * 4 for config in configs])
    scores += np.random.default_rng(0).normal(0.0, 0.005, scores.shape)
    return Landscape(task.name, "", True, 1.0, configs, (0, 1, 2, 3), scores, scores)


@pytest.fixture(scope="module")
def tabulated() -> Tabulated:
    """One hill over log C, a plateau below it."""
    hill = _landscape(task_named("toy"), lambda c: 0.5 + 0.4 * np.exp(-(((c - 0.8) / 0.1) ** 2)))
    return Tabulated({"toy": hill})


def _section(**given: object) -> VisibilitySection:
    levels = {"bounds": ["hidden", "shown"], "history": [0, 10], "direction": ["hidden", "shown"]}
    usual = {"benchmarks": "toy", "task": "hidden", "metric": "hidden", "seeds": 8}
    return VisibilitySection.model_validate(usual | levels | given)


def test_bounds_help_the_agent_that_uses_them(tabulated: Tabulated) -> None:
    section = _section()
    result = analyse_model(tabulated.records(uses_what_it_sees, section), section)
    verdicts = {one.axis: one.verdict for one in result.effects if one.outcome == "regret"}
    assert verdicts["bounds"] == "better"
    assert "worse" not in verdicts.values()
    assert result.warnings == []


def test_the_same_draw_gives_the_same_records(tabulated: Tabulated) -> None:
    section = _section(seeds=2, steps=3)
    one, two, other = (tabulated.records(ignores_everything, section, draw) for draw in (1, 1, 2))
    assert one.equals(two)
    assert not one.equals(other)
    assert len(one) == 2 * 8 * 3


def test_an_agent_that_ignores_everything_shows_no_effect(tabulated: Tabulated) -> None:
    """Slow: 60 grids of 64 runs. At most 5% show an effect on the regret, give or take."""
    shown = 0
    for grid in range(60):
        section = _section(first_seed=8 * grid)
        result = analyse_model(tabulated.records(ignores_everything, section, grid), section)
        shown += any(
            one.verdict in ("better", "worse") for one in result.effects if one.outcome == "regret"
        )
    assert shown <= 8
