"""The package in a Dagster project that has resources, assets, runs and an executor of its own."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml
from dagster.components.testing import create_defs_folder_sandbox
from dagster.components.testing.utils import DefsFolderSandbox

import contextcliff_dagster.definitions as cliff
from contextcliff_dagster.components import SCAFFOLDED, ContextCliffComponent, StudyComponent
from contextcliff_dagster.defs.alerts import study_of
from contextcliff_dagster.defs.asset_specs import PREPARATION
from contextcliff_dagster.defs.automation import lost_runs_sensor
from contextcliff_dagster.defs.home import missing_settings
from contextcliff_dagster.defs.resources import default_resources, run_resources
from contextcliff_dagster.store import Store
from contextcliff_dagster.studies import Study
from contextcliff_dagster.studies.files import retire
from contextcliff_dagster_tests.support.paths import CHECKOUT, DOCS
from contextcliff_dagster_tests.support.tiny_study import TINY

OWN = """
import dagster as dg

class Client(dg.ConfigurableResource):
    name: str

@dg.asset
def database(duckdb: Client, store: Client, watch: Client) -> str:
    return f"{duckdb.name} {store.name} {watch.name}"

names = ("duckdb", "store", "watch")
defs = dg.Definitions(
    assets=[database],
    resources={name: Client(name=f"my {name}") for name in names},
    executor=dg.multiprocess_executor,
)
"""
OF_DAGSTER = "default_automation_condition_sensor"
SHARED = {"alert_failed_runs", "end_lost_runs", "look_after_batches", "report_when_measured"}
QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}


@pytest.fixture
def project() -> Iterator[DefsFolderSandbox]:
    """A project with two studies and with keys that any project may have."""
    with create_defs_folder_sandbox() as sandbox:
        (sandbox.defs_folder_path / "own.py").write_text(OWN, encoding="utf-8")
        for name in ("tiny", "zoo"):
            add(sandbox, StudyComponent, name, **{**yaml.safe_load(TINY), "name": name})
        yield sandbox


def add(sandbox: DefsFolderSandbox, kind: type[dg.Component], path: str, **attributes: Any) -> None:
    type_name = f"{kind.__module__}.{kind.__name__}"
    written = {"type": type_name, "attributes": attributes}
    sandbox.scaffold_component(kind, path, defs_yaml_contents=written)


def sensors_of(defs: dg.Definitions) -> list[str]:
    sensors = defs.get_repository_def().sensor_defs
    return [sensor.name for sensor in sensors if sensor.name != OF_DAGSTER]


def keys_of(defs: dg.Definitions) -> set[str]:
    return {key.to_user_string() for key in defs.resolve_asset_graph().get_all_asset_keys()}


def test_a_study_is_measured_beside_resources_of_the_same_kinds(
    project: DefsFolderSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DAGSTER_HOME")
    with dg.DagsterInstance.ephemeral() as instance, project.build_all_defs() as defs:

        def materialize(*keys: str) -> dg.ExecuteInProcessResult:
            job = defs.resolve_implicit_global_asset_job_def()
            chosen = [dg.AssetKey.from_user_string(key) for key in keys]
            return job.execute_in_process(QUIET, asset_selection=chosen, instance=instance)

        own = materialize("database")
        assert own.output_for_node("database") == "my duckdb my store my watch"
        assert materialize(*(f"tiny/{name}" for name in PREPARATION)).success
        assert defs.resolve_job_def("profile_tiny").execute_in_process(QUIET, instance).success
        (campaign,) = instance.get_dynamic_partitions("tiny/campaigns")
        report = defs.resolve_job_def("report_tiny")
        assert report.execute_in_process(QUIET, instance, partition_key=campaign).success
        assert materialize("contextcliff/database").success
    assert list(Store.default().root.glob("tiny/report/*/report.html"))
    assert Store.default().duckdb_path.is_file()


def test_all_studies_of_a_project_share_their_sensors_and_the_database(
    project: DefsFolderSandbox,
) -> None:
    with project.build_all_defs() as defs:
        assert Counter(sensors_of(defs)) == Counter(SHARED)
        assert {"contextcliff/database", "database"} <= keys_of(defs)
        (report,) = (s for s in defs.sensors or () if s.name == "report_when_measured")
        assert {job.name for job in report.jobs} == {"report_tiny", "report_zoo"}
        parents = defs.resolve_asset_graph().get(dg.AssetKey(["contextcliff", "database"]))
        assert {key.path[0] for key in parents.parent_keys} == {"tiny", "zoo"}


def test_studies_of_python_files_share_them_too(project: DefsFolderSandbox) -> None:
    (project.defs_folder_path / "more.py").write_text(
        "import dagster as dg, yaml\n"
        "from contextcliff_dagster.components import StudyComponent\n"
        "from contextcliff_dagster.studies import Study\n"
        f"TINY = yaml.safe_load({TINY!r})\n"
        "@dg.component_instance\n"
        "def ada(context: dg.ComponentLoadContext) -> StudyComponent:\n"
        "    return StudyComponent(Study.model_validate({**TINY, 'name': 'ada'}))\n"
        "@dg.component_instance\n"
        "def bob(context: dg.ComponentLoadContext) -> StudyComponent:\n"
        "    return StudyComponent(Study.model_validate({**TINY, 'name': 'bob'}))\n",
        encoding="utf-8",
    )
    with project.build_all_defs() as defs:
        assert Counter(sensors_of(defs)) == Counter(SHARED)
        (report,) = (s for s in defs.sensors or () if s.name == "report_when_measured")
        assert {job.name for job in report.jobs} >= {"report_ada", "report_bob", "report_tiny"}


def test_the_first_study_brings_the_shared_parts_even_if_it_is_retired(
    project: DefsFolderSandbox,
) -> None:
    store = Store.default()
    store.study_dir("tiny").mkdir()
    retire(store, "tiny")
    with project.build_all_defs() as defs:
        assert set(sensors_of(defs)) == SHARED
        (report,) = (s for s in defs.sensors or () if s.name == "report_when_measured")
        assert [job.name for job in report.jobs] == ["report_zoo"]


def test_a_component_says_which_shared_parts_there_are(
    project: DefsFolderSandbox, tmp_path: Path
) -> None:
    asked = {"database": False, "alerts": False, "resources": False}
    add(project, ContextCliffComponent, "parts", **asked)
    (written,) = python_blocks("## A study in a Dagster project of yours")
    written = written.replace("/srv/results", str(tmp_path))
    (project.defs_folder_path / "resources.py").write_text(written, encoding="utf-8")
    with project.build_all_defs() as defs:
        assert set(sensors_of(defs)) == SHARED - {"alert_failed_runs"}
        assert "contextcliff/database" not in keys_of(defs)
        corpus = [dg.AssetKey(["tiny", "raw_corpus"])]
        job = defs.resolve_implicit_global_asset_job_def()
        assert job.execute_in_process(asset_selection=corpus, run_config=QUIET).success
    assert (tmp_path / "tiny").is_dir()
    assert not Store.default().study_dir("tiny").exists()


def test_the_executor_is_the_projects_own_unless_the_component_asks_for_ours(
    project: DefsFolderSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    with project.build_all_defs() as defs:
        assert defs.executor is dg.multiprocess_executor
    (project.defs_folder_path / "own.py").unlink()
    monkeypatch.setenv("CONTEXTCLIFF_EXECUTOR", "gpu")
    add(project, ContextCliffComponent, "parts", executor=True)
    with project.build_all_defs() as defs:
        assert defs.executor is not None
        assert defs.executor.name == "gpu"


def test_runs_of_the_projects_own_are_neither_ended_nor_reported() -> None:
    def run(*keys: str) -> dg.DagsterRun:
        selection = frozenset(map(dg.AssetKey.from_user_string, keys))
        return dg.DagsterRun("job", asset_selection=selection or None)

    assert study_of(run("sales/orders"), ["tiny"]) is None
    assert study_of(run("orders"), ["tiny"]) is None
    assert study_of(run(), ["tiny"]) is None
    assert study_of(run("orders", "tiny/predictions"), ["tiny"]) == "tiny"
    assert study_of(run("contextcliff/database"), ["tiny"]) == ""


def test_a_study_that_is_built_on_its_own_has_its_resources_alone() -> None:
    study = Study.model_validate(yaml.safe_load(TINY))
    defs = dg.build_defs_for_component(StudyComponent(study))
    assert not sensors_of(defs)
    assert {key.split("/")[0] for key in keys_of(defs)} == {"tiny"}


def python_blocks(heading: str) -> list[str]:
    """The Python of a section of the page, without its subsections."""
    text = (DOCS / "ui.md").read_text("utf-8")
    section = text.split(f"\n{heading}\n", 1)[1]
    return re.findall(r"```python\n(.*?)```", re.split(r"\n#+ ", section)[0], re.S)


def test_the_definitions_of_the_page_merge_with_keys_of_a_project() -> None:
    (written,) = python_blocks("### In a `definitions.py` of yours")
    empty = "mine = dg.Definitions()"
    assert empty in written
    own = OWN.replace("database", "orders").replace("\ndefs =", "\nmine =")
    names: dict[str, Any] = {"__name__": "mine.definitions"}
    exec(compile(written.replace(empty, own), "definitions.py", "exec"), names)
    defs = names["defs"]
    assert {"orders", "reference/predictions", "database"} <= keys_of(defs)
    assert set(sensors_of(defs)) == SHARED
    assert defs.executor is dg.multiprocess_executor
    assert set(default_resources()) | {"duckdb", "store", "watch"} == set(defs.resources)


def test_resources_of_the_code_location_are_replaced_by_key(tmp_path: Path) -> None:
    given = run_resources(tmp_path)
    defs = cliff.defs(resources=given, database=False, alerts=False)
    resources = dict(defs.resources or {})
    assert set(resources) == set(default_resources())
    assert all(resources[key] is given[key] for key in given)
    assert "database" not in keys_of(defs)
    assert set(sensors_of(defs)) == SHARED - {"alert_failed_runs"}


def test_settings_that_the_instance_lacks_are_named_at_the_first_tick(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        said = missing_settings(instance) or ""
        asked = "contextcliff/place", "pools.default_limit", "free_slots_after_run_end_seconds"
        for name in ("run_monitoring", "run_retries", *asked):
            assert name in said
        assert str(CHECKOUT / "dagster_home" / "dagster.yaml") in said
        sensor, context = lost_runs_sensor([]), dg.build_sensor_context(instance=instance)
        sensor.evaluate_tick(context)
        assert capsys.readouterr().err.count(said) == 1
        sensor.evaluate_tick(context)
        assert said not in capsys.readouterr().err
    shutil.copy(CHECKOUT / "dagster_home" / "dagster.yaml", tmp_path)
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        assert missing_settings(instance) is None
    by_run = (tmp_path / "dagster.yaml").read_text().replace("granularity: op", "granularity: run")
    (tmp_path / "dagster.yaml").write_text(by_run)
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        assert "concurrency.pools.granularity: op;" in (missing_settings(instance) or "")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of what `dg` and the code location read of a checkout, with empty `scaffolded`."""
    copy = tmp_path / "checkout"
    left_out = shutil.ignore_patterns("__pycache__")
    shutil.copytree(
        CHECKOUT / "contextcliff_dagster", copy / "contextcliff_dagster", ignore=left_out
    )
    shutil.copytree(CHECKOUT / "studies", copy / "studies")
    shutil.copy(CHECKOUT / "pyproject.toml", copy)
    return copy


@pytest.mark.timeout(900)
def test_what_dg_scaffolds_in_a_checkout_is_loaded(checkout: Path, contextcliff_home: Path) -> None:
    def tool(*words: str) -> str:
        ended = subprocess.run(
            [sys.executable, *words], cwd=checkout, capture_output=True, text=True, check=False
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended.stdout

    dg_tool = (str(Path(sys.executable).with_name("dg")), "scaffold", "defs")
    tool(*dg_tool, "contextcliff_dagster.components.StudyComponent", "rents")
    tool(*dg_tool, "contextcliff_dagster.components.ContextCliffComponent", "shared")
    written = checkout / "contextcliff_dagster" / SCAFFOLDED / "rents" / "defs.yaml"
    assert written.is_file()
    load = (
        "from contextcliff_dagster.definitions import defs\n"
        "one = defs()\n"
        "graph = one.resolve_asset_graph()\n"
        "print(*(k.to_user_string() for k in graph.get_all_asset_keys()))\n"
        "print(*(s.name for s in one.get_repository_def().sensor_defs))\n"
        "print(*(graph.get(k).description for k in graph.get_all_asset_keys() if "
        "k.path[-1] == 'study_file'))\n"
    )
    keys, sensors, _ = tool("-c", load).splitlines()
    assert {"rents/predictions", "reference/predictions"} <= {*keys.split()}
    assert Counter(sensors.split()) - Counter([OF_DAGSTER]) == Counter(SHARED)

    kept = contextcliff_home / "_studies"
    kept.mkdir(parents=True)
    (kept / "broken.yaml").write_text("name: broken\n")
    written.write_text(written.read_text().replace("samples_per_bin", "nosuch"))
    keys, sensors, broken = tool("-c", load).splitlines()
    assert {"reference/predictions", "scaffolded/study_file"} <= {*keys.split()}, keys
    assert "rents/predictions" not in keys
    assert "broken.yaml" in broken
    assert "broken.yaml, line 1, key 'corpus' is missing" in broken
    assert "sampling.nosuch" in broken
