"""The adapter of docs/corpora.md, as printed there, registered by an entry point."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from contextcliff_dagster.contracts import CorpusError
from contextcliff_dagster.corpora.materialize import materialize_corpus
from contextcliff_dagster.corpora.registry import open_corpus
from contextcliff_dagster_tests.support.own_package import block, installed_package

ON_THE_PAGE = ("corpora.md", "An adapter of your own")


@pytest.fixture
def installed(tmp_path: Path) -> Iterator[None]:
    """The page's adapter and its entry point."""
    with installed_package(tmp_path, "interviews", *ON_THE_PAGE, "broken = nowhere:X"):
        yield


def interviews(folder: Path, questions: str) -> dict[str, str]:
    folder.mkdir()
    (folder / "ada.txt").write_text("Ada was a weaver – all her life.", encoding="utf-8")
    (folder / "ada.tsv").write_text(questions, encoding="utf-8")
    return {"path": str(folder)}


@pytest.mark.usefixtures("installed")
def test_the_adapter_of_the_page_is_found_by_its_kind(tmp_path: Path) -> None:
    options = interviews(tmp_path / "in", "What was she?\ta weaver\nWho?\tAda\n")
    corpus = open_corpus("interviews", options)
    first, second = corpus.entries()
    assert first.document == second.document
    assert (first.example.question, first.example.answers) == ("What was she?", ("a weaver",))
    summary = materialize_corpus(corpus, tmp_path / "out")
    assert (summary.name, summary.documents, summary.examples) == ("interviews", 1, 2)
    before = corpus.fingerprint()
    (tmp_path / "in" / "ada.tsv").write_text("Who?\tAda\n")
    assert open_corpus("interviews", options).fingerprint() != before


@pytest.mark.usefixtures("installed")
def test_its_faults_and_those_of_others_are_sentences(tmp_path: Path) -> None:
    options = interviews(tmp_path / "in", "What was she? a weaver\n")
    with pytest.raises(CorpusError, match=r"ada\.tsv, line 1 is not a question"):
        list(open_corpus("interviews", options).entries())
    with pytest.raises(CorpusError, match=r"'broken' \(nowhere:X\) cannot be imported"):
        open_corpus("broken", {})
    with pytest.raises(CorpusError, match=r"no corpus of kind 'absent'; there are .*interviews"):
        open_corpus("absent", {})


def test_it_is_no_longer_than_promised() -> None:
    assert len(block(*ON_THE_PAGE, "python").splitlines()) <= 40
