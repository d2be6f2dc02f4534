"""The text of PDF: pages, glyphs of no known character, form fields and annotations."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from contextcliff_dagster.corpora.extraction.file_type import Limits, RefusedError
from contextcliff_dagster.corpora.extraction.formats import pdf
from contextcliff_dagster_tests.support.files import document_files as made

LIMITS = Limits()


def test_pdf_pages_come_in_order_as_their_lines_stand() -> None:
    words = made.words(600)
    lines = made.paragraphs(words, 8)
    notes: list[str] = []
    text = pdf.read(made.pdf([lines[:40], [], lines[40:]]), LIMITS, notes)
    assert text.split() == words
    assert text == "\n".join(lines[:40]) + "\n\n" + "\n".join(lines[40:])
    assert notes == ["pages without text: 1 of 3"]


def test_a_word_parted_at_a_line_end_of_a_pdf_stays_as_it_is_printed() -> None:
    text = pdf.read(made.pdf([["an extra-", "ordinary “café” – naïve"]]), LIMITS, [])
    assert text == "an extra-\nordinary “café” – naïve"


def test_what_runs_over_the_edge_of_a_page_is_text_all_the_same() -> None:
    words = made.words(40)
    assert pdf.read(made.pdf([[" ".join(words)]]), LIMITS, []).split() == words


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (made.pdf([["secret"]], password="x"), "is encrypted: it opens with a password only"),
        (made.pdf([[]]), "holds no text; it may be a scan"),
        (made.pdf([["a line"]])[:-600], "is cut off: the end mark of a PDF is missing"),
        (b"%PDF-1.7\nnothing\n%%EOF\n", "is a broken PDF"),
        (
            made.raw_pdf(
                [b"<</Type/Catalog/Pages 2 0 R>>", b"<</Type/Pages/Kids[2 0 R]/Count 3>>"]
            ),
            "is a broken PDF: its page 1 cannot be read",
        ),
    ],
)
def test_a_pdf_without_its_whole_text_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(RefusedError) as refused:
        pdf.read(data, LIMITS, [])
    assert str(refused.value) == reason


LINE = "and a line of words that can be read"


def unmapped(codes: Sequence[int], readable: str = "") -> bytes:
    """A page of these glyphs in a font without a Unicode map, and a line that can be read."""
    glyphs = "".join(f"{code:04x}" for code in codes).encode()
    content = b"BT /F1 12 Tf 50 700 Td <%s> Tj /F0 12 Tf 0 -20 Td (%s) Tj ET"
    fonts = [made.HELVETICA, made.composite_font()]
    return made.pdf_page(content % (glyphs, readable.encode()), fonts)


@pytest.mark.parametrize("codes", [range(0x4E00, 0x5E28), [*range(33, 127)] * 44, [0] * 4136])
def test_a_pdf_whose_fonts_have_no_unicode_map_is_refused(codes: Sequence[int]) -> None:
    """Whatever the glyphs' numbers look like: Chinese, other letters, or nothing at all."""
    with pytest.raises(RefusedError) as refused:
        pdf.read(unmapped(codes), LIMITS, [])
    assert "which characters 4,136 of its 4,136 glyphs are (no usable Unicode map)" in str(
        refused.value
    )


def test_a_few_glyphs_without_a_character_are_marked_and_counted() -> None:
    notes: list[str] = []
    text = pdf.read(unmapped([65, 0, 0x4E00], LINE), LIMITS, notes)
    assert text.split("\n") == ["\ufffd\ufffd\ufffd", LINE]
    assert notes == ["glyphs of no known character, read as U+FFFD: 3 of 31"]
    assert pdf.read(unmapped([], LINE), LIMITS, []) == LINE
    # A simple font whose names of letters say nothing, and a composite one with a map.
    drawn = made.simple_font(b"[65/g1/g2/g3]")
    page = made.pdf_page(b"BT /F0 12 Tf 50 700 Td (ABC) Tj ET", [drawn])
    with pytest.raises(RefusedError, match="3 of its 3 glyphs"):
        pdf.read(page, LIMITS, [])
    mapped = made.composite_font(6)
    page = made.pdf_page(
        b"BT /F0 12 Tf 50 700 Td <00010002> Tj ET",
        [mapped],
        more=[made.pdf_stream(made.to_unicode({1: "4e2d", 2: "d83dde00"}))],
    )
    assert pdf.read(page, LIMITS, []) == "中😀"


def test_values_of_form_fields_and_texts_written_onto_a_pdf_follow_their_page() -> None:
    def field(rest: bytes) -> bytes:
        return b"<</Type/Annot/Subtype/Widget/F 4/Rect[50 600 300 620]" + rest + b">>"

    fields = [
        field(b"/FT/Tx/T(name)/V(Ada Berg)/DA(/F0 12 Tf 0 g)"),
        field(b"/FT/Ch/Ff 131072/T(town)/V(Bern)/Opt[(Basel)(Bern)]/DA(/F0 12 Tf 0 g)"),
        field(b"/FT/Tx/Ff 8192/T(code)/V(swordfish)/DA(/F0 12 Tf 0 g)"),
        field(b"/FT/Btn/T(agreed)/V/Yes/AS/Yes"),
        field(b"/Parent 14 0 R"),
    ]
    notes_on_page = [
        b"<</Type/Annot/Subtype/FreeText/F 4/Rect[0 0 9 9]/Contents(Paid)/DA(/F0 9 Tf 0 g)>>",
        b"<</Type/Annot/Subtype/Text/F 4/Rect[0 0 9 9]/Contents(a comment)>>",
        b"<</Type/Annot/Subtype/FreeText/F 2/Rect[0 0 9 9]/Contents(hidden)/DA(/F0 9 Tf 0 g)>>",
    ]
    parent = b"<</FT/Tx/T(place)/V(\xfe\xff\x4e\x2d)/Kids[10 0 R]/DA(/F0 12 Tf 0 g)>>"
    annotations = b"/Annots[%s]" % b" ".join(b"%d 0 R" % n for n in range(6, 14))
    form = b"/AcroForm<</Fields[6 0 R 7 0 R 8 0 R 9 0 R 14 0 R]/DR<</Font<</F0 5 0 R>>>>>>"
    content = b"BT /F0 12 Tf 50 700 Td (Name:) Tj ET"
    more = [*fields, *notes_on_page, parent]
    notes: list[str] = []
    data = made.pdf_page(
        content, [made.HELVETICA], of_page=annotations, of_catalogue=form, more=more
    )
    assert pdf.read(data, LIMITS, notes) == "Name:\nAda Berg\nBern\n中\nPaid"
    assert notes == [
        "form fields with a value, which follow their pages: 3",
        "texts written onto a page, which follow it: 1",
        "comments, left out: 1",
    ]
    # A form that is nothing but its values is no scan.
    bare = made.pdf_page(b"", [made.HELVETICA], of_page=annotations, of_catalogue=form, more=more)
    assert pdf.read(bare, LIMITS, []).startswith("Ada Berg")


def test_characters_for_private_use_are_unknown_glyphs() -> None:
    def page(codes: Sequence[int], readable: str) -> bytes:
        shown = "".join(f"{code:04x}" for code in codes).encode()
        content = b"BT /F1 12 Tf 50 700 Td <%s> Tj /F0 12 Tf 0 -20 Td (%s) Tj ET"
        mapping = made.to_unicode({1: "e054", 2: "f0b7", 3: "dbc0dc01", 4: "4e2d"})
        fonts = [made.HELVETICA, made.composite_font(7)]
        more = [made.pdf_stream(mapping)]
        return made.pdf_page(content % (shown, readable.encode()), fonts, more=more)

    notes: list[str] = []
    assert pdf.read(page([2, 4], LINE), LIMITS, notes).split("\n") == ["\ufffd中", LINE]
    assert notes == ["glyphs of no known character, read as U+FFFD: 1 of 30"]
    with pytest.raises(RefusedError, match="9 of its 13 glyphs"):
        pdf.read(page([1, 2, 3] * 3, "line"), LIMITS, [])


def test_what_a_pdf_shows_in_annotations_is_read_or_counted() -> None:
    def annotation(kind: bytes, rest: bytes) -> bytes:
        return b"<</Type/Annot/Subtype/%s/F 4/Rect[10 10 100 50]%s>>" % (kind, rest)

    def drawn(content: bytes, resources: bytes) -> bytes:
        kind = b"/Type/XObject/Subtype/Form/BBox[0 0 90 40]/Resources<<%s>>/Length %d"
        inside = kind % (resources, len(content))
        return b"<<%s>>stream\n%s\nendstream" % (inside, content)

    looks = b"/AP<</N %d 0 R>>"
    annotations = [
        annotation(b"FreeText", b"/RC(<?xml version='1.0'?><body><p>Rich <b>text</b></p></body>)"),
        annotation(b"Widget", b"/FT/Tx/T(a)/V(in no form)"),
        annotation(b"Widget", b"/FT/Tx/Ff 8192/T(b)/V(swordfish)" + looks % 15),
        annotation(b"Widget", b"/FT/Btn/T(c)/V/Yes/AS/Yes"),
        annotation(b"Stamp", looks % 15),
        annotation(b"Watermark", looks % 16),
        annotation(b"Widget", b"/FT/Btn/Ff 65536/T(d)" + looks % 15),
        annotation(b"Square", looks % 17),
        annotation(b"Stamp", b"/Contents(a comment)" + looks % 15),
    ]
    forms = [
        drawn(b"BT /F0 9 Tf (STAMPED) Tj ET", b"/Font<</F0 5 0 R>>"),
        drawn(b"/X Do", b"/XObject<</X 15 0 R>>"),
        drawn(b"0 0 9 9 re f", b""),
    ]
    data = made.pdf_page(
        b"BT /F0 12 Tf 50 700 Td (Page) Tj ET",
        [made.HELVETICA],
        of_page=b"/Annots[%s]" % b" ".join(b"%d 0 R" % n for n in range(6, 15)),
        more=[*annotations, *forms],
    )
    notes: list[str] = []
    assert pdf.read(data, LIMITS, notes) == "Page\nRich text\nin no form"
    assert notes == [
        "texts written onto a page, which follow it: 1",
        "form fields with a value, which follow their pages: 1",
        "stamps, buttons and the like that show text, left out: 3",
        "comments, left out: 1",
    ]
