"""Texts of any encoding are read whole, and what was done to them is said."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from contextcliff_dagster.corpora.extraction.file_type import (
    Limits,
    RefusedError,
    decoded,
    kind_of,
    looks_binary,
    read_file,
    tidied,
)
from contextcliff_dagster_tests.support.files.document_files import SENTENCES


def read(path: Path, data: bytes) -> tuple[str, str, list[str]]:
    path.write_bytes(data)
    return read_file(bytes(path), Limits())


@pytest.mark.parametrize("encoding", SENTENCES)
def test_older_encodings_are_told_by_the_text(tmp_path: Path, encoding: str) -> None:
    text, kind, notes = read(tmp_path / "a.txt", (SENTENCES[encoding] * 3).encode(encoding))
    assert text == SENTENCES[encoding] * 3
    assert kind == "text"
    assert [note.startswith("decoded as ") for note in notes] == [True]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-8-sig"])
def test_wide_encodings_are_read_with_and_without_their_mark(tmp_path: Path, encoding: str) -> None:
    text, _, notes = read(tmp_path / "a.txt", "Grüße an alle\r\nund einen Tag\n".encode(encoding))
    assert text == "Grüße an alle\nund einen Tag\n"
    assert ("byte order mark removed" in notes) == (encoding not in ("utf-16-le", "utf-16-be"))
    assert "line ends made \\n" in notes


def test_plain_utf8_is_untouched_and_says_nothing(tmp_path: Path) -> None:
    said = "Grüße,\n\n\ttabs  and  spaces \f\n😀 end without a line end"
    assert read(tmp_path / "a.txt", said.encode()) == (said, "text", [])


def test_a_few_bad_bytes_in_utf8_are_replaced_and_counted(tmp_path: Path) -> None:
    data = ("Grüße an alle. " * 30).encode() + b"\xff and \xc3 more"
    text, _, notes = read(tmp_path / "a.txt", data)
    assert text == "Grüße an alle. " * 30 + "\ufffd and \ufffd more"
    assert notes == ["sequences that are no UTF-8 replaced by U+FFFD: 2"]


def test_nul_characters_are_removed_and_counted(tmp_path: Path) -> None:
    text, _, notes = read(tmp_path / "a.log", b"a line of a log that is long\n" * 20 + b"\0end\0")
    assert text.endswith("\nend")
    assert notes == ["NUL characters removed: 2"]


@given(st.text())
@example("\r\n\r\r\n")
@example("\ud83d \x00\ufeff")
def test_whatever_is_tidied_is_valid_and_stays_as_it_is(text: str) -> None:
    once = tidied(text, [])
    once.encode()
    assert "\r" not in once
    assert "\0" not in once
    again: list[str] = []
    assert tidied(once, again) == once
    assert again == []


@given(st.binary(max_size=300))
@example(b"\xff\xfe\x00")
@example(b"\xff\xfe\x00\x00\x01")
@example(b"\xef\xbb\xbf\xff")
def test_any_bytes_are_decoded_or_called_binary(data: bytes) -> None:
    if not looks_binary(data):
        tidied(decoded(data, []), []).encode()


@given(st.text(st.characters(exclude_categories=("Cs", "Cc"))))
def test_utf8_comes_back_as_it_was(text: str) -> None:
    notes: list[str] = []
    assert decoded(text.encode(), notes) == text.removeprefix("\ufeff")


@pytest.mark.parametrize(
    ("name", "data", "kind", "noted"),
    [
        ("a.md", b"# Title\n", "markdown", ""),
        ("a.py", b"<html> = 1\n", "code", ""),
        ("Makefile", b"all:\n", "code", ""),
        ("LICENSE", b"Apache\n", "text", ""),
        ("a.htm", b"no tags at all", "html", ""),
        ("a.txt", b"  <!-- hi -->\n<!DOCTYPE HTML><p>x", "html", "is named .txt, holds html"),
        ("a.txt", "<html>x".encode("utf-16"), "html", "is named .txt, holds html"),
        ("a.pdf", b"<html><p>not found", "html", "is named .pdf, holds html"),
        ("a.docx", b"Dear all,\n", "text", "is named .docx, holds text"),
        ("a.txt", b"%PDF-1.4\n\x00\x01", "pdf", "is named .txt, holds pdf"),
        ("a.txt", b"A PDF begins with %PDF-1.4\n", "text", ""),
        ("a.txt", b"MZ is how programs begin, BZh archives.\n", "text", ""),
        ("a.epub", b"", "epub", ""),
    ],
)
def test_the_kind_is_told_by_the_content(name: str, data: bytes, kind: str, noted: str) -> None:
    notes: list[str] = []
    assert kind_of(data, f"/a/{name}", notes) == kind
    assert "; ".join(notes) == noted


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x7fELF\x02\x01\x01" + bytes(64), "is a program, no text"),
        (b"\x89PNG\r\n\x1a\n" + bytes(64), "is a picture (PNG), no text"),
        (b"BZh91AY&SY" + bytes(range(256)), "is packed with bzip2, no text"),
        (bytes(1000), "is binary, no text"),
        (bytes(range(256)) * 9, "is binary, no text"),
        (b"text at first " * 9000 + bytes(range(256)) * 900, "is binary, no text"),
        (b"{\\rtf1\\ansi x}", "is RTF, which is not read; save it as DOCX or PDF"),
        (
            b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(512),
            "is an old binary Office file; save it as DOCX or PDF",
        ),
        (
            b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + "EncryptedPackage".encode("utf-16-le"),
            "is encrypted",
        ),
    ],
)
def test_what_is_no_text_is_named(data: bytes, reason: str) -> None:
    with pytest.raises(RefusedError, match=f"^{reason.replace('(', '.').replace(')', '.')}$"):
        kind_of(data, "/a/b.txt", [])
