"""Prompts that an agent is shown at each step, and parsing of its replies.

Contains the texts on the task and its score, each with a placebo of equal length; the state of a
run; the prompts; and the parsing of the configuration in a reply.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from contextcliff_dagster.extensions.visibility.section import Axes
from contextcliff_dagster.extensions.visibility.tasks.task import (
    Choice,
    Config,
    Number,
    Parameter,
    Shown,
    Space,
    Task,
    Value,
    shown,
)


@dataclass(frozen=True, slots=True)
class ShownTrial:
    """A trained configuration.

    Attributes:
        validation: score on the rows that a search sees; None or nan if training failed.
        source: who chose the configuration.
    """

    config: Config
    validation: float | None
    source: Literal["start", "model", "fallback"]

    @property
    def failed(self) -> bool:
        return self.validation is None or math.isnan(self.validation)


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts recorded for one step."""

    prompt_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class RunState:
    """The state of a run so far.

    Attributes:
        trials: the starting configuration, then one trial per step.
        usage: one entry per step, None if no tokens were recorded.
    """

    trials: tuple[ShownTrial, ...]
    usage: tuple[Usage | None, ...] = ()

    def current(self, task: Task, axes: Axes) -> ShownTrial:
        """Return the trial whose configuration the next proposal modifies."""
        return self.trials[self.current_step(task, axes)]

    def current_step(self, task: Task, axes: Axes) -> int:
        """Return the step of the current trial: the last, or the best; the start is step 0."""
        return len(self.trials) - 1 if axes.base == "last" else self.best_step(task)

    def best_step(self, task: Task) -> int:
        """Return the first step with the best validation; the start if nothing could be trained."""
        sign = 1.0 if task.score.higher_is_better else -1.0
        values = [
            -math.inf if trial.failed or trial.validation is None else sign * trial.validation
            for trial in self.trials
        ]
        return values.index(max(values))

    def earlier(self, task: Task, axes: Axes) -> tuple[tuple[int, ShownTrial], ...]:
        """Return the last `axes.history` steps with their numbers, oldest first.

        The current step is not included.
        """
        current = self.current_step(task, axes)
        trials = [(k, trial) for k, trial in enumerate(self.trials) if k != current]
        return tuple(trials[-axes.history :]) if axes.history else ()


@dataclass(frozen=True, slots=True)
class Texts:
    """Texts about a task that an agent may be shown.

    Attributes:
        task: description of data, model and parameters.
        metric: name and formula of the score, without its direction.
        task_placebo: an unrelated text as long as `task`.
        metric_placebo: an unrelated text as long as `metric`.
    """

    task: str
    metric: str
    task_placebo: str
    metric_placebo: str


def texts_of(name: str) -> Texts:
    """Return the texts of the task ``name``; raise KeyError if it has none."""
    return Texts(*(BUNDLED_TEXTS | KAGGLE_TEXTS)[name], *PLACEBOS[name])


BUNDLED_TEXTS: dict[str, tuple[str, str]] = {
    "toy": (
        "The data are generated: 400 rows of 60 columns in two classes of 202 and 198 rows. "
        "Only 10 columns matter; 2 more are mixtures of them, the rest is noise. The model is a "
        "logistic regression; C is the inverse of its L2 penalty, max_iter limits the iterations "
        "of its solver.",
        "The score is accuracy: the number of held-out rows whose predicted class is their true "
        "class, divided by the number of held-out rows.",
    ),
    "toy-flat": (
        "The data are generated: 1,000 rows of 20 columns in two classes of 500 rows each. Of the "
        "columns 10 matter, 2 are mixtures of these, and 8 are noise. The model is a logistic "
        "regression; C is the inverse of its L2 penalty, max_iter limits the iterations of its "
        "solver.",
        "The score is accuracy: correctly predicted held-out rows, of either class, as a share of "
        "all held-out rows.",
    ),
    "digits": (
        "The data are 599 images of handwritten digits, each 8 by 8 pixels with grey levels from "
        "0 to 16, in ten classes of 51 to 69 images. The model is a support vector classifier "
        "with a radial kernel on raw pixels; C weighs errors in training, gamma is the inverse "
        "width of the kernel.",
        "The score is accuracy: the share of held-out images for which the predicted digit is the "
        "digit that was written.",
    ),
    "breast-cancer": (
        "The data are 569 breast tumours, 212 malignant and 357 benign, each with 30 columns that "
        "describe the cell nuclei in an image. Columns are standardised. The model is a logistic "
        "regression; C is the inverse of its L2 penalty, max_iter limits the iterations of its "
        "solver.",
        "The score is log loss: the negative natural logarithm of the probability that the model "
        "gave to the true diagnosis, averaged over held-out tumours.",
    ),
    "wine": (
        "The data are 178 wines from three growers, 59, 71 and 48 each, with 13 chemical "
        "measurements in their own units: proline goes from 278 to 1,680, hue from 0.48 to 1.71. "
        "The model lets the n_neighbors nearest wines vote; p is the power of the Minkowski "
        "distance, weights says whether near votes count more.",
        "The score is accuracy: the share of held-out wines whose predicted grower is the true "
        "one.",
    ),
    "diabetes": (
        "The data are 442 patients with 10 columns: age, sex, body mass index, blood pressure, six "
        "blood values. The target is the progression of diabetes after a year, from 25 to 346 "
        "with mean 152 and standard deviation 77. The model is an elastic net; alpha is the "
        "strength of its penalty, l1_ratio the share of L1 in it.",
        "The score is the root mean squared error: the square root of the average squared "
        "difference between predicted and true progression.",
    ),
    "friedman": (
        "The data are 500 rows of 10 columns, uniform from 0 to 1; the target is a smooth function "
        "of 5 columns plus noise of variance 1, from 1.2 to 27.9. The model is support vector "
        "regression on scaled columns; C weighs errors beyond epsilon, gamma narrows its radial "
        "kernel.",
        "The score is the root mean squared error: the root of the mean squared difference "
        "between predicted and true target.",
    ),
}
"""Task with bundled or generated data -> its text on data and model, and its text on the score."""

KAGGLE_TEXTS: dict[str, tuple[str, str]] = {
    "nomad": (
        "The data are oxides of aluminium, gallium and indium with 12 columns: space group, atoms, "
        "3 shares of metals, 3 lattice lengths, 3 lattice angles, formation energy. The target is "
        "the band gap in electronvolts. The model is gradient boosting of trees: max_iter trees of "
        "limited depth, leaves and rows a leaf, each scaled by learning_rate, leaves with an L2 "
        "penalty.",
        "The score is the root mean squared logarithmic error: the square root of the average "
        "squared difference between log(1 + predicted gap) and log(1 + true gap).",
    ),
    "jigsaw": (
        "The data are comments from online discussions with 6 labels, each 0 or 1: toxic, severe "
        "toxic, obscene, threat, insult, identity hate. The model weighs words and phrases of up "
        "to ngram_max words by TF-IDF, the max_features most frequent in at least min_df comments, "
        "and fits a logistic regression per label; C is its inverse penalty.",
        "The score is the mean column-wise ROC AUC: for each label the chance that a comment with "
        "it is ranked above one without it, averaged over labels.",
    ),
    "leaf": (
        "The data are leaves of 99 species, each with 192 columns: 64 for the margin, 64 for the "
        "shape, 64 for the texture of the leaf. Columns are standardised. The model is a logistic "
        "regression; C is the inverse of its L2 penalty, tol ends its solver at small gradients, "
        "max_iter after so many iterations.",
        "The score is log loss: the negative natural logarithm of the probability given to the "
        "true species, averaged over held-out leaves.",
    ),
    "forest": (
        "The data are patches of forest with 54 columns: 10 of terrain, distances and shade, 4 "
        "wilderness areas, 40 soil types. The target is one of 7 types of tree cover. The model is "
        "a random forest of n_estimators trees; the others limit depth, rows for a split, rows in "
        "a leaf, and the share of columns tried.",
        "The score is accuracy: the share of held-out patches whose predicted cover type is the "
        "true one.",
    ),
    "housing": (
        "The data are blocks of houses in California with 8 columns: income, age, rooms, bedrooms, "
        "population, occupancy, latitude, longitude. The target is the median value of a house. "
        "The model is extremely randomised trees; parameters set their number, depth, rows for a "
        "split or in a leaf, share of columns tried, and resampling of rows.",
        "The score is the root mean squared error: the square root of the average squared "
        "difference between predicted and true values.",
    ),
}
"""Task with data prepared from a file -> its text on data and model, and its text on the score.

The texts give no number of rows, because a prepared file may contain only part of the data.
"""

PLACEBOS: dict[str, tuple[str, str]] = {
    "toy": (
        "The harbour was dredged in spring: 300 barges took 45 loads of sand to two islands of "
        "120 and 95 houses. Only 12 sailors stayed; 3 more were borrowed from a ferry, the others"
        " went home. The captain kept a diary; the cook wrote recipes into the margins, always in"
        " pencil.",
        "The lighthouse has a keeper: a quiet man from the village whose father painted the "
        "stairs green, moved in with five cuckoo clocks.",
    ),
    "toy-flat": (
        "The orchard was planted late: 1,000 apple saplings in 20 rows along two walls of 500 "
        "feet each. Of the gardeners 10 came by boat, 2 were cousins of theirs, and 8 were "
        "students. The gate is a gift from the mayor; it squeaks in the morning wind, hinges need"
        " oil.",
        "The baker opens at dawn: warm pumpernickel rolls, of any shape, lie under cloth on the "
        "long table.",
    ),
    "digits": (
        "The museum shows 480 painted plates from the river towns, each 9 by 7 inches with blue "
        "flowers from 3 to 12, in six cabinets of 70 to 90 plates. The oldest is a wedding "
        "present with a rooster on the rim; visitors draw it in pencil, children count the little"
        " leaves beneath the tail.",
        "The tailor has a cat: the colour of the cushion on which the cat sleeps is the colour of"
        " sand.",
    ),
    "breast-cancer": (
        "The choir has 143 singers, 61 from the valley and 82 from town, each with 4 songbooks "
        "that hold hymns of the old parish. Benches are wooden. The organ is a patient "
        "instrument; it is the pride of its builder, two boys pump the air for it.",
        "The bridge is stone: the old cobblestone crossing beneath the mill that the farmers "
        "built in a dry summer, repaired twice after torrential floods.",
    ),
    "wine": (
        "The coach stops at 16 stations in two valleys, 7, 5 and 4 each, with a platform clock at"
        " every one of them: Oakfield is from 1,890 to 1,924, Birkdale from 1.25 to 3.75. The "
        "guard rings his small brass bell and waves; the dog barks at the brown horses, then "
        "quickly runs home.",
        "The garden is small: the wrought iron bench by the pond where friends sit is whitewashed.",
    ),
    "diabetes": (
        "The market has 118 stalls with 6 kinds of cheese: goat, sheep, two soft blue ones, "
        "smoked ricotta, four hard. The fountain is the meeting point of the square at noon, from"
        " 11 to 146 people with hats 70 and umbrellas 32. The mayor is an early riser; bread is "
        "the passion of his wife, the piano his own.",
        "The parade is a long summer custom: the drummers of the upper village walk before the "
        "flags and the old men.",
    ),
    "friedman": (
        "The hotel has 40 rooms on 3 floors, painted from 2 to 9; the garden of 6 quiet terraces "
        "with benches for 2 opens a season, from 4.5 to 11.8. The porter is a retired sailor with"
        " a wooden leg on polished stairs; he greets guests, fond of parrots.",
        "The library is a brick house: the windows of the long reading room face between the "
        "river and the park.",
    ),
    "nomad": (
        "The theatre has curtains of velvet, silk and linen with 14 patterns: oak leaf, swans, 2 "
        "kinds of roses, 4 painted harbours, 5 painted castles, morning fog. The usher is the "
        "oldest member of the house. The café is a room of mirrors by the stairs: coffee in cups "
        "of Meissen porcelain, gingerbread, marzipan, apricot jam, plates with blue rims.",
        "The river has a slow summer ferry: the wide wooden deck of the boat carries carts "
        "between Elm (3 old farms) and Ashby (2 new windmills) daily.",
    ),
    "jigsaw": (
        "The letters are greetings from distant cousins with 5 stamps, each 2 or 3 colours: "
        "tulip, tall ship, windmill, castle, falcon, harbour light. The postman sorts boxes and "
        "parcels of up to twenty pounds by street, the most fragile ones in at least two "
        "blankets, and rings a brass bell per garden; Monday is his free day.",
        "The mountain hut is run by a mountaineer: from every window the view is of a valley with"
        " pines that is much greener than one without it.",
    ),
    "leaf": (
        "The boats are gifts of 37 villages, each with 118 planks: 40 for the bottom, 52 for the "
        "sides, 26 for the deck of the boat. Sails are mended. The regatta is an autumn "
        "tradition; tea is the drink of its old jury, rain ends the day with wet shoes, music "
        "after so many speeches.",
        "The carpet is old wool: the faded aquamarine embroidery of the border was given to the "
        "elder daughter by patient neighbours.",
    ),
    "forest": (
        "The songs are memories of sailors with 31 verses: 9 of storms, harbours and gulls, 6 "
        "lonely islands, 16 old ships. The singer is one of 5 sons of a cooper. The concert is a "
        "long evening of many candles; the others pour wine, bread for a guest, soup in a bowl, "
        "and a slice of cake sold.",
        "The kitchen is warm: the smell of fresh bread and hot buttered shallots comes up the "
        "stairs.",
    ),
    "housing": (
        "The toys are pieces of painted wood in baskets with 9 lids: rabbit, horse, dogs, wagons,"
        " carousel, drummers, lantern, umbrella. The carver is the younger brother of a priest. "
        "The workshop is untidy shelves; cousins bring his tea, soup, bread for a day or in a "
        "storm, news of rivers crossed, and greetings of aunts.",
        "The winter is a slow quiet season: the snow on the distant barns lies between bare "
        "branches and long blue shadows.",
    ),
}
"""Map a task to placebos: unrelated texts as long as the texts on the task and on its score.

Each placebo contains about as many numbers as the text that it replaces.
"""


TEMPLATE = "{document}\n\n{question}"
_INSTRUCTION = "Choose settings for the next trial that improve the score."
SYSTEM = "Reply with one JSON object and nothing else."


def prompt_of(
    task: Task, axes: Axes, state: RunState, texts: Texts | None = None
) -> tuple[str, str]:
    """Return the prompt for the next step: the part that is constant during a run, and the rest.

    Texts on the task and its score, and placebos, are those of `texts_of` by default.

    Raises:
        KeyError: no texts are given and the task has none.
    """
    return _document(task, axes, texts or texts_of(task.name)), _question(task, axes, state)


def _document(task: Task, axes: Axes, texts: Texts) -> str:
    parts = [_INSTRUCTION]
    if axes.task != "hidden":
        parts.append(texts.task if axes.task == "shown" else texts.task_placebo)
    if axes.metric != "hidden":
        parts.append(texts.metric if axes.metric == "shown" else texts.metric_placebo)
    if axes.direction == "shown":
        parts.append(f"A {'higher' if task.score.higher_is_better else 'lower'} score is better.")
    if axes.bounds == "shown":
        parts.append(f"Bounds: {'; '.join(map(_bounds, task.space.parameters))}.")
    return "\n".join(parts)


def _bounds(parameter: Parameter) -> str:
    if isinstance(parameter, Choice):
        return f"{parameter.name} {' or '.join(map(_value, parameter.choices))}"
    low, high = _value(parameter.low), _value(parameter.high)
    return f"{parameter.name} {low} to {high}{', integer' if parameter.integer else ''}"


def _value(value: Value) -> str:
    """Return the value as JSON, with whole numbers as integers."""
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
"""Fixed seconds per output token, rounded from a small hosted model. Real prices and latencies vary
between runs, so a prompt that shows them could not be reproduced. The ledger has the real cost and
duration."""


def resources_text(usage: Sequence[Usage | None]) -> str:
    """Return a line stating the tokens, cost (USD) and mean latency (s) of the steps so far.

    Steps without recorded tokens (None) are excluded from all three numbers.
    """
    usages = [use for use in usage if use is not None]
    prompt = sum(use.prompt_tokens for use in usages)
    output = sum(use.output_tokens for use in usages)
    cost = (prompt * INPUT_USD_PER_MTOK + output * OUTPUT_USD_PER_MTOK) / 1e6
    seconds = prompt * SECONDS_A_PROMPT_TOKEN + output * SECONDS_AN_OUTPUT_TOKEN
    latency = SECONDS_A_CALL + seconds / len(usages) if usages else 0.0
    return f"Used so far: {prompt + output} tokens, ${cost:.4f}, {latency:.1f} s per step."


_FENCE = "```"
_DEEPEST = 32
_LONGEST_INTEGER = 400
"""Maximum digits of an integer; the largest float has 309, and Python parses at most 4,300."""


@dataclass(frozen=True, slots=True)
class Parsed:
    """The parsed content of a reply.

    Attributes:
        proposal: the JSON object of the reply; None if there is none.
        unparsable: whether the reply has text but no JSON object.
    """

    proposal: Mapping[str, Any] | None
    unparsable: bool

    @property
    def recorded(self) -> dict[str, Shown] | None:
        """Return the proposal as valid JSON, describing NaN, long and nested values in words."""
        if self.proposal is None:
            return None
        return {str(shown(name)): shown(value) for name, value in self.proposal.items()}


def parse_reply(text: str | None) -> Parsed:
    """Parse the JSON object in a reply. Never raises, whatever the text."""
    if text is None or not text.strip():
        return Parsed(None, False)
    for part in _places(text.strip()):
        fields = _object(part)
        if fields is not None:
            return Parsed(fields, False)
    return Parsed(None, True)


def _places(text: str) -> Iterator[str]:
    """Yield the parts of a reply that may be its object: the whole, blocks, what is in braces."""
    yield text
    for opening in (f"{_FENCE}json", _FENCE):
        begin = text.find(opening)
        end = text.find(_FENCE, begin + len(opening))
        if begin >= 0 and end >= 0:
            yield text[begin + len(opening) : end]
    begin, end = text.find("{"), text.rfind("}")
    if 0 <= begin < end:
        yield text[begin : end + 1]


def _object(text: str) -> Mapping[str, Any] | None:
    # Nothing but an object is read at all: what is skipped here would be thrown away below.
    if not text.lstrip().startswith("{"):
        return None
    try:
        value = _checked(json.loads(text, parse_int=_integer), _DEEPEST)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _integer(digits: str) -> float:
    return int(digits) if len(digits) < _LONGEST_INTEGER else float(digits)


def _checked(value: Any, depth: int) -> Any:
    """Return the value with all strings made valid UTF-8; raise ValueError if nested too deeply."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict | list) and not depth:
        raise ValueError("nested too deeply")
    if isinstance(value, dict):
        return {_checked(name, depth): _checked(item, depth - 1) for name, item in value.items()}
    if isinstance(value, list):
        return [_checked(item, depth - 1) for item in value]
    return value


_TYPES = {bool: "boolean", int: "integer", float: "number", str: "string"}


def reply_schema(task: Task) -> dict[str, Any]:
    """Return the JSON Schema of an object with exactly the parameters of ``task``.

    It contains only types, because bounds and choices are an axis that a schema must not reveal.
    """
    return {
        "type": "object",
        "properties": {param.name: {"type": _type(param)} for param in task.space.parameters},
        "required": list(task.space.names),
        "additionalProperties": False,
    }


def _type(parameter: Parameter) -> str | list[str]:
    if isinstance(parameter, Number):
        return "integer" if parameter.integer else "number"
    names = sorted({_TYPES[type(choice)] for choice in parameter.choices})
    return names[0] if len(names) == 1 else names
