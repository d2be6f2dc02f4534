"""The corpus folder: every file accounted for, nothing outside opened, the same again tomorrow."""

from __future__ import annotations

import csv
import os
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from contextcliff_dagster.contracts import CorpusError
from contextcliff_dagster.corpora.corpus import document_id
from contextcliff_dagster.corpora.folder import FolderCorpus
from contextcliff_dagster.corpora.materialize import materialize_corpus
from contextcliff_dagster.corpora.registry import open_corpus
from contextcliff_dagster_tests.support.files.folders import hostile, library, recall_of, write
from contextcliff_dagster_tests.support.files.scripts import prose


def fates_of(corpus: FolderCorpus) -> dict[str, str]:
    """By file, as at the last reading; each one starts processes, so no more than needed."""
    if not corpus.account():
        list(corpus.entries())
    return {str(row["file"]): str(row["fate"]) for row in corpus.file_list()}


def test_no_file_ends_the_reading_and_every_one_is_named(tmp_path: Path) -> None:
    expected = hostile(tmp_path)
    corpus = recall_of(tmp_path / "docs")
    assert fates_of(corpus) == expected
    account = corpus.account()
    counts = Counter(expected.values())
    assert account["files"]["used"] == counts.pop("used") == 3
    assert account["files"]["left_out"] == counts
    assert account["files"]["found"] == len(expected)
    assert "3 used" in account["summary"]
    assert "1 the same text as another" in account["summary"]
    assert all(row["reason"] for row in corpus.file_list() if row["fate"] != "used")
    reasons = {row["file"]: row["reason"] for row in corpus.file_list()}
    assert reasons["copy.txt"] == "has the same text as a good one.txt"
    assert reasons["again.txt"] == "is a link to a good one.txt, which is read itself"
    assert "node_modules" in reasons["node_modules/"]
    assert "dot" in reasons[".git/"]


def test_a_table_of_questions_that_leads_out_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.txt").write_text("Some words.")
    private = tmp_path / "private.csv"
    private.write_text("document,question,answers\na.txt,Which?,words\n")
    link = tmp_path / "docs" / "questions.csv"
    link.symlink_to(private)
    with pytest.raises(CorpusError, match=r"questions\.csv is a link out of the folder"):
        FolderCorpus({"path": str(tmp_path / "docs")})
    named = FolderCorpus({"path": str(tmp_path / "docs"), "questions": str(private)})
    assert named.count_to_read() == 1
    link.rename(tmp_path / "docs" / "others.csv")
    with pytest.raises(CorpusError, match="comes without questions"):
        FolderCorpus({"path": str(tmp_path / "docs")})
    link.symlink_to(tmp_path / "docs" / "inside.csv")
    (tmp_path / "docs" / "inside.csv").write_text(private.read_text())
    assert FolderCorpus({"path": str(tmp_path / "docs")}).count_to_read() == 1


def test_nothing_outside_the_folder_and_nothing_hidden_is_read(tmp_path: Path) -> None:
    hostile(tmp_path)
    entries = list(recall_of(tmp_path / "docs").entries())
    texts = "".join(entry.document.text for entry in entries)
    assert "sesame" not in texts
    assert prose("english", sentences=30, seed=7) not in texts


def test_folders_deeper_than_the_stack_and_than_paths_are_survived(tmp_path: Path) -> None:
    write(tmp_path / "good.txt", prose("english", sentences=30))
    before = os.open(".", os.O_RDONLY)
    try:
        os.chdir(tmp_path)
        for _ in range(2_100):
            Path("d").mkdir()
            os.chdir("d")
        fates = fates_of(recall_of(tmp_path))
        assert fates.pop("good.txt") == "used"
        assert list(fates.values()) == ["unreadable"]
    finally:
        os.fchdir(before)
        os.close(before)
        # rmtree of Python 3.11 is recursive, too: shorten the tree before pytest removes it.
        _flatten(tmp_path)


def _flatten(folder: Path) -> None:
    number = 0
    while (folder / "d").exists():
        aside = folder / f"level{number}"
        (folder / "d").rename(aside)
        if (aside / "d").exists():
            (aside / "d").rename(folder / "d")
        aside.rmdir()
        number += 1


def test_the_text_goes_in_whole_and_the_list_of_files_beside_it(tmp_path: Path) -> None:
    text = prose("arabic", sentences=40)
    write(tmp_path / "docs" / "a b.txt", text)
    write(tmp_path / "docs" / 'quote",\nline.txt', prose("english", sentences=40))
    corpus = recall_of(tmp_path / "docs", questions_per_document=3)
    summary = materialize_corpus(corpus, tmp_path / "out")
    assert (summary.documents, summary.examples) == (2, 6)
    with (tmp_path / "out" / "files.csv").open(encoding="utf-8", newline="") as file:
        rows = {row["file"]: row for row in csv.DictReader(file)}
    assert set(rows) == {"a b.txt", 'quote",\nline.txt'}
    assert rows["a b.txt"]["document_id"] == document_id(text)
    assert rows["a b.txt"]["questions"] == "3"
    assert rows["a b.txt"]["characters"] == str(len(text))


def test_recall_says_what_it_is_and_where_the_answer_stands(tmp_path: Path) -> None:
    folder = library(tmp_path, documents=12)
    corpus = recall_of(folder)
    entries = list(corpus.entries())
    assert len({entry.example.example_id for entry in entries}) == len(entries)
    for entry in entries:
        example, text = entry.example, entry.document.text
        assert example.task == "verbatim_recall"
        rest, statement = example.answers
        assert example.question.endswith(statement.removesuffix(rest).rstrip())
        place = round(example.metadata["evidence_position"] * len(text))
        assert text[place:].startswith(rest.split()[0])
        ((start, end),) = example.metadata["evidence_spans"]
        assert " ".join(text[start:end].split()) == statement
        assert example.metadata["format"] in ("text", "markdown")
    assert "copies" in corpus.account()["cautions"][0]
    assert "verbatim recall" in corpus.account()["summary"]
    domains = {entry.example.metadata.get("domain") for entry in entries}
    assert domains == {None, "Verträge 2024", "合同", "with blanks"}
    # The table of questions is no document.
    assert fates_of(corpus)["questions.csv"] == "questions"


def test_the_bare_beginning_is_for_prompts_that_begin_the_answer(tmp_path: Path) -> None:
    write(tmp_path / "a.txt", prose("english", sentences=40))
    for entry in recall_of(tmp_path, recall_question="beginning").entries():
        rest, statement = entry.example.answers
        assert f"{entry.example.question} {rest}" == statement


def test_the_same_files_give_the_same_and_changed_ones_do_not(tmp_path: Path) -> None:
    folder = library(tmp_path / "one", documents=8)
    shutil.copytree(folder, tmp_path / "two")
    (one, two) = (recall_of(tmp_path / name) for name in ("one", "two"))
    assert one.fingerprint() == two.fingerprint()
    entries = list(one.entries())
    assert list(two.entries()) == entries
    assert recall_of(folder, seed=1).fingerprint() != one.fingerprint()
    assert list(recall_of(folder, seed=1).entries()) != entries
    first = one.fingerprint()
    changes = (
        lambda: write(folder / "new.txt", "new"),
        lambda: write(folder / "new.txt", "newer"),
        lambda: (folder / "new.txt").rename(folder / "renamed.txt"),
        lambda: (folder / "renamed.txt").unlink(),
    )
    seen = {first}
    for change in changes[:3]:
        change()
        seen.add(recall_of(folder).fingerprint())
    assert len(seen) == 4
    changes[3]()
    assert recall_of(folder).fingerprint() == first


def test_questions_of_the_table_are_asked_of_their_documents(tmp_path: Path) -> None:
    corpus = open_corpus("folder", {"path": str(library(tmp_path))})
    entries = list(corpus.entries())
    assert len(entries) == 40
    for entry in entries:
        answer = entry.example.answers[0]
        assert f"reference number is {answer}." in entry.document.text
        assert entry.example.metadata["source"] in entry.document.text or entry.place
    assert corpus.account()["questions"] == {"used": 40, "lost": {}}
    assert "cautions" not in corpus.account()


def test_changed_questions_are_another_corpus(tmp_path: Path) -> None:
    folder = library(tmp_path)
    before = FolderCorpus({"path": str(folder)}).fingerprint()
    table = folder / "questions.csv"
    table.write_text(table.read_text().replace("reference number?", "number?"))
    assert FolderCorpus({"path": str(folder)}).fingerprint() != before


def test_both_copies_of_a_text_may_be_asked_about(tmp_path: Path) -> None:
    text = prose("english", sentences=20)
    write(tmp_path / "a.txt", text)
    write(tmp_path / "b.txt", text)
    write(
        tmp_path / "questions.csv",
        "document,question,answers\na.txt,Who?,the captain\nb.txt,Where?,the harbour\n",
    )
    corpus = FolderCorpus({"path": str(tmp_path)})
    entries = list(corpus.entries())
    assert [entry.example.question for entry in entries] == ["Who?", "Where?"]
    assert len({entry.document.document_id for entry in entries}) == 1
    assert fates_of(corpus) == {"a.txt": "used", "b.txt": "duplicate", "questions.csv": "questions"}


def test_questions_on_a_broken_document_are_lost_and_counted(tmp_path: Path) -> None:
    write(tmp_path / "a.txt", prose("english", sentences=20))
    write(tmp_path / "broken.pdf", b"%PDF-1.7\nno more")
    write(tmp_path / "idle.txt", prose("english", sentences=20, seed=1))
    write(
        tmp_path / "questions.csv",
        "document,question,answers\n"
        "a.txt,Who?,the captain\nbroken.pdf,Where?,x\nbroken.pdf,Why?,y\n",
    )
    corpus = FolderCorpus({"path": str(tmp_path)})
    assert len(list(corpus.entries())) == 1
    account: dict[str, Any] = corpus.account()
    assert account["questions"] == {"used": 1, "lost": {"unreadable": 2}}
    assert "2 more on documents that are left out" in account["summary"]
    assert fates_of(corpus)["idle.txt"] == "no_question"


def test_a_single_document_and_the_table_beside_it(tmp_path: Path) -> None:
    folder = library(tmp_path)
    path = folder / "Bericht 00.txt"
    (entry,) = FolderCorpus({"path": str(path)}).entries()
    assert entry.example.answers == ("7000",)
    assert len(list(recall_of(path).entries())) == 5


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, ["path"]),
        ({"path": "nowhere"}, ["nowhere"]),
        ({"path": ".", "questions": "recall", "task": "qa"}, ["verbatim_recall"]),
        ({"path": ".", "questions": "recall", "recall_question": "maybe"}, ["recall_question"]),
        ({"path": ".", "questions": "recall", "questions_per_document": 0}, ["at least 1"]),
        ({"path": ".", "questions": "recall", "limits": {"seconds": -1}}, ["seconds"]),
        ({"path": ".", "questions": "recall", "limits": {"minutes": 1}}, ["minutes"]),
        ({"path": ".", "questions": "notes.docx"}, ["notes.docx", "CSV"]),
        ({"path": ".", "questions": "none.csv"}, ["none.csv"]),
        ({"path": ".", "colour": "red"}, ["colour"]),
    ],
)
def test_options_that_mean_nothing(options: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(CorpusError) as caught:
        open_corpus("folder", options)
    for word in words:
        assert word in str(caught.value)


def test_a_folder_of_broken_files_says_why(tmp_path: Path) -> None:
    write(tmp_path / "a.pdf", b"%PDF-1.7\nno more")
    write(tmp_path / "b.txt", b"")
    with pytest.raises(CorpusError, match=r"gives no question: a\.pdf .*; b\.txt holds no text"):
        list(recall_of(tmp_path).entries())
