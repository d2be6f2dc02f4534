"""Texts about tasks: what they say is so, and their placebos differ in nothing but the subject."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

from contextcliff_dagster.extensions.visibility.agent import texts_of
from contextcliff_dagster.extensions.visibility.tasks.catalogue import BUNDLED, TASKS
from contextcliff_dagster.extensions.visibility.tasks.kaggle import FORMATS, KAGGLE, Format
from contextcliff_dagster.extensions.visibility.tasks.task import Data, Score, Task
from contextcliff_dagster_tests.support.o200k import O200K

WORDS, TOKENS = 0.02, 0.05
COUNTED = {"two": 2, "three": 3, "six": 6, "ten": 10}
BY_NAME = pytest.mark.parametrize("task", TASKS, ids=lambda one: one.name)


def figures(text: str) -> list[float]:
    """The numbers in a text, in figures and in words, but for those in names as L2."""
    plain = re.findall(r"(?<![A-Za-z_\d.])\d[\d,]*(?:\.\d+)?(?![A-Za-z_\d])", text)
    words = re.findall(r"\b(?:two|three|six|ten)\b", text)
    return [*(float(one.rstrip(",").replace(",", "")) for one in plain), *map(COUNTED.get, words)]


def of_classes(data: Data) -> list[float]:
    counts = np.unique(data.targets, return_counts=True)[1]
    return [len(counts), counts.min(), counts.max(), *counts]


def of_target(data: Data) -> list[float]:
    values = data.targets
    return [
        round(values.min(), 1),
        round(values.max(), 1),
        *map(round, (values.mean(), values.std())),
    ]


def proline_and_hue(data: Data) -> list[float]:
    return [*data.features[:, [12, 10]].min(0), *data.features[:, [12, 10]].max(0)]


# Beyond the shape: facts computed from the data, and those that the generator was given.
FACTS: dict[str, tuple[Callable[[Data], list[float]], tuple[float, ...]]] = {
    "toy": (of_classes, (10, 2)),
    "toy-flat": (of_classes, (10, 2, 8)),
    "digits": (lambda data: [*of_classes(data), data.features.min(), data.features.max()], (8, 8)),
    "breast-cancer": (of_classes, ()),
    "wine": (lambda data: [*of_classes(data), *proline_and_hue(data)], ()),
    "diabetes": (of_target, (6,)),
    "friedman": (lambda data: [*of_target(data), 0, 1], (5, 1)),
}


@pytest.mark.parametrize("task", BUNDLED, ids=lambda one: one.name)
def test_every_figure_is_one_of_the_data(task: Task) -> None:
    assert task.load
    data = task.load()
    computed, given = FACTS[task.name]
    facts = {*data.features.shape, *computed(data), *given}
    given_in_text = figures(texts_of(task.name).task)
    assert len(data.targets) in given_in_text
    assert (data.features.shape[1] if task.name != "digits" else 8) in given_in_text
    assert [one for one in given_in_text if not np.isclose(one, list(facts)).any()] == []


def test_what_the_generators_were_given_is_so() -> None:
    by_name = {one.name: one.load() for one in BUNDLED if one.load}
    for name, rank in (("toy", 58), ("toy-flat", 18)):
        features = by_name[name].features
        # Two columns are mixtures of others: the rank is that much less than the columns.
        assert np.linalg.matrix_rank(features - features.mean(0)) == rank
    friedman = by_name["friedman"]
    x = friedman.features
    known = 10 * np.sin(np.pi * x[:, 0] * x[:, 1]) + 20 * (x[:, 2] - 0.5) ** 2
    noise = friedman.targets - known - 10 * x[:, 3] - 5 * x[:, 4]
    assert noise.var() == pytest.approx(1, abs=0.15)
    assert abs(by_name["diabetes"].features.mean(0)).max() < 1e-9


@pytest.mark.parametrize("format", FORMATS, ids=lambda one: one.name)
def test_texts_about_prepared_data_agree_with_the_file(format: Format) -> None:
    text = texts_of(format.name).task
    kinds = {
        "nomad": (
            len(format.features),
            *(
                sum(part in one for one in format.features)
                for part in ("percent", "vector", "angle")
            ),
        ),
        "jigsaw": (len(format.targets), 0, 1),
        "leaf": (len(format.features), 64, 99),
        "forest": (54, 10, 4, 40, 7),
        "housing": (len(format.features),),
    }[format.name]
    assert set(figures(text)) == set(map(float, kinds))
    if format.name == "forest":
        assert len(format.features) == 54
        starts = [one.split("_")[0] for one in format.features]
        assert (starts.count("Soil"), starts.count("Wilderness")) == (40, 4)
    if format.target == "labels":
        assert all(one.replace("_", " ") in text for one in format.targets)
    summary = next(one.summary for one in KAGGLE if one.name == format.name)
    for word, number in (("99", "99"), ("seven", "7"), ("six", "6")):
        assert (word not in summary) or number in text


@BY_NAME
def test_a_metric_text_has_the_score_and_not_its_direction(task: Task) -> None:
    text = texts_of(task.name).metric
    names = {"RMSE": "root mean squared error", "RMSLE": "root mean squared logarithmic error"}
    assert names.get(task.score.name, task.score.name) in text
    giveaway = (
        r"\b(high|higher|low|lower|better|best|worse|worst|good|bad|small|smaller|large|larger|"
    )
    giveaway += r"greater|least|most|perfect|minimi[sz]e|maximi[sz]e|improve)\b"
    assert not re.search(giveaway, text)
    assert not re.search(r"\b(better|worse|higher score|lower score)\b", texts_of(task.name).task)


@BY_NAME
def test_a_task_text_neither_names_the_score_nor_the_bounds(task: Task) -> None:
    text = texts_of(task.name).task
    assert task.score.name.lower() not in text.lower()
    assert "score" not in text
    for parameter in task.space.parameters:
        assert not re.search(rf"\b{parameter.name}\b[^.;]*\b(from|between)\b", text)


@BY_NAME
def test_placebos_are_as_long_and_about_something_else(task: Task) -> None:
    texts = texts_of(task.name)
    count = O200K.count
    pairs = ((texts.task, texts.task_placebo), (texts.metric, texts.metric_placebo))
    for text, placebo in pairs:
        words, tokens = len(text.split()), count(text)
        assert abs(len(placebo.split()) - words) <= WORDS * words
        assert abs(count(placebo) - tokens) <= TOKENS * tokens
        subject = r"\b(data|model|score|train|column|class|parameter|predict|learn|error|accura|"
        subject += r"regress|tree|tun|optim|iterat|step|trial|setting)"
        assert not re.search(subject, placebo.lower())
        names = r"|".join(rf"\b{name}\b" for name in task.space.names)
        assert not re.search(names, placebo)


def test_no_two_tasks_share_a_placebo() -> None:
    texts = [texts_of(one.name) for one in TASKS]
    for kind in ("task", "metric", "task_placebo", "metric_placebo"):
        assert len({getattr(one, kind) for one in texts}) == len(TASKS), kind
    assert {texts_of(one.name).task for one in TASKS} <= {one.task for one in texts}


def test_scores_have_no_other_names() -> None:
    names = {one.score.name for one in TASKS}
    assert names == {"accuracy", "log loss", "RMSE", "RMSLE", "mean column-wise ROC AUC"}
    assert all(isinstance(one.score, Score) for one in TASKS)
