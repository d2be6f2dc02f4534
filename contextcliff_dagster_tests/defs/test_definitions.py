"""The code location as Dagster sees it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest

from contextcliff_dagster.contracts.extensions import extensions
from contextcliff_dagster.definitions import defs
from contextcliff_dagster.defs.ui.rendering import column_schema
from contextcliff_dagster.studies import Study, load_studies
from contextcliff_dagster_tests.support.paths import CHECKOUT

CHAIN = {
    "raw_corpus",
    "length_map",
    "distribution_audit",
    "manifest",
    "cost_estimate",
    "predictions",
    "eval_records",
    "metrics",
    "cliffs",
    "report",
}
EXPERIMENTS = tuple(extensions())
HEAVY = ("torch", "vllm", "matplotlib.pyplot", "openai", "aiohttp", "scipy.stats", "onnxruntime")
SCRIPTS = Path(sys.executable).parent


@pytest.fixture(scope="module")
def location() -> dg.Definitions:
    return defs()  # type: ignore[call-arg]


def experiment_of(study: Study) -> str:
    (name,) = (name for name in EXPERIMENTS if name in study.sections)
    return name


def experiment_chain(study: Study) -> set[str]:
    steps = ("documents", "manifest", "predictions", "records", "result")
    return {*(f"{experiment_of(study)}_{step}" for step in steps), "cost_estimate", "report"}


def test_every_study_is_a_group_with_the_whole_chain(location: dg.Definitions) -> None:
    graph = location.resolve_asset_graph()
    for name, study in load_studies().items():
        keys = {k.path[-1] for k in graph.get_all_asset_keys() if k.path[0] == name}
        assert keys == (CHAIN if study.has_corpus else experiment_chain(study))
        assert {graph.get(dg.AssetKey([name, k])).group_name for k in keys} == {
            name.replace("-", "_")
        }


def test_every_asset_says_what_it_is(location: dg.Definitions) -> None:
    graph = location.resolve_asset_graph()
    for key in graph.get_all_asset_keys():
        node = graph.get(key)
        assert node.description, key
        assert not node.owners, key  # only a study file names any
        assert node.kinds, key


def test_column_schemas_come_from_the_contracts(location: dg.Definitions) -> None:
    from contextcliff_dagster import contracts

    graph = location.resolve_asset_graph()
    declared = {
        "raw_corpus": contracts.EXAMPLES,
        "length_map": contracts.LENGTH_MAP,
        "manifest": contracts.MANIFEST_EXAMPLES,
        "predictions": contracts.PREDICTIONS,
        "eval_records": contracts.EVAL_RECORDS,
    }
    for name, table in declared.items():
        shown = graph.get(dg.AssetKey(["quick", name])).metadata["dagster/column_schema"]
        assert shown == column_schema(table)
        assert [c.name for c in shown.columns] == list(table.column_names)


def test_predictions_are_partitioned_by_campaign_and_cell(location: dg.Definitions) -> None:
    graph = location.resolve_asset_graph()
    partitions = graph.get(dg.AssetKey(["quick", "predictions"])).partitions_def
    assert isinstance(partitions, dg.MultiPartitionsDefinition)
    # Alphabetical order decides plots and backfills: the campaign must come first.
    campaigns, cells = partitions.partitions_defs
    assert (campaigns.name, cells.name) == ("campaign", "cell")
    assert cells.partitions_def.get_partition_keys()[0] == "reference-short.b00"
    for name in ("eval_records", "metrics", "cliffs", "report"):
        of = graph.get(dg.AssetKey(["quick", name])).partitions_def
        assert of == campaigns.partitions_def


def test_nothing_runs_by_itself_but_by_the_sensor_that_reports(location: dg.Definitions) -> None:
    graph = location.resolve_asset_graph()
    assert not [k for k in graph.get_all_asset_keys() if graph.get(k).automation_condition]


def test_each_study_has_its_two_jobs(location: dg.Definitions) -> None:
    jobs = {job.name for job in location.get_repository_def().get_all_jobs()}
    for name, study in load_studies().items():
        own = "profile" if study.has_corpus else experiment_of(study)
        kinds = ("profile", "pilot") if study.has_corpus else (own, f"{own}_documents")
        assert {f"{kind}_{name.replace('-', '_')}" for kind in kinds} <= jobs


def test_loading_imports_nothing_heavy() -> None:
    code = (
        "import sys; from contextcliff_dagster.definitions import defs;"
        f"defs().get_repository_def(); print([m for m in {HEAVY!r} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    "command",
    [
        ["dg", "check", "defs"],
        ["dg", "list", "defs", "--json"],
        ["dagster", "definitions", "validate"],
    ],
    ids=" ".join,
)
def test_the_tools_of_dagster_accept_the_location(command: list[str]) -> None:
    done = checked(command)
    assert done.returncode == 0, done.stderr[-2000:]


def checked(command: list[str]) -> subprocess.CompletedProcess[str]:
    program, *rest = command
    if not (SCRIPTS / program).exists():
        pytest.skip(f"needs {program}, of the dev extra")
    checkout = CHECKOUT
    return subprocess.run(
        [str(SCRIPTS / program), *rest],
        cwd=checkout,
        env=os.environ | {"PYTHONPATH": str(checkout), "PATH": f"{SCRIPTS}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=240,
    )
