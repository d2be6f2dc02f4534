"""The key of a study file, and the partitions that follow from it."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from contextcliff_dagster.extensions.utilization.prompts import ARM_KEYS, arms_of, cells_of
from contextcliff_dagster.extensions.utilization.scales import (
    LEAST_TOKENS,
    MOST_TOKENS,
    parse_scale,
    scale_label,
    scale_tokens,
)
from contextcliff_dagster.extensions.utilization.section import UtilizationSection
from contextcliff_dagster.store import slug


def section(**keys: Any) -> UtilizationSection:
    return UtilizationSection.model_validate({"benchmarks": "ledger", "scales": "1k", **keys})


@given(st.integers(200, 10_000_000))
def test_a_label_is_its_tokens(tokens: int) -> None:
    assert scale_tokens(scale_label(tokens)) == tokens
    assert parse_scale(scale_label(tokens)) == [scale_label(tokens)]


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        ("1k-8k", ["1k", "2k", "4k", "8k"]),
        ("100k-2M", ["100k", "200k", "400k", "800k", "1.6M", "2M"]),
        ("1k-1k", ["1k"]),
        ("0.5m", ["500k"]),
    ],
)
def test_a_range_doubles_and_has_its_end(text: str, labels: list[str]) -> None:
    assert parse_scale(text) == labels


def test_the_help_names_the_scales_that_are_accepted() -> None:
    description = UtilizationSection.model_fields["scales"].description or ""
    least, most = re.findall(r"lines, (\w+) to (\w+);", description)[0]
    assert (scale_tokens(least), scale_tokens(most)) == (LEAST_TOKENS, MOST_TOKENS)


def test_aliases_ranges_and_single_values_are_understood() -> None:
    made = section(
        benchmarks=["ledger", "constraint"],
        formats="structured",
        scales=["4k", "1k-2k", "100K,1M"],
        corruption=[0, "5%", {"share": 0.1, "of": "recomputed"}],
        thought=[False, True],
    )
    assert made.benchmarks == ("warehouse", "constraints")
    assert made.formats == ("jsonl",)
    assert made.scales == ("1k", "2k", "4k", "100k", "1M")
    assert [one.level for one in made.corruption] == ["0", "0.05", "0.1 recomputed"]
    assert made.thought == ("off", "on")
    assert UtilizationSection.model_validate(made.model_dump(mode="json")) == made


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        ({"formats": "yaml"}, "'jsonl', 'prose', 'csv' or 'markdown'"),
        ({"scales": "lots"}, "not a number of tokens"),
        ({"scales": "100M"}, "out of range"),
        ({"scales": "20"}, "out of range"),
        ({"scales": "8k-1k"}, "goes down"),
        ({"scales": ["1k", "1000"]}, "'scales' lists a value twice"),
        ({"formats": ["jsonl", "structured"]}, "'formats' lists a value twice"),
        ({"order": []}, "at least 1 item"),
        ({"corruption": 1.0}, "less than 1"),
        ({"corruption": "abc%"}, r"'abc%' is not a share; use 0\.05 or 5%"),
        ({"seed": 3}, "Extra inputs"),
    ],
)
def test_what_is_wrong_is_a_sentence(keys: dict[str, Any], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        section(**keys)


ARMS: dict[str, list[Any]] = {
    "evidence": ["growing", "fixed"],
    "verbosity": ["standard", "terse", "descriptive"],
    "order": ["chronological", "shuffled"],
    "corruption": [0, 0.05, {"share": 0.05, "of": "recomputed"}],
    "thought": ["off", "on"],
    "question_place": ["after", "before"],
}


def test_further_values_are_measured_one_at_a_time() -> None:
    made = cells_of(section(**ARMS))
    labels = [cell.arm_label for cell in made if cell.format == "jsonl"]
    assert labels == [
        "base",
        "evidence=fixed",
        "verbosity=terse",
        "verbosity=descriptive",
        "order=shuffled",
        "corruption=0.05",
        "corruption=0.05 recomputed",
        "thought=on",
        "question=before",
    ]
    assert [cell.key for cell in made if cell.format == "prose"][:5] == [
        "warehouse-prose-1k",
        "warehouse-prose-1k-fixed-evidence",
        "warehouse-prose-1k-terse",
        "warehouse-prose-1k-descriptive",
        "warehouse-prose-1k-shuffled",
    ]


@given(
    st.fixed_dictionaries(
        {
            key: st.lists(st.sampled_from(values), min_size=1, unique_by=str)
            for key, values in ARMS.items()
        }
    ),
    st.booleans(),
)
def test_each_cell_has_a_key_of_its_own(keys: dict[str, list[Any]], factorial: bool) -> None:
    made = section(**keys, factorial=factorial)
    cells = cells_of(made)
    assert len({cell.key for cell in cells}) == len(cells)
    assert len({(cell.format, cell.arm_label) for cell in cells}) == len(cells)
    assert all(slug(cell.key) == cell.key for cell in cells)
    sizes = [len(getattr(made, key)) for key in ARM_KEYS]
    expected = 1
    for size in sizes:
        expected = expected * size if factorial else expected + size - 1
    assert len(arms_of(made)) == expected
    assert cells[0].arm_label == "base"


def test_cells_come_in_natural_order() -> None:
    made = cells_of(section(scales="1k-16k", formats=["prose", "jsonl"]))
    assert [cell.key for cell in made][:5] == [
        f"warehouse-prose-{scale}" for scale in ("1k", "2k", "4k", "8k", "16k")
    ]
