"""What an agent reads: whole prompts, their order, what is current and what came earlier."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextcliff_dagster.extensions.visibility.agent import (
    SYSTEM,
    TEMPLATE,
    RunState,
    ShownTrial,
    Usage,
    prompt_of,
    resources_text,
)
from contextcliff_dagster.extensions.visibility.landscape import sobol_configs
from contextcliff_dagster.extensions.visibility.section import Axes
from contextcliff_dagster.extensions.visibility.tasks.catalogue import BUNDLED, TASKS, task_named
from contextcliff_dagster.extensions.visibility.tasks.task import Task
from contextcliff_dagster_tests.support.o200k import O200K
from contextcliff_dagster_tests.support.paths import CHECKOUT

MOST_TOKENS = 350
ALL = Axes("shown", "shown", "shown", "shown", "shown", 5)
DIGITS = task_named("digits")


def state_of(task: Task, scores: list[float | None], source: str = "model") -> RunState:
    configs = sobol_configs(task.space, len(scores), 0)
    trials = [
        ShownTrial(config, score, source if k else "start")  # type: ignore[arg-type]
        for k, (config, score) in enumerate(zip(configs, scores, strict=True))
    ]
    return RunState(tuple(trials), (Usage(300, 20),) * (len(scores) - 1))


def test_with_every_axis_hidden_only_settings_and_a_number_are_left() -> None:
    document, question = prompt_of(DIGITS, Axes(), state_of(DIGITS, [0.5, 0.75]))
    assert document == "Choose settings for the next trial that improve the score."
    assert question == (
        'Current trial: {"C": 7.72, "gamma": 2.69e-05}, score 0.7500\n'
        "Reply with a JSON object of C, gamma."
    )


def test_with_every_axis_shown_everything_is_there_in_order() -> None:
    document, question = prompt_of(DIGITS, ALL, state_of(DIGITS, [0.5, None, 0.75]))
    lines = document.splitlines()
    assert lines[1].startswith("The data are 599 images")
    assert lines[2].startswith("The score is accuracy")
    assert lines[3:] == ["A higher score is better.", "Bounds: C 0.01 to 100; gamma 1e-05 to 0.1."]
    earlier = [re.sub(r"[\d.e-]+, [\d.e-]+:", "C, gamma:", one) for one in question.splitlines()]
    assert earlier[:4] == [
        "Earlier trials (C, gamma: score):",
        "0. C, gamma: 0.5000",
        "1. C, gamma: failed",
        "Used so far: 640 tokens, $0.0001, 0.9 s per step.",
    ]


def test_the_prompt_of_the_documentation_is_a_real_one() -> None:
    settings = ((0.0415, 0.0813, 0.1083), (1.0, 0.01, 0.7417), (1.0, 0.001, 0.975))
    trials = tuple(
        ShownTrial({"C": c, "gamma": gamma}, score, "model") for c, gamma, score in settings
    )
    state = RunState(trials, (Usage(262, 15), Usage(291, 16)))
    document, question = prompt_of(DIGITS, ALL, state)
    page = (CHECKOUT / "docs" / "visibility.md").read_text(encoding="utf-8")
    assert f"```text\n{TEMPLATE.format(document=document, question=question)}\n```" in page
    assert SYSTEM in " ".join(page.split())


@pytest.mark.parametrize("task", TASKS, ids=lambda one: one.name)
def test_without_axes_no_word_is_about_data_model_or_score(task: Task) -> None:
    text = " ".join((SYSTEM, *prompt_of(task, Axes(), state_of(task, [0.5, 0.25]))))
    for name in task.space.names:
        text = text.replace(name, "")
    giveaway = r"regress|classif|forest|trees|vector|neighbo|boost|net\b|accura|loss|error|auc|"
    giveaway += r"higher|lower|better|data|train|model|" + re.escape(task.name)
    assert not re.search(giveaway, text, re.IGNORECASE)


@pytest.mark.parametrize("task", BUNDLED, ids=lambda one: one.name)
def test_the_longest_prompt_is_short(task: Task) -> None:
    # Starts have three digits, proposals fewer; errors are written with as many as they have.
    size = {"diabetes": 75.6111, "friedman": 5.0801}.get(task.name, 0.8181)
    count = O200K.count
    for seed in range(3):
        configs = sobol_configs(task.space, 11, seed)
        trials = tuple(ShownTrial(one, size, "model") for one in configs)
        document, question = prompt_of(task, ALL, RunState(trials, (Usage(345, 60),) * 10))
        whole = SYSTEM + TEMPLATE.format(document=document, question=question)
        assert count(whole) <= MOST_TOKENS


@given(
    st.lists(st.none() | st.floats(-5, 5) | st.just(float("nan")), min_size=1, max_size=9),
    st.booleans(),
)
def test_the_best_is_the_first_of_the_best(scores: list[float | None], up: bool) -> None:
    task = replace(DIGITS, score=replace(DIGITS.score, higher_is_better=up))
    state = state_of(task, scores)
    known = [one for one in scores if one is not None and one == one]
    best = state.current(task, Axes(base="best"))
    assert best.validation == ((max if up else min)(known) if known else scores[0]) or not known
    assert state.current_step(task, Axes(base="best")) == (
        scores.index(best.validation) if known else 0
    )
    assert state.current(task, Axes()) is state.trials[-1]


@given(st.integers(0, 12), st.integers(1, 9), st.booleans())
def test_history_lists_the_last_steps_but_the_current(window: int, made: int, best: bool) -> None:
    state = state_of(DIGITS, [0.1 * ((7 * k) % 10) for k in range(made)])
    axes = Axes(history=window, base="best" if best else "last")
    earlier = state.earlier(DIGITS, axes)
    numbers = [number for number, _ in earlier]
    others = [k for k in range(made) if k != state.current_step(DIGITS, axes)]
    assert numbers == others[max(0, len(others) - window) :]
    assert all(trial is state.trials[number] for number, trial in earlier)


def test_a_step_without_a_usable_reply_is_no_configuration_of_the_model() -> None:
    state = state_of(DIGITS, [0.5, 0.5, 0.5, 0.5], source="fallback")
    _, question = prompt_of(DIGITS, Axes(history=5), state)
    assert question.count("no usable reply") == 2
    assert question.count("0.5000") == 2, "the start, and the current trial"


def test_choices_and_whole_numbers_are_written_as_json() -> None:
    housing = task_named("housing")
    state = RunState((ShownTrial({**housing.space.start, "max_features": 1.0}, 0.6, "start"),))
    document, question = prompt_of(housing, Axes(bounds="shown"), state)
    assert "bootstrap false or true" in document
    assert "max_depth 2 to 80, integer" in document
    assert '"bootstrap": false' in question
    assert '"max_features": 1,' in question


@given(st.lists(st.none() | st.builds(Usage, st.integers(0, 9999), st.integers(0, 999))))
def test_resources_are_sums_over_the_steps_with_records(usage: list[Usage | None]) -> None:
    known = [one for one in usage if one]
    total = sum(one.prompt_tokens + one.output_tokens for one in known)
    text = resources_text(usage)
    assert text.startswith(f"Used so far: {total} tokens, $")
    assert text == resources_text(known), "a step without a record changes nothing"
    assert text == resources_text(usage[::-1])
