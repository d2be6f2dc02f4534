"""Where even the shortest documents fail, three of their answers stand next to the verdict."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from contextcliff_dagster.cli.commands.report import print_profiled
from contextcliff_dagster.contracts import ANSWERS, Verdict, conform
from contextcliff_dagster.experiments.common import answers
from contextcliff_dagster.experiments.common.study_run import StudyRun
from contextcliff_dagster.experiments.length_profile import profile_and_report
from contextcliff_dagster.reporting.html.render import sections_html
from contextcliff_dagster.reporting.markdown import as_page, as_text
from contextcliff_dagster.run.study import profile_study, rebuild_report
from contextcliff_dagster.store import Store
from contextcliff_dagster.studies import Study
from contextcliff_dagster_tests.support.records.answer_tables import answered
from contextcliff_dagster_tests.support.tiny_study import store, study, unrecorded

__all__ = ["store", "study", "unrecorded"]

_TITLE = "answered to the shortest documents"


@pytest.mark.usefixtures("unrecorded")
def test_three_answers_are_shown_where_even_short_documents_fail(
    study: Study, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = study.changed(
        models=("reference-short",),
        sampling={"samples_per_bin": 10},
        prompt={"max_output_tokens": 12, "template": "{document}\n\n{question} And why?"},
    )
    done = profile_study(asked, store=store)
    assert done.cliffs[0].verdict is Verdict.FLOOR
    print_profiled(done, as_json=False)
    printed = capsys.readouterr().out
    with StudyRun.open(asked, store) as run:
        rows = answers.read_answers(run).to_pylist()
    first, *_, last = sorted(rows, key=lambda row: row["length_tokens"])
    assert f"WHAT reference-short {_TITLE.upper()}" in printed
    assert printed.count(" SKU-") == 3
    assert (first["question"] in printed, last["question"] in printed) == (True, False)
    assert "answers tiny --campaign" in printed
    # A report may be sent around: as everywhere, it has answers where that was asked for.
    for wanted in (False, True):
        report = rebuild_report(asked, store=store, with_answers=wanted).report
        for page in (report.md, report.html):
            text = page.read_text(encoding="utf-8")
            head, _, rest = text.partition(_TITLE)
            assert rest
            assert (first["question"] in rest.partition("Warnings")[0]) is wanted
            assert "How to reproduce" not in head  # on the first screen


def test_what_a_model_said_is_shortened_and_can_do_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "a-secret-of-the-environment")
    hostile = "\x1b[31m<script>|`a-secret-of-the-environment`\u202e " + "x" * 5_000
    result, _, rows = answered("m", lambda number: None if number == 0 else hostile)
    shortest = [row for row in rows if row["bin"] == result.bins[0].bin]
    for number, row in enumerate(shortest):
        row |= {"question": f"{number}? {hostile}", "failure": "hallucination"}
    shortest[1]["failure"] = "transport_error"
    monkeypatch.setattr(answers, "read_answers", lambda *of: conform(shortest, ANSWERS))
    run: Any = SimpleNamespace(study=SimpleNamespace(name="s"), campaign="c")
    sections = profile_and_report.floor_sections(run, [replace(result, verdict=Verdict.FLOOR)])
    page = sections_html(sections)
    for text in ("\n".join(as_text(sections)), as_page(sections), page):
        assert not {"\x1b", "\u202e"} & set(text)
        assert "a-secret" not in text
        assert len(text) < 3 * (3 * 120 + 400)
        assert [f"{number}? " in text for number in range(5)] == [True, False, True, True, False]
    assert "<script>" not in page
    assert "(nothing)" in page
    assert profile_and_report.floor_sections(run, [result]) == []
    # Too few for a verdict, and none of them right: that matters more than their number.
    nothing_right = [replace(b, mean=0.0) for b in result.bins]
    few = replace(result, verdict=Verdict.INSUFFICIENT_DATA, bins=nothing_right)
    assert sections_html(profile_and_report.floor_sections(run, [few])) == page
    unmeasured = [replace(b, n=0, mean=None) for b in result.bins]
    assert profile_and_report.floor_sections(run, [replace(few, bins=unmeasured)]) == []
