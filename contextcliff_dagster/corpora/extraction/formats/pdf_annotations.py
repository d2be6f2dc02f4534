"""What lies upon the pages of a PDF: values of form fields, text written onto a page, comments."""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from contextcliff_dagster.corpora.extraction.formats.html import text_of

FIELDS = "form fields with a value, which follow their pages"
WRITTEN = "texts written onto a page, which follow it"
COMMENTS = "comments, left out"
DRAWN = "stamps, buttons and the like that show text, left out"

_UNSEEN = 1 << 0 | 1 << 1 | 1 << 5
"""Flags of annotations that are not shown: invisible, hidden, no view (ISO 32000-1, 12.5.3)."""
_PASSWORD = 1 << 13
"""Flag of a text field whose value is shown as asterisks (12.7.4.3)."""


def annotation_texts(page: Any, form: Any, counts: Counter[str]) -> list[str]:
    """The texts that follow the page's own, in the order of its annotations.

    form: the document's form environment, None where it has no form.
    counts: gets how many were read, and how many that show text or comment on it were not.
    """
    texts: list[str] = []
    for annotation in _annotations(page):
        what, text = _read(annotation, form)
        if text := text.strip():
            counts[what] += 1
            if what in (FIELDS, WRITTEN):
                texts.append(text)
    return texts


def _annotations(page: Any) -> Iterator[Any]:
    import pypdfium2.raw as pdfium

    for number in range(pdfium.FPDFPage_GetAnnotCount(page.raw)):
        if annotation := pdfium.FPDFPage_GetAnnot(page.raw, number):
            try:
                if not pdfium.FPDFAnnot_GetFlags(annotation) & _UNSEEN:
                    yield annotation
            finally:
                pdfium.FPDFPage_CloseAnnot(annotation)


def _read(annotation: Any, form: Any) -> tuple[str, str]:
    """What an annotation is, and its text; of what only draws text, something that is not blank."""
    import pypdfium2.raw as pdfium

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
    drawn = not contents.strip() and _draws_text(annotation, form)
    return (DRAWN, DRAWN) if drawn else (COMMENTS, contents)


def _field_value(annotation: Any, form: Any) -> str:
    """The value of a field that shows one as text; "" of buttons, signatures and passwords."""
    import pypdfium2.raw as pdfium

    unknown = pdfium.FPDF_FORMFIELD_UNKNOWN
    kind = unknown if form is None else pdfium.FPDFAnnot_GetFormFieldType(form.raw, annotation)
    if kind in (-1, unknown):  # a field that its document's form does not list
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
    import pypdfium2.raw as pdfium

    flags = 0 if form is None else pdfium.FPDFAnnot_GetFormFieldFlags(form.raw, annotation)
    own = ctypes.c_float()
    pdfium.FPDFAnnot_GetNumberValue(annotation, b"Ff", own)
    return bool((flags | int(own.value)) & _PASSWORD)


def _draws_text(annotation: Any, form: Any) -> bool:
    """Whether what it looks like has text in it that is no password's."""
    import pypdfium2.raw as pdfium

    drawn = (
        pdfium.FPDFAnnot_GetObject(annotation, number)
        for number in range(pdfium.FPDFAnnot_GetObjectCount(annotation))
    )
    return any(map(_has_text, drawn)) and not _is_password(annotation, form)


def _has_text(drawn: Any) -> bool:
    import pypdfium2.raw as pdfium

    kind = pdfium.FPDFPageObj_GetType(drawn)
    if kind != pdfium.FPDF_PAGEOBJ_FORM:
        return bool(kind == pdfium.FPDF_PAGEOBJ_TEXT)
    inside = range(pdfium.FPDFFormObj_CountObjects(drawn))
    return any(_has_text(pdfium.FPDFFormObj_GetObject(drawn, number)) for number in inside)


def _string(annotation: Any, key: bytes) -> str:
    import pypdfium2.raw as pdfium

    return _text(lambda *to: pdfium.FPDFAnnot_GetStringValue(annotation, key, *to))


def _text(fill: Callable[..., int]) -> str:
    """What ``fill(buffer, size)`` puts into a buffer, UTF-16 with a NUL behind it."""
    import pypdfium2.raw as pdfium

    size = fill(None, 0)
    if size <= 2:
        return ""
    buffer = ctypes.create_string_buffer(size)
    fill(ctypes.cast(buffer, ctypes.POINTER(pdfium.FPDF_WCHAR)), size)
    return buffer.raw[:size].decode("utf-16-le", "replace").rstrip("\0")
