"""What the atlas that comes with the package knows, and that it is the atlas of the docs."""

from __future__ import annotations

import json

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
    for name in ("no such model", " "):
        ended = call("atlas", "show", name)
        assert ended.code == 2
        assert f"No published outcomes of {name!r} are known; there are" in ended.err
        assert "gemini-3-pro" in ended.err
