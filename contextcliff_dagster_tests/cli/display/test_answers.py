"""Texts on a terminal and in CSV: the cursor stays, nothing is lost, nothing is a formula."""

from __future__ import annotations

import csv
import io
import json
import unicodedata

from hypothesis import example, given
from hypothesis import strategies as st

from contextcliff_dagster.cli.commands.answers import as_json_line, csv_lines
from contextcliff_dagster.cli.display.output import shared_out, shortened, visible
from contextcliff_dagster.reporting.wording import columns_of

ANY = st.text(st.characters(exclude_categories=["Cs"]))
BEGINNINGS = st.sampled_from(
    ["", "=", "+", "-", "@", "\t", "\r", "'", "''", "-5", "+1,000.5%", "\uff1d"]
)


@given(ANY, st.integers(1, 30))
@example("\u0301" * 500, 5)
@example("\x1b[31m", 3)
def test_a_shortened_text_fits_and_is_printable(text: str, columns: int) -> None:
    line = shortened(text, columns)
    assert line.isprintable()
    assert columns_of(line) <= columns
    whole = visible(text)
    if line != whole:
        assert line.endswith("\u2026")
        assert whole.startswith(line[:-1])
        assert columns_of(whole) > columns or len(text) > 4 * columns


@given(ANY)
def test_marks_of_direction_and_codes_are_written_out(text: str) -> None:
    shown = visible(text)
    assert not any(unicodedata.category(c) in ("Cc", "Cf", "Co", "Cn", "Zl", "Zp") for c in shown)
    assert visible(shown) == shown


@given(st.lists(st.integers(1, 500), min_size=1, max_size=5), st.integers(10, 200))
def test_room_is_shared_by_need(needed: list[int], room: int) -> None:
    given_ = shared_out(needed, room)
    assert sum(given_) <= room
    assert all(1 <= width <= need for width, need in zip(given_, needed, strict=True))
    if sum(given_) < room - len(needed):
        assert given_ == needed
    short = [n for n, w in zip(needed, given_, strict=True) if w == n]
    assert all(need >= max(given_) - 1 or need in short for need in needed)


@given(BEGINNINGS, ANY)
def test_csv_is_no_formula_and_can_be_undone(begin: str, rest: str) -> None:
    text = begin + rest
    lines = "\r\n".join(csv_lines(iter([{"a": text, "b": None, "c": [text]}]), ["a", "b", "c"]))
    (row,) = csv.DictReader(io.StringIO(lines, newline=""))
    cell = row["a"]
    assert (cell[1:] if cell.startswith("'") else cell) == text
    if cell[:1] in ("+", "-"):
        assert set(cell[1:]) <= set("0123456789.,%")
    assert cell[:1] not in ("=", "@", "\t", "\r", "\uff1d")
    assert (row["b"], json.loads(row["c"])) == ("", [text])


@given(ANY)
def test_a_json_line_is_one_line_for_every_reader(text: str) -> None:
    line = as_json_line({"a": text})
    assert json.loads(line) == {"a": text}
    assert line.splitlines() == [line]
