"""A CSV that we write runs no formula in a spreadsheet, and we read it back as it was."""

from __future__ import annotations

import csv
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextcliff_dagster.corpora.materialize import read_rows, write_rows

TEXTS = st.text(st.sampled_from("=+-@\t\r\n'\"1.e,; a＝＠é"), max_size=8)


def _cell(value: object) -> str:
    with TemporaryDirectory() as name:
        file = Path(name) / "files.csv"
        write_rows(file, [{"file": value}])
        with file.open(encoding="utf-8", newline="") as opened:
            return list(csv.reader(opened))[1][0]


@pytest.mark.parametrize(
    "text",
    [
        "=1+1",
        "+1+1",
        "-1+1",
        "@SUM(A1)",
        "\t=1",
        "\r=1",
        "\n=1",
        "=cmd|' /C calc'!A0",
        "'=1",
        "＝1",
    ],
)
def test_a_formula_is_text(text: str) -> None:
    assert _cell(text) == f"'{text}"


@pytest.mark.parametrize("value", ["-5", "+1.5", "-.5e-3", "-1e9", -5, 2.5, "a=b", "notes.txt", ""])
def test_numbers_and_words_stay_as_they_are(value: object) -> None:
    assert _cell(value) == str(value)


@given(st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=4))
def test_what_is_written_is_read_back(rows: list[tuple[str, str]]) -> None:
    with TemporaryDirectory() as name:
        file = Path(name) / "files.csv"
        written = [{"=name": one, "reason": other} for one, other in rows]
        write_rows(file, written)
        assert read_rows(file) == written
