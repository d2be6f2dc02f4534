"""`--with-answers`: questions and answers are in report.html exactly where they were asked for."""

from __future__ import annotations

import json

import pytest

from contextcliff_dagster.contracts import ANSWERS
from contextcliff_dagster.experiments.common.answers import read_answers
from contextcliff_dagster.experiments.common.study_run import StudyRun
from contextcliff_dagster.run.study import rebuild_report
from contextcliff_dagster.store import Store
from contextcliff_dagster.studies import Study
from contextcliff_dagster_tests.support.records.answer_tables import data_of


@pytest.mark.usefixtures("unrecorded")
def test_a_report_made_again_holds_the_answers_as_it_is_told(measured: Study, store: Store) -> None:
    with StudyRun.open(measured, store) as run:
        answers = read_answers(run)
    assert answers.schema.names == list(ANSWERS.column_names)
    questions = set(answers["question"].to_pylist())
    for asked in (True, False):
        done = rebuild_report(measured, store=store, with_answers=asked)
        page = done.report.html.read_text(encoding="utf-8")
        data = data_of(page)
        assert all((json.dumps(q)[1:-1] in page) is asked for q in questions)
        assert set(data["scores"]) == {"em", "f1", "contained"}
        if asked:
            assert set(data["examples"]["question"]) == questions
            assert sum(len(columns["answer"]) for columns in data["given"]) == len(answers)
        else:
            assert data["how"].startswith("contextcliff report tiny ")
            assert data["how"].endswith(" --with-answers")
