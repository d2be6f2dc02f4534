"""The text of PDF pages, by PDFium."""

from __future__ import annotations

import ctypes
import re
from collections import Counter
from functools import cache
from itertools import repeat
from typing import Any

from contextcliff_dagster.corpora.extraction.file_type import (
    UNKNOWN_GLYPHS,
    Limits,
    RefusedError,
)
from contextcliff_dagster.corpora.extraction.formats.pdf_annotations import annotation_texts

_PASSWORD, _SECURITY = 4, 5  # FPDF_ERR_PASSWORD, FPDF_ERR_SECURITY
_END_MARK_WITHIN = 8192
_MOST_UNMAPPED = 0.1
"""Share of glyphs without a character above which a text is no longer the file's."""
_UNMAPPED = "\ufffd"
_PRIVATE = re.compile("[\ue000-\uf8ff\U000f0000-\U0010ffff]")
"""Characters that mean what a font wants them to: known to nobody who does not have it."""
_GLYPHS = "glyphs"


def read(data: bytes, limits: Limits, notes: list[str]) -> str:
    """Pages in order, separated by an empty line, each with its lines as they are.

    A hyphen at a line's end is kept, with the line end behind it, as it is printed. The values of
    form fields and text that was written onto a page (FreeText annotations) follow their page. A
    glyph whose font does not say which character it is, or names one for private use, becomes
    U+FFFD, and is counted.

    Raises:
        RefusedError: it is encrypted, cut off, broken, has pages but no text, or more than a tenth
            of its glyphs are no known characters.
    """
    import pypdfium2

    if b"%%EOF" not in data.rstrip(b"\0\r\n\t ")[-_END_MARK_WITHIN:]:
        # PDFium would repair it and silently give fewer pages.
        raise RefusedError("is cut off: the end mark of a PDF is missing")
    try:
        document = pypdfium2.PdfDocument(data)
    except pypdfium2.PdfiumError as error:
        if getattr(error, "err_code", None) in (_PASSWORD, _SECURITY):
            raise RefusedError("is encrypted: it opens with a password only") from error
        raise RefusedError("is a broken PDF") from error
    pages, size = [], 0
    counts: Counter[str] = Counter()
    try:
        _open_forms(document, notes)
        for number in range(len(document)):
            pages.append(_page_text(document, number, counts))
            size += len(pages[-1])
            if size > limits.text_mb * 1e6:
                raise RefusedError(f"holds more than {limits.text_mb:,g} MB of text")
    finally:
        document.close()
    unmapped, glyphs = counts.pop(_UNMAPPED, 0), counts.pop(_GLYPHS, 0)
    if unmapped > _MOST_UNMAPPED * glyphs:
        raise RefusedError(
            f"has fonts that do not say which characters {unmapped:,} of its {glyphs:,} glyphs are "
            "(no usable Unicode map), so its text cannot be known; save it again with another "
            "program, or read it by OCR"
        )
    text = "\n\n".join(page for page in pages if page)
    if not text.strip():
        raise RefusedError("holds no text; it may be a scan")
    if empty := sum(not page.strip() for page in pages):
        notes.append(f"pages without text: {empty:,} of {len(pages):,}")
    if unmapped:
        notes.append(f"{UNKNOWN_GLYPHS}: {unmapped:,} of {glyphs:,}")
    notes.extend(f"{what}: {count:,}" for what, count in counts.items())
    return text


def _open_forms(document: Any, notes: list[str]) -> None:
    """Have fields filled with their values, where there is a form; before any page is opened."""
    import pypdfium2.raw as pdfium

    kind = document.get_formtype()
    if kind == pdfium.FORMTYPE_XFA_FULL:
        notes.append("holds an XFA form, which is not read")
    elif kind != pdfium.FORMTYPE_NONE:
        document.init_forms()


def _page_text(document: Any, number: int, counts: Counter[str]) -> str:
    """The page's text; ``counts`` gets its glyphs and what was read or left out."""
    import pypdfium2

    try:
        page = document[number]
        words = page.get_textpage()
    except pypdfium2.PdfiumError as error:
        raise RefusedError(f"is a broken PDF: its page {number + 1:,} cannot be read") from error
    try:
        # Not `get_text_bounded`, which leaves out what runs over the page's edge, letter by letter.
        text = _all_text(words)
        errors = _map_errors(words)
        if 1 in errors or len(text) < len(errors):  # glyphs of character 0 are in no text
            text = _marked(words, text, errors)
        text = _PRIVATE.sub(_UNMAPPED, text)
        counts[_UNMAPPED] += text.count(_UNMAPPED)
        counts[_GLYPHS] += len("".join(text.split()))
        added = annotation_texts(page, document.formenv, counts)
    finally:
        words.close()
        page.close()
    # PDFium says so where a word is parted at a line's end, and leaves hyphen and line end out.
    text = text.replace("\r\n", "\n").replace("\x02", "-\n").replace("\ufffe", "-\n")
    return "\n".join([*filter(None, (text,)), *added])


def _all_text(words: Any) -> str:
    try:
        text: str = words.get_text_range()
    except (RecursionError, ctypes.ArgumentError):  # a thousand glyphs in a row are in no text
        return ""
    return text


def _map_errors(words: Any) -> list[int]:
    """Of every character of a page, 1 where its font says nothing of it: PDFium then takes the
    glyph's number for the character's."""
    page = ctypes.cast(words.raw, ctypes.c_void_p).value
    return list(map(_map_error(), repeat(page), range(words.count_chars())))


@cache
def _map_error() -> Any:
    # Once a character: with the usual prototype, two thirds of all time went into the call.
    import pypdfium2.raw as pdfium

    place = ctypes.cast(pdfium.FPDFText_HasUnicodeMapError, ctypes.c_void_p).value or 0
    return ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int)(place)


def _marked(words: Any, text: str, errors: list[int]) -> str:
    """The page's ``text``, with U+FFFD for each glyph of no known character, where there is one."""
    import pypdfium2.raw as pdfium

    characters = [pdfium.FPDFText_GetUnicode(words.raw, place) for place in range(len(errors))]
    if 1 not in errors and 0 not in characters:
        return text
    marked = "".join(
        _UNMAPPED if error == 1 or not character else chr(character)
        for error, character in zip(errors, characters, strict=True)
    )
    return marked.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
