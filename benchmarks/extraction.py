"""Comparison of libraries that extract text from files: licence, size, start, speed, quality.

Every library reads the same files in its own process; this program writes them with words that
occur once each. *Kept* is the share of the words extracted whole and in order (longest ascending
run), *added* the extra words as a share of the words. *Installed* is the size of a library with its
dependencies, *start* its import time in a fresh process.

Run: ``python benchmarks/extraction.py [KIND ...]``, a kind being also ``encodings``. Libraries that
are not installed are listed as missing; an environment with all of them::

    pip install pypdfium2 pypdf pdfminer.six pdf-oxide lxml selectolax resiliparse beautifulsoup4 \\
        inscriptis python-docx docx2python mammoth kreuzberg 'markitdown[pdf,docx]' \\
        chardetng-py charset-normalizer chardet reportlab pytest hypothesis
"""

from __future__ import annotations

import io
import json
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from bisect import bisect_left
from collections.abc import Callable
from importlib import import_module, metadata
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from contextcliff_dagster.corpora.extraction.file_type import Limits
from contextcliff_dagster_tests.support.files import document_files as made

REPEATS = 3
BLOCKS = "p div td th tr li br h1 h2 h3 table ul section nav footer".split()


# One function a library: bytes of a file -> its text.
def ours(kind: str) -> Callable[[bytes], str]:
    reader = import_module(f"contextcliff_dagster.corpora.extraction.formats.{kind}")
    return lambda data: reader.read(data, Limits(), [])


def pypdf(data: bytes) -> str:
    import pypdf

    return "\n".join(page.extract_text() for page in pypdf.PdfReader(io.BytesIO(data)).pages)


def pdfminer(data: bytes) -> str:
    from pdfminer.high_level import extract_text

    return extract_text(io.BytesIO(data))


def pdf_oxide(data: bytes) -> str:
    import pdf_oxide

    document = pdf_oxide.PdfDocument.from_bytes(data)
    return "\n".join(document.extract_text(page) for page in range(document.page_count()))


def selectolax(data: bytes) -> str:
    from selectolax.lexbor import LexborHTMLParser

    tree = LexborHTMLParser(data)
    tree.strip_tags(["script", "style", "head"])
    parts = []
    for node in tree.root.traverse(include_text=True):
        if node.tag == "-text":
            parts.append(node.text_content or "")
        elif node.tag in BLOCKS:
            parts.append("\n")
    return "".join(parts)


def resiliparse(data: bytes) -> str:
    from resiliparse.extract.html2text import extract_plain_text

    return extract_plain_text(data.decode(), main_content=False)


def beautifulsoup4(data: bytes) -> str:
    from bs4 import BeautifulSoup

    tree = BeautifulSoup(data, "html.parser")
    for node in tree(["script", "style", "head"]):
        node.decompose()
    for node in tree(BLOCKS):
        node.insert_before("\n")
        node.insert_after("\n")
    return tree.get_text()


def inscriptis(data: bytes) -> str:
    from inscriptis import get_text

    return get_text(data.decode())


def python_docx(data: bytes) -> str:
    import docx

    document = docx.Document(io.BytesIO(data))
    parts = []
    for block in document.iter_inner_content():
        if hasattr(block, "rows"):
            parts += ["\t".join(cell.text for cell in row.cells) for row in block.rows]
        else:
            parts.append(block.text)
    return "\n".join(parts)


def docx2python(data: bytes) -> str:
    from docx2python import docx2python

    with docx2python(io.BytesIO(data)) as document:
        return document.text


def mammoth(data: bytes) -> str:
    import mammoth

    return mammoth.extract_raw_text(io.BytesIO(data)).value


def kreuzberg(kind: str) -> Callable[[bytes], str]:
    import kreuzberg

    word = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
    types = {"pdf": "application/pdf", "html": "text/html", "docx": word}
    name = types.get(kind, "application/epub+zip")
    return lambda data: kreuzberg.extract_bytes_sync(data, name).content


def markitdown(kind: str) -> Callable[[bytes], str]:
    from markitdown import MarkItDown, StreamInfo

    reader = MarkItDown()
    info = StreamInfo(extension=f".{kind}")
    return lambda data: reader.convert_stream(io.BytesIO(data), stream_info=info).text_content


class Peer(NamedTuple):
    """A library: its distribution, its module, and the function that reads with it."""

    distribution: str
    module: str
    read: Callable[[str], Callable[[bytes], str]]


def peer(distribution: str, module: str, read: Callable[[bytes], str]) -> Peer:
    return Peer(distribution, module, lambda kind: read)


ALL_IN_ONE = [
    Peer("kreuzberg", "kreuzberg", kreuzberg),
    Peer("markitdown", "markitdown", markitdown),
]
PEERS = {
    "pdf": [
        Peer("pypdfium2", "pypdfium2", ours),
        peer("pypdf", "pypdf", pypdf),
        peer("pdfminer.six", "pdfminer.high_level", pdfminer),
        peer("pdf-oxide", "pdf_oxide", pdf_oxide),
        *ALL_IN_ONE,
    ],
    "html": [
        Peer("lxml", "lxml.etree", ours),
        peer("selectolax", "selectolax.lexbor", selectolax),
        peer("resiliparse", "resiliparse.extract.html2text", resiliparse),
        peer("beautifulsoup4", "bs4", beautifulsoup4),
        peer("inscriptis", "inscriptis", inscriptis),
        *ALL_IN_ONE,
    ],
    "docx": [
        Peer("(expat)", "xml.parsers.expat", ours),
        peer("python-docx", "docx", python_docx),
        peer("docx2python", "docx2python", docx2python),
        peer("mammoth", "mammoth", mammoth),
        *ALL_IN_ONE,
    ],
    "epub": [Peer("(expat)", "xml.parsers.expat", ours), *ALL_IN_ONE],
}


def pdf_file(words: list[str]) -> bytes:
    """Return a PDF: half the pages in one column, half in two, and a table at the end."""
    from reportlab.lib.pagesizes import A4
    from reportlab.pdfgen import canvas

    out = io.BytesIO()
    sheet = canvas.Canvas(out, pagesize=A4, invariant=1)
    plain, columns, cells = words[:10_000], words[10_000:-300], words[-300:]
    lines = made.paragraphs(plain, 8)
    for at in range(0, len(lines), 55):
        for row, line in enumerate(lines[at : at + 55]):
            sheet.drawString(50, 790 - 13 * row, line)
        sheet.showPage()
    lines = made.paragraphs(columns, 4)
    for at in range(0, len(lines), 110):
        for row, line in enumerate(lines[at : at + 110]):
            sheet.setFont("Times-Roman", 9)
            sheet.drawString(50 if row < 55 else 310, 790 - 13 * (row % 55), line)
        sheet.showPage()
    for at, cell in enumerate(cells):
        sheet.drawString(50 + 90 * (at % 6), 790 - 15 * (at // 6), cell)
    sheet.save()
    return out.getvalue()


def html_file(words: list[str]) -> bytes:
    """Return HTML with words split by inline tags, lists, tables, scripts and styles."""
    parts = []
    for at in range(0, len(words), 40):
        w = words[at : at + 40]
        half = len(w[0]) // 2
        parts.append(
            f"<div class='a{at}'><style>p{{color:red}}</style><h2>{w[0][:half]}<b>{w[0][half:]}</b>"
            f"</h2><p>{' '.join(w[1:20])}<br>{w[20]}, <a href='/x?{at}'>{w[21]}</a>"
            f"&nbsp;{w[22]}</p>"
            f"<ul><li>{w[23]}<li>{w[24]}</ul><script>var unseen{at} = '<p>no</p>';</script>"
            f"<table><tr><td>{w[25]}</td><td>{w[26]}</td></tr></table>{' '.join(w[27:])}</div>"
        )
    return ("<!doctype html><meta charset=utf-8><body>" + "\n".join(parts)).encode()


def docx_file(words: list[str]) -> bytes:
    """Return a DOCX: paragraphs and, every 400 words, a table, link, content control, text box."""
    parts = []
    for at in range(0, len(words), 400):
        w = words[at : at + 400]
        box = made.paragraph(made.run(" ".join(w[30:40])))
        boxed = f"<w:txbxContent>{box}</w:txbxContent>"
        parts += [
            made.table([w[:5], w[5:10]]),
            made.paragraph(f"<w:hyperlink>{made.run(' '.join(w[10:20]))}</w:hyperlink>"),
            f"<w:sdt><w:sdtContent>{made.paragraph(made.run(' '.join(w[20:30])))}"
            "</w:sdtContent></w:sdt>",
            made.paragraph(
                "<w:r><mc:AlternateContent><mc:Choice Requires='wps'><wps:txbx>"
                f"{boxed}</wps:txbx></mc:Choice><mc:Fallback>{boxed}</mc:Fallback>"
                "</mc:AlternateContent></w:r>",
                "<w:del><w:r><w:delText>deleted</w:delText></w:r></w:del>",
            ),
            made.paragraph(*(made.run(word[:3]) + made.run(word[3:] + " ") for word in w[40:100])),
            *(made.paragraph(made.run(line)) for line in made.paragraphs(w[100:])),
        ]
    return made.docx("".join(parts))


def epub_file(words: list[str]) -> bytes:
    """Return an EPUB whose pages are ordered differently in archive and spine."""
    return made.epub(
        [
            made.xhtml("<h1>{}</h1><p>{}</p>".format(*page.split(" ", 1)))
            for page in made.paragraphs(words, 1000)
        ]
    )


def encodings() -> None:
    """Print how many short texts in older encodings each detector reads correctly."""

    def chardetng(data: bytes) -> str:
        import chardetng_py

        detector = chardetng_py.EncodingDetector()
        detector.feed(data, last=True)
        return detector.guess(tld=None, allow_utf8=False)

    def charset_normalizer(data: bytes) -> str:
        import charset_normalizer

        best = charset_normalizer.from_bytes(data).best()
        return best.encoding if best else "ascii"

    def chardet(data: bytes) -> str:
        import chardet

        return chardet.detect(data)["encoding"] or "ascii"

    texts = [(text * n, name) for name, text in made.SENTENCES.items() for n in (1, 3, 20)]
    texts += [("It’s “quoted” – the naïve café’s £5 menu… " * n, "cp1252") for n in (1, 3, 20)]
    for detect in (chardetng, charset_normalizer, chardet):
        wrong = []
        for text, name in texts:
            try:
                if text.encode(name).decode(guess := detect(text.encode(name))) != text:
                    wrong.append(f"{name} as {guess}")
            except ImportError:
                print(f"encodings by {detect.__name__}: not installed")
                break
            except (UnicodeDecodeError, LookupError):
                wrong.append(name)
        else:
            right = len(texts) - len(wrong)
            details = f" (not {', '.join(dict.fromkeys(wrong))})" if wrong else ""
            print(f"encodings by {detect.__name__}: {right} of {len(texts)} right{details}")


FILES = {"pdf": pdf_file, "html": html_file, "docx": docx_file, "epub": epub_file}
N_WORDS = {"pdf": 20_000, "html": 40_000, "docx": 40_000, "epub": 40_000}


def kept_and_added(text: str, words: list[str]) -> tuple[float, float]:
    """Return the share of words found in order, and the number of other words per word."""
    places = {word: at for at, word in enumerate(words)}
    words_read = re.findall(r"\w+", text)
    tails: list[int] = []
    for place in (places[word] for word in words_read if word in places):
        at = bisect_left(tails, place)
        tails[at : at + 1] = [place]
    return len(tails) / len(words), (len(words_read) - len(tails)) / len(words)


def installed_mb(distribution: str, seen: set[str] | None = None) -> float:
    """Return the size of a distribution with its dependencies, in MB."""
    seen = set() if seen is None else seen
    name = re.sub(r"[-_.]+", "-", distribution).lower()
    if name in seen or name.startswith("("):
        return 0.0
    seen.add(name)
    try:
        installed = metadata.distribution(distribution)
    except metadata.PackageNotFoundError:
        return 0.0
    own = sum(file.size or 0 for file in installed.files or []) / 1e6
    needs = [need for need in installed.requires or [] if "extra ==" not in need]
    return own + sum(installed_mb(re.split(r"[^\w.-]", need)[0], seen) for need in needs)


def licence(distribution: str) -> str:
    if distribution.startswith("("):
        return "Python's own"
    about = metadata.metadata(distribution)
    classified = [c.split(" :: ")[-1] for c in about.get_all("Classifier") or [] if "License" in c]
    named = about.get("License-Expression") or about.get("License") or ", ".join(classified)
    return (named or "see its page").splitlines()[0][:36]


def measure_one(kind: str, at: int, path: str) -> None:
    """Import a library in this process, read a file, and print the figures as JSON."""
    chosen = PEERS[kind][at]
    start = time.process_time()
    import_module(chosen.module)
    started = time.process_time() - start
    data = Path(path).read_bytes()
    read = chosen.read(kind)
    read(data[:0] or data)  # once for what is loaded late
    times = []
    for _ in range(REPEATS):
        start = time.process_time()
        text = read(data)
        times.append(time.process_time() - start)
    kept, added = kept_and_added(text, made.words(N_WORDS[kind]))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    speed = len(text.encode()) / 1e6 / statistics.median(times)
    figures = {"start_ms": started * 1e3, "speed": speed, "kept": kept, "added": added}
    print(json.dumps({**figures, "peak_mb": peak}))


def main(kinds: list[str]) -> int:
    print("| kind | library | licence | installed | start | text per CPU second | kept | added |")
    print("|---|---|---|--:|--:|--:|--:|--:|")
    missing = set()
    for kind in [kind for kind in kinds or list(PEERS) if kind in PEERS]:
        with tempfile.NamedTemporaryFile(suffix=f".{kind}") as file:
            file.write(FILES[kind](made.words(N_WORDS[kind])))
            file.flush()
            for at, (distribution, _, _) in enumerate(PEERS[kind]):
                command = [sys.executable, __file__, "--one", kind, str(at), file.name]
                done = subprocess.run(command, capture_output=True, text=True, check=False)
                if done.returncode:
                    last = (done.stderr.strip().splitlines() or ["no word"])[-1]
                    missing.add(f"{kind} by {distribution}: {last[:120]}")
                    continue
                measured = json.loads(done.stdout.splitlines()[-1])
                print(
                    f"| {kind} | {distribution} | {licence(distribution)} "
                    f"| {installed_mb(distribution):.1f} MB | {measured['start_ms']:.0f} ms "
                    f"| {measured['speed']:.2f} MB | {measured['kept']:.1%} "
                    f"| {measured['added']:.1%} |",
                    flush=True,
                )
    for line in sorted(missing):
        print(f"not measured: {line}")
    if not kinds or "encodings" in kinds:
        encodings()
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        measure_one(sys.argv[2], int(sys.argv[3]), sys.argv[4])
        sys.exit(0)
    sys.exit(main(sys.argv[1:]))
