"""Lines and chunks: the same text however long a line, and a bad byte has an address."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextcliff_dagster.contracts import CorpusError
from contextcliff_dagster.corpora.readers.rows import JsonStream, text_chunks, text_lines


def chunks(path: Path) -> Iterator[str]:
    with path.open("rb") as file:
        yield from text_chunks(path, file, CorpusError)


@given(
    text=st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"])),
    longest=st.integers(3, 9),
)
def test_chunks_are_the_lines_cut_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, longest: int
) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(text.encode())
    monkeypatch.setattr("contextcliff_dagster.corpora.readers.rows._CHUNK", longest)
    numbers, lines = zip(*text_lines(path), strict=True) if text else ((), ())
    assert list(numbers) == list(range(1, len(lines) + 1))
    assert "".join(lines) == "".join(chunks(path)) == text.removeprefix("\ufeff")


@pytest.mark.parametrize("longest", [4, 5, 1 << 18])
def test_a_byte_order_mark_is_no_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, longest: int
) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes("\ufeffaé漢字".encode())
    monkeypatch.setattr("contextcliff_dagster.corpora.readers.rows._CHUNK", longest)
    assert "".join(chunks(path)) == "aé漢字"


@pytest.mark.parametrize("longest", [3, 4, 5, 1 << 18])
@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"ok\nabc\xffd\n", r"line 2 is not UTF-8 \(byte 4 of the line is 0xff\)"),
        (b"ok\nab\xc3\n", r"line 2 is not UTF-8 \(byte 3 of the line is 0xc3\)"),
        (b"ok\nab\xe6\xbc", r"line 2 is not UTF-8 \(byte 3 of the line is 0xe6\)"),
        (b"ok\nabc\x00d", "line 2 holds NUL bytes"),
    ],
)
def test_a_bad_byte_has_the_same_address_in_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, raw: bytes, said: str, longest: int
) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(raw)
    monkeypatch.setattr("contextcliff_dagster.corpora.readers.rows._CHUNK", longest)
    with pytest.raises(CorpusError, match=said):
        list(text_lines(path))
    with pytest.raises(CorpusError, match=said):
        list(chunks(path))


def test_json_in_one_line_is_not_held_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    item = '{"text": "' + "x" * 100_000 + '"}'
    with path.open("w") as file:
        file.write("[" + ",".join([item] * 200) + "]")  # 20 MB
    tracemalloc.start()
    try:
        assert sum(1 for _ in JsonStream(path).values()) == 200
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
    finally:
        tracemalloc.stop()
