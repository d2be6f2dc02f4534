"""Several corpora in one study: whose question is whose, and at an equal mix."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from contextcliff_dagster.cli.app import app
from contextcliff_dagster.contracts import CorpusError
from contextcliff_dagster.corpora.materialize import materialize_corpus
from contextcliff_dagster.corpora.registry import open_corpus
from contextcliff_dagster.studies import load_study
from contextcliff_dagster_tests.support.files.benchmark_files import write_json, write_lines


def rows(count: int, words: int, word: str = "word") -> list[dict[str, Any]]:
    return [
        {
            "id": f"q{i}",
            "document": " ".join(f"{word}{i}-{k}" for k in range(words + i)),
            "question": "Which is the first word?",
            "answers": [f"{word}{i}-0"],
        }
        for i in range(count)
    ]


@pytest.fixture
def parts(tmp_path: Path) -> list[dict[str, Any]]:
    short = write_lines(tmp_path / "short.jsonl", rows(6, 20))
    long = write_lines(tmp_path / "long.jsonl", rows(4, 300, "term"))
    return [
        {"kind": "file", "name": "notes", "path": str(short)},
        {"kind": "file", "name": "books", "path": str(long)},
    ]


def test_every_example_names_its_part_and_ids_of_two_parts_do_not_clash(
    parts: list[dict[str, Any]], tmp_path: Path
) -> None:
    corpus = open_corpus("mixed", {"parts": parts})
    found = [entry.example for entry in corpus.entries()]
    assert [one.metadata["source"] for one in found] == ["notes"] * 6 + ["books"] * 4
    assert found[0].example_id == "notes/q0"
    assert found[6].example_id == "books/q0"
    summary = materialize_corpus(corpus, tmp_path / "corpus")
    assert (summary.documents, summary.examples) == (10, 10)


def test_a_source_that_the_part_knows_is_kept_beside(tmp_path: Path) -> None:
    own = write_lines(tmp_path / "own.jsonl", [{**row, "source": "wiki"} for row in rows(2, 9)])
    other = write_lines(tmp_path / "other.jsonl", rows(2, 9, "x"))
    options = [
        {"kind": "file", "name": "a", "path": str(own)},
        {"kind": "file", "name": "b", "path": str(other)},
    ]
    first, *_, last = open_corpus("mixed", {"parts": options}).entries()
    assert first.example.metadata["source_in_part"] == "wiki"
    assert "source_in_part" not in last.example.metadata


def test_the_fingerprint_follows_every_part(parts: list[dict[str, Any]]) -> None:
    before = open_corpus("mixed", {"parts": parts}).fingerprint()
    assert before == open_corpus("mixed", {"parts": parts}).fingerprint()
    renamed = [parts[0], {**parts[1], "name": "tomes"}]
    assert open_corpus("mixed", {"parts": renamed}).fingerprint() != before
    Path(parts[1]["path"]).write_text(json.dumps(rows(1, 5)[0]) + "\n")
    assert open_corpus("mixed", {"parts": parts}).fingerprint() != before


def test_a_folders_list_of_files_names_the_part(
    parts: list[dict[str, Any]], tmp_path: Path
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    text = "\n\n".join(
        f"In the year {1800 + k} the town of Ost{k * 7919}ham built its bridge over the river, "
        f"which cost {k * 104_729} crowns and took {k + 3} summers."
        for k in range(60)
    )
    (folder / "one.txt").write_text(text)
    (folder / "empty.txt").write_text("")
    recall = {"kind": "folder", "path": str(folder), "questions": "recall"}
    corpus = open_corpus("mixed", {"parts": [parts[0], recall]})
    summary = materialize_corpus(corpus, tmp_path / "corpus")
    listed = (tmp_path / "corpus" / summary.account["list"]).read_text().splitlines()
    assert listed[0].startswith("part,")
    assert len(listed) == 3
    assert all(line.startswith("folder,") for line in listed[1:])
    assert "folder: " in summary.account["summary"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "two or more"),
        ({"parts": [{"kind": "squad", "path": "x"}]}, "two or more"),
        ({"parts": [{"path": "x"}, {"kind": "squad"}]}, "Part 1 of the corpus needs a 'kind'"),
        ({"parts": ["squad", "quality"]}, "Part 1 of the corpus needs a 'kind'"),
        ({"parts": [{"kind": "reference"}, {"kind": "reference"}]}, "named 'reference'"),
        ({"parts": [{"kind": "reference"}, {"kind": "mixed", "parts": []}]}, "'mixed' itself"),
        ({"parts": [{"kind": "reference"}, {"kind": "novels"}]}, "Part 'novels' of the corpus"),
        ({"parts": [{"kind": "reference", "name": " "}, {"kind": "squad"}]}, "text as its 'name'"),
        ({"parts": [], "path": "x"}, "no option 'path'"),
    ],
)
def test_wrong_parts_are_one_sentence(options: dict[str, Any], said: str) -> None:
    with pytest.raises(CorpusError, match=said):
        open_corpus("mixed", options)


def test_a_broken_part_is_named(parts: list[dict[str, Any]]) -> None:
    with Path(parts[1]["path"]).open("a") as file:
        file.write('{"document": 7}\n')
    corpus = open_corpus("mixed", {"parts": parts})
    with pytest.raises(CorpusError, match=r"Part 'books' of the corpus: .*line 5"):
        list(corpus.entries())


def study(folder: Path, parts: list[dict[str, Any]]) -> Path:
    return write_json(
        folder / "both.yaml",  # JSON is YAML
        {
            "name": "both",
            "corpus": {"kind": "mixed", "parts": parts},
            "tokenizer": "tiktoken:o200k_base",
            "bins": {"kind": "quantile", "count": 2},
            "sampling": {"samples_per_bin": 5},
            "models": ["reference-short"],
        },
    )


def test_paths_of_parts_are_those_beside_the_study_and_another_seed_reseeds_them(
    tmp_path: Path,
) -> None:
    path = study(
        tmp_path,
        [{"kind": "squad", "path": "dev.json"}, {"kind": "python-source", "path": "code"}],
    )
    loaded = load_study(path)
    assert [part["path"] for part in loaded.corpus_options["parts"]] == [
        str(tmp_path / "dev.json"),
        str(tmp_path / "code"),
    ]
    again = loaded.with_seed(3).corpus_options["parts"]
    assert "seed" not in again[0]
    assert again[1]["seed"] == 3


def test_the_command_line_prepares_a_mix_and_shows_it_by_bin(
    parts: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONTEXTCLIFF_HOME", str(tmp_path / "home"))
    path = study(tmp_path, parts)
    done = CliRunner().invoke(app, ["prepare", str(path)])
    assert done.exit_code == 0, done.output
    assert "SOURCES" in done.output
    lines = [line for line in done.output.splitlines() if line.startswith("b0")]
    assert "notes 100%" in lines[0]
    assert "books" in lines[1]
