"""HotpotQA, 2WikiMultihopQA and MuSiQue: every piece of evidence has its place in the text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from contextcliff_dagster.contracts import CorpusError
from contextcliff_dagster.corpora.materialize import materialize_corpus
from contextcliff_dagster.corpora.registry import open_corpus
from contextcliff_dagster.sampling.bins import BinSpec, make_bins
from contextcliff_dagster.sampling.draw_manifest import SampleSpec, draw_manifest
from contextcliff_dagster.sampling.length_map import build_length_map, read_length_map
from contextcliff_dagster.sampling.tokenizers.tokenizers import tiktoken_encoding
from contextcliff_dagster_tests.support.files.benchmark_files import (
    at,
    evidence,
    read,
    write_json,
    write_lines,
)
from contextcliff_dagster_tests.support.o200k import O200K

FILLER = [[f"Hill {n}", [f"Hill {n} is {n} metres high.", " Sheep live there."]] for n in range(8)]
MILL = ["Mill", ["The mill stands in Ådal.", " It was built by Ola Berg."]]
BERG = ["Ola Berg", ["Ola Berg was a carpenter.", " He was born in Vik."]]


def hotpot(**changes: Any) -> dict[str, Any]:
    row: dict[str, Any] = {
        "_id": "h1",
        "question": "Where was the builder of the mill born?",
        "answer": "Vik",
        "type": "bridge",
        "level": "hard",
        "context": [*FILLER[:3], BERG, *FILLER[3:], MILL],
        "supporting_facts": [["Mill", 1], ["Ola Berg", 1]],
    }
    return {k: v for k, v in {**row, **changes}.items() if v is not ...}


def test_hotpotqa_puts_the_paragraphs_down_in_order_and_finds_the_supporting_sentences(
    tmp_path: Path,
) -> None:
    (entry,) = read("hotpotqa", write_json(tmp_path / "dev.json", [hotpot()]))
    text = entry.document.text
    assert text.startswith("Hill 0\nHill 0 is 0 metres high. Sheep live there.\n\nHill 1\n")
    assert text.endswith("\n\nMill\nThe mill stands in Ådal. It was built by Ola Berg.")
    first, last = evidence(entry)
    assert first.startswith(" He was born in Vik.")
    assert last.startswith(" It was built by Ola Berg.")
    assert at(entry).startswith("Vik.")
    assert (entry.example.task, entry.example.metadata["level"]) == ("bridge", 2)
    assert entry.example.metadata["difficulty"] == "hard"


def test_columns_of_lists_give_the_same_as_lists_of_pairs(tmp_path: Path) -> None:
    row = hotpot()
    columns = hotpot(
        _id=...,
        id="h1",
        context={
            "title": [title for title, _ in row["context"]],
            "sentences": [sentences for _, sentences in row["context"]],
        },
        supporting_facts={"title": ["Mill", "Ola Berg"], "sent_id": [1, 1]},
    )
    pairs = read("hotpotqa", write_json(tmp_path / "a.json", [row]))
    lists = read("hotpotqa", write_lines(tmp_path / "b.jsonl", [columns]))
    assert [(e.document, e.example) for e in pairs] == [(e.document, e.example) for e in lists]


def test_2wikimultihopqa_sentences_are_set_apart(tmp_path: Path) -> None:
    row = hotpot(
        type="bridge_comparison",
        answer="no",
        context=[["A", ["One.", "Two."]], ["B", ["Three."]], ["C", ["Four."]], ["D", ["Five."]]],
        supporting_facts=[["A", 1], ["B", 0], ["C", 0], ["D", 0]],
    )
    (entry,) = read("2wikimultihopqa", write_json(tmp_path / "dev.json", [row]))
    assert entry.document.text == "A\nOne. Two.\n\nB\nThree.\n\nC\nFour.\n\nD\nFive."
    assert [found.split(".")[0] for found in evidence(entry)] == ["Two", "Three", "Four", "Five"]
    assert at(entry).startswith("Two.")  # "no" occurs nowhere: the first piece of evidence
    assert entry.example.metadata["answer_type"] == "yes_no"
    assert entry.example.metadata["level"] == 4


def test_a_supporting_fact_that_is_not_in_the_text_leaves_places_out(tmp_path: Path) -> None:
    row = hotpot(supporting_facts=[["Mill", 1], ["Ola Berg", 9]])
    (entry,) = read("hotpotqa", write_json(tmp_path / "dev.json", [row]))
    assert "evidence_characters" not in entry.example.metadata
    assert "evidence_position" not in entry.example.metadata


def test_a_test_set_without_answers_is_counted(tmp_path: Path) -> None:
    corpus = open_corpus(
        "hotpotqa", {"path": str(write_json(tmp_path / "t.json", [hotpot(), hotpot(answer=...)]))}
    )
    assert len(list(corpus.entries())) == 1
    assert corpus.account()["left_out"] == {"without an answer in this file": 1}


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (hotpot(context=[["Mill", "text"]]), r"dev\.json, line 2 \(item 1\): paragraph 1 is not"),
        (hotpot(context=[]), "'context' holds no sentence"),
        (hotpot(supporting_facts=[["Mill"]]), "supporting fact 1 is not"),
        (hotpot(question="  "), "'question' is not text"),
        (hotpot(context=...), "there is no 'context'"),
    ],
)
def test_a_broken_record_is_one_sentence_with_the_place(
    tmp_path: Path, row: dict[str, Any], said: str
) -> None:
    with pytest.raises(CorpusError, match=said) as caught:
        read("hotpotqa", write_json(tmp_path / "dev.json", [row]))
    assert "dev.json" in str(caught.value)


def musique(**changes: Any) -> dict[str, Any]:
    paragraphs = [
        {"idx": n, "title": title, "paragraph_text": "".join(sentences), "is_supporting": False}
        for n, (title, sentences) in enumerate([*FILLER, BERG, MILL])
    ]
    return {
        "id": "2hop__1_2",
        "paragraphs": paragraphs,
        "question": "Where was the builder of the mill born?",
        "question_decomposition": [
            {"id": 1, "question": "m", "answer": "Ola Berg", "paragraph_support_idx": 9},
            {"id": 2, "question": "b", "answer": "Vik", "paragraph_support_idx": 8},
        ],
        "answer": "Vik",
        "answer_aliases": ["Vik parish"],
        "answerable": True,
        **changes,
    }


def test_musique_has_the_paragraph_of_each_hop(tmp_path: Path) -> None:
    (entry,) = read("musique", write_lines(tmp_path / "dev.jsonl", [musique()]))
    first, last = evidence(entry)
    assert first.startswith("Ola Berg was a carpenter.")
    assert last.startswith("The mill stands")
    assert at(entry).startswith("Vik.")
    assert entry.example.answers == ("Vik", "Vik parish")
    assert (entry.example.task, entry.example.metadata["level"]) == ("2_hop", 2)


def test_the_distance_between_hops_is_counted_in_tokens_of_the_study(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "dev.jsonl", [musique()])
    materialize_corpus(open_corpus("musique", {"path": str(path)}), tmp_path)
    build_length_map(tmp_path, O200K, tmp_path / "length_map.parquet")
    lengths = read_length_map(tmp_path / "length_map.parquet")
    columns = lengths["length_tokens"].to_pylist(), lengths["document_id"].to_pylist()
    bins = make_bins(*columns, BinSpec(count=1, starved_below=1))
    path = tmp_path / "length_map.parquet"
    frozen = draw_manifest(tmp_path, path, bins, SampleSpec(), {}, lambda: O200K)
    (row,) = frozen.examples.to_pylist()
    text = frozen.document_text(row["document_id"])
    between = text[text.index("Ola Berg was") : text.index("The mill stands")]
    counted = len(tiktoken_encoding("o200k_base").encode_ordinary(between))
    assert row["inter_evidence_tokens"] == counted > 5


def test_the_unanswerable_twin_of_a_musique_question_is_another_example(tmp_path: Path) -> None:
    twin = musique(answerable=False)
    twin["question_decomposition"][1]["paragraph_support_idx"] = None
    path = write_lines(tmp_path / "full.jsonl", [musique(), twin])
    assert len(read("musique", path)) == 1
    both = read("musique", path, unanswerable="ask")
    assert [e.example.task for e in both] == ["2_hop", "unanswerable"]
    assert both[1].example.answers == ("unanswerable",)
    assert len({e.example.example_id for e in both}) == 2
    assert "evidence_characters" not in both[1].example.metadata


def test_a_broken_musique_line_is_named(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "dev.jsonl", [musique(), musique(paragraphs=[{"title": "x"}])])
    with pytest.raises(CorpusError, match=r"dev\.jsonl, line 2, paragraphs 1.*paragraph_text"):
        read("musique", path)
