"""Which study the options mean."""

from __future__ import annotations

from pathlib import Path

import pytest

from contextcliff_dagster.cli.choice import choose_study, keep_definition
from contextcliff_dagster.cli.options import Wanted
from contextcliff_dagster.store import Store
from contextcliff_dagster.studies import Study, find_study, load_studies


def chosen(**wanted: object) -> Study:
    study = choose_study(Wanted(**{"study": None, **wanted}))  # type: ignore[arg-type]
    keep_definition(study, Store.default())
    return study


def test_nothing_said_is_the_reference_study() -> None:
    assert chosen().model_dump() == find_study("reference").model_dump()
    assert chosen(dataset="reference").name == "reference"


@pytest.mark.parametrize("task", ["two_hop", "multi_hop_qa"])
def test_the_harder_task_is_the_study_of_its_own(task: str) -> None:
    assert chosen(task=task).name == "reference-two-hop"
    assert chosen(study="reference-two-hop", task=task).name == "reference-two-hop"


def test_a_task_of_another_study_makes_a_study_of_its_own() -> None:
    study = chosen(study="quick", task="two_hop")
    assert (study.name, study.task, study.bins.count) == ("quick-two-hop", "two_hop", 5)


def test_a_seed_makes_a_study_of_its_own() -> None:
    study = chosen(seed=7)
    assert study.name == "reference-seed-7"
    assert study.manifest_spec_hash() != find_study("reference").manifest_spec_hash()


def test_data_makes_a_study_that_is_found_again_by_name(tmp_path: Path) -> None:
    path = tmp_path / "My data (1).jsonl"
    path.write_text("{}\n")
    study = chosen(data=path, models=("reference-long",), task="multi_hop_qa")
    assert study.name.startswith("data-my-data-1-")
    assert (study.tokenizer, study.task, study.models) == (
        "reference",
        "two_hop",
        ("reference-long",),
    )
    assert find_study(study.name).model_dump() == study.model_dump()
    assert study.corpus_options["path"] == str(path)


def test_files_of_one_name_in_two_folders_are_two_studies(tmp_path: Path) -> None:
    names = set()
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        names.add(chosen(data=tmp_path / folder / "x.csv", models=("gpt-4o-mini",)).name)
    assert len(names) == 2


def test_lengths_are_counted_with_the_models_own_tokenizer(tmp_path: Path) -> None:
    study = chosen(data=tmp_path / "x.csv", models=("gpt-4o-mini",))
    assert study.tokenizer == "tiktoken:o200k_base"
    assert study.scoring.primary == "f1"


def test_a_known_study_leaves_no_definition_behind(contextcliff_home: Path) -> None:
    chosen(study="quick")
    assert not (contextcliff_home / "_studies").exists()


def test_what_was_made_once_is_listed_ever_after() -> None:
    chosen(seed=3)
    assert "reference-seed-3" in load_studies()


def test_a_study_file_is_kept_with_its_prompt_where_the_file_is(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text("{document}\n\n{question}\n")
    (tmp_path / "mine.yaml").write_text(
        "name: mine\ncorpus: {kind: file, path: x.csv}\ntokenizer: reference\n"
        "models: [reference-short]\nprompt: {template: t.txt}\n"
    )
    study = chosen(study=str(tmp_path / "mine.yaml"))
    kept = find_study("mine")
    assert kept.recipe() == study.recipe()
    assert kept.manifest_spec_hash() == study.manifest_spec_hash()
