"""SQuAD 1.1 and 2.0, nested and flat."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from contextcliff_dagster.contracts import CorpusError
from contextcliff_dagster.corpora.corpus import EVIDENCE_SPANS
from contextcliff_dagster.corpora.registry import open_corpus
from contextcliff_dagster_tests.support.files.benchmark_files import (
    at,
    read,
    write_json,
    write_lines,
)

CONTEXT = "Die Brücke über den Fluß wurde 1897 gebaut. Ihr Ingenieur hieß Anna Holm – 漢字."


def article(**more: Any) -> dict[str, Any]:
    qas = [
        {
            "id": "q1",
            "question": "When was it built?",
            "answers": [
                {"text": "1897", "answer_start": CONTEXT.index("1897")},
                {"text": "in 1897", "answer_start": 3},
            ],
            **more,
        },
        {
            "id": "q2",
            "question": "Who built it?",
            "answers": [{"text": "Anna Holm", "answer_start": CONTEXT.index("Anna")}],
            **more,
        },
    ]
    return {"title": "Bridge", "paragraphs": [{"context": CONTEXT, "qas": qas}]}


def squad(path: Path, *articles: Any, version: str = "1.1") -> Path:
    return write_json(path / "squad.json", {"version": version, "data": list(articles)})


def with_unanswerable() -> dict[str, Any]:
    whole = article(is_impossible=False)
    whole["paragraphs"][0]["qas"].append(
        {"id": "q3", "question": "What did it cost?", "answers": [], "is_impossible": True}
    )
    return whole


def test_every_question_comes_with_its_paragraph_and_the_place_of_its_answer(
    tmp_path: Path,
) -> None:
    first, second = read("squad", squad(tmp_path, article()))
    assert first.document.text == second.document.text == CONTEXT
    assert first.example.question == "When was it built?"
    assert first.example.answers == ("1897", "in 1897")
    assert at(first).startswith("1897")
    assert at(second).startswith("Anna Holm")
    assert (second.example.example_id, second.example.task) == ("q2", "extractive")
    assert second.example.metadata["answer_type"] == "text"
    assert second.example.metadata["domain"] == "Bridge"


def test_an_answer_that_does_not_stand_where_it_says_gives_no_place(tmp_path: Path) -> None:
    wrong = article()
    for one in wrong["paragraphs"][0]["qas"][0]["answers"]:
        one["answer_start"] = 5
    first, second = read("squad", squad(tmp_path, wrong))
    assert "evidence_position" not in first.example.metadata
    assert "evidence_position" in second.example.metadata


def test_unanswerable_questions_are_left_out_and_counted_or_asked_with_a_reply_for_them(
    tmp_path: Path,
) -> None:
    path = squad(tmp_path, with_unanswerable(), version="v2.0")
    corpus = open_corpus("squad", {"path": str(path)})
    assert [e.example.example_id for e in corpus.entries()] == ["q1", "q2"]
    assert corpus.account()["left_out"] == {"unanswerable": 1}
    assert "left out: 1 unanswerable" in corpus.account()["summary"]
    asked = read("squad", path, unanswerable="ask")
    assert [e.example.answers for e in asked][-1] == ("unanswerable",)
    assert asked[-1].example.metadata["answer_type"] == "unanswerable"
    # All are told of that reply: else it would give away which ones have no answer.
    assert all(e.example.question.endswith("answer: unanswerable") for e in asked)


def test_rows_give_the_same_examples_as_the_nested_file(tmp_path: Path) -> None:
    nested = read("squad", squad(tmp_path, article()))
    rows = [
        {
            "id": qa["id"],
            "title": "Bridge",
            "context": CONTEXT,
            "question": qa["question"],
            "answers": {
                "text": [a["text"] for a in qa["answers"]],
                "answer_start": [a["answer_start"] for a in qa["answers"]],
            },
        }
        for qa in article()["paragraphs"][0]["qas"]
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet")
    lines = write_lines(tmp_path / "rows.jsonl", rows)
    array = write_json(tmp_path / "rows.json", rows)
    for path in (tmp_path / "rows.parquet", lines, array):
        records = read("squad", path)
        assert [e.example for e in records] == [e.example for e in nested]
        assert [e.document for e in records] == [e.document for e in nested]


def test_a_file_is_read_an_article_at_a_time_and_one_cut_off_says_so(tmp_path: Path) -> None:
    big = article()
    big["paragraphs"][0]["context"] = CONTEXT + " x" * 200_000
    path = squad(tmp_path, article(), big, big)
    path.write_text(path.read_text(encoding="utf-8")[:-400_000], encoding="utf-8")
    entries = open_corpus("squad", {"path": str(path)}).entries()
    assert next(entries).example.example_id == "q1"  # before the end was looked at
    with pytest.raises(CorpusError, match=r"squad\.json, line \d+ is not JSON.*item 3"):
        list(entries)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ([{"title": "x"}], r"squad\.json, line 4 \(data, item 1\).*'answers'"),
        ([{"paragraphs": [{"qas": []}]}], r"item 1\), paragraphs 1: there is no 'context'"),
        ([{"paragraphs": 3}], "'paragraphs' is not a list"),
        ([7], "is not an object"),
        (
            [{"paragraphs": [{"context": "c", "qas": [{"id": "1", "answers": [{"text": 1}]}]}]}],
            r"qas 1, answers 1: 'text' is not text",
        ),
        ([], "has no question of squad"),
    ],
)
def test_a_broken_file_is_one_sentence_with_the_place(
    tmp_path: Path, data: list[Any], said: str
) -> None:
    with pytest.raises(CorpusError, match=said) as caught:
        read("squad", squad(tmp_path, *data))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"version": "1.1", "data": [', "ends inside 'data'"),
        ('{"version": "1.1", ', "ends inside its JSON object"),
        ('{"version": "1.1"} x', "goes on after the object's end"),
        ('{3: "1.1"}', "a quoted name and a colon"),
        ('{"version" "1.1"}', "a quoted name and a colon"),
    ],
)
def test_what_is_no_json_object_is_said_where_it_ends(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "squad.json").write_text(text)
    with pytest.raises(CorpusError, match=said):
        read("squad", tmp_path / "squad.json")


def test_whole_articles_keep_the_places_of_answers(tmp_path: Path) -> None:
    more = article()["paragraphs"][0]
    whole = with_unanswerable()
    whole["paragraphs"].append(
        {**more, "qas": [{**qa, "id": f"{qa['id']}b"} for qa in more["qas"]]}
    )
    entries = read("squad", squad(tmp_path, whole, version="v2.0"), text="article")
    assert {entry.document.text for entry in entries} == {f"{CONTEXT}\n\n{CONTEXT}"}
    assert [entry.example.example_id for entry in entries] == ["q1", "q2", "q1b", "q2b"]
    assert [at(entry)[:4] for entry in entries] == ["1897", "Anna", "1897", "Anna"]
    positions = [entry.example.metadata["evidence_position"] for entry in entries]
    assert positions[0] < 0.5 < positions[2]
    again = len(CONTEXT) + 2
    spans = [entry.example.metadata[EVIDENCE_SPANS] for entry in entries]
    assert spans == 2 * [[[0, len(CONTEXT)]]] + 2 * [[[again, again + len(CONTEXT)]]]


def test_rows_a_question_hold_no_article(tmp_path: Path) -> None:
    row = {"id": "1", "title": "t", "context": CONTEXT, "question": "When?", "answers": {}}
    path = write_lines(tmp_path / "rows.jsonl", [row])
    with pytest.raises(CorpusError, match=r"rows.jsonl, line 1 is a row a question.*JSON file"):
        read("squad", path, text="article")
