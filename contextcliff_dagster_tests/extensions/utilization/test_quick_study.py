"""The shipped study `utilization-quick`: readers of known ability, through engines and ledger."""

from __future__ import annotations

from pathlib import Path

import pytest

from contextcliff_dagster.experiments.common.study_run import StudyRun
from contextcliff_dagster.extensions.utilization.experiment import UTILIZATION
from contextcliff_dagster.run.study import profile_study, rebuild_report
from contextcliff_dagster.store import Store
from contextcliff_dagster.studies import find_study


def test_each_reader_is_found_to_be_what_it_is(
    contextcliff_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DAGSTER_HOME")
    study = find_study("utilization-quick")
    done = profile_study(study)
    with StudyRun.open(study, Store.default()) as run:
        perfect, guess, planted = UTILIZATION.read_results(run)
    assert [curve.mean for curve in perfect.curves] == [1.0, 1.0]
    assert all(curve.mean < 0.3 for curve in guess.curves)
    assert {perfect.verdict, guess.verdict} <= {"no_difference", "undecided"}
    assert planted.verdict == "structure_better"
    (comparison,) = planted.comparisons
    divergence = comparison.pooled.divergence
    assert divergence.status == "parted"
    assert divergence.better == "jsonl"
    assert divergence.high_tokens is not None
    assert divergence.high_tokens <= 8_000
    page = done.report.md.read_text("utf-8")
    assert page.index("Lengths are made here, not natural") < 300
    assert (done.report.html.parent / "utilization-formats-reader-planted.png").stat().st_size > 0
    asked = "What is the current stock of"
    assert asked not in done.report.html.read_text("utf-8") + page
    assert "--with-answers" in page
    shown = rebuild_report(study, with_answers=True).report
    assert asked in shown.html.read_text("utf-8")
    for public in (shown.md, shown.json):
        assert asked not in public.read_text("utf-8")
