"""The key `visibility` of a study: its levels, its runs, and which assets an edit turns stale."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from contextcliff_dagster.extensions.visibility.section import AXES, VisibilitySection, runs_of
from contextcliff_dagster.store import slug
from contextcliff_dagster.studies import load_study
from contextcliff_dagster_tests.experiments.test_stale import changed, versions

LEVELS = {
    "task": ["hidden", "placebo", "shown"],
    "metric": ["hidden", "placebo", "shown"],
    "resources": ["hidden", "shown"],
    "bounds": ["hidden", "shown"],
    "direction": ["hidden", "shown"],
    "history": [0, 1, 5, 12],
    "base": ["last", "best"],
    "start": ["default", "low", "neutral", "high"],
}
CHOSEN = st.fixed_dictionaries(
    {},
    optional={k: st.lists(st.sampled_from(v), min_size=1, unique=True) for k, v in LEVELS.items()},
)


@given(levels=CHOSEN, seeds=st.integers(1, 4), first=st.integers(0, 9))
def test_runs_are_all_combinations_and_their_keys_are_slugs(
    levels: dict[str, Any], seeds: int, first: int
) -> None:
    section = VisibilitySection.model_validate(
        {"benchmarks": ["toy", "wine"], "seeds": seeds, "first_seed": first, **levels}
    )
    runs = runs_of(section)
    expected = 2 * seeds
    for name in AXES:
        expected *= len(section.levels[name])
    keys = [run.key for run in runs]
    assert len(runs) == len(set(keys)) == expected
    assert all(slug(key) == key for key in keys)
    assert {run.seed for run in runs} == set(range(first, first + seeds))


def test_seeds_are_counted_past_the_skipped_ones() -> None:
    section = VisibilitySection.model_validate(
        {"benchmarks": "toy", "seeds": 3, "first_seed": 4, "skipped_seeds": [5, 6, 9]}
    )
    assert section.seed_numbers == (4, 7, 8)
    assert {run.seed for run in runs_of(section)} == {4, 7, 8}


def test_defaults_of_later_keys_are_in_no_definition() -> None:
    plain = VisibilitySection.model_validate({"benchmarks": "toy"}).model_dump()
    assert not {"skipped_seeds", "landscape"} & plain.keys()


def test_true_and_false_are_levels() -> None:
    section = VisibilitySection.model_validate({"benchmarks": "toy", "task": [False, True]})
    assert section.task == ("hidden", "shown")
    assert section.benchmarks == ("toy",)


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ({"benchmarks": []}, "at least 1"),
        ({"benchmarks": ["toys"]}, "There is no benchmark 'toys'"),
        ({"benchmarks": ["toy", "toy"]}, "a value is listed twice"),
        ({"task": ["shown", True]}, "a value is listed twice"),
        ({"task": []}, "at least 1"),
        ({"bounds": ["placebo"]}, "should be 'hidden' or 'shown'"),
        ({"history": [-1]}, "greater than or equal to 0"),
        ({"history": [True]}, "should be"),
        ({"steps": 0}, "greater than or equal to 1"),
        ({"skipped_seeds": [-1]}, "greater than or equal to 0"),
        ({"skipped_seeds": [1, 1]}, "a value is listed twice"),
        ({"landscape": "rough"}, "should be 'full' or 'coarse'"),
        ({"seeds": float("nan")}, "finite|integer"),
        ({"temperature": float("nan")}, "finite"),
        ({"margin": 0}, "greater than 0"),
        ({"colour": 1}, "Extra inputs"),
        ({"seeds": 1000, "history": list(range(200))}, "runs are more than 100,000"),
    ],
)
def test_what_is_wrong_is_said(bad: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        VisibilitySection.model_validate({"benchmarks": ["toy"], **bad})


PREDICTED = {"visibility_predictions", "cost_estimate"}


@pytest.mark.parametrize(
    ("edit", "stale"),
    [
        ({"steps": 3}, PREDICTED),
        ({"history": [0]}, PREDICTED),
        ({"temperature": 0.5}, PREDICTED),
        ({"replies": "schema"}, PREDICTED),
        ({"skipped_seeds": [1]}, PREDICTED),
        (
            {"landscape": "coarse"},
            {"visibility_documents", "visibility_manifest", "cost_estimate"},
        ),
        ({"max_tokens": 64}, PREDICTED),
        ({"benchmarks": ["wine"]}, {*PREDICTED, "visibility_documents", "visibility_manifest"}),
        ({"margin": 0.2}, {"visibility_result", "cost_estimate"}),
    ],
)
def test_an_edit_turns_what_depends_on_it_stale(
    edit: dict[str, Any], stale: set[str], tmp_path: Path
) -> None:
    def edited(changes: dict[str, Any]) -> dict[str, str]:
        section = {"benchmarks": ["toy"], "seeds": 2, "steps": 2, **changes}
        file = tmp_path / "v.yaml"
        file.write_text(
            yaml.safe_dump({"name": "v", "models": ["agent-random"], "visibility": section}),
            encoding="utf-8",
        )
        return versions(load_study(file))

    assert changed(edited({}), edited(edit)) == stale
