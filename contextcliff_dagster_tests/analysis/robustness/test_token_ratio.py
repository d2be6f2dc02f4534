"""The server's tokens for one of the study's, by bin, and the warning where bins differ."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextcliff_dagster.analysis.profile import profile_model
from contextcliff_dagster.analysis.records import clean_records
from contextcliff_dagster.analysis.robustness import (
    UNEQUAL_RATIO,
    TokenRatio,
    token_ratio,
    unequal_sentence,
)
from contextcliff_dagster.reporting.length_profile.tables import token_sections
from contextcliff_dagster.reporting.markdown import as_markdown
from contextcliff_dagster.reporting.sections import Section
from contextcliff_dagster_tests.support.records.profiles import CONTEXT, QUICK, assert_conforms

LENGTHS = np.geomspace(150, 15_000, 200).astype(int)


def calls(ratio: Any = 1.0, template: int = 0, scaffold: int = 40, **columns: Any) -> pd.DataFrame:
    """One call a document; ``ratio`` a number, or one for each length."""
    prompts = np.round(LENGTHS * ratio) + scaffold + template
    return pd.DataFrame(
        {
            "length_tokens": LENGTHS,
            "document_id": [f"d{n}" for n in range(len(LENGTHS))],
            "example_id": [f"e{n}" for n in range(len(LENGTHS))],
            "score": 1.0,
            "prompt_tokens": prompts,
            "scaffold_tokens": scaffold,
            **columns,
        }
    )


def found(records: pd.DataFrame) -> TokenRatio:
    ratio = token_ratio(clean_records(records, []))
    assert ratio is not None
    return ratio


@given(ratio=st.floats(0.5, 2.5), template=st.integers(0, 64), scaffold=st.integers(0, 400))
def test_a_ratio_that_is_one_everywhere_is_found_and_is_no_warning(
    ratio: float, template: int, scaffold: int
) -> None:
    ratios = found(calls(ratio, template, scaffold))
    assert ratios.spread is not None
    assert ratios.spread < 0.01
    assert abs(ratios.template_tokens - template) <= 2
    assert all(b.median == pytest.approx(ratio, rel=0.015) for b in ratios.bins)
    assert unequal_sentence(ratios, "t") is None


@pytest.mark.parametrize("least", [1.0, 0.7])
def test_a_ratio_that_grows_with_length_is_a_warning(least: float) -> None:
    grown = np.where(LENGTHS > 3_000, 1.25 * least, least)
    ratios = found(calls(grown, template=12))
    assert ratios.spread == pytest.approx(0.25, abs=0.02)
    medians = [b.median for b in ratios.bins]
    assert medians[0] == pytest.approx(least, rel=0.01)
    assert medians[-1] == pytest.approx(1.25 * least, rel=0.01)
    sentence = unequal_sentence(ratios, "tiktoken:o200k_base")
    assert sentence is not None
    assert f"For one token of tiktoken:o200k_base the server counts {least:.2f} in b0" in sentence
    assert "more than 10% apart" in sentence
    assert unequal_sentence(found(calls(np.where(LENGTHS > 3_000, 1.05, 1.0))), "t") is None


def test_what_a_chat_template_may_explain_is_no_warning() -> None:
    # 60 tokens more in every prompt are 40% of the shortest document and no matter of length.
    assert unequal_sentence(found(calls(1.1, template=60)), "t") is None
    beyond = found(calls(1.0, template=160))
    assert beyond.template_tokens == 64
    assert beyond.spread is not None
    assert beyond.spread > UNEQUAL_RATIO


def test_the_range_in_a_bin_is_that_of_its_calls() -> None:
    records = calls(1.0)
    odd = records["length_tokens"].idxmax()
    records.loc[odd, "prompt_tokens"] += 0.5 * records.loc[odd, "length_tokens"]
    last = found(records).bins[-1]
    assert (last.n, round(last.median or 0, 2)) == (20, 1.0)
    assert last.high == pytest.approx(1.5, abs=0.01)
    assert last.low == pytest.approx(1.0, abs=0.01)


def test_calls_without_an_answer_or_a_count_are_left_out() -> None:
    records = calls(1.0, failure=None)
    records.loc[records.index[-20:], ["score", "failure"]] = [None, "invalid_truncated"]
    records.loc[records.index[-20:], "prompt_tokens"] = 100.0
    records.loc[records.index[:5], "prompt_tokens"] = None
    ratios = found(records)
    assert sum(b.n for b in ratios.bins) == 175
    assert ratios.spread is not None
    assert ratios.spread < 0.01
    for missing in ("prompt_tokens", "scaffold_tokens"):
        assert token_ratio(clean_records(calls().drop(columns=missing), [])) is None


def test_the_result_has_it_and_the_report_shows_what_there_is_to_see() -> None:
    grown = np.where(LENGTHS > 3_000, 1.3, 1.0)
    results = {}
    for name, records in {
        "one": calls(1.07, template=9),
        "grown": calls(grown),
        "none": calls().drop(columns="scaffold_tokens"),
    }.items():
        profile = profile_model(records, [], QUICK, CONTEXT)
        assert_conforms(profile)
        results[name] = replace(profile.cliffs, tokenizer="tiktoken:o200k_base")
    assert any("more than 10% apart" in said for said in results["grown"].warnings)
    assert not any("apart" in said for said in results["one"].warnings)
    assert results["none"].token_ratio is None
    bins = Section("Bins", level=3)
    assert token_sections(bins, results["none"]) == [bins]
    (*_, line) = as_markdown(token_sections(bins, results["one"]))
    assert "counts 1.07 tokens for one of `tiktoken:o200k_base` in every bin" in line
    shown = "\n".join(as_markdown(token_sections(bins, results["grown"])))
    assert "| `b00` | 20 | 1.00 |" in shown
    assert "| `b09` | 20 | 1.30 |" in shown
    assert "Medians differ by 30" in shown
    before = replace(results["one"], token_ratio=None)
    assert token_sections(bins, before) == [bins]  # a result of a version that did not know of it
