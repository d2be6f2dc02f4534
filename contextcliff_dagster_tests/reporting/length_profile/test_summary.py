"""The short page: everything a decision needs on at most 120 lines."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from contextcliff_dagster.contracts.results import Cliffs
from contextcliff_dagster.reporting.length_profile.page import MOST_WARNINGS, summary_sections
from contextcliff_dagster.reporting.length_profile.tables import few_data_blocks
from contextcliff_dagster.reporting.markdown import as_page
from contextcliff_dagster_tests.support.records.reports import (
    control_of,
    result_of,
    results_of,
    sample,
    sample_pair,
)

EARLIER = Path(__file__).parents[2] / "support" / "records" / "page_of_0_1_0"


def short(cliffs: list[Cliffs], **options: list[str]) -> str:
    return as_page(summary_sections(cliffs, title="Study", **options))


def real() -> Cliffs:
    return result_of(json.loads((EARLIER / "report.json").read_text("utf-8"))["models"][0])


def three() -> list[Cliffs]:
    return results_of([*sample_pair()[0], sample("third", l70=900, seed=3)[0]])


@pytest.mark.parametrize("models", [1, 2, 3])
def test_it_stays_short_whatever_is_warned_of(models: int) -> None:
    warned = [f"warning {i}" for i in range(40)]
    page = short(three()[:models], notes=warned)
    assert len(page.splitlines()) <= 120
    assert f"{40 - MOST_WARNINGS} more are in `report.html`." in page


def test_a_real_study_keeps_what_a_decision_needs() -> None:
    page = short([real()])
    assert len(page.splitlines()) <= 60
    for kept in (
        "keep documents at or below **476 tokens**",  # cap
        "| 997 [337, 1,915] |",  # midpoint with its interval
        "![Score and SD against natural document length](report.png)",
        "of every 10 answers that are right on short documents, up to 3 may be lost, at worst from",
        "## Warnings",
        "The cap assumes that a model that fails at a length also fails at longer ones.",
        "Nothing was measured between 1,946 tokens",
        "`contextcliff report local --campaign ",
        "`report.html`",
        "`report.json`",
    ):
        assert kept in page, kept


def test_every_bin_of_every_model_is_in_one_table() -> None:
    page = short(three())
    (table,) = (t for t in re.findall(r"(?:^\|.*\n)+", page, re.M) if t.startswith("| bin |"))
    rows = table.splitlines()
    assert len(rows) == 2 + 10
    for result in three():
        for b, row in zip(result.bins, rows[2:], strict=True):
            assert f"| {b.n} | {b.mean:.2f} [{b.ci_low:.2f}, {b.ci_high:.2f}]" in row


def test_models_with_other_bins_have_rows_of_their_own() -> None:
    other = sample("other", bins=4)[0]
    page = short(results_of([sample("one")[0], other]))
    assert page.count("| `one` | `b0") == 10
    assert page.count("| `other` | `b0") == 4


def test_what_holds_for_several_models_is_one_line() -> None:
    page = short(three())
    names = "`reference-short`, `reference-long`, `third`"
    assert f"- {names}: Every call was answered." in page


def test_too_few_data_show_the_document_and_the_controls_side_by_side() -> None:
    cliffs = sample()[0]
    asked = control_of("no_context") | {"n": 12, "mean": 0.25, "ci_low": 0.05, "ci_high": 0.57}
    asked["document"] = {"n": 12, "mean": 0.75, "ci_low": 0.43, "ci_high": 0.95}
    cliffs |= {"verdict": "insufficient_data", "controls": [asked]}
    row = "| `reference-short` | no document | 12 | 0.75 [0.43, 0.95] | 0.25 [0.05, 0.57] |"
    page = short(results_of([cliffs]))
    assert row in page
    assert page.index(row) < page.index("![")
    enough = result_of(cliffs | {"verdict": "stable"})
    assert few_data_blocks([enough], ["m"]) == []
    without = result_of(cliffs | {"controls": [control_of("no_context")]})  # of an older version
    assert few_data_blocks([without], ["m"]) == []


def test_no_result_is_a_short_page_too() -> None:
    assert "No model has a result yet." in short([])
