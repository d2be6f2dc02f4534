"""Files that are broken or made to harm their reader, and what is to be said of each."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

from contextcliff_dagster_tests.support.files import document_files as made

# For limits of 300 MB of memory, 30 MB unpacked, 50 MB a file: the beginning of what is said of a
# file, or of its text. Several where it depends on the library's version.
_MEMORY = ("makes its reader crash (SIGABRT), most likely as", "needs more than the 300 MB")
_TIME = ("takes more than the ", "took longer than ")


def _entities() -> bytes:
    levels = "".join(f'<!ENTITY e{i} "{f"&e{i - 1};" * 10}">' for i in range(1, 10))
    return f'<?xml version="1.0"?><!DOCTYPE x [<!ENTITY e0 "ha">{levels}]><x>&e9;</x>'.encode()


def _noise(n: int) -> bytes:
    return random.Random(0).randbytes(n)


_HELLO = b"BT /F 12 Tf 50 700 Td (Hello there) Tj ET"
_PAGE = made.xhtml("<p>page</p>")
_DEEP_WORD = "<w:p>" * 50_000 + made.run("deep") + "</w:p>" * 50_000

_HOSTILE: dict[str, tuple[Callable[[], bytes], tuple[str, ...]]] = {
    "bomb.docx": (
        lambda: made.docx(f"<w:p><w:r><w:t>{'A' * 60_000_000}</w:t></w:r></w:p>"),
        ("unpacks to more than the 30 MB allowed",),
    ),
    "bomb.epub": (
        lambda: made.epub([made.xhtml("<p>" + "A" * 20_000_000 + "</p>")] * 3),
        ("unpacks to more than the 30 MB allowed",),
    ),
    "entities.docx": (
        lambda: made.zipped({"[Content_Types].xml": "", "word/document.xml": _entities()}),
        ("declares XML entities in word/document.xml",),
    ),
    "entities.epub": (lambda: made.epub([_entities()]), ("",)),  # read as HTML, which has none
    "external.docx": (
        lambda: made.zipped(
            {
                "[Content_Types].xml": "",
                "word/document.xml": '<!DOCTYPE x [<!ENTITY p SYSTEM "file:///etc/passwd">]>'
                "<x>&p;</x>",
            }
        ),
        ("declares XML entities in word/document.xml",),
    ),
    "cut.docx": (
        lambda: made.docx(made.paragraph(made.run("x")))[:-100],
        ("is a broken ZIP archive",),
    ),
    "notxml.docx": (
        lambda: made.zipped({"[Content_Types].xml": "", "word/document.xml": "<w:p"}),
        ("is damaged: word/document.xml is not well-formed XML",),
    ),
    "nodocument.docx": (
        lambda: made.zipped({"[Content_Types].xml": ""}),
        ("is incomplete: word/document.xml is missing in it",),
    ),
    "deep.docx": (lambda: made.docx(_DEEP_WORD), ("deep",)),
    "sheet.docx": (
        lambda: made.zipped({"[Content_Types].xml": "", "xl/workbook.xml": ""}),
        ("is a spreadsheet (XLSX), which is not read",),
    ),
    "archive.docx": (
        lambda: made.zipped({"a.txt": "x"}),
        ("is a ZIP archive, which is not unpacked",),
    ),
    "climbing.epub": (
        lambda: made.epub([_PAGE], folder="../../etc"),
        ("page",),  # a name in the archive, nowhere else
    ),
    "nospine.epub": (lambda: made.epub([]), ("is incomplete: its spine names no page",)),
    "nocontainer.epub": (
        lambda: made.zipped({"META-INF/container.xml": "<container/>"}),
        ("is incomplete: META-INF/container.xml names no package",),
    ),
    "locked.epub": (
        lambda: made.epub(
            [_PAGE], encryption='<e><CipherReference URI="OEBPS/page%200.xhtml"/></e>'
        ),
        ("is encrypted",),
    ),
    "locked.pdf": (lambda: made.pdf([["x"]], password="p"), ("is encrypted",)),
    "scan.pdf": (lambda: made.pdf([[], []]), ("holds no text; it may be a scan",)),
    "cut.pdf": (lambda: made.pdf([["x"]])[:-300], ("is cut off",)),
    "noise.pdf": (lambda: b"%PDF-1.7\n" + _noise(50_000) + b"%%EOF", ("is a broken PDF",)),
    "bomb.pdf": (lambda: made.pdf_of_stream(b"q " * 100_000_000, packed=True), _MEMORY),
    "selfdrawn.pdf": (lambda: made.pdf_of_stream(_HELLO + b" /X Do"), (*_MEMORY, *_TIME, "Hello")),
    "endless.pdf": (made.endless_pdf, _TIME),
    "deeparray.pdf": (
        lambda: made.pdf_of_stream(b"[" * 3_000_000),
        ("holds no text", "is a broken PDF", *_MEMORY),
    ),
    "deepdict.pdf": (
        lambda: made.raw_pdf([b"<</Type/Catalog/Pages 2 0 R>>", b"<</A" * 500_000]),
        ("holds no text", "is a broken PDF", "makes its reader crash"),
    ),
    "circle.pdf": (
        lambda: made.raw_pdf(
            [b"<</Type/Catalog/Pages 2 0 R>>", b"<</Type/Pages/Kids[2 0 R]/Count 9>>"]
        ),
        ("is a broken PDF: its page 1 cannot be read",),
    ),
    "deep.html": (lambda: b"<!doctype html>" + b"<div>" * 200_000 + b"deep", ("deep",)),
    "formats.html": (lambda: b"<p><b><i><a>" * 50_000 + b"deep", ("deep",)),
    "attributes.html": (
        lambda: b"<p " + b" ".join(b"a%d=1" % i for i in range(50_000)) + b">deep",
        ("deep",),
    ),
    "unclosed.html": (lambda: b"seen<!--" + b"<p>" * 200_000, ("seen",)),
    "line.txt": (lambda: b"word " * 2_000_000, ("word",)),
    "binary.txt": (lambda: _noise(100_000), ("is binary, no text",)),
    "zeros.txt": (lambda: bytes(100_000), ("is binary, no text",)),
    "wide.txt": (lambda: "Grüße\r\nan alle".encode("utf-16"), ("Grüße\nan alle",)),
    "bad.txt": (lambda: "Grüße an alle. ".encode() * 20 + b"\xff", ("Grüße",)),
    "paper.txt": (lambda: made.pdf([["a paper"]]), ("a paper",)),
    "letter.pdf": (lambda: made.docx(made.paragraph(made.run("a letter"))), ("a letter",)),
    "plain.docx": (lambda: b"only a text", ("only a text",)),
    "picture.md": (lambda: b"\x89PNG\r\n\x1a\n" + _noise(500), ("is a picture (PNG), no text",)),
    "old.docx": (
        lambda: b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + _noise(2000),
        ("is an old binary Office file",),
    ),
}

EXPECTED = {name: expected for name, (_, expected) in _HOSTILE.items()} | {
    "huge.txt": ("is 10,000 MB, more than the 50 MB allowed",)
}


def write_hostile(folder: Path) -> list[Path]:
    """Write all of `EXPECTED` there; some 40 files, 20 MB."""
    for name, (content, _) in _HOSTILE.items():
        (folder / name).write_bytes(content())
    with (folder / "huge.txt").open("wb") as file:
        os.truncate(file.fileno(), 10**10)  # takes no room on the disk
    return [folder / name for name in EXPECTED]
