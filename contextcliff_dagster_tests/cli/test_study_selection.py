"""Which study the options mean."""

from __future__ import annotations

from pathlib import Path

import pytest

from contextcliff_dagster.cli.options import StudyOptions
from contextcliff_dagster.cli.study_selection import as_asked, choose_study, keep_definition
from contextcliff_dagster.contracts import StudyError
from contextcliff_dagster.store import Store
from contextcliff_dagster.studies import Study, find_study, load_studies


def chosen(**options: object) -> Study:
    study = choose_study(StudyOptions(**{"study": None, **options}))  # type: ignore[arg-type]
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


def test_a_limit_on_the_first_token_changes_what_is_asked_and_not_what_is_kept() -> None:
    options = StudyOptions("quick", ttft_limit=2_000.0)
    study = choose_study(options)
    asked = as_asked(study, options)
    assert study.latency is None
    assert asked.analysis_settings().ttft_limit_ms == 2_000
    assert asked.manifest_spec_hash() == study.manifest_spec_hash()


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


def test_no_two_tasks_share_a_study(tmp_path: Path) -> None:
    tasks = (None, "日本", "中国", "a b", "a_b", "a-b", "A-b", "x" * 20, "x" * 21)
    names = [
        chosen(data=tmp_path / "x.csv", models=("gpt-4o-mini",), task=task).name for task in tasks
    ]
    assert len(set(names)) == len(tasks), names


def test_lengths_of_another_tokenizer_and_bins_of_another_study_are_another_sample(
    tmp_path: Path,
) -> None:
    path = tmp_path / "x.csv"
    studies = [
        chosen(data=path, models=("gpt-4o-mini",)),
        chosen(data=path, models=("reference-long",)),
        chosen(data=path, models=("reference-long",), study="quick"),
    ]
    assert len({study.name for study in studies}) == 3
    assert studies[1].name == chosen(data=path, models=("reference-short",)).name


@pytest.mark.parametrize("option", ["study", "task", "dataset"])
def test_what_is_empty_is_not_the_default(option: str) -> None:
    with pytest.raises(StudyError, match="is empty"):
        chosen(**{option: ""})


def test_long_names_are_cut_and_stay_apart() -> None:
    seeds = (10**58, 10**58 + 1)
    names = [chosen(seed=seed).name for seed in seeds]
    assert all(len(name) <= 60 and name.startswith("reference-seed-1000") for name in names)
    assert names[0] != names[1]
    assert find_study(names[0]).sampling.seed == seeds[0]
    study = Study.model_validate({**dict(find_study("quick")), "name": "q" * 60})
    assert len(study.with_seed(7).name) == 60


def test_a_model_that_is_named_twice_is_meant_once() -> None:
    twice = find_study("quick").with_models(["reference-short", "reference-short"])
    assert twice.models == ("reference-short",)


@pytest.mark.parametrize(("values", "word"), [({"models": ()}, "models"), ({"name": "A"}, "name")])
def test_a_change_that_no_study_file_could_make_is_a_sentence(
    values: dict[str, object], word: str
) -> None:
    with pytest.raises(StudyError, match=rf"'quick' cannot be changed as asked: {word}: "):
        find_study("quick").changed(**values)
