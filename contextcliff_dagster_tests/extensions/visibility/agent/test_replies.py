"""Replies to the object in them: never an error, and what was written is read."""

from __future__ import annotations

import json
import math
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextcliff_dagster.extensions.visibility.agent import parse_reply, reply_schema
from contextcliff_dagster.extensions.visibility.tasks.catalogue import TASKS
from contextcliff_dagster.extensions.visibility.tasks.task import Task, clamp
from contextcliff_dagster_tests.extensions.visibility.spaces import SPACE, configs
from contextcliff_dagster_tests.support.requirements import published_file

VALUES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9)
OBJECTS = st.dictionaries(
    st.text(max_size=9), VALUES | st.lists(VALUES, max_size=2), min_size=1, max_size=4
)
PROSE = st.text(max_size=40).map(lambda text: text.translate(dict.fromkeys(map(ord, "{}`"))))
PIECES = st.sampled_from(
    ["```", "```json", "{", "}", '{"C": 1}', "[", "]", "null", "1e999", "NaN", '"', "\\ud800", "\n"]
)


@given(st.lists(PIECES | st.text(max_size=9), max_size=12).map("".join) | st.none())
def test_no_text_raises_and_the_parts_agree(text: str | None) -> None:
    parsed = parse_reply(text)
    assert parsed.unparsable == (parsed.proposal is None and bool((text or "").strip()))
    json.dumps(parsed.recorded, allow_nan=False).encode()
    clamp(SPACE, parsed.proposal)


@given(OBJECTS, PROSE, PROSE, st.sampled_from(["whole", "json block", "block", "braces"]))
def test_an_object_is_read_wherever_it_is(
    value: dict[str, Any], before: str, after: str, how: str
) -> None:
    written = json.dumps(value)
    text = {
        "whole": f"\n {written} ",
        "json block": f"{before}\n```json\n{written}\n```\n{after}",
        "block": f"{before}\n```\n{written}\n```\n{after}",
        "braces": f"so: {before}{written}{after}",
    }[how]
    parsed = parse_reply(text)
    assert repr(parsed.proposal) == repr(value)


@given(configs(SPACE))
def test_a_configuration_comes_back_as_it_was(config: dict[str, Any]) -> None:
    assert clamp(SPACE, parse_reply(json.dumps(config)).proposal).onto(SPACE.start) == config


def test_the_cases_of_the_reference() -> None:
    sample = json.loads(published_file("visibility_parity.json").read_text(encoding="utf-8"))
    cases = sample["toy"]["json_extraction_cases"]
    assert len(cases) == 6
    for case in cases:
        parsed = parse_reply(case["text"])
        assert parsed.proposal == case["parsed"]
        assert parsed.unparsable == (case["parsed"] is None)


@pytest.mark.parametrize(
    ("text", "proposal"),
    [
        ("5", None),  # with the reference a bare number ends the run
        ('"C"', None),
        ("[1, 2]", None),
        ('[{"C": 2}]', {"C": 2}),  # and a list is handed on
        ("{}", {}),  # no parse there
        ('```json\n5\n```\n{"C": 1}', {"C": 1}),
        ('```\nnot\n```\n```json\n{"C": 3}\n```', {"C": 3}),
        ('```python\n{"C": 3}\n```', {"C": 3}),
        ('```json\n{"C": 3}', {"C": 3}),  # cut off
        ('{"C": 1, "C": 2}', {"C": 2}),
        ("{'C': 1}", None),
        ('{"C": 1} {"C": 2}', None),
        ("{" * 100_000, None),
        ('{"a":' * 33 + "1" + "}" * 33, None),
        ('{"a": ' + "[" * 50_000 + "]" * 50_000 + "}", None),
    ],
)
def test_where_readings_could_differ(text: str, proposal: Any) -> None:
    parsed = parse_reply(text)
    assert parsed.proposal == proposal
    assert parsed.unparsable == (proposal is None)


def test_numbers_of_any_size_are_numbers() -> None:
    digits = "9" * 6000
    text = f'{{"nan": NaN, "inf": 1e999, "least": -Infinity, "long": {digits}, "less": -{digits}}}'
    proposal = parse_reply(text).proposal
    assert proposal is not None
    assert math.isnan(proposal["nan"])
    assert proposal["inf"] == proposal["long"] == math.inf
    assert proposal["least"] == proposal["less"] == -math.inf


def test_nothing_is_no_unparsable_reply() -> None:
    for text in (None, "", " \n\t"):
        parsed = parse_reply(text)
        assert (parsed.proposal, parsed.unparsable) == (None, False)


@pytest.mark.parametrize("piece", ["{", "}", "```", "```json", '{"a":1},', "x", '"', "[", "\\"])
def test_ten_megabytes_are_read_in_a_moment(piece: str) -> None:
    begun = time.process_time()
    parse_reply(piece * (10_000_000 // len(piece)))
    assert time.process_time() - begun < 5


@pytest.mark.parametrize("task", TASKS, ids=lambda one: one.name)
def test_a_schema_has_the_parameters_and_neither_bounds_nor_choices(task: Task) -> None:
    schema = reply_schema(task)
    assert list(schema["properties"]) == schema["required"] == list(task.space.names)
    assert schema["additionalProperties"] is False
    kinds = {name: only["type"] for name, only in schema["properties"].items()}
    assert all(set(only) == {"type"} for only in schema["properties"].values())
    python = {"number": (int, float), "integer": int, "boolean": bool, "string": str}
    for name, value in task.space.start.items():
        assert isinstance(value, python[kinds[name]])
