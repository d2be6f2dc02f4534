"""NarrativeQA, QuALITY and Qasper: whole stories, articles and papers."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

from contextcliff_dagster.contracts import CorpusError
from contextcliff_dagster.corpora.registry import open_corpus
from contextcliff_dagster_tests.support.files.benchmark_files import (
    at,
    evidence,
    read,
    write_json,
    write_lines,
)

STORY = "CHAPTER I\n\nThe lamp went out; Björn lit it again.\n" + "The night was long. " * 50


def narrativeqa(folder: Path) -> Path:
    """Two stories of which one is there, with the authors' names of files and columns."""
    (folder / "tmp").mkdir(parents=True)
    (folder / "tmp" / "d1.content").write_text(STORY, encoding="utf-8")
    (folder / "tmp" / "d3.content").write_bytes(b"caf\xe9")
    rows = [
        ("d1", "test", "Who lit the lamp?", "Björn", "Bjorn did"),
        ("d1", "train", "What went out?", "the lamp", "a lamp"),
        ("d2", "test", "Who left?", "Ada", "Ada"),
        ("d3", "test", "What is drunk?", "coffee", "coffee"),
    ]
    with (folder / "qaps.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["document_id", "set", "question", "answer1", "answer2"])
        writer.writerows(rows)
    with (folder / "documents.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["document_id", "set"], ["d1", "test"]])
    (folder / "third_party").mkdir()
    with (folder / "third_party" / "summaries.csv").open("w", newline="") as file:
        summary = ["d2", "test", "Ada left, and\nnobody else did."]
        csv.writer(file).writerows([["document_id", "set", "summary"], summary])
    return folder


def test_narrativeqa_reads_whole_stories_and_counts_those_that_are_not_there(
    tmp_path: Path,
) -> None:
    corpus = open_corpus("narrativeqa", {"path": str(narrativeqa(tmp_path / "n"))})
    first, second = corpus.entries()
    assert first.document.text == STORY
    assert first.document == second.document
    assert first.example.answers == ("Björn", "Bjorn did")
    assert first.example.task == "story"
    assert corpus.account()["left_out"] == {"whose story is not there as UTF-8 text": 2}


def test_narrativeqa_summaries_and_splits(tmp_path: Path) -> None:
    folder = narrativeqa(tmp_path / "n")
    (entry,) = read("narrativeqa", folder, text="summary")
    assert entry.document.text == "Ada left, and\nnobody else did."
    (entry,) = read("narrativeqa", folder, split="train")
    assert entry.example.question == "What went out?"


def test_narrativeqa_rows_carry_their_texts(tmp_path: Path) -> None:
    row = {
        "document": {"id": "d1", "kind": "gutenberg", "text": STORY, "summary": {"text": "Short."}},
        "question": {"text": "Who lit the lamp?", "tokens": []},
        "answers": [{"text": "Björn", "tokens": []}, {"text": "Bjorn did", "tokens": []}],
    }
    path = write_lines(tmp_path / "test.jsonl", [row])
    (entry,) = read("narrativeqa", path)
    assert (entry.document.text, entry.example.metadata["domain"]) == (STORY, "gutenberg")
    (entry,) = read("narrativeqa", path, text="summary")
    assert entry.document.text == "Short."


def test_a_story_that_changed_changes_the_fingerprint(tmp_path: Path) -> None:
    folder = narrativeqa(tmp_path / "n")
    before = open_corpus("narrativeqa", {"path": str(folder)}).fingerprint()
    assert open_corpus("narrativeqa", {"path": str(folder)}).fingerprint() == before
    (folder / "tmp" / "d1.content").write_text(STORY + "!", encoding="utf-8")
    assert open_corpus("narrativeqa", {"path": str(folder)}).fingerprint() != before


def test_questions_without_their_stories_or_summaries_are_refused(tmp_path: Path) -> None:
    folder = narrativeqa(tmp_path / "n")
    for file in [*folder.rglob("*.content"), *folder.rglob("summaries.csv")]:
        file.unlink()
    with pytest.raises(CorpusError, match=r"not its stories \(\.content\): .*download_stories\.sh"):
        open_corpus("narrativeqa", {"path": str(folder)})
    with pytest.raises(CorpusError, match=r"not its summaries: put third_party/"):
        open_corpus("narrativeqa", {"path": str(folder), "text": "summary"})


def test_a_folder_without_the_questions_is_refused(tmp_path: Path) -> None:
    folder = narrativeqa(tmp_path / "n")
    (folder / "qaps.csv").unlink()
    with pytest.raises(CorpusError, match=r"neither a folder with NarrativeQA's 'qaps\.csv'"):
        open_corpus("narrativeqa", {"path": str(folder)})
    with pytest.raises(CorpusError, match="is one of story, summary"):
        open_corpus("narrativeqa", {"path": str(folder), "text": "poem"})


def quality(**changes: Any) -> dict[str, Any]:
    question = {
        "question": "What does the narrator want?",
        "question_unique_id": "u1",
        "options": ["Rest", "Bread", "A boat", "Nothing"],
        "gold_label": 3,
        "difficult": 1,
        **changes,
    }
    return {
        "article_id": "1",
        "topic": "Fiction",
        "source": "Gutenberg",
        "article": STORY,
        "questions": [
            {k: v for k, v in question.items() if v is not ...},
            {**question, "question_unique_id": "u2", "gold_label": 1, "difficult": 0},
        ],
    }


def test_quality_letters_its_options(tmp_path: Path) -> None:
    first, second = read("quality", write_lines(tmp_path / "QuALITY.v1.0.1.dev", [quality()]))
    assert first.document.text == STORY
    assert first.example.question == (
        "What does the narrator want?\nA. Rest\nB. Bread\nC. A boat\nD. Nothing\n"
        "Answer with the letter of the right option."
    )
    assert first.example.answers == ("C", "C. A boat", "A boat")
    assert (first.example.task, second.example.task) == ("hard", "easy")
    assert first.example.metadata["answer_type"] == "multiple_choice"
    assert second.example.answers[0] == "A"
    assert [e.example.task for e in read("quality", tmp_path, task="hard")] == ["hard"]


@pytest.mark.parametrize(
    ("reply", "right"), [("C", 1.0), ("(c)", 1.0), ("C. A boat", 1.0), ("A boat", 1.0), ("A", 0.0)]
)
def test_a_choice_counts_however_it_is_written(tmp_path: Path, reply: str, right: float) -> None:
    from contextcliff_dagster.scoring.normalize import exact_match

    entry = read("quality", write_lines(tmp_path / "dev.jsonl", [quality()]))[0]
    assert exact_match(reply, entry.example.answers) == right


def test_quality_without_labels_or_with_a_wrong_one(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "test.jsonl", [quality(gold_label=...)])
    assert len(read("quality", path)) == 1
    path = write_lines(tmp_path / "bad.jsonl", [quality(), quality(gold_label=5)])
    with pytest.raises(CorpusError, match=r"bad\.jsonl, line 2, questions 1: 'gold_label' is 5"):
        read("quality", path)


ONE, TWO = "We train on 1,200 songs of Norway.", "We compare with a table of chords."


def answer(**changes: Any) -> dict[str, Any]:
    return {
        "answer": {
            "unanswerable": False,
            "extractive_spans": [],
            "yes_no": None,
            "free_form_answer": "",
            "evidence": [],
            "highlighted_evidence": [],
            **changes,
        }
    }


NOTHING = answer(unanswerable=True)


def qasper(*answers: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "1234.56": {
            "title": "Songs",
            "abstract": "On songs.",
            "full_text": [
                {"section_name": "Data", "paragraphs": [ONE, ""]},
                {"section_name": None, "paragraphs": [TWO]},
            ],
            "qas": [
                {"question": f"Question {n}?", "question_id": f"q{n}", "answers": given}
                for n, given in enumerate(answers)
            ],
        }
    }


def test_qasper_papers_and_every_kind_of_answer(tmp_path: Path) -> None:
    path = write_json(
        tmp_path / "dev.json",
        qasper(
            [
                answer(extractive_spans=["chords", "songs of Norway"], evidence=[TWO, ONE]),
                NOTHING,
                answer(free_form_answer="chords and songs", evidence=["FLOAT SELECTED: Table 1"]),
            ],
            [answer(yes_no=False, evidence=["FLOAT SELECTED: Table 1"])],
            [NOTHING],
        ),
    )
    first, second = read("qasper", path)
    assert first.document.text == f"Songs\n\nOn songs.\n\nData\n\n{ONE}\n\n{TWO}"
    assert first.example.answers == ("chords, songs of Norway", "chords and songs")
    assert [text[:8] for text in evidence(first)] == [ONE[:8], TWO[:8]]
    assert at(first).startswith("chords")
    assert (second.example.answers, second.example.task) == (("no",), "yes_no")
    assert "evidence_position" not in second.example.metadata
    third = read("qasper", path, unanswerable="ask")[2]
    assert (third.example.example_id, third.example.answers) == ("q2", ("unanswerable",))


def test_a_broken_qasper_file_is_one_sentence_with_the_place(tmp_path: Path) -> None:
    path = write_json(tmp_path / "dev.json", {**qasper([NOTHING]), "7.8": {"title": "x"}})
    with pytest.raises(CorpusError, match=r"member 2\), paper 7\.8: there is no 'full_text'"):
        read("qasper", path, unanswerable="ask")
    path = write_json(tmp_path / "dev.json", qasper([answer()]))
    with pytest.raises(CorpusError, match=r"qas 1, answers 1, answer: 'free_form_answer'"):
        read("qasper", path)
    path = write_json(tmp_path / "dev.json", [qasper()])
    with pytest.raises(CorpusError, match="does not begin a JSON object"):
        read("qasper", path)
