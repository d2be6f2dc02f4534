"""The text of Word documents (Office Open XML, ECMA-376 part 1, section 17)."""

from __future__ import annotations

import posixpath

from contextcliff_dagster.corpora.extraction.file_type import Limits, RefusedError
from contextcliff_dagster.corpora.extraction.formats.html import Packed, parse_xml

_USUAL = "word/document.xml"
_RELATIONS = "_rels/.rels"
_NOTES = (("footnotes.xml", "footnotes"), ("endnotes.xml", "endnotes"))
_CHARACTERS = {"tab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "\u2011"}
# Deleted or moved text, and alternatives to the neighbouring element for older programs.
_UNSEEN = frozenset(("del", "moveFrom", "Fallback", "pPr", "rPr", "sectPr", "tblPr"))
_WORDS = "t"  # of runs, and of formulas


def read(data: bytes, limits: Limits, notes: list[str]) -> str:
    """Read one line per paragraph, with tabs between table cells; then footnotes and endnotes.

    Text boxes come where they are anchored. Left out: comments, headers and footers, and text
    marked as deleted.

    Raises:
        RefusedError: it is encrypted, damaged, or unpacks to too much.
    """
    packed = Packed(data, limits)
    main = _main_part(packed)
    parts = [_part_text(packed, main)]
    for file, note in _NOTES:
        name = posixpath.join(posixpath.dirname(main), file)
        if name in packed.names and (text := _part_text(packed, name)).strip():
            parts.append(text.strip("\n") + "\n")
            notes.append(f"{note} follow the text")
    return "\n".join(parts)


def _main_part(packed: Packed) -> str:
    if _USUAL in packed.names:
        return _USUAL
    if _RELATIONS in packed.names:
        for kind, target in packed.attributes(_RELATIONS, "Relationship", "Type", "Target"):
            if kind.endswith("/officeDocument"):
                if (main := target.lstrip("/")) in packed.names:
                    return main
                break
    raise RefusedError(f"is incomplete: {_USUAL} is missing in it")


def _part_text(packed: Packed, name: str) -> str:
    paragraphs = _Paragraphs()
    parse_xml(packed.member(name), name, paragraphs.start, paragraphs.end, paragraphs.data)
    return "".join(paragraphs.out)


class _Paragraphs:
    def __init__(self) -> None:
        self.out: list[str] = []
        self._unseen = 0
        self._in_words = False

    def start(self, tag: str, _: dict[str, str]) -> None:
        if self._unseen or tag in _UNSEEN:
            self._unseen += 1
        elif tag == _WORDS:
            self._in_words = True
        elif tag in _CHARACTERS:
            self.out.append(_CHARACTERS[tag])

    def end(self, tag: str) -> None:
        if self._unseen:
            self._unseen -= 1
        elif tag == _WORDS:
            self._in_words = False
        elif tag == "p":
            self.out.append("\n")
        elif tag == "tc" and self.out and self.out[-1] == "\n":
            self.out[-1] = "\t"
        elif tag == "tr" and self.out and self.out[-1] == "\t":
            self.out[-1] = "\n"

    def data(self, text: str) -> None:
        if self._in_words and not self._unseen:
            self.out.append(text)
