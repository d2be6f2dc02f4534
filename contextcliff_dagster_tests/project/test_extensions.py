"""Extensions: the core names none, works without them, and takes another one as it is."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from contextcliff_dagster.contracts.extensions import Extension, extensions, load_address
from contextcliff_dagster_tests.support.paths import CHECKOUT

PACKAGE = CHECKOUT / "contextcliff_dagster"
ROOMS = sorted(path.parent.name for path in PACKAGE.glob("extensions/*/extension.py"))
TEXTS = ("*.py", "*.yaml", "*.json")


def test_each_room_is_registered() -> None:
    assert {*ROOMS} <= extensions().keys()
    for name in ROOMS:
        one = extensions()[name]
        assert one.folder == PACKAGE / "extensions" / name
        assert load_address(one.experiment).name == name


@pytest.mark.parametrize("name", ROOMS)
def test_the_core_names_no_extension(name: str) -> None:
    own = PACKAGE / "extensions"
    core = [
        *(path for kind in TEXTS for path in PACKAGE.rglob(kind) if own not in path.parents),
        *(CHECKOUT / "tools").glob("*.py"),
    ]
    word = re.compile(rf"\b{name}\b", re.IGNORECASE)
    assert [path for path in core if word.search(path.read_text("utf-8"))] == []


BLOCKED = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.startswith("contextcliff_dagster.extensions"):
            raise ImportError(f"{name} is not here")

sys.meta_path.insert(0, Blocked())
from contextcliff_dagster.cli import main
sys.exit(main(sys.argv[1:]))
"""


def without_rooms(*line: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", BLOCKED, *line], capture_output=True, text=True, check=False
    )


def test_a_study_is_measured_without_them(contextcliff_home: Path) -> None:
    ended = without_rooms("profile", "quick", "--samples-per-bin", "2")
    assert ended.returncode == 0, ended.stderr
    assert list(contextcliff_home.glob("quick/report/*/report.html"))


some_rooms = pytest.mark.skipif(not ROOMS, reason="no extension is here")


@some_rooms
def test_one_that_cannot_be_loaded_is_named_where_it_is_asked_for(tmp_path: Path) -> None:
    name = ROOMS[0]
    study = tmp_path / "mine.yaml"
    study.write_text(f"name: mine\nmodels: [reference-short]\n{name}: {{}}\n")
    ended = without_rooms("prepare", str(study))
    assert ended.returncode == 2
    assert f"Experiment {name!r} cannot be loaded" in ended.stderr
    assert ended.stderr.count("\n") == 1


@some_rooms
def test_one_that_cannot_be_loaded_is_a_fault_for_doctor_and_explains_a_missing_command() -> None:
    name = ROOMS[0]
    findings = json.loads(without_rooms("doctor", "--offline", "--json").stdout)
    (finding,) = (one for one in findings if one["what"] == f"experiment {name}")
    assert finding["state"] == "fault"
    assert "is not here" in finding["said"]
    ended = without_rooms(name)
    assert ended.returncode == 2
    assert "is broken: see `contextcliff doctor`" in ended.stderr


TOY = '''
"""An extension: a command, an experiment, an engine, a model and a study."""
from dataclasses import replace
from pathlib import Path

import click

from contextcliff_dagster.contracts.extensions import Extension
from contextcliff_dagster.inference.models.engine_table import BUILT_IN
from contextcliff_dagster_tests.support.sizes_experiment import Sizes

ASKED = Sizes()
ANSWER = 42


@click.command()
def sizes() -> None:
    """Say how many records are asked."""
    click.echo("6 and 20 records")


EXTENSION = Extension(
    experiment="toy:ASKED",
    commands={"sizes": ("Say how many records are asked.", "toy:sizes")},
    engines=(replace(BUILT_IN["reference"], name="toy"),),
    exports={"ANSWER": "toy"},
    folder=Path(__file__).parent / "toy_files",
)
'''
MODELS = "models:\n  toy-model: {engine: toy, model_id: reference-short, tokenizer: reference}\n"
STUDY = "name: toy\nprompt: {max_output_tokens: 12}\nmodels: [toy-model]\nsizes: [6, 20]\n"


def test_another_extension_needs_no_line_of_the_core(
    tmp_path: Path, contextcliff_home: Path
) -> None:
    assert len(TOY.strip().splitlines()) <= 40
    (tmp_path / "toy.py").write_text(TOY)
    files = tmp_path / "toy_files"
    (files / "studies").mkdir(parents=True)
    (files / "models.yaml").write_text(MODELS)
    (files / "studies" / "toy.yaml").write_text(STUDY)
    about = tmp_path / "toy-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: toy\nVersion: 1\n")
    (about / "entry_points.txt").write_text("[contextcliff.experiments]\nsizes = toy:EXTENSION\n")
    path = os.pathsep.join([str(tmp_path), str(CHECKOUT)])

    def run(*line: str) -> str:
        ended = subprocess.run(
            [sys.executable, *line], capture_output=True, text=True, check=False,
            env={**os.environ, "PYTHONPATH": path},
        )  # fmt: skip
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    command = ("-m", "contextcliff_dagster.cli")
    assert "Say how many records are asked." in run(*command, "-h")
    assert run(*command, "sizes") == "6 and 20 records\n"
    assert "toy-model" in run(*command, "models")
    assert run("-c", "from contextcliff_dagster.api import ANSWER; print(ANSWER)") == "42\n"
    run(*command, "profile", "toy")
    report = next(contextcliff_home.glob("toy/report/*/report.md"))
    assert "Right answers by size" in report.read_text("utf-8")


def test_names_of_extensions_are_handed_on() -> None:
    from contextcliff_dagster import api

    for one in extensions().values():
        for name in one.exports:
            assert getattr(api, name).__name__ == name


def test_an_extension_without_files_has_none(tmp_path: Path) -> None:
    assert Extension(experiment="a:b").own("models.yaml") is None
    assert Extension(experiment="a:b", folder=tmp_path).own("studies") is None


@some_rooms
def test_a_copy_without_extensions_names_none(tmp_path: Path) -> None:
    """`tools.without`; at night the copy's own tests run (`.ci/nightly`)."""
    copy = tmp_path / "copy"
    subprocess.run([sys.executable, "-m", "tools.without", copy, *ROOMS], cwd=CHECKOUT, check=True)
    assert not any((copy / "contextcliff_dagster" / "extensions" / name).exists() for name in ROOMS)
    named = textwrap.dedent((copy / "pyproject.toml").read_text("utf-8"))
    assert not re.search(rf"(?m)^({'|'.join(ROOMS)}) = ", named)
    pages = [copy / "README.md", *(copy / "docs").glob("*.md")]
    for page in pages:
        assert not re.search(rf"\]\(\S*\b({'|'.join(ROOMS)})\b", page.read_text("utf-8")), page
