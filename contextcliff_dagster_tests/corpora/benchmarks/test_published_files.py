"""Excerpts of published benchmarks, read as they are (they are not part of the project)."""

from __future__ import annotations

import pytest

from contextcliff_dagster.contracts import CorpusError
from contextcliff_dagster.corpora.recognition import recognise
from contextcliff_dagster.corpora.registry import open_corpus
from contextcliff_dagster_tests.support.requirements import published_file

FILES = [  # name, kind, questions used, documents, left out, whether answers are spans of the text
    ("hotpotqa-10rows.json", "hotpotqa", 10, 10, {}, True),
    ("musique-20rows.json", "musique", 11, 11, {"unanswerable": 9}, True),
    ("squad-dev-v2.0.first3articles.json", "squad", 510, 131, {"unanswerable": 540}, True),
    ("xquad.en.first12articles.json", "squad", 322, 60, {}, True),
    ("xquad.zh.first12articles.json", "squad", 322, 60, {}, True),
    ("longbench-multifieldqa_zh.first25.jsonl", "longbench", 25, 25, {}, False),
]


@pytest.mark.parametrize(("name", "kind", "used", "documents", "left_out", "spans"), FILES)
def test_a_published_file_is_recognised_and_every_question_accounted_for(
    name: str, kind: str, used: int, documents: int, left_out: dict[str, int], spans: bool
) -> None:
    source = recognise(published_file(name))
    assert source.kind == kind
    corpus = open_corpus(source.kind, source.options)
    entries = list(corpus.entries())
    assert (len(entries), len({e.document.document_id for e in entries})) == (used, documents)
    assert len({e.example.example_id for e in entries}) == used
    assert corpus.account()["left_out"] == left_out
    assert "manufactured" not in str(corpus.account()["summary"])
    for entry in entries if spans else []:
        assert any(answer in entry.document.text for answer in entry.example.answers)
        place = entry.example.metadata["evidence_position"]
        assert 0 <= place < 1


def test_the_folder_of_all_published_files_is_refused_by_what_is_in_it() -> None:
    with pytest.raises(CorpusError) as caught:
        recognise(published_file(FILES[0][0]).parent)
    assert "holds files of several benchmarks: hotpotqa (" in str(caught.value)
    assert ", 2 of no known benchmark (gpt_4_1_longmemeval_" in str(caught.value)
