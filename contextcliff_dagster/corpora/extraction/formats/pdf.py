"""The text of PDF pages, by PDFium."""

from __future__ import annotations

from contextcliff_dagster.corpora.extraction.kinds_and_limits import Limits, RefusedError

_PASSWORD, _SECURITY = 4, 5  # FPDF_ERR_PASSWORD, FPDF_ERR_SECURITY
_END_MARK_WITHIN = 8192


def read(data: bytes, limits: Limits, notes: list[str]) -> str:
    """Pages in order, separated by an empty line, each with its lines as they are.

    A hyphen at a line's end is kept, with the line end behind it, as it is printed.

    Raises:
        RefusedError: it is encrypted, cut off, broken, or has pages but no text.
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
    try:
        for number in range(len(document)):
            pages.append(_page_text(document, number))
            size += len(pages[-1])
            if size > limits.text_mb * 1e6:
                raise RefusedError(f"holds more than {limits.text_mb:,g} MB of text")
    finally:
        document.close()
    text = "\n\n".join(page for page in pages if page)
    if not text.strip():
        raise RefusedError("holds no text; it may be a scan")
    if empty := sum(not page.strip() for page in pages):
        notes.append(f"pages without text: {empty:,} of {len(pages):,}")
    return text


def _page_text(document: object, number: int) -> str:
    import pypdfium2

    try:
        page = document[number]  # type: ignore[index]
        words = page.get_textpage()
    except pypdfium2.PdfiumError as error:
        raise RefusedError(f"is a broken PDF: its page {number + 1:,} cannot be read") from error
    try:
        # Not `get_text_bounded`, which leaves out what runs over the page's edge, letter by letter.
        text: str = words.get_text_range()
    finally:
        words.close()
        page.close()
    # PDFium says so where a word is parted at a line's end, and leaves hyphen and line end out.
    return text.replace("\r\n", "\n").replace("\x02", "-\n").replace("\ufffe", "-\n")
