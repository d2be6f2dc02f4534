"""Which study the options mean."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from contextcliff_dagster.cli.options import StudyOptions
from contextcliff_dagster.cli.study_selection import as_asked, choose_study, keep_definition
from contextcliff_dagster.contracts import CorpusError, StudyError
from contextcliff_dagster.corpora.registry import open_corpus
from contextcliff_dagster.store import Store
from contextcliff_dagster.studies import Study, find_study, load_studies
from contextcliff_dagster_tests.support.terminal import assert_one_sentence, call


def chosen(**options: object) -> Study:
    study = choose_study(StudyOptions(**{"study": None, **options}))  # type: ignore[arg-type]
    keep_definition(study, Store.default())
    return study


def test_nothing_said_is_the_reference_study() -> None:
    assert chosen().model_dump() == find_study("reference").model_dump()
    assert chosen(dataset="reference").name == "reference"


@pytest.mark.parametrize("task", ["two_hop", "multi_hop_qa"])
def test_the_harder_task_is_the_study_of_its_own(task: str) -> None:
    assert chosen(tasks=(task,)).name == "reference-two-hop"
    assert chosen(study="reference-two-hop", tasks=(task,)).name == "reference-two-hop"


def test_a_task_of_another_study_makes_a_study_of_its_own() -> None:
    study = chosen(study="quick", tasks=("two_hop",))
    assert (study.name, study.task, study.bins.count) == ("quick-two-hop", "two_hop", 5)


def test_several_tasks_are_asked_together_whatever_their_order(tmp_path: Path) -> None:
    both = chosen(study="quick", tasks=("two_hop", "lookup", "two_hop"))
    assert both.corpus_options["tasks"] == ["lookup", "two_hop"]
    assert both.name == chosen(study="quick", tasks=("lookup", "multi_hop_qa")).name
    assert both.name.startswith("quick-lookup-two-hop-")
    assert "lookup, two_hop" in call("studies").out
    path = tmp_path / "x.jsonl"
    rows = [
        {"context": f"text {n}", "question": "q", "answers": "a", "task": "abc"[n % 3]}
        for n in range(30)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")

    def asked(*tasks: str) -> list[str]:
        study = chosen(data=path, models=("reference-long",), tasks=tasks)
        return [e.task for e in open_corpus(study.corpus.kind, study.corpus_options).examples()]

    assert set(asked()) == {"a", "b", "c"}
    assert set(asked("a", "b")) == {"a", "b"}
    assert len(asked("c")) == 10
    with pytest.raises(CorpusError, match=r"no question of the task d; its tasks are a, b, c\."):
        asked("d")


def test_questions_per_document_are_asked_and_made() -> None:
    study = chosen(study="quick", questions_per_document=3)
    assert study.name == "quick-3-questions"
    assert study.sampling.questions_per_document == study.corpus_options["questions"] == 3
    assert chosen(study="quick", questions_per_document=1).name == "quick"
    source = chosen(dataset="python-source", questions_per_document=8)
    assert source.corpus_options["questions_per_document"] == 8
    assert "questions_per_document" not in chosen(dataset="python-source").corpus_options


def test_a_benchmark_by_name_is_read_from_its_folder_or_from_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line of the plan, with the files that it needs: `prepare --dataset narrativeqa`."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CorpusError, match=r"published at https://github\.com/google-deepmind"):
        chosen(dataset="narrativeqa")
    folder = tmp_path / "data" / "corpora" / "narrativeqa"
    folder.mkdir(parents=True)
    (folder / "d1.content").write_text("Once upon a time.", encoding="utf-8")
    with pytest.raises(CorpusError, match=r"not their table\s+qaps.csv"):
        chosen(data=folder, models=("reference-long",))
    table = "document_id,set,question,answer1,answer2\nd1,test,When?,Once,Once upon a time\n"
    (folder / "qaps.csv").write_text(table, encoding="utf-8")
    study = chosen(dataset="NarrativeQA")
    assert study.corpus.kind == "narrativeqa"
    (example,) = open_corpus(study.corpus.kind, study.corpus_options).examples()
    assert example.answers == ("Once", "Once upon a time")
    elsewhere = folder.rename(tmp_path / "elsewhere")
    named = chosen(dataset="narrativeqa", data=elsewhere)
    assert named.corpus_options["path"] == str(elsewhere)
    assert named.name != chosen(data=elsewhere).name


@pytest.mark.parametrize("name", ["narrativeqa", "python-source", "file"])
def test_questions_for_a_corpus_that_has_its_own_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=f"--dataset {name} has its own: leave --questions out"):
        chosen(dataset=name, data=tmp_path, questions="recall")
    (tmp_path / "a.txt").write_text("A mill.", encoding="utf-8")
    assert chosen(dataset="folder", data=tmp_path, questions="recall").corpus.kind == "folder"


def test_two_benchmarks_of_one_format_are_distinguished_by_name(tmp_path: Path) -> None:
    row = {
        "_id": "1",
        "question": "q",
        "answer": "a",
        "context": [["T", ["a."]]],
        "supporting_facts": [["T", 0]],
    }
    path = tmp_path / "x.json"
    path.write_text(json.dumps([row]), encoding="utf-8")
    with pytest.raises(CorpusError, match="say which with --dataset 2wikimultihopqa"):
        chosen(data=path)
    assert chosen(data=path, dataset="hotpotqa").corpus.kind == "hotpotqa"


def test_a_table_of_other_fields_names_what_is_readable(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"prompt": "p", "completion": "c"}\n', encoding="utf-8")
    with pytest.raises(CorpusError, match=r"it has 'prompt', 'completion'.*readable are squad, "):
        chosen(data=path)


def test_few_documents_make_few_bins(tmp_path: Path) -> None:
    row = {"question": "q", "answers": "a"}
    for documents, bins in ((13, 2), (30, 5), (80, 10)):
        path = tmp_path / f"{documents}.jsonl"
        rows = [json.dumps({"context": f"text {n}", **row}) for n in range(documents)]
        path.write_text("\n".join(rows * 2), encoding="utf-8")
        assert chosen(data=path).bins.count == bins


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
    study = chosen(data=path, models=("reference-long",), tasks=("multi_hop_qa",))
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
    asked = [() if task is None else (task,) for task in tasks]
    names = [
        chosen(data=tmp_path / "x.csv", models=("gpt-4o-mini",), tasks=one).name for one in asked
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


@pytest.mark.parametrize("given", [{"study": ""}, {"tasks": ("a", "")}, {"dataset": ""}])
def test_what_is_empty_is_not_the_default(given: dict[str, object]) -> None:
    with pytest.raises(StudyError, match="is empty"):
        chosen(**given)


def test_models_of_another_folder_are_named_and_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("CONTEXTCLIFF_MODELS", raising=False)
    (tmp_path / "models.yaml").write_text("models:\n  elsewhere: {engine: reference}\n")
    (tmp_path / "s.yaml").write_text(
        "name: s\ncorpus: {kind: reference}\ntokenizer: reference\nmodels: [elsewhere]\n"
    )
    choose_study(StudyOptions(study=str(tmp_path / "s.yaml")))
    assert str(tmp_path / "models.yaml") in capsys.readouterr().err
    monkeypatch.chdir(tmp_path)
    choose_study(StudyOptions(study="s.yaml"))
    assert "models.yaml" not in capsys.readouterr().err


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


@pytest.mark.parametrize("value", ["abc", 1.5])
def test_an_option_of_a_corpus_that_is_no_whole_number_is_one_sentence(
    tmp_path: Path, value: object
) -> None:
    (tmp_path / "s.yaml").write_text(
        f"name: s\ncorpus: {{kind: reference, seed: {value}, questions: {value}}}\n"
        "tokenizer: reference\nmodels: [reference-short]\n",
        encoding="utf-8",
    )
    for options in ((), ("--seed", "3"), ("--questions-per-document", "2")):
        ended = call("prepare", str(tmp_path / "s.yaml"), *options)
        assert_one_sentence(ended, "seed" if options else "", str(value))
