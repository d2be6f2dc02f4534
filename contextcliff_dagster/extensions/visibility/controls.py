"""Agents of known behaviour, usable as engines in models.yaml, for validating the analysis.

`visibility-attentive` uses the information in a prompt; `visibility-random` ignores it. Both get
the same prompts as a model and reply in the same form; neither knows the levels of the axes.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from contextcliff_dagster.contracts import StudyError
from contextcliff_dagster.extensions.visibility.tasks.task import Choice, Number, Value
from contextcliff_dagster.inference.engines.base import Decoding, RejectedError
from contextcliff_dagster.inference.engines.scripted import UNLIMITED, ScriptedEngine
from contextcliff_dagster.inference.models.models_file import ModelEntry
from contextcliff_dagster.inference.requests.recipe import Prompt

if TYPE_CHECKING:
    from contextcliff_dagster.contracts.arrays import Floats


_CANDIDATES = 64
_DECADES = 4.0
"""Assumed width, in powers of ten, of a parameter whose bounds are not shown."""
_STEPS = (0.08, 0.15, 0.3, 0.45)
"""SDs of the steps from a trial, as fractions of a parameter's width. Without evidence for larger
steps, the first is used."""
_LENGTH = 0.4
"""Distance within which scores are assumed similar, as a fraction of a parameter's width."""
_NOISE = 0.1
_CURIOSITY = 2.0


ScriptedAgent: TypeAlias = Callable[[str, np.random.Generator], str]
"""A stateless function from a prompt, and a source of its draws, to the reply, a JSON object."""


def ignores_everything(prompt: str, rng: np.random.Generator) -> str:
    """Return log-uniform numbers from 1e-4 to 1e4, whatever the prompt shows."""
    names = read_prompt(prompt).names
    return json.dumps({name: 10 ** rng.uniform(-4.0, 4.0) for name in names})


def uses_what_it_sees(prompt: str, rng: np.random.Generator) -> str:
    """Return a proposal based on the bounds, earlier trials and direction that the prompt shows.

    The candidates lie near a trial and, if bounds are shown, anywhere between them. With earlier
    trials and a direction, the agent takes the candidate with the highest upper confidence bound of
    a Gaussian process (Srinivas et al. 2010); otherwise scores are uninformative, and it picks any.
    """
    view = read_prompt(prompt)
    trials = [trial for trial in (*view.earlier, view.current) if trial.score is not None]
    points = np.array([_places(view, trial) for trial in trials or [view.current]])
    scores = np.array([trial.score for trial in trials], float)
    if view.direction == "lower":
        scores = -scores
    if view.direction is None or len(trials) < 2:
        return json.dumps(_config(view, _candidates(view, points[-1], rng)[0]))
    # Of equals the last: on a plateau the first would never be left.
    best = np.flatnonzero(scores == scores.max())[-1]
    candidates = _candidates(view, points[best], rng)
    mean, sd = _predicted(points, scores, candidates)
    choice = int(np.argmax(mean + _CURIOSITY * sd))
    return json.dumps(_config(view, candidates[choice]))


def _candidates(view: PromptView, centre: Floats, rng: np.random.Generator) -> Floats:
    """Return candidate positions (64, D) near ``centre`` or, if bounds are known, half anywhere."""
    widths = np.tile(_STEPS, _CANDIDATES // len(_STEPS))[:, None]
    near: Floats = centre + rng.normal(0.0, 1.0, (_CANDIDATES, len(centre))) * widths
    if not view.bounds:
        return near
    anywhere = rng.random((_CANDIDATES, len(centre)))
    anywhere[1::2] = np.clip(near[1::2], 0.0, 1.0)
    return anywhere


def _predicted(known: Floats, scores: Floats, candidates: Floats) -> tuple[Floats, Floats]:
    """Return a Gaussian process's mean and SD at the candidates (K each), in SDs of the scores."""
    y = (scores - scores.mean()) / (scores.std() or 1.0)
    inside = _kernel(known, known) + _NOISE * np.eye(len(known))
    across = _kernel(candidates, known)
    solution = np.linalg.solve(inside, np.column_stack([y, across.T]))
    variance = 1.0 - (across * solution[:, 1:].T).sum(axis=1)
    mean: Floats = across @ solution[:, 0]
    return mean, np.sqrt(np.maximum(variance, 0.0))


def _kernel(a: Floats, b: Floats) -> Floats:
    distances = ((a[:, None, :] - b[None, :, :]) ** 2).sum(axis=2)
    return np.asarray(np.exp(-0.5 * distances / _LENGTH**2))


def _places(view: PromptView, trial: Seen) -> Sequence[float]:
    """Return a trial's position: 0 to 1 between bounds or, without them, log10 divided by four."""
    return [_place(view, name, trial.config[name]) for name in view.names]


def _place(view: PromptView, name: str, value: Value) -> float:
    if name in view.bounds:
        return view.bounds[name].position(value)
    if isinstance(value, str | bool) or value <= 0:
        return 0.0
    return math.log10(value) / _DECADES


def _config(view: PromptView, places: Floats) -> Mapping[str, Value]:
    config: dict[str, Value] = {}
    for name, place in zip(view.names, places.tolist(), strict=True):
        parameter = view.bounds.get(name)
        current = view.current.config[name]
        if parameter is not None:
            config[name] = parameter.at(min(max(place, 0.0), 1.0 - 1e-9))
        elif isinstance(current, str | bool):
            config[name] = current  # what else there is to choose from is not shown
        else:
            value = 10.0 ** (place * _DECADES)
            config[name] = round(value) if isinstance(current, int) else float(f"{value:.4g}")
    return config


_NAMES = re.compile(r"^Reply with a JSON object of (.+)\.$", re.MULTILINE)
_CURRENT = re.compile(r"^Current trial: (\{.*\}), score (\S+)$", re.MULTILINE)
_EARLIER = re.compile(r"^\d+\. (.+): (\S+)$", re.MULTILINE)
_DIRECTION = re.compile(r"^A (higher|lower) score is better\.$", re.MULTILINE)
_BOUNDS = re.compile(r"^Bounds: (.+)\.$", re.MULTILINE)
_RANGE = re.compile(r"^(\S+) (\S+) to ([^\s,]+)(, integer)?$")
_LOG_FROM = 50.0
"""Ratio of bounds from which a scale, which prompts do not state, is assumed to be logarithmic."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A trial as shown in a prompt; ``score`` is None if its training failed."""

    config: Mapping[str, Value]
    score: float | None


@dataclass(frozen=True, slots=True)
class PromptView:
    """The information in a prompt, parsed from its text.

    Attributes:
        names: names of the parameters.
        current: the configuration that a proposal modifies.
        earlier: other trials, oldest first; empty if none are shown.
        bounds: bounds by parameter name; empty if none are shown.
        direction: which score is better, ``higher`` or ``lower``; None if it is not shown.
    """

    names: tuple[str, ...]
    current: Seen
    earlier: tuple[Seen, ...]
    bounds: Mapping[str, Number | Choice]
    direction: str | None


def read_prompt(prompt: str) -> PromptView:
    """Parse the information in a prompt of `agent.prompt_of`; raise ValueError for another text."""
    match, current = _NAMES.search(prompt), _CURRENT.search(prompt)
    if match is None or current is None:
        raise ValueError("the prompt is not one of the experiment visibility")
    names = tuple(match[1].split(", "))
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
        direction=direction and direction[1],
    )


def _score(text: str) -> float | None:
    return None if text == "failed" else float(text)


def _parameter(text: str) -> tuple[str, Number | Choice]:
    numbers = _RANGE.match(text)
    if numbers is None:
        name, _, choices = text.partition(" ")
        return name, Choice(name, tuple(json.loads(choice) for choice in choices.split(" or ")))
    low, high = float(numbers[2]), float(numbers[3])
    log = low > 0 and high / low >= _LOG_FROM
    return numbers[1], Number(numbers[1], low, high, log=log, integer=bool(numbers[4]))


AGENTS_VERSION = 1
"""Version in the agents' identity; increase it if an agent's replies change."""
_AGENTS: dict[str, ScriptedAgent] = {
    "visibility-attentive": uses_what_it_sees,
    "visibility-random": ignores_everything,
}


def agent_identity(entry: ModelEntry) -> dict[str, Any]:
    """Return everything that determines an agent's replies."""
    return {
        "engine": entry.engine,
        "agents_version": AGENTS_VERSION,
        "tokenizer": entry.tokenizer or "tiktoken:o200k_base",
        "window_tokens": entry.window_tokens or UNLIMITED,
    }


class Agent(ScriptedEngine):
    """An engine that replies with an agent's proposals; prompt and seed determine its draws."""

    def __init__(self, entry: ModelEntry) -> None:
        super().__init__(entry, agent_identity(entry))
        self._agent = _AGENTS[entry.engine]

    def reply(self, prompt: Prompt, decoding: Decoding) -> tuple[str, str]:
        """Return the next configuration; raise RejectedError for a prompt of another experiment."""
        seed = decoding.sampling.seed if decoding.sampling else 0
        rng = np.random.default_rng([int(prompt.hash[:12], 16), seed])
        try:
            return self._agent(prompt.contents()[-1], rng), "stop"
        except (StudyError, ValueError, LookupError) as error:
            raise RejectedError(
                f"engine {self._entry.engine!r} only reads prompts of the experiment `visibility`"
            ) from error
