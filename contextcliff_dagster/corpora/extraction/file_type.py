"""What a file holds, by its bytes; its name decides among texts only."""

from __future__ import annotations

import re
import zipfile
from io import BytesIO
from pathlib import Path

from contextcliff_dagster.corpora.extraction.decoding import is_utf16, looks_binary
from contextcliff_dagster.corpora.extraction.kinds_and_limits import RefusedError

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

_BINARY = {
    "a program": (b"\x7fELF", b"MZ", b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe"),
    "a picture (PNG)": (b"\x89PNG\r\n\x1a\n",),
    "a picture (JPEG)": (b"\xff\xd8\xff",),
    "a picture (GIF)": (b"GIF8",),
    "a picture (TIFF)": (b"II*\0", b"MM\0*"),
    "packed with gzip": (b"\x1f\x8b",),
    "packed with bzip2": (b"BZh",),
    "packed with xz": (b"\xfd7zXZ\0",),
    "packed with zstd": (b"\x28\xb5\x2f\xfd",),
    "a 7-Zip archive": (b"7z\xbc\xaf\x27\x1c",),
    "a RAR archive": (b"Rar!\x1a\x07",),
    "an SQLite database": (b"SQLite format 3\0",),
    "a Parquet file": (b"PAR1",),
    "a recording": (b"OggS", b"ID3"),
    "a recording or picture (RIFF)": (b"RIFF",),
    "a font": (b"wOFF", b"wOF2"),
}
_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_ENCRYPTED_PACKAGE = "EncryptedPackage".encode("utf-16-le")
_OFFICE = {"xl/": "a spreadsheet (XLSX)", "ppt/": "a slide show (PPTX)"}
_MARKUP = re.compile(
    rb"(?:\xef\xbb\xbf)?(?:\s|<\?xml[^>]{0,200}\?>|<!--.{0,2000}?-->)*<(?:!doctype\s+html|html)[\s>]",
    re.IGNORECASE | re.DOTALL,
)
_START = 4096


def kind_of(data: bytes, path: str, notes: list[str]) -> str:
    """The kind to read a file as, one of `kinds_and_limits.KINDS`.

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
        return "pdf"  # before it is junk, which PDF readers skip
    if start.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return _packed(data)
    if start.startswith(_OLE):
        if _ENCRYPTED_PACKAGE in data:
            raise RefusedError("is encrypted")
        raise RefusedError("is an old binary Office file; save it as DOCX or PDF")
    if start.startswith(b"{\\rtf"):
        raise RefusedError("is RTF, which is not read; save it as DOCX or PDF")
    binary = looks_binary(data)
    for what, magics in _BINARY.items():
        # Two letters alone may well begin a text.
        telling = magics if binary else tuple(m for m in magics if m[0] > 0x7F or 0 in m)
        if start.startswith(telling):
            raise RefusedError(f"is {what}, no text")
    if binary:
        raise RefusedError("is binary, no text")
    if named in ("pdf", "docx", "epub"):
        named = "text"
    if named == "text":
        if is_utf16(start):  # tags are looked for in every other byte
            start = start.replace(b"\0", b"").removeprefix(b"\xff\xfe").removeprefix(b"\xfe\xff")
        if _MARKUP.match(start):
            return "html"
    return named


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
