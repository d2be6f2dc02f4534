"""A new experiment is one file and one line, from its assets to its section of the report."""

from __future__ import annotations

import json
import sqlite3
from datetime import UTC, datetime
from pathlib import Path

import dagster as dg
import pytest

from contextcliff_dagster.cli import main
from contextcliff_dagster.contracts import BudgetError, StudyError
from contextcliff_dagster.defs.assets.experiment import experiment_assets
from contextcliff_dagster.defs.automation import study_schedules
from contextcliff_dagster.defs.resources import default_resources
from contextcliff_dagster.defs.studies import study_assets, study_jobs
from contextcliff_dagster.experiments.common.answers import read_answers
from contextcliff_dagster.experiments.common.experiment import Step
from contextcliff_dagster.experiments.common.study_run import StudyRun
from contextcliff_dagster.inference.spending import Budget
from contextcliff_dagster.run.study import prepare_study, profile_study, rebuild_report
from contextcliff_dagster.store import Store
from contextcliff_dagster.studies import Study, load_study
from contextcliff_dagster.studies.experiment_table import EXPERIMENTS
from contextcliff_dagster_tests.support.sizes_experiment import SIZES, Sizes
from contextcliff_dagster_tests.support.ticks import schedule_tick
from contextcliff_dagster_tests.support.tiny_study import TINY

ALONE = """\
name: sizes-alone
prompt: {max_output_tokens: 12}
models: [reference-short]
sizes: [6, 20]
"""


@pytest.fixture(autouse=True)
def _the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DAGSTER_HOME")
    address = "contextcliff_dagster_tests.support.sizes_experiment:SIZES"
    monkeypatch.setitem(EXPERIMENTS, "sizes", address)


@pytest.fixture
def alone(tmp_path: Path) -> Study:
    (tmp_path / "sizes-alone.yaml").write_text(ALONE, encoding="utf-8")
    return load_study(tmp_path / "sizes-alone.yaml")


@pytest.fixture
def both(tmp_path: Path) -> Study:
    (tmp_path / "tiny.yaml").write_text(TINY + "sizes: [6, 20]\n", encoding="utf-8")
    return load_study(tmp_path / "tiny.yaml").with_models(["reference-short"])


def test_it_has_assets_and_partitions_of_its_own(alone: Study, both: Study) -> None:
    own = {"sizes_predictions", "sizes_records", "sizes_result"}
    names = {key.path[-1] for asset in study_assets(alone) for key in asset.keys}
    assert names == {*own, "cost_estimate", "report"}
    by_name = {key.path[-1]: asset for asset in study_assets(both) for key in asset.keys}
    assert own < by_name.keys()
    partitions = by_name["sizes_predictions"].partitions_def
    assert isinstance(partitions, dg.MultiPartitionsDefinition)
    cells = partitions.get_partitions_def_for_dimension("cell")
    assert cells.get_partition_keys() == ["reference-short.r006", "reference-short.r020"]
    assert {job.name for job in study_jobs(both)} == {"profile_tiny", "pilot_tiny", "sizes_tiny"}


def test_it_is_measured_resumed_and_reported_without_a_corpus(
    alone: Study, contextcliff_home: Path
) -> None:
    assert prepare_study(alone).estimate.calls == 8
    with pytest.raises(BudgetError):
        profile_study(alone, budget=Budget(calls=5))
    done = profile_study(alone)
    assert done.calls["reference-short"].sent == 3, "five were paid before"
    assert profile_study(alone).calls["reference-short"].sent == 0
    assert profile_study(alone, samples_per_bin=2).calls["reference-short"].planned == 4
    page = done.report.md.read_text("utf-8")
    assert "## Right answers by size" in page
    assert "| reference-short | r006 |" in page
    with sqlite3.connect(contextcliff_home / "state.db") as db:
        assert db.execute("SELECT study, count(*) FROM calls").fetchall() == [(alone.name, 8)]
    kept = json.loads(
        Store(contextcliff_home).results_file(alone.name, done.campaign, "sizes").read_bytes()
    )
    assert [(one["size"], one["n"]) for one in kept["results"]] == [("r006", 4), ("r020", 4)]
    assert 0 < kept["results"][0]["mean"] <= 1
    for folder in ("sizes_records", "sizes_predictions", "report", "results"):
        for path in sorted((contextcliff_home / alone.name / folder).rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
    assert rebuild_report(alone).report.md.read_text("utf-8") == page


def test_next_to_a_length_profile_it_has_a_section_of_its_report(both: Study) -> None:
    done = profile_study(both)
    assert [result.model for result in done.cliffs] == ["reference-short"]
    page = done.report.md.read_text("utf-8")
    assert page.index("## How to reproduce it") < page.index("## Right answers by size")
    assert done.report.png is not None
    assert done.calls["reference-short"].planned == 12 + 8
    with StudyRun.open(both, Store.default()) as run:
        assert run.measured_models() == ["reference-short"]
        made = read_answers(run, experiment=SIZES).to_pylist()
        assert [answer["bin"] for answer in made] == ["r006"] * 4 + ["r020"] * 4
        for answer in made:
            assert answer["accepted"]
            assert answer["question"].startswith("Find ")
        assert read_answers(run).num_rows == 12


def test_the_command_line_runs_and_prints_it(
    alone: Study,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = str(tmp_path / "sizes-alone.yaml")
    assert main(["prepare", file, "--show-prompt", "2", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)["prompts"]
    assert [prompt["bin"] for prompt in shown] == ["r006", "r020"]
    assert main(["profile", file]) == 0
    first = capsys.readouterr().out
    assert "RIGHT ANSWERS BY SIZE" in first
    assert "8 calls sent" in first
    assert main(["profile", file]) == 0
    assert "all 8 calls are in the ledger" in capsys.readouterr().out
    assert main(["answers", file, "--format", "jsonl"]) == 0
    listed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [answer["bin"] for answer in listed] == ["r006"] * 4 + ["r020"] * 4
    calls = tmp_path / "calls.jsonl"
    assert main(["ledger", "export", "sizes-alone", str(calls), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["scores"] == 8
    found = {one["example_id"]: one["accepted"] for one in map(json.loads, calls.open("rb"))}
    assert found == {answer["example_id"]: answer["accepted"] for answer in listed}
    capsys.readouterr()
    assert main(["report", file, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["cliffs"] == []
    assert printed["sections"][0]["title"] == "Right answers by size"
    monkeypatch.setattr("os.access", lambda *_: False)  # a store that cannot be written
    assert main(["report", file]) == 0
    assert "RIGHT ANSWERS BY SIZE" in capsys.readouterr().out


def test_runs_of_the_command_line_say_what_they_are_for(
    alone: Study, tmp_path: Path, contextcliff_home: Path
) -> None:
    assert main(["profile", str(tmp_path / "sizes-alone.yaml")]) == 0
    with dg.DagsterInstance.from_config(str(contextcliff_home / "dagster_home")) as instance:
        runs = instance.get_runs()
    by_job = {run.job_name: run.tags for run in runs}
    tags = by_job["sizes_sizes_alone"]
    assert tags["contextcliff/study"] == "sizes-alone"
    assert tags["contextcliff/models"] == "reference-short"
    assert tags["contextcliff/cause"] == "command line"
    assert tags["contextcliff/campaign"]


class TwoResults(Sizes):
    name = "two"

    def asset_names(self, step: Step) -> tuple[str, ...]:
        return ("two_means", "two_ranks") if step == "result" else super().asset_names(step)


def test_several_results_are_made_by_one_op(alone: Study) -> None:
    two = TwoResults()
    made = experiment_assets(alone, two)
    ops = {asset.op.name.partition("__")[2] for asset in made}
    assert {*two.asset_names("records"), two.op_of_result()} == {"two_records", "two_means"} <= ops


def test_a_study_says_what_is_wrong_with_its_section(alone: Study, tmp_path: Path) -> None:
    for bad, said in (
        ("sizes: [two]", r"line 4, key 'sizes\.0': should be a valid integer"),
        ("sized: [2]", r"line 4, key 'sized': there is no such key"),
        ("sizes: []", r"key 'corpus' is missing"),
    ):
        file = tmp_path / "bad.yaml"
        file.write_text(ALONE.replace("sizes: [6, 20]", bad), encoding="utf-8")
        with pytest.raises(StudyError, match=said):
            load_study(file)


def test_a_schedule_measures_each_experiment_in_the_same_campaign(both: Study) -> None:
    weekly = both.changed(schedule={"cron": "0 3 * * 1"})
    jobs = study_jobs(weekly)
    location = dg.Definitions(
        assets=study_assets(weekly),
        jobs=jobs,
        schedules=study_schedules(weekly, jobs),
        resources=default_resources(),
    )
    tick = datetime(2026, 11, 23, 3, tzinfo=UTC)
    campaigns = set()
    for schedule in location.schedules or ():
        assert isinstance(schedule, dg.ScheduleDefinition)
        with dg.instance_for_test() as instance:
            (request,) = schedule_tick(schedule, instance, tick, default_resources())
        job = location.resolve_job_def(schedule.job_name)
        assert dg.validate_run_config(job, request.run_config)
        campaigns.add(request.tags["contextcliff/campaign"])
        assert request.tags["contextcliff/cause"] == "schedule"
    assert [one.name for one in location.schedules or ()] == ["measure_tiny", "measure_sizes_tiny"]
    assert campaigns == {"2026-11-23T0300"}


def test_one_file_takes_it_to_another_store(
    alone: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = profile_study(alone)
    file = tmp_path / "sizes.zip"
    assert main(["export", str(tmp_path / "sizes-alone.yaml"), str(file)]) == 0
    monkeypatch.setenv("CONTEXTCLIFF_HOME", str(tmp_path / "elsewhere"))
    assert main(["import", str(file), "--adopt"]) == 0
    assert profile_study(alone).calls["reference-short"].sent == 0
    assert rebuild_report(alone).report.md.read_text("utf-8") == done.report.md.read_text("utf-8")


def test_answers_that_another_study_paid_are_scored(alone: Study, tmp_path: Path) -> None:
    first = profile_study(alone)
    (tmp_path / "other.yaml").write_text(ALONE.replace("sizes-alone", "other"), encoding="utf-8")
    other = profile_study(load_study(tmp_path / "other.yaml"))
    assert other.calls["reference-short"].sent == 0
    pages = [done.report.md.read_text("utf-8") for done in (first, other)]
    rows = [
        [line for line in page.splitlines() if "| reference-short | r0" in line] for page in pages
    ]
    assert len(rows[0]) == 2
    assert rows[1] == rows[0]


def test_a_study_without_a_corpus_has_no_sample(
    alone: Study, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["profile", str(tmp_path / "sizes-alone.yaml"), "--pilot", "2"]) == 2
    assert "Study 'sizes-alone' names no corpus" in capsys.readouterr().err
