"""LongBench, BABILong and L-Eval; lengths that were made are refused unless they are allowed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from contextcliff_dagster.contracts import CorpusError
from contextcliff_dagster.corpora.registry import open_corpus
from contextcliff_dagster_tests.support.files.benchmark_files import read, write_json, write_lines

TEXT = "The harbour was closed in winter. " * 20


def longbench(task: str, **changes: Any) -> dict[str, Any]:
    return {
        "input": "When was it closed?",
        "context": TEXT,
        "answers": ["winter", "in winter"],
        "length": 120,
        "dataset": task,
        "language": "en",
        "all_classes": None,
        "_id": f"id-{task}",
        **changes,
    }


def test_longbench_takes_natural_sets_and_leaves_out_what_it_cannot_score(tmp_path: Path) -> None:
    write_lines(tmp_path / "multifieldqa_en.jsonl", [longbench("multifieldqa_en")])
    write_lines(tmp_path / "gov_report.jsonl", [longbench("gov_report", input="")])
    write_lines(
        tmp_path / "qasper.jsonl",
        [longbench("qasper"), longbench("qasper", _id="q2", answers=["unanswerable"])],
    )
    corpus = open_corpus("longbench", {"path": str(tmp_path)})
    entries = list(corpus.entries())
    assert [e.example.task for e in entries] == ["multifieldqa_en", "qasper"]
    assert entries[0].example.answers == ("winter", "in winter")
    assert corpus.account()["left_out"] == {
        "of data sets published with ROUGE": 1,
        "unanswerable": 1,
    }
    assert "manufactured" not in corpus.account()


@pytest.mark.parametrize("task", ["hotpotqa", "musique", "trec", "passage_count"])
def test_longbench_sets_that_were_filled_up_are_left_out_unless_allowed(
    tmp_path: Path, task: str
) -> None:
    write_lines(tmp_path / "a.jsonl", [longbench("narrativeqa")])
    made = write_lines(tmp_path / f"{task}_e.jsonl", [longbench(task), longbench(task, _id="2")])
    corpus = open_corpus("longbench", {"path": str(tmp_path)})
    assert [entry.example.task for entry in corpus.entries()] == ["narrativeqa"]
    assert corpus.account()["left_out"] == {f"of {task} (manufactured lengths)": 2}
    assert f"left out: 2 of {task} (manufactured lengths)" in corpus.account()["summary"]
    refusal = f"'{task}' were manufactured.*--allow-synthetic-length"
    for path, options in ((made, {}), (tmp_path, {"tasks": [task]}), (tmp_path, {"task": task})):
        with pytest.raises(CorpusError, match=refusal):
            read("longbench", path, **options)
    (tmp_path / "a.jsonl").unlink()
    with pytest.raises(CorpusError, match=refusal):
        read("longbench", tmp_path)
    write_lines(tmp_path / "a.jsonl", [longbench("narrativeqa")])
    corpus = open_corpus("longbench", {"path": str(tmp_path), "allow_synthetic_length": True})
    assert len(list(corpus.entries())) == 3
    assert list(corpus.account()["manufactured"]) == [task]


def test_a_set_whose_input_is_empty_asks_what_it_is_about(tmp_path: Path) -> None:
    row = longbench("passage_count", input="", answers=["7"])
    (entry,) = read(
        "longbench", write_lines(tmp_path / "a.jsonl", [row]), allow_synthetic_length=True
    )
    assert entry.example.question.startswith("How many different paragraphs")
    assert entry.example.metadata["answer_type"] == "number"
    with pytest.raises(CorpusError, match=r"a\.jsonl, line 1: there is no 'input'"):
        read("longbench", write_lines(tmp_path / "a.jsonl", [longbench("qasper", input="")]))


def v2(**changes: Any) -> dict[str, Any]:
    return {
        "_id": "v1",
        "domain": "Single-Document QA",
        "sub_domain": "Legal",
        "difficulty": "hard",
        "length": "short",
        "question": "What follows?",
        **{f"choice_{letter}": f"It is {letter.lower()}{letter.lower()}" for letter in "ABCD"},
        "answer": "B",
        "context": TEXT,
        **changes,
    }


def test_longbench_v2_is_multiple_choice_over_natural_documents(tmp_path: Path) -> None:
    (entry,) = read("longbench-v2", write_json(tmp_path / "data.json", [v2()]))
    assert entry.example.answers == ("B", "B. It is bb", "It is bb")
    assert "\nD. It is dd\n" in entry.example.question
    assert entry.example.task == "Single-Document QA"
    assert entry.example.metadata["difficulty"] == "hard"
    for bad, said in (({"answer": "E"}, "'answer' is 'E'"), ({"choice_C": None}, "'choice_C'")):
        with pytest.raises(CorpusError, match=rf"data\.json, line 2 \(item 1\).*{said}"):
            read("longbench-v2", write_json(tmp_path / "data.json", [v2(**bad)]))


def pro(**changes: Any) -> dict[str, Any]:
    return {
        "id": "p1",
        "context": TEXT,
        "language": "English",
        "token_length": "8k",
        "primary_task": "T3. Evidence-Grounded QA",
        "secondary_task": "T3.2 Single-Hop Fact QA",
        "contextual_requirement": "Partial",
        "question_nonthinking": "When was it closed? Begin with [Answer].",
        "question_thinking": "When was it closed? Think, then begin with [Answer].",
        "answer": ["winter"],
        "difficulty": "Easy",
        **changes,
    }


def test_longbench_pro_takes_the_tasks_with_one_short_answer(tmp_path: Path) -> None:
    rows = [
        pro(),
        pro(id="p2", primary_task="T10. Rule Induction & In-Context Learning"),
        pro(id="p3", primary_task="T1. Retrieval & Ranking"),
        pro(id="p4", answer=["winter", "spring"]),
    ]
    path = write_json(tmp_path / "longbench_pro.json", rows)
    corpus = open_corpus("longbench-pro", {"path": str(path)})
    first, second = corpus.entries()
    assert (first.example.task, second.example.task) == ("T3", "T10")
    assert first.example.metadata["domain"] == "T3.2 Single-Hop Fact QA"
    assert first.example.question.endswith("closed? Begin with [Answer].")
    assert sum(corpus.account()["left_out"].values()) == 2
    thinking = read("longbench-pro", path, question="thinking", task="T3")
    assert [e.example.question for e in thinking] == [rows[0]["question_thinking"]]
    with pytest.raises(CorpusError, match=r"longbench_pro\.json, line 2 \(item 1\).*'answer'"):
        read("longbench-pro", write_json(path, [pro(answer=None)]))


def test_a_longbench_set_of_unknown_making_is_not_taken_for_natural(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "mine.jsonl", [longbench("mine")])
    with pytest.raises(
        CorpusError, match=r"mine\.jsonl, line 1: 'dataset' is 'mine', which is not"
    ):
        read("longbench", path)


def test_babilong_is_padded_as_a_whole(tmp_path: Path) -> None:
    row = {"input": TEXT, "question": "Where is Mary?", "target": "kitchen"}
    write_json(tmp_path / "qa2" / "4k.json", [row, {**row, "target": "garden"}])
    with pytest.raises(CorpusError, match=r"4k\.json, line 2 \(item 1\).*padded with sentences"):
        read("babilong", tmp_path)
    first, second = read("babilong", tmp_path, allow_synthetic_length=True)
    assert (first.example.task, first.example.metadata["level"]) == ("qa2", 2)
    assert first.example.example_id != second.example.example_id
    assert not first.id_given
    (again, _) = read("babilong", tmp_path, allow_synthetic_length=True)
    assert again.example == first.example


def leval(**changes: Any) -> dict[str, Any]:
    return {
        "instructions": ["Which one?\nA. x\nB. y", "Tell the story."],
        "outputs": ["B", "Once upon a time " * 20],
        "input": TEXT,
        "source": "course",
        "evaluation": "exam",
        **changes,
    }


def test_leval_documents_with_several_questions(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "coursera.jsonl", [leval()])
    corpus = open_corpus("l-eval", {"path": str(path)})
    (entry,) = corpus.entries()
    assert (entry.example.answers, entry.example.task) == (("B",), "coursera")
    assert entry.example.metadata["answer_type"] == "multiple_choice"
    assert corpus.account()["left_out"] == {"with an answer above 200 characters": 1}
    assert len(read("l-eval", path, longest_answer="any")) == 2
    with pytest.raises(CorpusError, match="'gsm100' were manufactured"):
        read("l-eval", write_lines(tmp_path / "gsm100.jsonl", [leval()]))
    with pytest.raises(CorpusError, match="2 'instructions' have 1 'outputs'"):
        read("l-eval", write_lines(tmp_path / "tpo.jsonl", [leval(outputs=["B"])]))


def test_leval_answers_are_what_its_own_script_compares(tmp_path: Path) -> None:
    story = leval(
        instructions=["The ship lands.", "It flies.", "It flies."],
        outputs=["True [fact: False]", "False [fact: False]", "False [fact: False]"],
    )
    corpus = open_corpus("l-eval", {"path": str(write_lines(tmp_path / "sci_fi.jsonl", [story]))})
    first, second = corpus.entries()
    assert (first.example.answers, second.example.answers) == (("True",), ("False",))
    assert "True or False" in first.example.question
    assert corpus.account()["left_out"] == {"repeated": 1}
    course = leval(instructions=["Which?\nA. x\nB. y\nD. z"] * 3, outputs=["BD", "B, D", "B and D"])
    path = write_lines(tmp_path / "mine.jsonl", [course])
    (entry,) = read("l-eval", path)  # the same answer three times
    assert entry.example.answers == ("BD",)
    assert entry.example.metadata["answer_type"] == "multiple_choice"
    quality = leval(instructions=["Which?"], outputs=["(C) the third"])
    assert read("l-eval", write_lines(tmp_path / "quality.jsonl", [quality]))[
        0
    ].example.answers == ("C",)
    left_out = [leval(evaluation="rouge"), leval(evaluation="LLM"), leval(outputs=["x", "y"])]
    corpus = open_corpus("l-eval", {"path": str(write_lines(tmp_path / "mix.jsonl", left_out))})
    assert len(list(corpus.entries())) == 2
    assert corpus.account()["left_out"] == {"published with ROUGE": 2, "judged by a model": 2}
    with pytest.raises(CorpusError, match="2 of codeU, whose answers are what code prints"):
        read("l-eval", write_lines(tmp_path / "codeU.jsonl", [leval()]))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "needs the option 'path'"),
        ({"path": "nowhere.json"}, r"There is no file nowhere\.json"),
        ({"path": __file__}, r"is read from \.json, \.jsonl, \.parquet"),
        ({"path": "x", "colour": 1}, "has no option 'colour'"),
        ({"path": "x", "allow_synthetic_length": "yes"}, "is true or false"),
        ({"path": "x", "task": "a", "tasks": ["b"]}, "give one"),
        ({"path": "x", "unanswerable": "maybe"}, "is one of leave_out, ask"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(CorpusError, match=said):
        open_corpus("babilong", options)


def test_a_folder_without_files_and_tasks_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"holds no \.json or"):
        open_corpus("babilong", {"path": str(tmp_path)})
    path = write_json(tmp_path / "data.json", [v2()])
    with pytest.raises(
        CorpusError, match="no question of the task Poems; its tasks are Single-Document QA"
    ):
        read("longbench-v2", path, tasks=["Poems"])
