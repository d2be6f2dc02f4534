"""A study as a component of any Dagster project, by Dagster's own tools."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import dagster as dg
import jsonschema
import pytest
import yaml
from dagster.components.core.package_entry import DG_PLUGIN_ENTRY_POINT_GROUP
from dagster.components.testing import create_defs_folder_sandbox

from contextcliff_dagster.components import StudyComponent
from contextcliff_dagster.defs.studies import study_parts
from contextcliff_dagster.experiments.lookup import all_experiments
from contextcliff_dagster.store import Store
from contextcliff_dagster.studies.files import retire
from contextcliff_dagster.studies.study import shipped_folders
from contextcliff_dagster_tests.support.paths import CHECKOUT
from contextcliff_dagster_tests.support.tiny_study import TINY

TYPE = "contextcliff_dagster.components.StudyComponent"


def keys_of(defs: dg.Definitions) -> set[dg.AssetKey]:
    return set(defs.resolve_asset_graph().get_all_asset_keys())


def as_component(text: str, **more: Any) -> dict[str, Any]:
    return {"type": TYPE, "attributes": {**yaml.safe_load(text), **more}}


def test_a_scaffolded_study_loads_and_is_what_the_factory_makes() -> None:
    with create_defs_folder_sandbox() as sandbox:
        path = sandbox.scaffold_component(StudyComponent, defs_path="my_study")
        with sandbox.load_component_and_build_defs(path) as (component, defs):
            assert isinstance(component, StudyComponent)
            assert component.study.name == "my-study"
            assert component.study.folder == path
            made = {key for one in study_parts(component.study).assets for key in one.keys}
            assert keys_of(defs) == made | {dg.AssetKey(["contextcliff", "database"])}
            names = {job.name for job in defs.get_repository_def().get_all_jobs()}
            assert {"profile_my_study", "pilot_my_study"} <= names


def test_two_studies_of_a_project_and_what_their_attributes_ask_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with create_defs_folder_sandbox() as sandbox:
        tick = {"cron": "0 3 * * *", "timezone": "UTC"}
        shown = {"group": "legal", "owners": ["team:search"], "tags": {"domain": "legal"}}
        own = as_component(TINY, schedule=tick, assets=shown, controls=["no_context"])
        path = sandbox.scaffold_component(StudyComponent, "tiny", defs_yaml_contents=own)
        sandbox.scaffold_component(StudyComponent, "other")
        with sandbox.build_all_defs() as defs:
            graph = defs.resolve_asset_graph()
            assert {key.path[0] for key in keys_of(defs)} == {"tiny", "other", "contextcliff"}
            spec = graph.get(dg.AssetKey(["tiny", "control_predictions"]))
            assert (spec.group_name, list(spec.owners)) == ("legal", ["team:search"])
            repository = defs.get_repository_def()
            assert {one.name for one in repository.schedule_defs} == {"measure_tiny"}
        store = Store.default()
        store.study_dir("tiny").mkdir()
        retire(store, "tiny")
        with sandbox.build_all_defs() as defs:
            assert {key.path[0] for key in keys_of(defs)} == {"other", "contextcliff"}
        assert path.is_dir()


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"bins": {"count": 0}}, "bins.count"),
        ({"nosuch": 1}, "nosuch"),
        ({"controls": ["nosuch"]}, "controls"),
    ],
)
def test_a_wrong_attribute_is_named(more: Mapping[str, Any], words: str) -> None:
    with create_defs_folder_sandbox() as sandbox:
        path = sandbox.scaffold_component(
            StudyComponent, "tiny", defs_yaml_contents=as_component(TINY, **more)
        )
        with (
            pytest.raises(Exception, match="StudyComponent") as caught,
            sandbox.load_component_and_build_defs(path),
        ):
            pass
    assert words in str(caught.value.__cause__)


def test_its_schema_is_that_of_study_files() -> None:
    model = StudyComponent.get_model_cls()
    assert model is not None
    schema = model.model_json_schema()
    sections = {one.name for one in all_experiments() if one.section is not None}
    assert sections < schema["properties"].keys()
    for path in sorted(path for folder in shipped_folders() for path in folder.glob("*.yaml")):
        jsonschema.validate(yaml.safe_load(path.read_text()), schema)
    tiny = yaml.safe_load(TINY)
    for one in all_experiments():
        asked = {one.name: one.example} if one.section is not None else {}
        jsonschema.validate({**tiny, **asked, "track": "mlflow"}, schema)
    for wrong in ({"nosuch": 1}, {"controls": "nosuch"}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({**tiny, **wrong}, schema)


def test_the_ui_documents_it_with_its_schema_and_an_example() -> None:
    """In the tab *Components* of a code location, which Dagster makes of these metadata."""
    with create_defs_folder_sandbox() as sandbox:
        sandbox.scaffold_component(StudyComponent, "other")
        with sandbox.build_all_defs() as defs:
            namespaces: Any = defs.metadata["plugin_component_types_json"].value
    shown = {one["name"]: one for names in namespaces for one in names["componentTypes"]}[TYPE]
    assert "The attributes are the keys of a study file" in shown["description"]
    assert {"corpus", "models", "controls"} <= json.loads(shown["schema"])["properties"].keys()
    example = yaml.safe_load(shown["example"])
    assert example["type"] == TYPE
    assert {"corpus", "models", "prompt"} <= example["attributes"].keys()


def test_dg_finds_it_by_the_entry_point_of_the_package() -> None:
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    ((name, value),) = project["entry-points"][DG_PLUGIN_ENTRY_POINT_GROUP].items()
    module = EntryPoint(name, value, DG_PLUGIN_ENTRY_POINT_GROUP).load()
    assert f"{module.__name__}.StudyComponent" == TYPE


@pytest.mark.timeout(900)
def test_dg_scaffolds_checks_and_lists_it(tmp_path: Path) -> None:
    package = tmp_path / "src" / "mine"
    (package / "defs").mkdir(parents=True)
    for folder in (package, package / "defs"):
        (folder / "__init__.py").touch()
    (package / "definitions.py").write_text(
        "from pathlib import Path\nfrom dagster import definitions, load_from_defs_folder\n\n"
        "@definitions\ndef defs():\n"
        "    return load_from_defs_folder(path_within_project=Path(__file__).parent)\n"
    )
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nname = "mine"\nversion = "0"\n'
        '[tool.dg]\ndirectory_type = "project"\n[tool.dg.project]\nroot_module = "mine"\n'
        'registry_modules = ["contextcliff_dagster.components"]\n'
    )
    paths = os.pathsep.join([str(tmp_path / "src"), str(CHECKOUT)])

    def ended(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(Path(sys.executable).with_name("dg")), *words],
            cwd=tmp_path, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True,
        )  # fmt: skip

    def tool(*words: str) -> str:
        done = ended(*words)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    tool("scaffold", "defs", TYPE, "rents", "--model", "reference-long")
    written = yaml.safe_load((package / "defs" / "rents" / "defs.yaml").read_text())
    assert written["attributes"]["models"] == ["reference-long"]
    # Data from the folder of the command, in which nobody has a component yet.
    (tmp_path / "contracts").mkdir()
    (tmp_path / "leases.jsonl").touch()
    for name, data, kind in (("folder", "contracts", "folder"), ("file", "leases.jsonl", "file")):
        tool("scaffold", "defs", TYPE, f"of_{name}", "--data", data)
        defs = package / "defs" / f"of_{name}"
        corpus = yaml.safe_load((defs / "defs.yaml").read_text())["attributes"]["corpus"]
        assert corpus["kind"] == kind
        assert (defs / corpus["path"]).resolve() == tmp_path / data
        shutil.rmtree(defs)
    for words, missing in (("--data", "nowhere.jsonl"), ("--model", "no-such-model")):
        refused = ended("scaffold", "defs", TYPE, "refused", words, missing)
        assert refused.returncode
        assert missing in refused.stderr + refused.stdout
        shutil.rmtree(package / "defs" / "refused", ignore_errors=True)
    tool("scaffold", "defs", "contextcliff_dagster.components.ContextCliffComponent", "shared")
    tool("check", "yaml")
    listed = tool("list", "defs", "--json")
    assert '"rents/predictions"' in listed
    assert listed.count('"alert_failed_runs"') == 1
