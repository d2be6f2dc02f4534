"""Models that share an endpoint or this machine are one place; others are measured side by side."""

from __future__ import annotations

import pytest

from contextcliff_dagster.defs.places import model_groups, place_of
from contextcliff_dagster.studies import Study
from contextcliff_dagster_tests.defs.campaign_runs.conftest import Written

SERVED = "{engine: openai, window_tokens: 8192, base_url: 'http://%s/v1'}"


def test_neighbours_of_one_endpoint_are_one_group(study: Study, models: Written) -> None:
    places = {"a": "one:8000", "b": "one:8000", "c": "two:8000", "d": "one:8000", "e": "one:8001"}
    models("\n".join(f"{name}: {SERVED % place}" for name, place in places.items()))
    groups = model_groups(study.with_models([*places, "nobody"]))
    assert groups == [["a", "b"], ["c"], ["d"], ["e"], ["nobody"]]
    assert place_of("a") == place_of("d") == "one:8000"


def test_a_place_holds_no_secret(models: Written) -> None:
    models(f"keyed: {SERVED % 'user:T0KEN@host'}")
    assert place_of("keyed") == "host"


@pytest.mark.parametrize(
    ("devices", "executor", "groups"),
    [
        ("none", "", [["cpu", "any", "one"]]),
        ("left", "", [["cpu", "any", "one"]]),
        ("left,right", "", [["cpu"], ["any"], ["one"]]),
        ("left", "k8s", [["cpu"], ["any"], ["one"]]),
    ],
)
def test_models_on_devices_of_their_own_are_groups_of_their_own(
    study: Study,
    models: Written,
    monkeypatch: pytest.MonkeyPatch,
    devices: str,
    executor: str,
    groups: list[list[str]],
) -> None:
    monkeypatch.setenv("CONTEXTCLIFF_DEVICES", devices)
    monkeypatch.setenv("CONTEXTCLIFF_EXECUTOR", executor)
    models(
        """
        cpu: {engine: reference, window_tokens: 8192}
        any: {engine: reference, window_tokens: 8192, gpus: auto}
        one: {engine: reference, window_tokens: 8192, gpus: 1}
        """
    )
    assert model_groups(study.with_models(["cpu", "any", "one"])) == groups
