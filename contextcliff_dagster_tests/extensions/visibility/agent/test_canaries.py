"""What an axis hides is nowhere in a prompt, by word and by value."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from itertools import product
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextcliff_dagster.extensions.visibility.agent import (
    SYSTEM,
    TEMPLATE,
    RunState,
    ShownTrial,
    Texts,
    Usage,
    prompt_of,
    reply_schema,
)
from contextcliff_dagster.extensions.visibility.section import Axes, Base, Shown, StartName, Text
from contextcliff_dagster.extensions.visibility.tasks.task import Choice, Number, Score, Space, Task

STEPS = 8
SPACE = Space(
    (
        Number("alpha", 0.0137, 91.43, log=True),
        Number("leaves", 3, 7919, integer=True),
        Choice("kind", ("aardwolf", "bonobo", "capybara", "dugong")),
    ),
    {"alpha": 0.5511, "leaves": 17, "kind": "bonobo"},
)
TEXTS = Texts("Xylophones ring.", "Quokkas doze.", "Zeppelins drift.", "Walruses hum.")
USAGE = tuple(Usage(1009 + 13 * k, 40 + k) for k in range(STEPS))
TRIALS = tuple(
    ShownTrial(
        {"alpha": round(1.0071 + 1.1 * k, 4), "leaves": 5011 + 113 * k, "kind": "bonobo"},
        # The fourth is the best where higher is better, the sixth where lower is.
        round(0.6113 + 0.011 * k + {3: 0.3, 5: -0.3}.get(k, 0), 4),
        "model" if k else "start",
    )
    for k in range(STEPS + 1)
)
STATE = RunState(TRIALS, USAGE)
TOKENS = "8784"  # the sum of USAGE


def task_of(*, higher_is_better: bool = True, space: Space = SPACE) -> Task:
    score = Score("jackalope score", higher_is_better, lambda a, b: 0.0)
    return Task("unicorn", "gryphons and wyverns", space, score, lambda config, seed: None)


def read_by(axes: Axes, *, higher_is_better: bool = True, state: RunState = STATE) -> str:
    """Everything that a model, or the engine that it runs in, is given."""
    task = task_of(higher_is_better=higher_is_better)
    document, question = prompt_of(task, axes, state, TEXTS)
    rendered = TEMPLATE.format(document=document, question=question)
    return "\n".join((SYSTEM, rendered, json.dumps(reply_schema(task))))


def canaries(axes: Axes, *, higher_is_better: bool = True) -> dict[str, bool]:
    """Every canary, and whether this combination shows it."""
    best = 3 if higher_is_better else 5
    current = STEPS if axes.base == "last" else best
    listed = [k for k in range(STEPS + 1) if k != current][STEPS - axes.history :]
    listed = listed if axes.history else []
    seen = {
        TEXTS.task: axes.task == "shown",
        TEXTS.task_placebo: axes.task == "placebo",
        TEXTS.metric: axes.metric == "shown",
        TEXTS.metric_placebo: axes.metric == "placebo",
        "better": axes.direction == "shown",
        "higher": axes.direction == "shown" and higher_is_better,
        "lower": axes.direction == "shown" and not higher_is_better,
        **dict.fromkeys(
            ("0.0137", "91.43", "7919", "aardwolf", "capybara", "dugong", "Bounds"),
            axes.bounds == "shown",
        ),
        **dict.fromkeys(
            (TOKENS, "$0.0015", "1.5 s", "tokens", "per step", "Used"), axes.resources == "shown"
        ),
        "Earlier trials": axes.history > 0,
        # Never: names of task and score, single steps' tokens, what the start or the base is.
        **dict.fromkeys(("unicorn", "gryphons", "wyverns", "jackalope", "1009", "1022"), False),
        **dict.fromkeys(("neutral", "default", "best", "0.5511"), False),
    }
    for k, trial in enumerate(TRIALS):
        shown = k == current or k in listed
        seen[str(trial.config["alpha"])] = seen[str(trial.config["leaves"])] = shown
        seen[f"{trial.validation:.4f}"] = shown
        seen[f"\n{k}. "] = k in listed
    return seen


def wrong(axes: Axes, text: str, *, higher_is_better: bool = True) -> list[str]:
    """The canaries that are in ``text`` and hidden, or shown and not in it."""
    expected = canaries(axes, higher_is_better=higher_is_better)
    return [one for one, shown in expected.items() if (one in text) != shown]


AXES = st.builds(
    Axes,
    task=st.sampled_from(get_args(Text)),
    metric=st.sampled_from(get_args(Text)),
    resources=st.sampled_from(get_args(Shown)),
    bounds=st.sampled_from(get_args(Shown)),
    direction=st.sampled_from(get_args(Shown)),
    history=st.integers(0, STEPS),
    base=st.sampled_from(get_args(Base)),
    start=st.sampled_from(get_args(StartName)),
)


def test_no_canary_is_part_of_another() -> None:
    names = canaries(Axes(history=STEPS))
    numbers = [one for one in names if any(map(str.isdigit, one)) and "\n" not in one]
    assert len(numbers) > 30
    assert not [(a, b) for a in numbers for b in names if a != b and a in b]


@given(AXES, st.booleans())
def test_a_canary_is_in_the_prompt_exactly_where_its_axis_is_shown(axes: Axes, up: bool) -> None:
    assert not wrong(axes, read_by(axes, higher_is_better=up), higher_is_better=up)


def test_every_combination_of_texts_and_marks_holds_it_too() -> None:
    shown, texts = get_args(Shown), get_args(Text)
    for levels in product(texts, texts, shown, shown, shown, (0, 1, 5), get_args(Base)):
        axes = Axes(*levels)
        assert not wrong(axes, read_by(axes)), axes.signature


@given(AXES, AXES)
def test_the_canaries_tell_any_two_combinations_apart(claimed: Axes, real: Axes) -> None:
    # A prompt that shows more or less than it claims is caught, whichever axis it is.
    same = replace(claimed, start=real.start) == real
    assert bool(wrong(claimed, read_by(real))) != same


@pytest.mark.parametrize("name", [one.name for one in fields(Axes) if one.name != "start"])
def test_every_axis_changes_what_is_read(name: str) -> None:
    levels = {"history": 5, "base": "best"}
    assert read_by(replace(Axes(), **{name: levels.get(name, "shown")})) != read_by(Axes())


@given(AXES)
def test_the_start_is_no_word_of_the_prompt(axes: Axes) -> None:
    assert read_by(axes) == read_by(replace(axes, start="high"))


@given(AXES, st.booleans())
def test_the_document_is_the_same_in_the_whole_run(axes: Axes, up: bool) -> None:
    task = task_of(higher_is_better=up)
    documents = {
        prompt_of(task, axes, RunState(TRIALS[: k + 1], USAGE[:k]), TEXTS)[0]
        for k in range(STEPS + 1)
    }
    assert len(documents) == 1


@given(AXES, st.integers(0, 1000))
def test_what_is_hidden_has_no_influence(axes: Axes, seed: int) -> None:
    """Another world behind the hidden axes gives the same prompt, to the letter."""
    rng = np.random.default_rng(seed)
    task, texts, state = task_of(), TEXTS, STATE
    if axes.bounds == "hidden":
        other = Space(
            (
                Number("alpha", 0.001, 1000),
                Number("leaves", 1, 10_000, log=True, integer=True),
                Choice("kind", ("bonobo", "axolotl")),
            ),
            SPACE.start,
        )
        task = task_of(space=other)
    if axes.task == "hidden":
        texts = replace(texts, task="?", task_placebo="!")
    if axes.metric == "hidden":
        texts = replace(texts, metric="?", metric_placebo="!")
    if axes.resources == "hidden":
        usage = tuple(Usage(*map(int, rng.integers(1, 999, 2))) for _ in USAGE)
        state = replace(state, usage=usage)
    if axes.history == 0 and axes.base == "last":
        state = replace(state, trials=(*TRIALS[::-1][1:], TRIALS[-1]))
    if axes.direction == "hidden" and axes.base == "last":
        task = replace(task, score=replace(task.score, higher_is_better=False))
    task = replace(task, name="another", summary="another")
    assert prompt_of(task, axes, state, texts) == prompt_of(task_of(), axes, STATE, TEXTS)
    assert reply_schema(task) == reply_schema(task_of())
