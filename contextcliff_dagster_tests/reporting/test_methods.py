"""The methods paragraph: every number of it stands in the results, and nothing else is claimed."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from contextcliff_dagster import analyze
from contextcliff_dagster.contracts.results import Cliffs, to_json
from contextcliff_dagster.reporting.methods import citation, methods
from contextcliff_dagster_tests.support.examples import examples
from contextcliff_dagster_tests.support.paths import CHECKOUT
from contextcliff_dagster_tests.support.records.reports import result_of, sample

REQUEST = {"temperature": 0.0, "max_output_tokens": 48, "replicates": 1}


def measured(name: str = "m", **changes: Any) -> Cliffs:
    """A result of a study, whose request is recorded."""
    whole, _ = sample(name, **changes)
    result = result_of(whole)
    made = {**result.provenance, "request": REQUEST}
    made["hashes"] = {**made["hashes"], "recipe": "r"}
    return replace(result, provenance=made, method_version="3")  # type: ignore[arg-type]


def numbers(value: Any) -> Iterator[float]:
    """All numbers of a result, and its shares as percentages; and how many bins it has."""
    if isinstance(value, dict):
        for item in value.values():
            yield from numbers(item)
    elif isinstance(value, list):
        yield len(value)
        for item in value:
            yield from numbers(item)
    elif isinstance(value, int | float):
        yield from (value, round(100 * value, 6))
    elif isinstance(value, str):
        yield from map(float, re.findall(r"\d+", value))


def stated(text: str) -> set[float]:
    return {float(found.replace(",", "")) for found in re.findall(r"\d[\d,]*(?:\.\d+)?", text)}


@examples(25)
@given(
    tolerance=st.sampled_from([0.1, 0.2, 0.3, 0.45]),
    confidence=st.sampled_from([0.8, 0.9, 0.95, 0.99]),
    chance=st.sampled_from([0.0, 0.25]),
    n=st.integers(4, 90),
    named=st.booleans(),
)
def test_every_number_of_it_is_in_the_result(
    tolerance: float, confidence: float, chance: float, n: int, named: bool
) -> None:
    lengths = np.linspace(100, 9_000, n).astype(int)
    found = analyze(
        lengths,
        lengths < 4_000,
        documents=range(n) if named else None,
        tolerance=tolerance,
        confidence=confidence,
        chance=chance,
        quick=True,
    )
    text = found.methods()
    known = set(numbers(found.to_dict()))
    assert stated(text) - {0.1} <= known, text  # 0.1: of the version 0.1.0
    assert f"{confidence:.0%} intervals that treat {'documents' if named else 'answers'}" in text
    assert ("guessing, 0.25" in text) == (chance > 0)


def test_of_a_study_it_names_models_sample_request_and_statistics() -> None:
    one, other = measured("first"), measured("second", l70=900, seed=3)
    text = methods([one, other])
    allowed = {*numbers(to_json(one)), *numbers(to_json(other)), *numbers(REQUEST), 2.0, 0.1}
    assert stated(text) <= allowed, text
    for part in (
        "We measured 2 models (first, second) on 200 examples",
        "neither cut nor padded",
        "Answers of at most 48 tokens were generated at temperature 0",
        "scored by exact match, on a scale from 0 to 1",
        "within 30% of the baseline",
        "method version 3",
    ):
        assert part in text, part
    assert "\n" not in text
    assert "None" not in text


@pytest.mark.parametrize(
    ("of", "said", "not_said"),
    [
        ({"request": None}, (), ("temperature", "natural length")),
        ({"request": {**REQUEST, "manufactured_lengths": "qa1"}},
         ("manufactured (tasks: qa1)",), ("natural length",)),
        ({"request": {**REQUEST, "replicates": 3}}, ("3 wordings of each question",), ()),
        ({"identity": {"temperature": "omitted"}}, ("or at the server's default",), ()),
        ({"hashes": {}, "request": None}, ("We analysed existing scores of m:",), ("measured",)),
    ],
)  # fmt: skip
def test_what_is_not_recorded_is_not_claimed(
    of: dict[str, Any], said: tuple[str, ...], not_said: tuple[str, ...]
) -> None:
    result = measured()
    made = {key: value for key, value in {**result.provenance, **of}.items() if value is not None}
    text = methods([replace(result, provenance=made)])  # type: ignore[arg-type]
    assert all(words in text for words in said), text
    assert not any(words in text for words in not_said), text


def test_an_older_method_is_named_and_not_described_as_this_one() -> None:
    text = methods([replace(measured(), method_version=None)])
    assert "method version 1" in text
    assert "curve" not in text
    assert methods([]) == ""


def test_what_to_cite_is_the_same_everywhere() -> None:
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text("utf-8"))["project"]
    cff = yaml.safe_load((CHECKOUT / "CITATION.cff").read_text("utf-8"))
    assert cff["cff-version"] == "1.2.0"
    assert {"message", "title", "authors"} <= set(cff)
    assert cff["version"] == project["version"]
    assert cff["license"] == project["license"]
    fields = dict(re.findall(r"(\w+) = \{+([^}]*)\}+", citation()))
    (author,) = cff["authors"]
    assert fields["title"] == cff["title"]
    assert fields["author"] == author["name"]
    assert fields["version"] == cff["version"]
    assert citation().startswith("@software{")
