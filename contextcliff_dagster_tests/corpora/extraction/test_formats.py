"""Documents give their text as a reader sees it, in its order, whole."""

from __future__ import annotations

import pytest

from contextcliff_dagster.corpora.extraction.file_type import Limits, RefusedError, tidied
from contextcliff_dagster.corpora.extraction.formats import docx, epub, html, pdf
from contextcliff_dagster_tests.support.files import document_files as made

LIMITS = Limits()


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        (
            "a<svg><title>t</title><desc>d</desc><text x=1>one <tspan>two</tspan>"
            "<tspan x=0 dy=5>three</tspan></text><text>four</text></svg>b",
            "a\none two three\nfour\nb",
        ),
        ("word<svg><path d=''/>x</svg>play", "wordplay"),
        (
            "a<svg><defs><text>d</text></defs><symbol><g><text>s</text></g></symbol><text>t</text>"
            "<clipPath><text>c</text></clipPath></svg>b",
            "a\nt\nb",
        ),
        ("<svg><text display=none>no</text><g style='x:y; Display: none'><text>no", ""),
        ("word<svg style=display:none><text>no<p>no</svg>play", "wordplay"),
        ("<svg><defs><text>no</svg>yes<defs>too</defs>", "yestoo"),
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


@pytest.mark.parametrize(
    ("declared", "text"),
    [
        ('<!ENTITY x "ent"><!ENTITY svg "http://www.w3.org/2000/svg">', "ent"),
        ('<!ENTITY x "ent"><!ENTITY y "&x;&x;">', "&x;"),  # may unfold without end
        (f'<!ENTITY x "{"long " * 21}">', "&x;"),
        ('<!ENTITY x SYSTEM "file:///etc/passwd">', "&x;"),
    ],
)
def test_short_entities_of_a_drawing_are_read_and_declarations_are_no_text(
    declared: str, text: str
) -> None:
    space = "&svg;" if "svg" in declared else "http://www.w3.org/2000/svg"
    drawing = f"<!DOCTYPE svg [{declared}]><svg xmlns='{space}'><text>&x;</text></svg>"
    book = made.epub([drawing], kinds={0: "image/svg+xml"})
    assert epub.read(book, LIMITS, []) == text


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
