"""Every option that a study file has a key for takes effect on a study file, too."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from contextcliff_dagster.cli.options import StudyOptions
from contextcliff_dagster.cli.study_selection import as_asked, choose_study
from contextcliff_dagster.studies import Study
from contextcliff_dagster_tests.support.files.folders import write
from contextcliff_dagster_tests.support.terminal import assert_one_sentence, call

FILE = """
name: contracts
models: [reference-short]
tokenizer: reference
corpus: {kind: folder, path: docs}
sampling: {samples_per_bin: 5, pilot_per_bin: 2, seed: 1}
bins: {count: 1}
"""
ASKED: dict[str, Any] = {
    "tasks": ("fees",),
    "models": ("reference-long",),
    "seed": 7,
    "samples_per_bin": 6,
    "questions_per_document": 3,
    "prompt": Path("template.txt"),
    "replicates": 2,
    "tolerance": 0.2,
    "score": ("contained",),
    "ttft_limit": 900.0,
}
NOT_OF_FILES = {
    "study": "the file itself",
    "data": "a study of its own",
    "dataset": "a study of its own",
    "questions": "needs --data",
    "columns": "needs --data",
    "allow_synthetic_length": "of benchmarks",
    "trust_study": "changes nothing that is measured",
}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, contextcliff_home: Path) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "contracts.yaml", FILE)
    write(tmp_path / "template.txt", "Text:\n{document}\n\n{question}")
    rows = ["document,question,answers,task"]
    for number in range(6):
        text = f"The fee is {number} and the cap {number + 9}." + " And so on." * 20 * number
        write(tmp_path / "docs" / f"{number}.txt", text)
        rows += [f"{number}.txt,What is the fee?,{number},fees"]
        rows += [f"{number}.txt,What is the cap?,{number + 9},caps"]
    write(tmp_path / "docs" / "questions.csv", "\n".join(rows))


def measured(**options: Any) -> Study:
    asked = StudyOptions("./contracts.yaml", **options)
    return as_asked(choose_study(asked), asked)


def test_every_option_is_in_a_table() -> None:
    assert {field.name for field in fields(StudyOptions)} == ASKED.keys() | NOT_OF_FILES.keys()


@pytest.mark.parametrize("name", ASKED)
def test_an_option_changes_what_a_study_file_measures(name: str) -> None:
    plain, asked = measured(), measured(**{name: ASKED[name]})
    assert asked.model_dump(exclude={"name"}) != plain.model_dump(exclude={"name"})


def test_only_questions_of_the_task_are_asked() -> None:
    ended = call("prepare", "./contracts.yaml", "--task", "fees")
    assert "6 questions from questions.csv (6 of other tasks left out)" in ended.out, ended
    assert_one_sentence(
        call("profile", "./contracts.yaml", "--task", "nonsense"),
        "no question of the task nonsense; its tasks are caps, fees",
    )
