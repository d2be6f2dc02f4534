"""What a prompt shows, read back from its text."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from contextcliff_dagster.experiments.visibility.tasks.parameters import Choice, Number, Value

Direction: TypeAlias = Literal["higher", "lower"]
_NAMES = re.compile(r"^Reply with a JSON object of (.+)\.$", re.MULTILINE)
_CURRENT = re.compile(r"^Current trial: (\{.*\}), score (\S+)$", re.MULTILINE)
_EARLIER = re.compile(r"^\d+\. (.+): (\S+)$", re.MULTILINE)
_DIRECTION = re.compile(r"^A (higher|lower) score is better\.$", re.MULTILINE)
_BOUNDS = re.compile(r"^Bounds: (.+)\.$", re.MULTILINE)
_RANGE = re.compile(r"^(\S+) (\S+) to ([^\s,]+)(, integer)?$")
_LOG_FROM = 50.0
"""Ratio of the bounds from which a scale is taken to be logarithmic: a prompt does not say."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A trial as it is shown; ``score`` None: its training failed."""

    config: Mapping[str, Value]
    score: float | None


@dataclass(frozen=True, slots=True)
class PromptView:
    """What a prompt shows.

    Attributes:
        names: of the parameters.
        current: the configuration that a proposal is put on.
        earlier: other trials, oldest first; empty where none is shown.
        bounds: by name; empty where none is shown.
        direction: of the score; None where it is not shown.
    """

    names: tuple[str, ...]
    current: Seen
    earlier: tuple[Seen, ...]
    bounds: Mapping[str, Number | Choice]
    direction: Direction | None


def read_prompt(prompt: str) -> PromptView:
    """Return what `agent.prompts.prompt_of` shows.

    Raises:
        ValueError: it is no such prompt.
    """
    named, current = _NAMES.search(prompt), _CURRENT.search(prompt)
    if named is None or current is None:
        raise ValueError("this is no prompt of the experiment visibility")
    names = tuple(named[1].split(", "))
    earlier = tuple(
        Seen(dict(zip(names, json.loads(f"[{values}]"), strict=True)), _score(score))
        for values, score in _EARLIER.findall(prompt)
    )
    direction, bounds = _DIRECTION.search(prompt), _BOUNDS.search(prompt)
    return PromptView(
        names=names,
        current=Seen(json.loads(current[1]), _score(current[2])),
        earlier=earlier,
        bounds={} if bounds is None else dict(map(_parameter, bounds[1].split("; "))),
        direction=None if direction is None else _direction(direction[1]),
    )


def _score(text: str) -> float | None:
    return None if text == "failed" else float(text)


def _direction(word: str) -> Direction:
    return "higher" if word == "higher" else "lower"


def _parameter(text: str) -> tuple[str, Number | Choice]:
    numbers = _RANGE.match(text)
    if numbers is None:
        name, _, choices = text.partition(" ")
        return name, Choice(name, tuple(json.loads(one) for one in choices.split(" or ")))
    low, high = float(numbers[2]), float(numbers[3])
    log = low > 0 and high / low >= _LOG_FROM
    return numbers[1], Number(numbers[1], low, high, log=log, integer=bool(numbers[4]))
