"""What a file holds, by its bytes; its name decides among texts only."""

from __future__ import annotations

import re
import zipfile
from io import BytesIO
from pathlib import Path

from contextcliff_dagster.corpora.extraction.decoding import is_utf16, looks_binary
from contextcliff_dagster.corpora.extraction.results import RefusedError

_BY_ENDING = {
    **dict.fromkeys((".pdf",), "pdf"),
    **dict.fromkeys((".docx", ".docm", ".dotx"), "docx"),
    **dict.fromkeys((".epub",), "epub"),
    **dict.fromkeys((".html", ".htm", ".xhtml", ".xht"), "html"),
    **dict.fromkeys((".md", ".markdown", ".mdown", ".mkd", ".mdx", ".qmd", ".rmd"), "markdown"),
    **dict.fromkeys((".txt", ".text", ".asc"), "text"),
}
_CODE = frozenset(
    ".ada .asm .astro .awk .bash .bat .bzl .c .cc .cfg .cjs .cl .clj .cljs .cmake .cob "
    ".coffee .cpp .cr .cs .css .cu .cuh .cxx .d .dart .diff .el .elm .erb .erl .ex .exs .f "
    ".f03 .f90 .f95 .fish .for .fs .fsx .go .gql .gradle .graphql .groovy .h .hcl .hh .hpp "
    ".hrl .hs .hxx .inc .ini .ipynb .j2 .java .jinja .jinja2 .jl .js .json .json5 .jsx .kt "
    ".kts .less .lisp .lua .m .mak .mjs .ml .mli .mm .nim .nix .pas .patch .php .phtml .pl "
    ".pm .proto .ps1 .pxd .py .pyi .pyx .r .rb .rkt .rs .s .sass .scala .scm .scss .sh .sol "
    ".sql .st .sv .svelte .swift .tcl .tf .toml .ts .tsx .v .vb .vert .vhd .vhdl .vim .vue "
    ".wat .xml .xsd .xsl .xslt .yaml .yml .zig .zsh".split()
)
_CODE_NAMES = frozenset("makefile dockerfile gnumakefile cmakelists.txt rakefile gemfile".split())

_BINARY = (
    (b"\x7fELF", "a program"),
    (b"MZ", "a program"),
    (b"\xcf\xfa\xed\xfe", "a program"),
    (b"\xca\xfe\xba\xbe", "a program"),
    (b"\x89PNG\r\n\x1a\n", "a picture (PNG)"),
    (b"\xff\xd8\xff", "a picture (JPEG)"),
    (b"GIF8", "a picture (GIF)"),
    (b"II*\0", "a picture (TIFF)"),
    (b"MM\0*", "a picture (TIFF)"),
    (b"\x1f\x8b", "packed with gzip"),
    (b"BZh", "packed with bzip2"),
    (b"\xfd7zXZ\0", "packed with xz"),
    (b"\x28\xb5\x2f\xfd", "packed with zstd"),
    (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive"),
    (b"Rar!\x1a\x07", "a RAR archive"),
    (b"SQLite format 3\0", "an SQLite database"),
    (b"PAR1", "a Parquet file"),
    (b"OggS", "a recording"),
    (b"ID3", "a recording"),
    (b"RIFF", "a recording or picture (RIFF)"),
    (b"wOFF", "a font"),
    (b"wOF2", "a font"),
)
_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_ENCRYPTED_PACKAGE = "EncryptedPackage".encode("utf-16-le")
_OFFICE = {"xl/": "a spreadsheet (XLSX)", "ppt/": "a slide show (PPTX)"}
_MARKUP = re.compile(
    rb"(?:\xef\xbb\xbf)?(?:\s|<\?xml[^>]{0,200}\?>|<!--.{0,2000}?-->)*<(?:!doctype\s+html|html)[\s>]",
    re.IGNORECASE | re.DOTALL,
)
_START = 4096


def kind_of(data: bytes, path: str, notes: list[str]) -> str:
    """The kind to read a file as, one of `results.KINDS`.

    A note is added where the name says otherwise.

    Raises:
        RefusedError: it is of a kind of which no text is read.
    """
    name = Path(path).name.lower()
    ending = Path(name).suffix
    named = _BY_ENDING.get(ending, "code" if ending in _CODE or name in _CODE_NAMES else "text")
    if not data:
        return named
    kind = _by_content(data, named)
    if kind != named and ending:
        notes.append(f"is named {ending[:20]}, holds {kind}")
    return kind


def _by_content(data: bytes, named: str) -> str:
    start = data[:_START]
    if start.lstrip().startswith(b"%PDF-") or (named == "pdf" and b"%PDF-" in start[:1024]):
        return "pdf"  # what stands before it is junk that readers of PDF overlook
    if start.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return _packed(data)
    if start.startswith(_OLE):
        if _ENCRYPTED_PACKAGE in data:
            raise RefusedError("is encrypted")
        raise RefusedError("is an old binary Office file; save it as DOCX or PDF")
    if start.startswith(b"{\\rtf"):
        raise RefusedError("is RTF, which is not read; save it as DOCX or PDF")
    binary = looks_binary(data)
    for magic, what in _BINARY:
        # Two letters alone may well begin a text.
        if start.startswith(magic) and (binary or magic[:1] > b"\x7f" or b"\0" in magic):
            raise RefusedError(f"is {what}, no text")
    if binary:
        raise RefusedError("is binary, no text")
    if named in ("pdf", "docx", "epub"):
        named = "text"
    if named == "text" and _MARKUP.match(_ascii(start)):
        return "html"
    return named


def _ascii(start: bytes) -> bytes:
    """The start of a file for looking for tags: of UTF-16, every other byte."""
    if is_utf16(start):
        return start.replace(b"\0", b"").removeprefix(b"\xff\xfe").removeprefix(b"\xfe\xff")
    return start


def _packed(data: bytes) -> str:
    """docx or epub, by what the archive has in it."""
    try:
        with zipfile.ZipFile(BytesIO(data)) as archive:
            names = set(archive.namelist())
    except (zipfile.BadZipFile, ValueError, NotImplementedError, OverflowError) as error:
        raise RefusedError("is a broken ZIP archive (DOCX and EPUB are such)") from error
    if "META-INF/container.xml" in names:
        return "epub"
    if "[Content_Types].xml" in names:
        for folder, what in _OFFICE.items():
            if any(name.startswith(folder) for name in names):
                raise RefusedError(f"is {what}, which is not read")
        return "docx"
    if "mimetype" in names and "content.xml" in names:
        raise RefusedError("is an OpenDocument file, which is not read; save it as DOCX or PDF")
    raise RefusedError("is a ZIP archive, which is not unpacked")
