"""Writers of small real files with a known text, for the tests and benchmarks of extraction."""

from __future__ import annotations

import html
import io
import zipfile
import zlib
from collections.abc import Iterable, Mapping, Sequence

WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"


def words(n: int, first: int = 0) -> list[str]:
    """`n` words that occur nowhere else: they show the order of a text."""
    return [f"{_NAMES[i % len(_NAMES)]}{first + i}" for i in range(n)]


_NAMES = "harbour lantern meadow orchard quarry saddle timber valley willow copper".split()


def paragraphs(all_words: Sequence[str], each: int = 60) -> list[str]:
    return [" ".join(all_words[i : i + each]) for i in range(0, len(all_words), each)]


def zipped(members: Mapping[str, str | bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
    return out.getvalue()


def docx(body: str, **parts: str) -> bytes:
    """A Word document of this WordprocessingML; `parts` are further ones, by name in ``word/``."""
    named = {f"word/{name}.xml": _word_part(name, inner) for name, inner in parts.items()}
    return zipped(
        {
            "[Content_Types].xml": (
                '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">'
                '<Default Extension="rels" ContentType='
                '"application/vnd.openxmlformats-package.relationships+xml"/>'
                '<Override PartName="/word/document.xml" ContentType="application/vnd.'
                'openxmlformats-officedocument.wordprocessingml.document.main+xml"/></Types>'
            ),
            "_rels/.rels": (
                '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/'
                'relationships"><Relationship Id="r1" Type="http://schemas.openxmlformats.org/'
                'officeDocument/2006/relationships/officeDocument" Target="word/document.xml"/>'
                "</Relationships>"
            ),
            "word/document.xml": _word_part("document", f"<w:body>{body}</w:body>"),
            **named,
        }
    )


def run(text: str) -> str:
    return f'<w:r><w:t xml:space="preserve">{html.escape(text)}</w:t></w:r>'


def paragraph(*runs: str) -> str:
    return f"<w:p>{''.join(runs)}</w:p>"


def table(rows: Iterable[Iterable[str]]) -> str:
    def row(cells: Iterable[str]) -> str:
        return "".join(f"<w:tc>{paragraph(run(cell))}</w:tc>" for cell in cells)

    return f"<w:tbl>{''.join(f'<w:tr>{row(cells)}</w:tr>' for cells in rows)}</w:tbl>"


def _word_part(root: str, inner: str) -> str:
    spaces = (
        f'xmlns:w="{WORD}" '
        'xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships" '
        'xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006" '
        'xmlns:wps="http://schemas.microsoft.com/office/word/2010/wordprocessingShape"'
    )
    head = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>'
    return f"{head}<w:{root} {spaces}>{inner}</w:{root}>"


def epub(
    pages: Sequence[str | bytes],
    *,
    folder: str = "OEBPS",
    kinds: Mapping[int, str] | None = None,
    **more: str,
) -> bytes:
    """A book of these pages, XHTML or of the media types `kinds`; `more` are further members of
    META-INF, by name."""
    of = kinds or {}
    items = "".join(
        f'<item id="p{i}" href="page%20{i}.xhtml" '
        f'media-type="{of.get(i, "application/xhtml+xml")}"/>'
        for i in range(len(pages))
    )
    spine = "".join(f'<itemref idref="p{i}"/>' for i in range(len(pages)))
    return zipped(
        {
            "mimetype": "application/epub+zip",
            "META-INF/container.xml": (
                '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container" version="1.0">'
                f'<rootfiles><rootfile full-path="{folder}/book.opf" '
                'media-type="application/oebps-package+xml"/></rootfiles></container>'
            ),
            f"{folder}/book.opf": (
                '<package xmlns="http://www.idpf.org/2007/opf" version="3.0"><manifest>'
                # The manifest's order says nothing: the spine's does.
                f'<item id="css" href="style.css" media-type="text/css"/>{items}</manifest>'
                f"<spine>{spine}</spine></package>"
            ),
            # The archive's order neither.
            **{f"{folder}/page {i}.xhtml": pages[i] for i in reversed(range(len(pages)))},
            **{f"META-INF/{name}.xml": content for name, content in more.items()},
        }
    )


def xhtml(body: str) -> str:
    return (
        '<?xml version="1.0" encoding="UTF-8"?><!DOCTYPE html>'
        '<html xmlns="http://www.w3.org/1999/xhtml"><head><title/><script src="x.js"/></head>'
        f"<body>{body}</body></html>"
    )


def pdf(pages: Sequence[Sequence[str]], password: str | None = None) -> bytes:
    """A PDF with these lines on its pages; encrypted where a password is given."""
    from reportlab.lib.pagesizes import A4
    from reportlab.pdfgen import canvas

    out = io.BytesIO()
    sheet = canvas.Canvas(out, pagesize=A4, encrypt=password, invariant=1)
    for lines in pages:
        sheet.setFont("Times-Roman", 10)
        for number, line in enumerate(lines):
            sheet.drawString(50, 800 - 12 * number, line)
        sheet.showPage()
    sheet.save()
    return out.getvalue()


def raw_pdf(objects: Sequence[bytes]) -> bytes:
    """A PDF of these objects, the first being its catalogue."""
    out = bytearray(b"%PDF-1.7\n")
    places = []
    for number, content in enumerate(objects, 1):
        places.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, content)
    start = len(out)
    out += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    out += b"".join(b"%010d 00000 n \n" % place for place in places)
    out += b"trailer\n<</Size %d/Root 1 0 R>>\nstartxref\n%d\n" % (len(objects) + 1, start)
    return bytes(out + b"%%EOF\n")


HELVETICA = b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica/Encoding/WinAnsiEncoding>>"


def pdf_page(
    content: bytes,
    fonts: Sequence[bytes],
    *,
    of_page: bytes = b"",
    of_catalogue: bytes = b"",
    more: Sequence[bytes] = (),
) -> bytes:
    """A PDF of one page: object 5 is the first of the fonts F0, F1, ..., and `more` follow them."""
    named = b"".join(b"/F%d %d 0 R" % (n, 5 + n) for n in range(len(fonts)))
    page = b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 600 800]/Contents 4 0 R"
    return raw_pdf(
        [
            b"<</Type/Catalog/Pages 2 0 R%s>>" % of_catalogue,
            b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
            page + b"/Resources<</Font<<%s>>>>%s>>" % (named, of_page),
            pdf_stream(content),
            *fonts,
            *more,
        ]
    )


def pdf_stream(data: bytes) -> bytes:
    return b"<</Length %d>>stream\n%s\nendstream" % (len(data), data)


def composite_font(unicode_map: int | None = None) -> bytes:
    """A font whose codes are glyphs' numbers (Identity-H); its map to Unicode is that object."""
    mapped = b"" if unicode_map is None else b"/ToUnicode %d 0 R" % unicode_map
    return (
        b"<</Type/Font/Subtype/Type0/BaseFont/ABCDEF+Song/Encoding/Identity-H%s/DescendantFonts["
        b"<</Type/Font/Subtype/CIDFontType2/BaseFont/ABCDEF+Song/DW 500/CIDSystemInfo"
        b"<</Registry(Adobe)/Ordering(Identity)/Supplement 0>>>>]>>" % mapped
    )


def simple_font(differences: bytes) -> bytes:
    """A font whose letters have these names."""
    return (
        b"<</Type/Font/Subtype/Type1/BaseFont/ABCDEF+Foo/FirstChar 65/LastChar 67"
        b"/Widths[500 500 500]/Encoding<</Type/Encoding/Differences%s>>>>" % differences
    )


def to_unicode(characters: Mapping[int, str]) -> bytes:
    """A map from codes to characters, these in UTF-16 as hexadecimal digits."""
    pairs = "".join(f"<{code:04x}> <{text}>\n" for code, text in characters.items())
    return (
        "/CIDInit /ProcSet findresource begin begincmap /CMapName /X def\n"
        "1 begincodespacerange <0000> <ffff> endcodespacerange\n"
        f"{len(characters)} beginbfchar\n{pairs}endbfchar endcmap end"
    ).encode()


def endless_pdf() -> bytes:
    """A PDF of a million pages, all the same one: hours of work that take little memory."""
    stream = b"0 0 m 1 1 l S " * 3000
    return raw_pdf(
        [
            b"<</Type/Catalog/Pages 2 0 R>>",
            b"<</Type/Pages/Count 1000000/Kids[" + b"3 0 R " * 1000 + b"]>>",
            b"<</Type/Pages/Parent 2 0 R/Count 1000/Kids[" + b"4 0 R " * 1000 + b"]>>",
            b"<</Type/Page/Parent 3 0 R/MediaBox[0 0 600 800]/Contents 5 0 R>>",
            b"<</Length %d>>stream\n%s\nendstream" % (len(stream), stream),
        ]
    )


def pdf_of_stream(stream: bytes, *, packed: bool = False) -> bytes:
    """A PDF of one page with this content; its form X draws itself twice."""
    filtering = b"/Filter/FlateDecode" if packed else b""
    data = zlib.compress(stream, 1) if packed else stream
    return raw_pdf(
        [
            b"<</Type/Catalog/Pages 2 0 R>>",
            b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
            b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 600 800]/Contents 4 0 R"
            b"/Resources<</Font<</F 5 0 R>>/XObject<</X 6 0 R>>>>>>",
            b"<<%s/Length %d>>stream\n%s\nendstream" % (filtering, len(data), data),
            b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
            b"<</Type/XObject/Subtype/Form/BBox[0 0 600 800]/Resources<</XObject<</X 6 0 R>>>>"
            b"/Length 11>>stream\n/X Do /X Do\nendstream",
        ]
    )


SENTENCES = {
    "cp1252": "L’été dernier — déjà vu ? « Ça va », dit-elle près de la forêt où nous étions.",
    "cp1251": "Все счастливые семьи похожи друг на друга, каждая несчастливая по-своему.",
    "koi8_r": "Все счастливые семьи похожи друг на друга, каждая несчастливая по-своему.",
    "iso8859_2": "Zażółć gęślą jaźń. W Szczebrzeszynie chrząszcz brzmi w trzcinie i z tego słynie.",
    "cp1253": "Η γρήγορη καφέ αλεπού πηδάει πάνω από το νωθρό σκυλί. Καλημέρα σας!",
    "cp932": "吾輩は猫である。名前はまだ無い。どこで生れたかとんと見当がつかぬ。",
    "gb18030": "红楼梦第一回，甄士隐梦幻识通灵，贾雨村风尘怀闺秀。此开卷第一回也。",
    "big5": "學而時習之，不亦說乎？有朋自遠方來，不亦樂乎？",
    "cp949": "나는 오늘 아침에 일찍 일어나서 학교에 갔습니다. 날씨가 아주 좋았습니다.",
}
"""A sentence in each of the older encodings, by Python's name of it."""
