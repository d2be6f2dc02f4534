"""What an agent reads at one step.

A prompt has nothing in it but what the axes show, the names and current values of the parameters,
the current score as a bare number, and the form of the reply.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from contextcliff_dagster.extensions.visibility.agent.state import RunState, ShownTrial, Usage
from contextcliff_dagster.extensions.visibility.agent.texts import Texts, texts_of
from contextcliff_dagster.extensions.visibility.axes import Axes
from contextcliff_dagster.extensions.visibility.tasks.parameters import (
    Choice,
    Parameter,
    Space,
    Value,
)
from contextcliff_dagster.extensions.visibility.tasks.task import Task

TEMPLATE = "{document}\n\n{question}"
_INSTRUCTION = "Choose settings for the next trial that improve the score."


def system_text() -> str:
    """Return the text of the system turn."""
    return "Reply with one JSON object and nothing else."


def prompt_of(
    task: Task, axes: Axes, state: RunState, texts: Texts | None = None
) -> tuple[str, str]:
    """Return the prompt of the next step: what is the same in the whole run, and the rest.

    Args:
        texts: about the task, its score, and of their placebos; by default those of
            `agent.texts`.

    Raises:
        KeyError: no texts are given, and there are none for the task.
    """
    return _document(task, axes, texts or texts_of(task.name)), _question(task, axes, state)


def _document(task: Task, axes: Axes, texts: Texts) -> str:
    parts = [_INSTRUCTION]
    if axes.task != "hidden":
        parts.append(texts.task if axes.task == "shown" else texts.task_placebo)
    if axes.metric != "hidden":
        parts.append(texts.metric if axes.metric == "shown" else texts.metric_placebo)
    if axes.direction == "shown":
        word = "higher" if task.score.higher_is_better else "lower"
        parts.append(f"A {word} score is better.")
    if axes.bounds == "shown":
        parts.append(f"Bounds: {'; '.join(map(_bounds, task.space.parameters))}.")
    return "\n".join(parts)


def _bounds(parameter: Parameter) -> str:
    if isinstance(parameter, Choice):
        return f"{parameter.name} {' or '.join(map(_value, parameter.choices))}"
    low, high = _value(parameter.low), _value(parameter.high)
    return f"{parameter.name} {low} to {high}{', integer' if parameter.integer else ''}"


def _value(value: Value) -> str:
    """The value as JSON, whole numbers without a point."""
    whole = isinstance(value, float) and value.is_integer()
    return json.dumps(int(value) if whole else value)


def _question(task: Task, axes: Axes, state: RunState) -> str:
    space, current = task.space, state.current(task, axes)
    parts = []
    if earlier := state.earlier(task, axes):
        parts.append(f"Earlier trials ({', '.join(space.names)}: score):")
        parts.extend(f"{step}. {_line(space, trial)}" for step, trial in earlier)
    if axes.resources == "shown":
        parts.append(resources_text(state.usage))
    settings = ", ".join(f'"{name}": {_value(current.config[name])}' for name in space.names)
    parts.append(f"Current trial: {{{settings}}}, score {_score(current)}")
    parts.append(f"Reply with a JSON object of {', '.join(space.names)}.")
    return "\n".join(parts)


def _line(space: Space, trial: ShownTrial) -> str:
    if trial.source == "fallback":
        return "no usable reply"
    values = ", ".join(_value(trial.config[name]) for name in space.names)
    return f"{values}: {_score(trial)}"


def _score(trial: ShownTrial) -> str:
    return "failed" if trial.failed else f"{trial.validation:.4f}"


INPUT_USD_PER_MTOK = 0.15
OUTPUT_USD_PER_MTOK = 0.60
SECONDS_A_CALL = 0.4
SECONDS_A_PROMPT_TOKEN = 0.0002
SECONDS_AN_OUTPUT_TOKEN = 0.02
"""A fixed tariff, round numbers of a small hosted model: real prices change and real latencies
differ between two runs, and a prompt that holds them cannot be made again. What is paid, and how
long it took, is in the ledger."""


def resources_text(usage: Sequence[Usage | None]) -> str:
    """Return tokens, cost (USD) and mean latency (s) of the steps so far as one line.

    Steps without recorded tokens (None) are left out of all three.
    """
    known = [one for one in usage if one is not None]
    prompt = sum(one.prompt_tokens for one in known)
    output = sum(one.output_tokens for one in known)
    cost = (prompt * INPUT_USD_PER_MTOK + output * OUTPUT_USD_PER_MTOK) / 1e6
    seconds = prompt * SECONDS_A_PROMPT_TOKEN + output * SECONDS_AN_OUTPUT_TOKEN
    latency = SECONDS_A_CALL + seconds / len(known) if known else 0.0
    return f"Used so far: {prompt + output} tokens, ${cost:.4f}, {latency:.1f} s per step."
