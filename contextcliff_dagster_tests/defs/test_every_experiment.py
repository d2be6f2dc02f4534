"""What the machinery gives a study's assets, it gives to those of every experiment."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from contextcliff_dagster.archive.rename import rename_study
from contextcliff_dagster.contracts import Column, Table
from contextcliff_dagster.contracts.extensions import extensions
from contextcliff_dagster.defs.asset_specs import RETRY_TAG, documents_job_name, job_name
from contextcliff_dagster.defs.studies import study_assets, study_parts
from contextcliff_dagster.defs.ui.results import with_token_ranges
from contextcliff_dagster.experiments.common.experiment import Experiment
from contextcliff_dagster.experiments.lookup import (
    all_experiments,
    asked_experiments,
    experiment_tables,
    partitioned,
)
from contextcliff_dagster.experiments.sql_tables import view_sql
from contextcliff_dagster.store import Store
from contextcliff_dagster.studies import Study, load_study
from contextcliff_dagster.studies.experiment_table import load_experiment
from contextcliff_dagster.studies.files import is_retired, retire
from contextcliff_dagster_tests.support.tiny_study import TINY

SHOWN = {
    "group": "legal",
    "owners": ["team:search"],
    "tags": {"domain": "legal"},
    "kinds": ["vllm"],
}
PROFILE = "length_profile"
ASKING = {
    PROFILE: {},
    "controls": {"controls": ["no_context", "oracle"]},
    "attention_entropy": {"attention_entropy": True},
    "kv": {"models": ["reference-long", "reference-long+snapkv@0.2"]},
    **{name: {name: load_experiment(name).example} for name in extensions()},
}


def test_all_experiments_are_tried() -> None:
    assert {one.name for one in all_experiments()} <= ASKING.keys()


@pytest.fixture(params=ASKING)
def asking(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Study, Experiment]:
    """A study that asks for the experiment, besides the length profile."""
    path = tmp_path / "tiny.yaml"
    text = {**yaml.safe_load(TINY), **ASKING[request.param], "assets": SHOWN}
    path.write_text(yaml.safe_dump(text))
    study = load_study(path)
    name = PROFILE if request.param == "kv" else request.param
    return study, next(one for one in asked_experiments(study) if one.name == name)


def own_assets(study: Study, experiment: Experiment) -> set[str]:
    steps = ("predictions", "records", "result")
    names = {name for step in steps for name in experiment.asset_names(step)}
    return names | {*experiment.document_assets()}


def test_assets_are_shown_as_the_study_says(asking: tuple[Study, Experiment]) -> None:
    study, experiment = asking
    specs = {spec.key.path[-1]: spec for one in study_assets(study) for spec in one.specs}
    for name in own_assets(study, experiment):
        spec = specs[name]
        assert (spec.group_name, list(spec.owners)) == ("legal", ["team:search"])
        assert spec.tags["domain"] == "legal"
        assert "vllm" in spec.kinds
        assert spec.description
        assert spec.code_version


def test_a_prefix_is_before_every_key(
    asking: tuple[Study, Experiment], monkeypatch: pytest.MonkeyPatch
) -> None:
    study, _ = asking
    monkeypatch.setenv("CONTEXTCLIFF_ASSET_PREFIX", "team/b")
    for asset in study_assets(study):
        for key in (*asset.keys, *(check.asset_key for check in asset.check_specs)):
            assert key.path[:3] == ["team", "b", "tiny"]
        assert all(key.path[:3] == ["team", "b", "tiny"] for key in asset.asset_deps)


def test_keys_of_bins_say_their_tokens_and_other_keys_say_themselves(
    asking: tuple[Study, Experiment], store: Store
) -> None:
    study, experiment = asking
    assets = with_token_ranges(study_assets(study), study, store)
    (name,) = experiment.asset_names("predictions")
    (asset,) = [one for one in assets if {key.path[-1] for key in one.keys} == {name}]
    assert isinstance(asset.partitions_def, dg.MultiPartitionsDefinition)
    spec = next(iter(asset.specs))
    explained = "Token ranges appear once" in str(spec.description)
    assert explained == (experiment.by_bins)


def test_jobs_retry_failed_runs_and_carry_the_study(asking: tuple[Study, Experiment]) -> None:
    study, _ = asking
    jobs = {job.name: job for job in study_parts(study).jobs}
    for experiment in partitioned(study):
        names = [job_name(study, experiment)]
        if experiment.document_assets():
            names.append(documents_job_name(study, experiment))
        for name in names:
            tags = jobs[name].tags or {}
            assert tags["contextcliff/study"] == "tiny"
            assert (tags["dagster/max_retries"], tags[RETRY_TAG]) == ("2", "true")


def _file(store: Store, table: Table, study: str) -> Path:
    path = store.table_file(table.name, study, "c", "m", "b00")
    path.parent.mkdir(parents=True)
    pq.write_table(pa.table({"study": [study], "n": [1]}), path)
    return path


def test_rename_and_retire_reach_every_table(
    asking: tuple[Study, Experiment], store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    study, _ = asking
    monkeypatch.setenv("CONTEXTCLIFF_STUDIES", str(study.folder))
    files = {table.name: _file(store, table, "tiny") for table in experiment_tables()}
    rename_study(store, "tiny", "small", tables=experiment_tables())
    renamed = load_study(study.folder / "small.yaml")
    assert renamed.sections == study.sections
    for name, old in files.items():
        assert not old.exists()
        path = store.table_file(name, "small", "c", "m", "b00")
        assert pq.ParquetFile(path).read()["study"].to_pylist() == ["small"]
    assert not is_retired(store, renamed.name)
    retire(store, "small")
    assert is_retired(store, renamed.name)
    narrow = Table("eval_records", "", (Column("study", "string", ""),))
    assert "study NOT IN ('small')" in view_sql(narrow, store.root)
