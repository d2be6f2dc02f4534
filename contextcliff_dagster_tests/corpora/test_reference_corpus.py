"""The reference corpus: ledgers as examples, the same options always the same texts."""

from __future__ import annotations

from typing import Any

import pytest

from contextcliff_dagster.contracts import CorpusError
from contextcliff_dagster.corpora.corpus import document_id
from contextcliff_dagster.corpora.registry import ReferenceCorpus


def test_examples_carry_what_is_known_of_them() -> None:
    entries = list(ReferenceCorpus({"documents": 20, "task": "two_hop"}).entries())
    assert len(entries) == 20
    for entry in entries:
        example = entry.example
        assert example.document_id == entry.document.document_id == document_id(entry.document.text)
        assert example.task == "two_hop"
        assert example.metadata["level"] == 2
        assert 0 <= example.metadata["evidence_position"] < 1
        assert example.metadata["inter_evidence_tokens"] > 0
        assert any(answer in entry.document.text for answer in example.answers)
    assert len({e.example.example_id for e in entries}) == 20


def test_several_questions_share_a_document() -> None:
    corpus = ReferenceCorpus(
        {"documents": 10, "questions": 3, "min_tokens": 300, "max_tokens": 900}
    )
    assert len(list(corpus.documents())) == 10
    asked = [(e.document_id, e.question) for e in corpus.examples()]
    assert len(asked) == len(set(asked)) == 60


def test_the_blueprints_task_name_means_two_hop() -> None:
    alias, name = (
        ReferenceCorpus({"documents": 4, "task": t}) for t in ("multi_hop_qa", "two_hop")
    )
    assert list(alias.entries()) == list(name.entries())
    assert alias.fingerprint() == name.fingerprint()


def test_the_fingerprint_follows_every_option() -> None:
    variants: list[dict[str, Any]] = [
        {},
        {"documents": 5},
        {"seed": 1},
        {"max_tokens": 400},
        {"task": "lookup"},
        {"questions": 2},
    ]
    prints = [ReferenceCorpus(options).fingerprint() for options in variants]
    assert len(set(prints)) == len(variants)
    assert prints == [ReferenceCorpus(options).fingerprint() for options in variants]


def test_a_longer_corpus_begins_with_the_shorter_one() -> None:
    short, long = (list(ReferenceCorpus({"documents": n}).entries()) for n in (5, 8))
    assert long[: len(short)] == short


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"task": "sorting"}, "'task' is one of .*, not 'sorting'"),
        ({"documents": 0}, "at least 1"),
        ({"documents": "many"}, "a whole number"),
        ({"documents": True}, "a whole number"),
        ({"seed": -1}, "at least 0"),
        ({"min_tokens": 9_000}, "cannot be generated"),
        ({"path": "x"}, "no option 'path'"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], word: str) -> None:
    with pytest.raises(CorpusError, match=word):
        ReferenceCorpus(options)


def test_lengths_vary_naturally_over_the_range() -> None:
    sizes = sorted(len(d.text) for d in ReferenceCorpus({"documents": 200}).documents())
    assert sizes[-1] > 50 * sizes[0]
    assert len(set(sizes)) > 100
