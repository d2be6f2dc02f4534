"""What lies upon the pages of a PDF: values of form fields, text written onto a page, comments."""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

FIELDS = "form fields with a value, which follow their pages"
WRITTEN = "texts written onto a page, which follow it"
COMMENTS = "comments, left out"

_UNSEEN = 1 << 0 | 1 << 1 | 1 << 5
"""Flags of annotations that are not shown: invisible, hidden, no view (ISO 32000-1, 12.5.3)."""
_PASSWORD = 1 << 13
"""Flag of a text field whose value is shown as asterisks (12.7.4.3)."""


def annotation_texts(page: Any, form: Any, counts: Counter[str]) -> list[str]:
    """The texts that follow the page's own, in the order of its annotations.

    form: the document's form environment, None where it has no form.
    counts: gets how many were read, and how many comments were not.
    """
    texts: list[str] = []
    for annotation in _annotations(page):
        what, text = _read(annotation, form)
        if text := text.strip():
            counts[what] += 1
            if what != COMMENTS:
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
    """What an annotation is, and its text."""
    import pypdfium2.raw as pdfium

    kind = pdfium.FPDFAnnot_GetSubtype(annotation)
    if kind == pdfium.FPDF_ANNOT_WIDGET:
        return FIELDS, _field_value(annotation, form)
    if kind in (pdfium.FPDF_ANNOT_LINK, pdfium.FPDF_ANNOT_POPUP):
        return COMMENTS, ""
    contents = _text(lambda *to: pdfium.FPDFAnnot_GetStringValue(annotation, b"Contents", *to))
    return WRITTEN if kind == pdfium.FPDF_ANNOT_FREETEXT else COMMENTS, contents


def _field_value(annotation: Any, form: Any) -> str:
    """The value of a field that shows one as text; "" of buttons, signatures and passwords."""
    import pypdfium2.raw as pdfium

    if form is None:
        return ""
    kind = pdfium.FPDFAnnot_GetFormFieldType(form.raw, annotation)
    of_text = (
        pdfium.FPDF_FORMFIELD_TEXTFIELD,
        pdfium.FPDF_FORMFIELD_COMBOBOX,
        pdfium.FPDF_FORMFIELD_LISTBOX,
    )
    if kind not in of_text or pdfium.FPDFAnnot_GetFormFieldFlags(form.raw, annotation) & _PASSWORD:
        return ""
    return _text(lambda *to: pdfium.FPDFAnnot_GetFormFieldValue(form.raw, annotation, *to))


def _text(fill: Callable[..., int]) -> str:
    """What ``fill(buffer, size)`` puts into a buffer, UTF-16 with a NUL behind it."""
    import pypdfium2.raw as pdfium

    size = fill(None, 0)
    if size <= 2:
        return ""
    buffer = ctypes.create_string_buffer(size)
    fill(ctypes.cast(buffer, ctypes.POINTER(pdfium.FPDF_WCHAR)), size)
    return buffer.raw[:size].decode("utf-16-le", "replace").rstrip("\0")
