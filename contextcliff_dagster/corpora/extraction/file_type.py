"""File types by content, limits on reading, and the text of one file, read according to its type.

A file's bytes determine its type; its name only distinguishes kinds of text.
"""

from __future__ import annotations

import codecs
import errno
import os
import re
import stat
import zipfile
from contextlib import suppress
from dataclasses import dataclass, fields
from importlib import import_module
from importlib.metadata import version
from io import BytesIO
from pathlib import Path

from contextcliff_dagster.user_files import NO_FILES

_BOMS = (  # UTF-32 before UTF-16: its mark begins with UTF-16's
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_SAMPLE = 1 << 16
_DETECTED_FROM = 1 << 20
"""Bytes used to guess an encoding, because guessing processes only about 8 MB per second."""
# What programs write into texts: tab, line ends, vertical tab, form feed, backspace, bell, escape
# and the end mark of DOS. The others are controls.
_CONTROLS = bytes(set(range(32)) - {7, 8, 9, 10, 11, 12, 13, 26, 27}) + b"\x7f"
_CONTROLS_MOST = 0.01
_BAD_MOST = 0.1
# Declared encoding -> the encoding in fact used: browsers, too, read the first as the second.
_MEANT = {"iso-8859-1": "cp1252", "ascii": "cp1252", "us-ascii": "cp1252", "latin-1": "cp1252"}
_MEANT |= {"gb2312": "gb18030", "gbk": "gb18030", "shift_jis": "cp932", "euc-kr": "cp949"}
_MEANT |= {"iso-8859-9": "cp1254", "iso-8859-8-i": "iso-8859-8", "tis-620": "cp874"}
_MULTIBYTE = re.compile("[^\x00-\x7f\ufffd]")
SURROGATE = re.compile("[\ud800-\udfff]")


def is_utf16(data: bytes) -> str | None:
    """Return ``utf-16-le`` or ``utf-16-be`` for UTF-16 without a byte order mark, else None.

    UTF-16 is recognised by a NUL in every other byte, as in spaces and line ends.
    """
    sample = data[:_SAMPLE]
    if len(sample) < 4:
        return None
    even_bytes, odd = sample[0::2], sample[1::2]
    for name, high, low in (("utf-16-le", odd, even_bytes), ("utf-16-be", even_bytes, odd)):
        if high.count(0) > 0.3 * len(high) and low.count(0) <= 0.01 * len(low):
            text = sample[: len(sample) // 2 * 2].decode(name, "replace")
            if not _controls(text.encode("utf-8", "replace")):
                return name
    return None


def looks_binary(data: bytes) -> bool:
    """Return whether these bytes are not text in any known encoding."""
    if any(data.startswith(mark) for mark, _ in _BOMS) or is_utf16(data):
        return False
    # The start and the middle: some formats begin with a text.
    middle = len(data) // 2
    return _controls(data[:_SAMPLE]) or _controls(data[middle : middle + _SAMPLE])


def _controls(sample: bytes) -> bool:
    n = len(sample) - len(sample.translate(None, _CONTROLS))
    return n > _CONTROLS_MOST * len(sample)


def decoded(data: bytes, notes: list[str], declared: str | None = None) -> str:
    """Decode `data`; add a note unless it was plain UTF-8.

    declared: the encoding that the file itself names; used if the bytes fit it and are not UTF-8.
    """
    for mark, name in _BOMS:
        if data.startswith(mark):
            notes.append("byte order mark removed")
            return _read_as(name, data[len(mark) :], notes)
    if utf16 := is_utf16(data):
        return _read_as(utf16, data, notes)
    with suppress(UnicodeDecodeError):
        return data.decode()
    text = data.decode("utf-8", "replace")
    bad = text.count("\ufffd")
    if bad <= _BAD_MOST * len(_MULTIBYTE.findall(text)):
        notes.append(f"sequences that are no UTF-8 replaced by U+FFFD: {bad:,}")
        return text
    if declared and (codec := _known(declared)):
        with suppress(ValueError):
            text = data.decode(codec)
            notes.append(f"decoded as {codec}, which it declares")
            return text
    return _read_as(_guessed(data), data, notes)


def _read_as(name: str, data: bytes, notes: list[str]) -> str:
    if name != "utf-8":
        notes.append(f"decoded as {name}")
    text = data.decode(name, "replace")
    if bad := text.count("\ufffd"):
        notes.append(f"sequences that are no {name.upper()} replaced by U+FFFD: {bad:,}")
    return text


def _guessed(data: bytes) -> str:
    from chardetng_py import EncodingDetector

    # From the first byte beyond ASCII: earlier bytes are the same in all encodings.
    start = re.search(rb"[\x80-\xff]", data)
    detector = EncodingDetector()
    first = max(start.start() - 1000, 0) if start else 0
    detector.feed(data[first : first + _DETECTED_FROM], last=True)
    return _known(detector.guess(tld=None, allow_utf8=False)) or "cp1252"


def _known(name: str) -> str | None:
    """Return Python's name for an encoding; None if it is unknown or does not decode to text."""
    name = name.strip().lower()
    try:
        codec = codecs.lookup(_MEANT.get(name, name))
    except (LookupError, ValueError):
        return None
    if not getattr(codec, "_is_text_encoding", True):
        return None
    return re.sub(r"^windows-(\d+)$", r"cp\1", codec.name)


def tidied(text: str, notes: list[str]) -> str:
    """Return `text` without NULs and lone surrogates, and with ``\\n`` line ends."""
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        notes.append("line ends made \\n")
    if "\0" in text:
        notes.append(f"NUL characters removed: {text.count(chr(0)):,}")
        text = text.replace("\0", "")
    if not text.isascii() and (n := len(SURROGATE.findall(text))):
        notes.append(f"halves of surrogate pairs replaced by U+FFFD: {n:,}")
        text = SURROGATE.sub("\ufffd", text)
    return text


_RULES = 3
"""Version of the rules; increase it whenever a change to this package can change a text."""

KINDS = ("text", "markdown", "code", "html", "pdf", "docx", "epub")
"""The kinds of files that can be read."""

UNKNOWN_GLYPHS = "glyphs of no known character, read as U+FFFD"
"""Beginning of the note for a text with glyphs that map to no character."""


@dataclass(frozen=True)
class Limits:
    """Limits on reading one file; a file that exceeds one is `Unusable`, and the next is read.

    seconds: processor time for reading one file, so that a busy machine changes no result; enforced
        to the second.
    clock_seconds: time by the clock for one file, where a disk does not answer.
    memory_mb: memory that reading one file may take, beyond that of an idle worker.
    file_mb: the largest file that is opened.
    unpacked_mb: total unpacked size of the needed parts of an archive (DOCX, EPUB).
    text_mb: the longest text of one file, in MB of UTF-8.
    workers: parallel processes; None is one per core, 4 at most.

    A MB is 1,000,000 bytes. Raises ValueError for a limit that is not above 0.
    """

    seconds: float = 20.0
    clock_seconds: float = 120.0
    memory_mb: float = 1024.0
    file_mb: float = 200.0
    unpacked_mb: float = 200.0
    text_mb: float = 100.0
    workers: int | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None and not value > 0:
                raise ValueError(f"The limit {field.name} is {value!r}; it must be above 0.")


@dataclass(frozen=True)
class Extracted:
    """The complete text of a file, which may be empty.

    text: valid Unicode without NUL and without lone surrogates; line ends are ``\\n``.
    kind: one of `KINDS`, by the file's content first and by its name only among texts.
    notes: what was done to the text or noticed about the file, in order, each a short clause such
        as ``decoded as cp1252``, ``byte order mark removed`` or ``is named .txt, holds html``.
    """

    path: Path
    text: str
    kind: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Unusable:
    """A file whose text could not be extracted.

    reason: a clause whose subject is the file: ``is encrypted``, ``took longer than 20 s``.
    """

    path: Path
    reason: str


SCANNED = "holds no text; it may be a scan"
"""Reason of `Unusable` for a PDF file with pages but no text."""


class RefusedError(Exception):
    """Raised if a file's text cannot be extracted, with a clause about the file, see `Unusable`."""


def extractor_version() -> dict[str, str]:
    """Return name -> version for everything that affects a file's text; used in fingerprints."""
    libraries = ("pypdfium2", "lxml", "chardetng-py")
    return {"extraction": str(_RULES), **{name: version(name) for name in libraries}}


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
    """Return the kind as which to read a file, one of `KINDS`.

    A note is added if the file's name suggests another kind.

    Raises:
        RefusedError: files of its kind are not read.
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
        return "pdf"  # PDF readers skip junk before the header
    if start.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return _packed(data)
    if start.startswith(_OLE):
        if _ENCRYPTED_PACKAGE in data:
            raise RefusedError("is encrypted")
        raise RefusedError("is an old binary Office file; save it as DOCX or PDF")
    if start.startswith(b"{\\rtf"):
        raise RefusedError("is RTF, which is not read; save it as DOCX or PDF")
    binary = looks_binary(data)
    for description, magics in _BINARY.items():
        # Two letters alone may well begin a text.
        telling = magics if binary else tuple(m for m in magics if m[0] > 0x7F or 0 in m)
        if start.startswith(telling):
            raise RefusedError(f"is {description}, no text")
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
    """Return docx or epub, depending on the archive's members."""
    try:
        with zipfile.ZipFile(BytesIO(data)) as archive:
            names = set(archive.namelist())
    except (zipfile.BadZipFile, ValueError, NotImplementedError, OverflowError) as error:
        raise RefusedError("is a broken ZIP archive (DOCX and EPUB are such)") from error
    if "META-INF/container.xml" in names:
        return "epub"
    if "[Content_Types].xml" in names:
        for folder, description in _OFFICE.items():
            if any(name.startswith(folder) for name in names):
                raise RefusedError(f"is {description}, which is not read")
        return "docx"
    if "mimetype" in names and "content.xml" in names:
        raise RefusedError("is an OpenDocument file, which is not read; save it as DOCX or PDF")
    raise RefusedError("is a ZIP archive, which is not unpacked")


_READERS = frozenset(("pdf", "docx", "epub", "html"))
"""Kinds that have a module of the same name in `formats/`, loaded on first use."""

_ADDRESS = re.compile(r" ?\b(?:at )?0x[0-9a-fA-F]+")
"""An object's address in a parser's message; removed because it differs between runs."""


def read_file(path: bytes, limits: Limits) -> tuple[str, str, list[str]]:
    """Read the text, kind and notes of a file, see `Extracted`.

    Raises:
        RefusedError: its text cannot be extracted.
        MemoryError: it takes more memory than allowed.
    """
    data = file_bytes(path, limits)
    notes: list[str] = []
    kind = "any kind of text"
    try:
        kind = kind_of(data, os.fsdecode(path), notes)
        if kind in _READERS:
            reader = import_module(f"contextcliff_dagster.corpora.extraction.formats.{kind}")
            text = reader.read(data, limits, notes)
        else:
            text = decoded(data, notes)
        return tidied(text, notes), kind, notes
    except (RefusedError, MemoryError):
        raise
    except RecursionError as error:
        raise RefusedError(f"cannot be read as {kind}: it is nested too deeply") from error
    except Exception as error:
        # Parsers raise errors of any class; each is a fault of this file.
        line = _ADDRESS.sub("", " ".join(str(error).split())).rstrip(".")
        name = type(error).__name__
        reason = f"{name}: {line[:150]}" if line else name
        raise RefusedError(f"cannot be read as {kind}: {reason}") from error


_PIECE = 1 << 20
_REASONS = {
    errno.ENOENT: "is no longer there",
    errno.EACCES: "may not be read: permission denied",
    errno.EPERM: "may not be read: not permitted",
    errno.ELOOP: "is a symbolic link that leads round in a circle",
    errno.ENXIO: "is a socket",  # what opening one reports
}


def file_bytes(path: bytes, limits: Limits) -> bytes:
    """Read all bytes of a path that may not be a regular file, may change, or may exceed memory.

    Raises:
        RefusedError: it is not a plain file, is missing, too large, or changed while it was read.
    """
    descriptor = -1
    try:
        # Without O_NONBLOCK, opening a named pipe waits until it is written to.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        return _read(descriptor, limits)
    except OSError as error:
        reason = _REASONS.get(error.errno or 0, f"cannot be read: {error.strerror or error}")
        if error.errno == errno.ENOENT and Path(os.fsdecode(path)).is_symlink():
            reason = "is a symbolic link to nothing"
        raise RefusedError(reason) from error
    except ValueError as error:  # its name contains NUL
        raise RefusedError("is no longer there") from error
    finally:
        if descriptor >= 0:
            os.close(descriptor)


def _read(descriptor: int, limits: Limits) -> bytes:
    before = os.fstat(descriptor)
    if not stat.S_ISREG(before.st_mode):
        raise RefusedError(f"is {NO_FILES.get(stat.S_IFMT(before.st_mode), 'no regular file')}")
    limit = int(limits.file_mb * 1e6)
    if before.st_size > limit:
        raise RefusedError(
            f"is {before.st_size / 1e6:,.0f} MB, more than the {limits.file_mb:,g} MB allowed"
        )
    data = bytearray()
    # Read to the end: files in /proc report a size of 0, and others grow meanwhile.
    while piece := os.read(descriptor, _PIECE):
        data += piece
        if len(data) > limit:
            raise RefusedError(f"grew beyond the {limits.file_mb:,g} MB allowed while it was read")
    stat_after = os.fstat(descriptor)
    if (before.st_size, before.st_mtime_ns) != (stat_after.st_size, stat_after.st_mtime_ns) or (
        before.st_size and len(data) != before.st_size
    ):
        raise RefusedError("was written to while it was read")
    return bytes(data)
