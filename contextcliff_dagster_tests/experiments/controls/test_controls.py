"""Controls in the chain: only where a study asks, in tables of their own, in cliffs and report."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import dagster as dg
import pytest

from contextcliff_dagster.contracts import (
    CONTROL_PREDICTIONS,
    CONTROL_RECORDS,
    EVAL_RECORDS,
    BudgetError,
)
from contextcliff_dagster.defs.studies import study_assets
from contextcliff_dagster.experiments.common.answers import read_answers
from contextcliff_dagster.experiments.common.study_run import StudyRun
from contextcliff_dagster.experiments.controls import CONTROLS_EXPERIMENT
from contextcliff_dagster.inference.spending import Budget
from contextcliff_dagster.run.study import prepare_study, profile_study, rebuild_report
from contextcliff_dagster.store import Store, read_table
from contextcliff_dagster.studies import Study
from contextcliff_dagster_tests.support.records.profiles import changed

pytestmark = pytest.mark.usefixtures("unrecorded")

MODEL = "reference-short"
Run = Callable[..., dg.ExecuteInProcessResult]


@pytest.fixture
def controlled(study: Study) -> Study:
    return study.with_models([MODEL]).changed(controls=("oracle", "no_context"))


def test_a_study_that_does_not_ask_has_no_such_asset(study: Study) -> None:
    def names(of: Study) -> set[str]:
        return {key.path[-1] for asset in study_assets(of) for key in asset.keys}

    assert "controls" not in study.sections
    assert "control_predictions" not in names(study)
    asked = study.changed(controls=["no_context"])
    assert names(asked) - names(study) == {"control_predictions"}


def test_they_are_measured_scored_and_reported_beside_the_curve(
    controlled: Study, store: Store
) -> None:
    plain = profile_study(controlled.changed(controls=()))
    assert plain.cliffs[0].controls == []
    done = profile_study(controlled)
    assert done.calls[MODEL].planned == 36
    assert done.calls[MODEL].sent == 24
    (cliffs,) = done.cliffs
    by_name = {control.name: control for control in cliffs.controls}
    assert [*by_name] == ["no_context", "oracle"]
    assert by_name["no_context"].mean == 0.0
    assert by_name["oracle"].mean > 0.5
    assert [b.n for b in by_name["oracle"].bins] == [4, 4, 4]
    assert by_name["oracle"].n_askable == by_name["oracle"].n_all == 12
    assert changed(cliffs, plain.cliffs[0]) <= {"controls", "created_at", "confounds", "warnings"}
    page = done.report.html.read_text("utf-8")
    assert "Controls: the same questions without the document" in page
    assert "12 of 12 examples give the position of their evidence." in page

    file = store.table_file("control_records", controlled.name, done.campaign, MODEL, "b02")
    records = read_table(file, CONTROL_RECORDS).to_pylist()
    measured = store.table_file("eval_records", controlled.name, done.campaign, MODEL, "b02")
    whole = {row["example_id"]: row for row in read_table(measured, EVAL_RECORDS).to_pylist()}
    assert len(records) == 2 * len(whole) == 8
    for row in records:
        same = whole[row["example_id"]]
        for name in ("document_id", "length_tokens", "bin", "recipe_hash", "domain"):
            assert row[name] == same[name]
        assert row["call_key"] != same["call_key"]
    asked = store.table_file("control_predictions", controlled.name, done.campaign, MODEL, "b02")
    lengths = [row["length_tokens"] for row in read_table(asked, CONTROL_PREDICTIONS).to_pylist()]
    assert max(lengths) < min(row["length_tokens"] for row in whole.values())

    with StudyRun.open(controlled, store) as run:
        asked_again = read_answers(run, experiment=CONTROLS_EXPERIMENT)
        over_documents = read_answers(run)
    kinds = dict.fromkeys(asked_again["control"].to_pylist())
    assert (asked_again.num_rows, [*kinds]) == (24, ["no_context", "oracle"])
    names = ["example_id", "document_id", "length_tokens", "question", "accepted"]
    alone = asked_again.filter([c == "oracle" for c in asked_again["control"].to_pylist()])
    assert alone.select(names).equals(over_documents.select(names))

    again = profile_study(controlled)
    assert again.calls[MODEL].sent == 0
    # A report of the study as it is written still has what was measured.
    rebuilt = rebuild_report(controlled.changed(controls=()))
    assert rebuilt.cliffs[0].controls == cliffs.controls


def test_they_are_estimated_on_lines_of_their_own_and_keep_to_the_budget(
    controlled: Study, store: Store
) -> None:
    prepared = prepare_study(controlled)
    own: dict[str | None, int] = {}
    for line in prepared.estimate.lines:
        own[line.control] = own.get(line.control, 0) + line.calls
    assert own == {None: 12, "no_context": 12, "oracle": 12}
    with pytest.raises(BudgetError):
        profile_study(controlled, budget=Budget(calls=20))
    measured = profile_study(controlled.changed(controls=()), budget=Budget(calls=20))
    assert measured.calls[MODEL].sent == 0


def test_a_launch_from_the_ui_leaves_one_event_a_bin(
    controlled: Study, run: Run, prepared: None, instance: dg.DagsterInstance
) -> None:
    one: dict[str, Any] = {"first": f"{MODEL}.b00", "last": f"{MODEL}.b02", "of": controlled}
    run("predictions", "control_predictions", "eval_records", "metrics", "cliffs", **one)
    key = dg.AssetKey([controlled.name, "control_predictions"])
    events = instance.fetch_materializations(key, limit=10).records
    assert sorted(str(event.partition_key).partition("|")[2] for event in events) == [
        f"{MODEL}.b0{i}" for i in range(3)
    ]
    assert {e.asset_materialization.metadata["dagster/row_count"].value for e in events} == {8}  # type: ignore[union-attr]


def test_a_study_names_controls_once_and_only_known_ones(study: Study) -> None:
    asked = study.changed(controls=["oracle", "no_context", "oracle"])
    assert asked.sections["controls"] == ("no_context", "oracle")
    with pytest.raises(Exception, match="controls"):
        study.changed(controls=["nothing"])
    assert json.loads(asked.model_dump_json())["controls"] == ["no_context", "oracle"]
