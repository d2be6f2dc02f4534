"""What Dagster shows of a utilization study, what it checks, and what a study without a length
profile refuses."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

from contextcliff_dagster.cli import main
from contextcliff_dagster.cli.study_selection import keep_definition
from contextcliff_dagster.defs.studies import study_parts
from contextcliff_dagster.experiments.alert_channels import alert
from contextcliff_dagster.experiments.common.records import check_records
from contextcliff_dagster.experiments.common.study_run import StudyRun
from contextcliff_dagster.extensions.utilization.experiment import UTILIZATION
from contextcliff_dagster.extensions.utilization.report.page import utilization_page
from contextcliff_dagster.extensions.utilization.results import UtilizationResult, difference_alarm
from contextcliff_dagster.reporting.markdown import as_text
from contextcliff_dagster.run.study import profile_study
from contextcliff_dagster.store import Store
from contextcliff_dagster.studies import Study

Capsys = pytest.CaptureFixture[str]


def study_of(models: tuple[str, ...] = ("reader-perfect",), **keys: Any) -> Study:
    section = {"benchmarks": ["warehouse"], "scales": ["1k", "2k"], "seeds": 2}
    given = {"name": "shown", "models": models, "utilization": section, **keys}
    return Study.model_validate(given)


@pytest.fixture(autouse=True)
def _unrecorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DAGSTER_HOME")


def shown(instance: dg.DagsterInstance, asset: str) -> Mapping[str, Any]:
    event = instance.get_latest_materialization_event(dg.AssetKey(["shown", asset]))
    assert event is not None
    assert event.asset_materialization is not None
    return event.asset_materialization.metadata


def test_result_and_report_show_the_answer_and_the_picture(contextcliff_home: Path) -> None:
    study = study_of(("reader-perfect", "reader-guess"))
    with dg.DagsterInstance.ephemeral() as instance:
        profile_study(study, instance=instance)
        result, report = (shown(instance, name) for name in ("utilization_result", "report"))
        checks = {
            key.name: instance.event_log_storage.get_asset_check_execution_history(key, limit=1)
            for parts in study_parts(study).assets
            for key in parts.check_keys
        }
    rows = [record.data for record in result["results"].records]
    assert [row["model"] for row in rows] == ["reader-perfect", "reader-guess"]
    assert rows[0]["jsonl: mean score"] == rows[0]["prose: mean score"] == 1.0
    assert result["jsonl_mean_score/reader-perfect"].value == 1.0
    for metadata in (result, report):
        lines = metadata["summary"].value.split("\n\n")
        assert [line.split(":")[0] for line in lines] == ["**reader-perfect**", "**reader-guess**"]
        assert all(line.endswith(".") for line in lines)
    pictures = [name for name in report if name.startswith("picture/")]
    assert len(pictures) >= 2
    assert all("data:image/webp" in report[name].value for name in pictures)
    outcomes = {}
    for name, (record,) in checks.items():
        assert record.event is not None
        outcome: Any = record.event.dagster_event.event_specific_data  # type: ignore[union-attr]
        outcomes[name] = outcome.passed
    assert outcomes == {
        "missing_share": True,
        "no_transport_error_scored": True,
        "no_silent_truncation": True,
        "plateau": False,
    }


def test_a_server_that_cuts_prompts_silently_ends_in_no_result(contextcliff_home: Path) -> None:
    study = study_of()
    profile_study(study)
    with StudyRun.open(study, Store.default()) as run:
        records = UTILIZATION.read_record_table(run)
    assert all(outcome.passed for outcome in check_records(study, records))
    place = records.schema.get_field_index("prompt_tokens")
    cut = records.set_column(place, "prompt_tokens", pa.array([700] * len(records), pa.int64()))
    (failed,) = [outcome for outcome in check_records(study, cut) if not outcome.passed]
    assert failed.name in {check.name for check in UTILIZATION.checks if check.blocking}
    assert "read less than was sent in 32 of 32 calls" in failed.why


@pytest.mark.parametrize(
    ("keys", "named"),
    [
        ({"targeted": {"until": "10%"}}, "targeted"),
        ({"sentinel": {"cron": "0 3 * * *"}}, "sentinel"),
        ({"latency": {"ttft_ms_p95": 100}, "bins": {"count": 5}}, "bins and latency"),
        ({"track": "mlflow"}, "track"),
    ],
)
def test_a_key_that_only_a_length_profile_reads_is_refused(
    keys: Mapping[str, Any], named: str
) -> None:
    with pytest.raises(ValueError, match=f"only a length profile reads {named},"):
        study_of(**keys)


def test_a_schedule_measures_it_anew_and_nothing_watches_a_cap_that_it_has_not() -> None:
    parts = study_parts(study_of(schedule={"cron": "0 3 * * 1"}))
    assert [job.name for job in parts.jobs] == [
        *(f"{kind}_shown" for kind in ("utilization", "utilization_documents")),
        *(f"{kind}_shown" for kind in ("measure_utilization", "begin_campaign")),
    ]
    assert [schedule.name for schedule in parts.schedules] == ["measure_utilization_shown"]
    assert not parts.sensors


@pytest.mark.parametrize(
    "line",
    [
        "policy shown",
        "baseline set shown",
        "baseline check shown",
        "compare shown:reader-perfect shown:reader-guess",
        "calibrate shown",
        "profile shown --sentinel",
        "profile shown --until 10%",
        "profile shown --seed 3",
        "profile shown --tolerance 20%",
    ],
)
def test_a_command_that_needs_a_length_profile_says_so(
    line: str, capsys: Capsys, contextcliff_home: Path
) -> None:
    keep_definition(study_of(("reader-perfect", "reader-guess")), Store.default())
    assert main(line.split()) == 2
    said = capsys.readouterr().err
    assert "Study 'shown' names no corpus, so it has no length profile" in said
    assert "contextcliff profile shown`" not in said


def test_a_campaign_without_answers_is_to_be_profiled(
    capsys: Capsys, contextcliff_home: Path
) -> None:
    study = study_of()
    keep_definition(study, Store.default())
    profile_study(study)
    assert main(["campaign", "new", "shown"]) == 0
    assert main(["report", "shown"]) == 2
    assert "has no answers in campaign" in (said := capsys.readouterr().err)
    assert "run `contextcliff profile shown`" in said


def test_the_list_of_studies_names_what_is_asked(capsys: Capsys, contextcliff_home: Path) -> None:
    assert main(["studies"]) == 0
    (line,) = [
        one for one in capsys.readouterr().out.splitlines() if one.startswith("utilization-quick")
    ]
    assert line.split()[1:3] == ["generated", "utilization"]


def test_channels_hear_once_that_formats_differ(
    contextcliff_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study, store, heard = study_of(), Store.default(), tmp_path / "heard"
    profile_study(study)
    with StudyRun.open(study, store) as run:
        (result,) = UTILIZATION.read_results(run)
        assert difference_alarm([result], run.campaign) is None, "a perfect reader reads all alike"
        worse = replace(result, verdict="structure_better", headline=["Prose is read worse."])
        alarm = difference_alarm([result, worse], run.campaign)
    monkeypatch.setenv("CONTEXTCLIFF_ALERT_COMMAND", f"tee {heard}")
    assert alert(study, store, alarm, pytest.fail) == ["the command tee"]
    message = json.loads(heard.read_text())
    assert message["event"] == "formats_differ"
    assert "Prose is read worse." in message["text"]
    assert alert(study, store, alarm, pytest.fail) == []


def words_of(results: Sequence[UtilizationResult]) -> str:
    return " ".join("\n".join(as_text(utilization_page(results, title="t").head)).split())


def test_the_page_says_whether_more_records_matter(contextcliff_home: Path) -> None:
    study = study_of()
    profile_study(study)
    with StudyRun.open(study, Store.default()) as run:
        (result,) = UTILIZATION.read_results(run)
    text = words_of([result])
    assert "at these scales as many records matter in long documents as in short ones" in text
    grown = replace(result, needed_longest=20 * result.needed_shortest)
    text = words_of([grown])
    assert "More records matter in longer documents" in text
