"""What the atlas that comes with the package knows, and that it is the atlas of the docs."""

from __future__ import annotations

import json

from contextcliff_dagster.atlas.results import sampling_range
from contextcliff_dagster_tests.support.terminal import call
from tools.write_atlas_summary import SUMMARY, summary


def test_the_package_knows_what_the_atlas_of_the_docs_says_and_is_small() -> None:
    assert SUMMARY.read_text(encoding="utf-8") == summary()
    assert SUMMARY.stat().st_size < 200_000


def test_a_model_is_shown_with_caps_intervals_date_and_citations() -> None:
    ended = call("atlas", "show", "GPT-4-turbo-1106")
    assert ended.code == 0
    shown = " ".join(ended.out.split())
    assert "question before the filing 16,305 tokens cliff 20,344 [17,502, 63,451] tokens" in shown
    assert "Gathered 2026-11-27 from: FinanceBench: Islam et al. 2023" in shown
    assert "Your own task needs its own measurement" in shown
    machine = json.loads(call("atlas", "show", "gpt-4-turbo-1106", "--json").out)
    assert {one["model"] for one in machine["series"]} == {"gpt-4-turbo-1106"}
    assert set(machine["sources"]) == {one["source"] for one in machine["series"]}


def test_an_unknown_model_is_named_with_those_that_are_known() -> None:
    for name in ("gemini-3-por", " "):
        ended = call("atlas", "show", name)
        assert ended.code == 2
        assert f"No published outcomes of {name!r} are known; the nearest names of 39" in ended.err
    assert "gemini-3-pro" in call("atlas", "show", "gemini-3-por").err


def test_a_model_is_known_by_any_of_its_names_and_another_is_not_it() -> None:
    expected = sampling_range("gpt-4.1")
    assert expected is not None
    assert sampling_range("openai/GPT-4.1-2025-04-14") == expected
    for other in ("gpt-4.1-mini", "gpt-4", "my-gpt-4.1", "", "mine"):
        assert sampling_range(other) is None


def test_names_are_found_however_they_are_spelt() -> None:
    shown = call("atlas", "show", "gpt-4o-mini").out
    assert shown
    for spelling in ("openai/gpt-4o-mini", "GPT 4o mini", "gpt4o mini"):
        assert call("atlas", "show", spelling).out == shown


def test_no_length_beyond_a_window_is_worth_sampling() -> None:
    known = sampling_range("gpt-4-turbo")
    assert known is not None
    assert known != sampling_range("gpt-4-turbo", 20_000)
    assert "to 20,000 tokens" in (sampling_range("gpt-4-turbo", 20_000) or "")
    assert "to 32,000 tokens" in (sampling_range("moonshot-v1-32k", 32_768) or "")
