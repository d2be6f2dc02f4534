"""A study named by its file, from any folder, is the one that its name means in the store."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from contextcliff_dagster.studies import find_study
from contextcliff_dagster_tests.support.measured_stores import copy_of_made
from contextcliff_dagster_tests.support.terminal import assert_one_sentence, call

STUDY = """\
name: beside
corpus: {kind: file, path: data.jsonl}
tokenizer: reference
bins: {count: 2}
models: [reference-short]
sampling: {samples_per_bin: 3, pilot_per_bin: 1}
prompt: {system: texts/system.txt}
analysis: {resamples: 100}
"""
MODEL = "reference-short"


def _measured(folder: Path) -> None:
    (folder / "studies" / "texts").mkdir(parents=True)
    (folder / "studies" / "texts" / "system.txt").write_text("Answer briefly.")
    (folder / "studies" / "beside.yaml").write_text(STUDY)
    rows = [
        {"context": "key one " * (10 + 3 * n) + f"end {n}", "question": "Key?", "answers": ["one"]}
        for n in range(30)
    ]
    (folder / "studies" / "data.jsonl").write_text("\n".join(map(json.dumps, rows)))
    before = Path.cwd()
    os.chdir(folder / "studies")
    try:
        ended = call("profile", "beside.yaml", "--store", "../store")
    finally:
        os.chdir(before)
    assert ended.code == 0, ended.err


@pytest.fixture
def folder(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """Where the study was measured; the copy's absolute paths are those of the original."""
    copy_of_made(tmp_path_factory, "beside", _measured, tmp_path / "copy")
    base = tmp_path_factory.getbasetemp()
    base = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    monkeypatch.setenv("CONTEXTCLIFF_HOME", str(tmp_path / "copy" / "store"))
    monkeypatch.chdir(base)
    return Path("once-beside") / "studies"


def test_every_command_takes_it_for_what_was_measured(folder: Path, tmp_path: Path) -> None:
    file = str(folder / "beside.yaml")
    for command in (
        ("baseline", "set", file),
        ("baseline", "show", file),
        ("baseline", "check", file),
        ("compare", f"{file}:{MODEL}", f"beside:{MODEL}"),
        ("report", file),
        ("campaign", "list", file),
        ("export", file, str(tmp_path / "x.zip")),
    ):
        ended = call(*command)
        assert (ended.code, ended.err) == (0, ""), (command, ended)
    by_file, by_name = (call("policy", name, "--out", "-") for name in (file, "beside"))
    assert by_file == by_name
    resumed = call("profile", file, "--json")
    assert json.loads(resumed.out)["calls"].get(MODEL, {"sent": 0})["sent"] == 0


def test_its_hash_is_the_same_from_every_folder(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_name, from_above = find_study("beside"), find_study(str(folder / "beside.yaml"))
    monkeypatch.chdir(folder)
    near = find_study("beside.yaml")
    hashes = {study.manifest_spec_hash() for study in (by_name, from_above, near)}
    assert len(hashes) == 1
    assert near.recipe().system == by_name.recipe().system == "Answer briefly."


def test_a_study_of_the_same_words_in_another_folder_is_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("mine", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "beside.yaml").write_text(STUDY)
    monkeypatch.setenv("CONTEXTCLIFF_STUDIES", str(tmp_path / "mine"))
    study = find_study(str(tmp_path / "other" / "beside.yaml"))
    assert study.corpus_options["path"] == str(tmp_path / "other" / "data.jsonl")


def test_what_was_exported_by_file_reports_elsewhere(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "x.zip"
    assert call("export", str(folder / "beside.yaml"), str(file)).code == 0
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert call("import", str(file), "--store", "store").code == 0
    here, there = (call("report", "beside", "--json", *at) for at in ((), ("--store", "store")))
    assert there.code == 0, there.err
    curves = [json.loads(ended.out)["cliffs"][0]["curve"] for ended in (here, there)]
    assert curves[0] == curves[1]


def test_a_missing_study_is_named() -> None:
    ended = call("compare", "nostudy:m", "nostudy:m")
    assert_one_sentence(ended, "no study 'nostudy'", "quick")
