"""PDF text, read by PDFium page by page, including the values of form fields and comments."""

from __future__ import annotations

import ctypes
import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from itertools import repeat
from typing import Any

import pypdfium2
import pypdfium2.raw as pdfium

from contextcliff_dagster.corpora.extraction.file_type import (
    SCANNED,
    UNKNOWN_GLYPHS,
    Limits,
    RefusedError,
)
from contextcliff_dagster.corpora.extraction.formats.html import text_of

FIELDS = "form fields with a value, which follow their pages"
WRITTEN = "texts written onto a page, which follow it"
COMMENTS = "comments, left out"
DRAWN = "stamps, buttons and the like that show text, left out"

_UNSEEN = 1 << 0 | 1 << 1 | 1 << 5
"""Flags of annotations that are not shown: invisible, hidden, no view (ISO 32000-1, 12.5.3)."""
_PASSWORD_FIELD = 1 << 13
"""Flag of a text field whose value is shown as asterisks (12.7.4.3)."""


def annotation_texts(page: Any, form: Any, counts: Counter[str]) -> list[str]:
    """Return the texts of the page's annotations, in order, to be placed after the page's own text.

    form: the document's form environment, None if it has no form.
    counts: receives the numbers of annotations read, and of texts and comments left out.
    """
    texts: list[str] = []
    for annotation in _annotations(page):
        kind, text = _read(annotation, form)
        if text := text.strip():
            counts[kind] += 1
            if kind in (FIELDS, WRITTEN):
                texts.append(text)
    return texts


def _annotations(page: Any) -> Iterator[Any]:
    for number in range(pdfium.FPDFPage_GetAnnotCount(page.raw)):
        if annotation := pdfium.FPDFPage_GetAnnot(page.raw, number):
            try:
                if not pdfium.FPDFAnnot_GetFlags(annotation) & _UNSEEN:
                    yield annotation
            finally:
                pdfium.FPDFPage_CloseAnnot(annotation)


def _read(annotation: Any, form: Any) -> tuple[str, str]:
    """Return an annotation's kind and text; if it only draws text, any non-blank text."""
    kind = pdfium.FPDFAnnot_GetSubtype(annotation)
    if kind == pdfium.FPDF_ANNOT_WIDGET:
        if value := _field_value(annotation, form).strip():
            return FIELDS, value
        return DRAWN, DRAWN if _draws_text(annotation, form) else ""
    if kind in (pdfium.FPDF_ANNOT_LINK, pdfium.FPDF_ANNOT_POPUP):
        return COMMENTS, ""
    contents = _string(annotation, b"Contents")
    if kind == pdfium.FPDF_ANNOT_FREETEXT:
        contents = contents.strip() or text_of(_string(annotation, b"RC").encode(), [], as_xml=True)
        if contents.strip():
            return WRITTEN, contents
    draws_text = not contents.strip() and _draws_text(annotation, form)
    return (DRAWN, DRAWN) if draws_text else (COMMENTS, contents)


def _field_value(annotation: Any, form: Any) -> str:
    """Return a form field's text value; "" for buttons, signatures and passwords."""
    unknown_type = pdfium.FPDF_FORMFIELD_UNKNOWN
    kind = unknown_type if form is None else pdfium.FPDFAnnot_GetFormFieldType(form.raw, annotation)
    if kind in (-1, unknown_type):  # a field that the document's form does not list
        of_text = pdfium.FPDFAnnot_GetValueType(annotation, b"V") == pdfium.FPDF_OBJECT_STRING
        return _string(annotation, b"V") if of_text and not _is_password(annotation, None) else ""
    kinds = (
        pdfium.FPDF_FORMFIELD_TEXTFIELD,
        pdfium.FPDF_FORMFIELD_COMBOBOX,
        pdfium.FPDF_FORMFIELD_LISTBOX,
    )
    if kind not in kinds or _is_password(annotation, form):
        return ""
    return _text(lambda *to: pdfium.FPDFAnnot_GetFormFieldValue(form.raw, annotation, *to))


def _is_password(annotation: Any, form: Any) -> bool:
    flags = 0 if form is None else pdfium.FPDFAnnot_GetFormFieldFlags(form.raw, annotation)
    field_flags = ctypes.c_float()
    pdfium.FPDFAnnot_GetNumberValue(annotation, b"Ff", field_flags)
    return bool((flags | int(field_flags.value)) & _PASSWORD_FIELD)


def _draws_text(annotation: Any, form: Any) -> bool:
    """Return whether the annotation's appearance contains text other than a password's."""
    drawn = (
        pdfium.FPDFAnnot_GetObject(annotation, number)
        for number in range(pdfium.FPDFAnnot_GetObjectCount(annotation))
    )
    return any(map(_has_text, drawn)) and not _is_password(annotation, form)


def _has_text(drawn: Any) -> bool:
    kind = pdfium.FPDFPageObj_GetType(drawn)
    if kind != pdfium.FPDF_PAGEOBJ_FORM:
        return bool(kind == pdfium.FPDF_PAGEOBJ_TEXT)
    indices = range(pdfium.FPDFFormObj_CountObjects(drawn))
    return any(_has_text(pdfium.FPDFFormObj_GetObject(drawn, number)) for number in indices)


def _string(annotation: Any, key: bytes) -> str:
    return _text(lambda *to: pdfium.FPDFAnnot_GetStringValue(annotation, key, *to))


def _text(fill: Callable[..., int]) -> str:
    """Return the text that ``fill(buffer, size)`` writes, as NUL-terminated UTF-16."""
    size = fill(None, 0)
    if size <= 2:
        return ""
    buffer = ctypes.create_string_buffer(size)
    fill(ctypes.cast(buffer, ctypes.POINTER(pdfium.FPDF_WCHAR)), size)
    return buffer.raw[:size].decode("utf-16-le", "replace").rstrip("\0")


_PASSWORD, _SECURITY = 4, 5  # FPDF_ERR_PASSWORD, FPDF_ERR_SECURITY
_END_MARK_WITHIN = 8192
_MOST_UNMAPPED = 0.1
"""Largest fraction of unmapped glyphs; above it, the text does not represent the file."""
_UNMAPPED = "\ufffd"
_PRIVATE = re.compile("[\ue000-\uf8ff\U000f0000-\U0010ffff]")
"""Private-use characters, whose meaning only the font defines."""
_GLYPHS = "glyphs"


def read(data: bytes, limits: Limits, notes: list[str]) -> str:
    """Read the pages in order, separated by an empty line, with their lines unchanged.

    A hyphen at a line's end is kept, with the line end behind it, as it is printed. The values of
    form fields and text that was written onto a page (FreeText annotations) follow their page. A
    glyph that its font maps to no character, or to a private-use one, becomes U+FFFD and is
    counted.

    Raises:
        RefusedError: it is encrypted, cut off, broken, has pages but no text, or more than a tenth
            of its glyphs are no known characters.
    """
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
        raise RefusedError(SCANNED)
    if empty := sum(not page.strip() for page in pages):
        notes.append(f"pages without text: {empty:,} of {len(pages):,}")
    if unmapped:
        notes.append(f"{UNKNOWN_GLYPHS}: {unmapped:,} of {glyphs:,}")
    notes.extend(f"{note}: {count:,}" for note, count in counts.items())
    return text


def _open_forms(document: Any, notes: list[str]) -> None:
    """Make PDFium fill a form's fields with their values; call this before opening any page."""
    kind = document.get_formtype()
    if kind == pdfium.FORMTYPE_XFA_FULL:
        notes.append("holds an XFA form, which is not read")
    elif kind != pdfium.FORMTYPE_NONE:
        document.init_forms()


def _page_text(document: Any, number: int, counts: Counter[str]) -> str:
    """Return the page's text; add its glyphs and the texts read or left out to ``counts``."""
    try:
        page = document[number]
        words = page.get_textpage()
    except pypdfium2.PdfiumError as error:
        raise RefusedError(f"is a broken PDF: its page {number + 1:,} cannot be read") from error
    try:
        # Not `get_text_bounded`, which drops single letters beyond the page's edge.
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
    # PDFium marks a word hyphenated at a line's end, and leaves hyphen and line end out.
    text = text.replace("\r\n", "\n").replace("\x02", "-\n").replace("\ufffe", "-\n")
    return "\n".join([*filter(None, (text,)), *added])


def _all_text(words: Any) -> str:
    try:
        text: str = words.get_text_range()
    except (RecursionError, ctypes.ArgumentError):  # a thousand glyphs in a row are in no text
        return ""
    return text


def _map_errors(words: Any) -> list[int]:
    """Return 1 for every character of a page that its font does not map, else 0; for those, PDFium
    uses the glyph's number as the character's."""
    page = ctypes.cast(words.raw, ctypes.c_void_p).value
    return list(map(_map_error(), repeat(page), range(words.count_chars())))


@cache
def _map_error() -> Any:
    # Called once per character: with the usual prototype, the call took two thirds of all time.
    place = ctypes.cast(pdfium.FPDFText_HasUnicodeMapError, ctypes.c_void_p).value or 0
    return ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int)(place)


def _marked(words: Any, text: str, errors: list[int]) -> str:
    """Return the page's ``text`` with U+FFFD in place of each glyph without a known character."""
    characters = [pdfium.FPDFText_GetUnicode(words.raw, place) for place in range(len(errors))]
    if 1 not in errors and 0 not in characters:
        return text
    marked = "".join(
        _UNMAPPED if error == 1 or not character else chr(character)
        for error, character in zip(errors, characters, strict=True)
    )
    return marked.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
