"""Published rules give scores in order on any text; a study's own scorer comes before them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextcliff_dagster.contracts import Example
from contextcliff_dagster.scoring.evaluate import ScoringRules, score_rows
from contextcliff_dagster.scoring.parse import parse_answer
from contextcliff_dagster.scoring.scorers import RULE, Scores, open_scorer, scorer_of


@given(st.text(max_size=60), st.text(max_size=12), st.sampled_from([
    "share_of_numbers", "labels", "first_line", "only_label", "answer_line", "any_answer_line",
    "closed_apart", "true_or_false", "last_number", "said", "nothing known"]))  # fmt: skip
def test_any_rule_gives_scores_in_order_on_any_text(output: str, gold: str, name: str) -> None:
    scorer = scorer_of({RULE: {"name": name, "labels": ["yes", "no", gold]}})
    scores = scorer(parse_answer(output), [gold])
    assert 0.0 <= scores.em <= scores.f1 <= 1.0
    assert scores.em <= scores.contained <= 1.0


@pytest.mark.parametrize(
    "rule", [None, "labels", 3, {}, {"name": 5}, {"name": "labels", "labels": 7}]
)
def test_a_field_of_that_name_in_a_users_own_rows_breaks_nothing(rule: Any) -> None:
    scores = scorer_of({RULE: rule})(parse_answer("winter"), ["winter"])
    assert scores == Scores(1.0, 1.0, 1.0)


def test_a_scorer_that_the_study_names_comes_first() -> None:
    example = Example(
        "1", "d", "Which?", ("Paragraph 15",), "t", {RULE: {"name": "share_of_numbers"}}
    )
    row = {"example_id": "1", "raw_output": "Paragraph 20", "finish_reason": "stop"}
    (record,) = score_rows([row], {"1": example}, lambda _: "", ScoringRules("f1", scorer="text"))
    assert record["f1"] == 0.5
    assert open_scorer("auto")(parse_answer("winter"), ["winter"]).em == 1.0
