"""Every figure of the reference implementation's sample: stability, toy scores, clamping."""

from __future__ import annotations

import json
import math
import warnings
from ast import literal_eval
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from contextcliff_dagster.extensions.visibility.behaviour import StabilityMetric
from contextcliff_dagster.extensions.visibility.tasks.catalogue import task_named
from contextcliff_dagster.extensions.visibility.tasks.task import Reason, clamp
from contextcliff_dagster_tests.support.requirements import published_file

ONE_ROW = 0.005


@pytest.fixture(scope="module")
def sample() -> dict[str, Any]:
    return json.loads(published_file("visibility_parity.json").read_text(encoding="utf-8"))


def test_stability_and_distances_are_those_of_the_reference(sample: dict[str, Any]) -> None:
    metric, figures = StabilityMetric(), 0
    for case in sample["stability_traces"]:
        trace, theirs = case["trace"], case["result"]
        ours = metric.evaluate_trace(trace)
        assert ours.keys() == theirs.keys()
        for name, value in theirs.items():
            assert math.isclose(ours[name], value, rel_tol=1e-9, abs_tol=1e-9), (case["name"], name)
        configs = [step.get("config", {}) for step in trace]
        pairs = list(pairwise(configs))
        assert len(pairs) == len(case["pairwise"])
        for (a, b), pair in zip(pairs, case["pairwise"], strict=True):
            distance, keys = metric.calculate_config_distance(a, b)
            assert math.isclose(distance, pair["distance"], rel_tol=1e-9, abs_tol=1e-9)
            assert keys == pair["changed_keys"]
        figures += len(theirs) + 2 * len(pairs)
    assert figures == 356


def test_the_flat_toy_scores_what_the_reference_does(sample: dict[str, Any]) -> None:
    from sklearn.model_selection import train_test_split

    toy = task_named("toy-flat")
    data = toy.load()
    for case in sample["toy"]["scores"]:
        config, seed = case["config"], case["config"]["random_seed"]
        rows = train_test_split(
            np.arange(len(data.targets)),
            test_size=config["test_size"],
            stratify=data.targets,
            random_state=seed,
        )
        model = toy.estimator({name: config[name] for name in toy.space.names}, seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # two iterations are meant
            model.fit(data.features[rows[0]], data.targets[rows[0]])
        accuracy = np.mean(model.predict(data.features[rows[1]]) == data.targets[rows[1]])
        assert abs(accuracy - case["accuracy"]) <= ONE_ROW + 1e-9, config
    assert len(sample["toy"]["scores"]) == 11


def test_proposals_execute_as_in_the_reference_with_more_events(sample: dict[str, Any]) -> None:
    """What differs is named here: silence there is an event here, and no value differs."""
    space, more = task_named("toy").space, []
    for case in sample["toy"]["sanitize_cases_toy"]:
        proposal = case["proposal"]
        if isinstance(proposal, str):  # written as Python, because JSON has no infinity
            proposal = literal_eval(proposal.replace("inf", "1e999"))
        clamped = clamp(space, proposal)
        assert dict(clamped.values) == case["sanitized"]
        beyond = [
            {"parameter": one.parameter, "proposed": one.proposed, "executed": one.executed}
            for one in clamped.events
            if one.out_of_bounds
        ]
        assert beyond == case["clamp_events"]
        more += [(one.parameter, one.reason) for one in clamped.events if not one.out_of_bounds]
    assert more == [
        ("C", Reason.NOT_A_NUMBER),
        ("max_iter", Reason.ROUNDED),
        ("c", Reason.UNKNOWN),
        ("Max_iter", Reason.UNKNOWN),
        ("C", Reason.CONVERTED),
    ]
