"""What `--data` names is told by its content: a table, a benchmark, or documents."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from contextcliff_dagster.contracts import CorpusError
from contextcliff_dagster.corpora.recognition import recognise
from contextcliff_dagster.corpora.registry import open_corpus
from contextcliff_dagster_tests.corpora.benchmarks.test_damaged_records import WHOLE
from contextcliff_dagster_tests.corpora.benchmarks.test_multi_hop import hotpot
from contextcliff_dagster_tests.support.files.benchmark_files import write_json, write_lines
from contextcliff_dagster_tests.support.files.folders import library, write

OWN = {"2wikimultihopqa": [hotpot(type="compositional", level=...)]}
"""Where the file of the other tests is of two benchmarks' format."""


def published(kind: str, folder: Path) -> Path:
    name, value = WHOLE[kind]
    path = folder / name
    value = OWN.get(kind, value)
    return write_lines(path, [value]) if name.endswith("l") else write_json(path, value)


@pytest.mark.parametrize("kind", WHOLE)
def test_a_benchmark_is_known_by_its_records(kind: str, tmp_path: Path) -> None:
    path = published(kind, tmp_path / "data")
    recognised = recognise(path)
    assert (recognised.kind, recognised.options) == (kind, {"path": str(path)})
    assert open_corpus(recognised.kind, recognised.options).name == kind
    # As it is downloaded: in a folder, next to other published files.
    write(path.parent / "README.md", "About this data set.\n")
    write(path.parent / "LICENSE", "Do as you like.\n")
    (path.parent / "second").mkdir()
    shutil.copy(path, path.parent / "second" / f"other{path.suffix}")
    recognised = recognise(path.parent)
    assert (recognised.kind, recognised.options) == (kind, {"path": str(path.parent)})


def test_rows_of_squad_are_squad_and_other_rows_a_table(tmp_path: Path) -> None:
    row: dict[str, Any] = {"context": "A mill.", "question": "What?", "answers": ["a mill"]}
    assert recognise(write_lines(tmp_path / "own.jsonl", [row])).kind == "file"
    row["answers"] = {"text": ["A mill"], "answer_start": [0]}
    assert recognise(write_lines(tmp_path / "rows.jsonl", [row])).kind == "squad"


def test_the_table_of_narrativeqa_means_its_folder(tmp_path: Path) -> None:
    table = write(
        tmp_path / "qaps.csv", "document_id,set,question,answer1,answer2\nd,test,Who?,Ada,Ada L.\n"
    )
    write(tmp_path / "tmp" / "d.content", "A story.")
    for path in (table, tmp_path):
        assert recognise(path) == ("narrativeqa", {"path": str(tmp_path)})


def test_two_benchmarks_of_one_format_are_asked_about(tmp_path: Path) -> None:
    path = write_json(tmp_path / "dev.json", [hotpot(type="comparison", level=...)])
    with pytest.raises(CorpusError) as caught:
        recognise(path)
    for word in ("2wikimultihopqa or hotpotqa", "--dataset ", str(path)):
        assert word in str(caught.value)


def test_files_of_several_benchmarks_in_one_folder(tmp_path: Path) -> None:
    published("squad", tmp_path)
    published("l-eval", tmp_path)
    with pytest.raises(CorpusError, match=r"l-eval \(f\.jsonl\), squad \(f\.json\); choose one"):
        recognise(tmp_path)


@pytest.mark.parametrize("second", ["l-eval", None])
def test_benchmarks_are_named_even_where_other_tables_lie_with_them(
    second: str | None, tmp_path: Path
) -> None:
    published("squad", tmp_path)
    write(tmp_path / "judged.csv", "question,score\nWhat?,1\n")
    held = r"a benchmark among others: squad \(f\.json\), 1 of no known benchmark \(judged"
    if second is not None:
        published(second, tmp_path)
        held = r"several benchmarks: l-eval \(f\.jsonl\), squad \(f\.json\), 1 of .*; choose one"
    with pytest.raises(CorpusError, match=held):
        recognise(tmp_path)


@pytest.mark.parametrize(
    ("header", "row", "hint"),
    [
        (
            "token_count,question,answer,output,llm_judge_output",
            "320,How many?,3,2,false",
            r"; analyse it as results: `contextcliff analyze '\S+/of judges.csv' --columns "
            r"length_tokens=token_count,score=llm_judge_output`\.$",
        ),
        ("question,answers,correct", "How many?,3,1", "; readable are squad, "),
        ("question,answers,max_length", "How many?,3,9", "; readable are squad, "),
    ],
)
def test_a_table_of_questions_without_texts_is_refused_as_a_whole(
    header: str, row: str, hint: str, tmp_path: Path
) -> None:
    path = write(tmp_path / "of judges.csv", f"{header}\n{row}\n")
    with pytest.raises(CorpusError, match=hint):
        recognise(path)


@pytest.mark.parametrize("asked", [kind for kind in WHOLE if kind != "squad"])
def test_the_file_of_another_benchmark_is_named_as_what_it_is(asked: str, tmp_path: Path) -> None:
    for kind, as_kind in (("squad", asked), (asked, "squad")):
        path = published(kind, tmp_path / kind)
        with pytest.raises(CorpusError, match=f"not a file of {as_kind}; it looks like {kind}: "):
            list(open_corpus(as_kind, {"path": str(path)}).entries())


@pytest.mark.parametrize(
    ("name", "what"), [("x.json", "name such a file"), ("x.json.gz", "unpack it")]
)
def test_only_a_packed_file_is_to_be_unpacked(name: str, what: str, tmp_path: Path) -> None:
    path = write(tmp_path / name, "{}")
    with pytest.raises(CorpusError, match=rf"is read from \.csv, .*; {what}\.$"):
        open_corpus("narrativeqa", {"path": str(path)})


def test_documents_with_a_benchmark_among_them_are_documents(tmp_path: Path) -> None:
    library(tmp_path, documents=6)
    published("squad", tmp_path)
    assert recognise(tmp_path).kind == "folder"


def test_a_table_whose_documents_are_files_is_the_questions_of_its_folder(tmp_path: Path) -> None:
    library(tmp_path, documents=6)
    table = tmp_path / "questions.csv"
    assert recognise(table) == ("folder", {"path": str(tmp_path), "questions": str(table)})


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("texts.csv", "document,question,answers\nA mill stands here. It is old.,What?,a mill\n"),
        ("texts.csv", "document,question,answers\nThe price is 3.50,What?,3.50\n"),
        ("texts.csv", 'document,question,answers\n"a.txt\nb.txt",What?,names\n'),
        ("texts.jsonl", '{"document": "A mill.", "question": "What?", "answer": "a mill"}\n'),
        (
            "texts.jsonl",
            '{"context": "a.txt", "document": "a.txt", "question": "?", "answer": "x"}\n',
        ),
    ],
)
def test_a_table_with_texts_in_it_is_a_table(name: str, content: str, tmp_path: Path) -> None:
    assert recognise(write(tmp_path / name, content)).kind == "file"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("missing.jsonl", None),
        ("empty.jsonl", b""),
        ("binary.jsonl", bytes(range(256))),
        ("broken.json", b'{"data": [{"paragraphs": '),
        ("deep.json", b"[" * 100_000),
        ("number.json", b"17"),
        ("nothing.json", b"[]"),
        ("packed.jsonl.gz", b"\x1f\x8b\x08\x00"),
        ("rows", b"PAR1 and no more"),
        ("latin.csv", "document,question\ncaf\xe9,?\n".encode("latin-1")),
    ],
)
def test_what_cannot_be_recognised_is_a_table_with_a_fault(
    name: str, content: bytes | None, tmp_path: Path
) -> None:
    path = tmp_path / name
    if content is not None:
        write(path, content)
    recognised = recognise(path)
    assert recognised.kind == "file"
    with pytest.raises(CorpusError, match=name):
        list(open_corpus(recognised.kind, recognised.options).entries())


@pytest.mark.parametrize("name", ["paper.pdf", "notes.txt", "book.epub", "page.html", "main.rs"])
def test_any_other_file_is_a_document(name: str, tmp_path: Path) -> None:
    path = write(tmp_path / name, "text")
    assert recognise(path) == ("folder", {"path": str(path)})
