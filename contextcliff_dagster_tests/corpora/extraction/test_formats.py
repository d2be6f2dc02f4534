"""Documents give their text as a reader sees it, in its order, whole."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from contextcliff_dagster.corpora.extraction.decoding import tidied
from contextcliff_dagster.corpora.extraction.formats import docx, epub, html, pdf
from contextcliff_dagster.corpora.extraction.kinds_and_limits import Limits, RefusedError
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
    assert "which characters 4,136 of its 4,136 glyphs are (no Unicode map)" in str(refused.value)


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


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        (
            "a<svg><title>t</title><desc>d</desc><text x=1>one <tspan>two</tspan>"
            "<tspan x=0 dy=5>three</tspan></text><text>four</text></svg>b",
            "a\none two three\nfour\nb",
        ),
        ("word<svg><path d=''/>x</svg>play", "wordplay"),
        ("<svg><foreignObject><p>in</p></foreignObject>out</svg><text>z</text>", "in\nz"),
        ("<svg><svg><text>n</text></svg>out<text>m</svg>after", "n\nm\nafter"),
        ("<p>one <b>wo</b>rd<p>two\n\t  three", "one word\ntwo three"),
        ("<title>t</title><style>p{}</style>a<script>if (a<b) '</p>'</script> b", "a b"),
        ("<table><tr><td>1<td>2<tr><td>3<td>4</table>end", "1\t2\n3\t4\nend"),
        ("<ul><li>a<li>b</ul>c<br>d<hr>e", "a\nb\nc\nd\ne"),
        ("<pre>\n  x\n    y</pre>z", "  x\n    y\nz"),
        ("a &lt; b &amp; c&nbsp;&eacute; &#128512; AT&T &bogus;", "a < b & c\xa0é 😀 AT&T &bogus;"),
        ("x<!-- a > b -- -->y<!-- <p>z -->", "xy"),
        ("<template>a</template><noscript>b</noscript>c", "c"),
        ("a\0b", "ab"),
        ("a < b and c", "a < b and c"),
        ("<my-tag>a</my-tag><my-tag>b</my-tag>", "ab"),
        ("<svg><title>no</title></svg>yes", "yes"),
        ("", ""),
        ("<!doctype html>", ""),
    ],
)
def test_html_is_read_as_a_browser_shows_it(markup: str, text: str) -> None:
    assert html.text_of(markup.encode(), []) == text


def test_xhtml_is_read_as_xml_where_it_is_well_formed() -> None:
    page = made.xhtml("<p>a&amp;b<br/>c</p>")
    assert html.read(page.encode(), LIMITS, []) == "a&b\nc"
    assert html.read(page.replace("&amp;", "&nbsp;").encode(), LIMITS, []) == "a\xa0b\nc"
    declared = page.replace(
        "<!DOCTYPE html>", '<!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.1//EN" "http://x/y.dtd">'
    )
    assert html.read(declared.replace("&amp;", "&nbsp;").encode(), LIMITS, []) == "a\xa0b\nc"


def test_html_in_an_encoding_that_it_declares() -> None:
    notes: list[str] = []
    data = '<html><meta charset="iso-8859-5"><p>Привет всем</p>'.encode("iso-8859-5")
    assert html.read(data, LIMITS, notes) == "Привет всем"
    assert notes == ["decoded as iso8859-5, which it declares"]


def test_long_html_is_whole_and_in_order() -> None:
    words = made.words(50_000)
    markup = "<p>" + "</p>\n<p>é <i>".join(made.paragraphs(words))
    assert [w for w in html.text_of(markup.encode(), []).split() if w != "é"] == words


def test_docx_gives_a_line_a_paragraph_and_tabs_between_cells() -> None:
    body = (
        made.paragraph(made.run("one"), "<w:r><w:tab/></w:r>", made.run("two & three"))
        + made.paragraph()
        + made.table([["a", "b"], ["c", "d"]])
        + made.paragraph(
            "<w:hyperlink>" + made.run("a link") + "</w:hyperlink>",
            "<w:del><w:r><w:delText>gone</w:delText></w:r></w:del>",
            "<w:ins>" + made.run(" added") + "</w:ins>",
            "<w:r><w:instrText>PAGE</w:instrText><w:br/></w:r>",
            "<w:sdt><w:sdtContent>" + made.run("content") + "</w:sdtContent></w:sdt>",
        )
    )
    notes: list[str] = []
    footnotes = f"<w:footnote>{made.paragraph(made.run('a note'))}</w:footnote>"
    text = docx.read(made.docx(body, footnotes=footnotes), LIMITS, notes)
    assert text == "one\ttwo & three\n\na\tb\nc\td\na link added\ncontent\n\na note\n"
    assert notes == ["footnotes follow the text"]


def test_a_text_box_is_read_once() -> None:
    inside = f"<w:txbxContent>{made.paragraph(made.run('boxed'))}</w:txbxContent>"
    box = (
        f"<w:r><mc:AlternateContent><mc:Choice Requires='wps'><wps:txbx>{inside}</wps:txbx>"
        f"</mc:Choice><mc:Fallback>{inside}</mc:Fallback></mc:AlternateContent></w:r>"
    )
    text = docx.read(made.docx(made.paragraph(box, made.run("after"))), LIMITS, [])
    assert text == "boxed\nafter\n"


def test_epub_pages_come_in_the_order_of_the_spine() -> None:
    words = made.words(3000)
    pages = [made.xhtml(f"<p>{page}</p>") for page in made.paragraphs(words, 250)]
    assert epub.read(made.epub(pages), LIMITS, []).split() == words
    assert epub.read(made.epub(pages[:2], folder="a/b"), LIMITS, []).count("\n\n") == 1


def test_an_epub_page_that_is_no_xml_is_read_as_html() -> None:
    book = made.epub([made.xhtml("<p>one</p>"), "<p>two<br>three &nbsp; four"])
    assert epub.read(book, LIMITS, []) == "one\n\ntwo\nthree \xa0 four"


def test_drawings_in_an_epub_are_read_on_pages_and_as_pages() -> None:
    drawing = "<svg xmlns='http://www.w3.org/2000/svg'><defs/><text>drawn {}</text></svg>"
    page = made.xhtml(f"<p>one</p>{drawing.format(1)}<p>two</p>")
    assert epub.read(made.epub([page]), LIMITS, []) == "one\ndrawn 1\ntwo"
    book = made.epub([page, drawing.format(2)], kinds={1: "image/svg+xml"})
    assert epub.read(book, LIMITS, []) == "one\ndrawn 1\ntwo\n\ndrawn 2"


ENCRYPTION = '<encryption><CipherReference URI="{}"/></encryption>'


def test_an_epub_with_encrypted_pages_is_refused_and_one_with_encrypted_fonts_is_read() -> None:
    page = made.xhtml("<p>one</p>")
    fonts = made.epub([page], encryption=ENCRYPTION.format("OEBPS/font.otf"))
    assert epub.read(fonts, LIMITS, []) == "one"
    with pytest.raises(RefusedError, match="is encrypted"):
        epub.read(
            made.epub([page], encryption=ENCRYPTION.format("OEBPS/page%200.xhtml")), LIMITS, []
        )


def test_what_all_formats_give_is_already_tidy() -> None:
    page = made.xhtml("<p>one</p>\r\n<p>two</p>")
    for text in (
        html.read(page.encode(), LIMITS, []),
        epub.read(made.epub([page]), LIMITS, []),
        docx.read(made.docx(made.paragraph(made.run("x\r\ny"))), LIMITS, []),
        pdf.read(made.pdf([["a", "b"]]), LIMITS, []),
    ):
        assert tidied(text, []) == text
