"""Plain tables that hold the documents themselves: their lengths are counted."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from contextcliff_dagster.score_files import LogOptions, ScoreFileError, ScoreRecords, read_scores
from contextcliff_dagster_tests.support.files.log_files import small_tokenizer

LONGER = "a longer text, of\ntwo lines"
ROWS = pd.DataFrame(
    {
        "context": ["one two three", LONGER, LONGER],
        "length_tokens": [900, 900, 900],
        "score": [1.0, 0.0, 0.5],
    }
)


def read(path: Path, **options: object) -> ScoreRecords:
    given = LogOptions(tokenizer="small", open_tokenizer=small_tokenizer, **options)  # type: ignore[arg-type]
    (records,) = read_scores(path, given)
    return records


def written(rows: pd.DataFrame, path: Path) -> Path:
    if path.suffix == ".parquet":
        rows.to_parquet(path)
    elif path.suffix == ".jsonl":
        rows.to_json(path, orient="records", lines=True)
    else:
        rows.to_csv(path, index=False)
    return path


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_lengths_are_those_of_the_texts_whatever_the_file_says(ending: str, tmp_path: Path) -> None:
    records = read(written(ROWS, tmp_path / f"scores.{ending}"))
    small = small_tokenizer("small")
    assert records.frame["length_tokens"].tolist() == [
        small.count(text) for text in ROWS["context"]
    ]
    assert records.tokenizer == "small"
    first, second, third = records.frame["document_id"]
    assert first != second == third


def test_documents_keep_their_names_and_copies_are_one(tmp_path: Path) -> None:
    rows = ROWS.drop(columns="length_tokens").assign(document_id=["a", "b", "c"])
    records = read(written(rows, tmp_path / "scores.csv"))
    assert records.frame["document_id"].tolist() == ["a", "b", "b"]


def test_what_document_id_leaves_open_the_texts_tell(tmp_path: Path) -> None:
    rows = pd.concat([ROWS, ROWS], ignore_index=True).assign(document_id=["a", *[None] * 5])
    names = read(written(rows, tmp_path / "scores.csv")).frame["document_id"].tolist()
    assert names[0] == names[3] == "a"
    assert names[1] == names[2] == names[4] == names[5]


def test_the_longest_text_of_a_row_is_its_document(tmp_path: Path) -> None:
    rows = ROWS.rename(columns={"context": "text"}).assign(document="a.pdf", context=None)
    records = read(written(rows, tmp_path / "scores.jsonl"))
    small = small_tokenizer("small")
    assert records.frame["length_tokens"].tolist() == [
        small.count(text) for text in ROWS["context"]
    ]


def test_texts_of_many_lines_and_any_length(tmp_path: Path) -> None:
    long = 'line, "quoted"\n' * 20_000
    records = read(
        written(ROWS.assign(context=[long + str(n) for n in range(3)]), tmp_path / "s.csv")
    )
    assert (records.frame["length_tokens"] > 20_000).all()


def test_half_a_surrogate_pair_is_counted_like_a_question_mark(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_text("".join(f'{{"context": "x{n} \\ud800", "score": 1}}\n' for n in range(3)))
    assert (read(path).frame["length_tokens"] > 0).all()


def test_without_a_tokenizer_the_file_s_own_lengths_stand(tmp_path: Path) -> None:
    (records,) = read_scores(written(ROWS, tmp_path / "scores.csv"), LogOptions())
    assert records.frame["length_tokens"].tolist() == [900, 900, 900]
    assert records.tokenizer is None


def test_what_cannot_be_counted_is_said(tmp_path: Path) -> None:
    bare = written(ROWS.drop(columns="context"), tmp_path / "bare.csv")
    with pytest.raises(ScoreFileError, match=r"no column of texts .* columns found: length_tokens"):
        read(bare)
    for number, nothing in enumerate([None, " \n"]):
        gap = written(ROWS.assign(context=["x", nothing, "y"]), tmp_path / f"gap{number}.jsonl")
        with pytest.raises(ScoreFileError, match=r"row 2: context is .*; give every row its text"):
            read(gap)
    plain = written(ROWS, tmp_path / "plain.csv")
    with pytest.raises(ScoreFileError, match="is not another tool's log"):
        read(plain, metric="exact")
