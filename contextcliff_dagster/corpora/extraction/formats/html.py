"""The text of HTML as a reader sees it: one line per block, without scripts and styles.

XML is parsed as events, without a tree, so depth costs nothing; only short entities that the file
declares are expanded. ZIP archives are unpacked up to a limit.
"""

from __future__ import annotations

import re
import zipfile
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from html.entities import html5
from io import BytesIO
from typing import Any
from xml.parsers import expat

from contextcliff_dagster.corpora.extraction.file_type import (
    SURROGATE,
    Limits,
    RefusedError,
    decoded,
)

_SEPARATOR = " "
_LONGEST_ENTITY = 100
"""Longest entity, in characters; drawing programs put namespaces, names and signs in entities."""


def _ignore(_: str) -> None:
    """Ignore an event."""


def parse_xml(
    data: bytes | str,
    name: str,
    start: Callable[[str, dict[str, str]], None],
    end: Callable[[str], None] = _ignore,
    text: Callable[[str], None] = _ignore,
    entities: Mapping[str, str] | None = None,
) -> None:
    """Call `start(tag, attributes)`, `end(tag)` and `text(characters)` for the XML's events.

    Tags and attributes are without their namespaces. Nothing outside the data is ever read.

    name: what is parsed, for the message.
    entities: characters for entities that the file uses but an external DTD would declare.

    Raises:
        RefusedError: it is not well formed, or declares entities that are external, long, or made
            of other entities, which may expand without end.
    """
    parser = expat.ParserCreate(namespace_separator=_SEPARATOR)
    parser.buffer_text = True

    def started(tag: str, attributes: dict[str, str]) -> None:
        start(_local(tag), {_local(key): value for key, value in attributes.items()})

    def declared(_: str, is_parameter: bool, value: str | None, *__: object) -> None:
        short = value is not None and len(value) <= _LONGEST_ENTITY and not set("&<") & set(value)
        if short and not is_parameter:
            return
        raise RefusedError(f"declares XML entities in {name}, which may unfold without end")

    def skipped(entity: str, is_parameter: bool) -> None:
        if not is_parameter:
            text((entities or {}).get(entity, f"&{entity};"))

    parser.StartElementHandler = started
    parser.EndElementHandler = lambda tag: end(_local(tag))
    parser.CharacterDataHandler = text
    parser.EntityDeclHandler = declared
    parser.SkippedEntityHandler = skipped
    try:
        parser.Parse(data, True)
    except (expat.ExpatError, LookupError, ValueError) as error:
        raise RefusedError(f"is damaged: {name} is not well-formed XML") from error


def _local(name: str) -> str:
    return name.rpartition(_SEPARATOR)[2]


class Packed:
    """A ZIP archive in memory. Members are unpacked on request, and only up to the limit.

    Raises:
        RefusedError: it is not a readable archive.
    """

    def __init__(self, data: bytes, limits: Limits) -> None:
        try:
            self._archive = zipfile.ZipFile(BytesIO(data))
        except (zipfile.BadZipFile, ValueError, NotImplementedError, OverflowError) as error:
            raise RefusedError("is a broken ZIP archive") from error
        self._left = self._most = int(limits.unpacked_mb * 1e6)
        self.names = set(self._archive.namelist())

    def member(self, name: str) -> bytes:
        """Return all bytes of a member.

        Raises:
            RefusedError: it is missing, damaged or encrypted, or unpacks to too much.
        """
        try:
            with self._archive.open(name) as member:
                data = member.read(self._left + 1)
        except KeyError as error:
            raise RefusedError(f"is incomplete: {name} is missing in it") from error
        except RuntimeError as error:  # zipfile's way to say that it wants a password
            raise RefusedError("is encrypted") from error
        except (zipfile.BadZipFile, zlib.error, OSError, EOFError, NotImplementedError) as error:
            raise RefusedError(f"is damaged: {name} in it cannot be unpacked") from error
        if len(data) > self._left:
            raise RefusedError(f"unpacks to more than the {self._most / 1e6:,g} MB allowed")
        self._left -= len(data)
        return data

    def attributes(self, name: str, tag: str, *wanted: str) -> list[list[str]]:
        """Return the ``wanted`` attributes of each ``tag`` in an XML member; "" if missing.

        Raises:
            RefusedError: as :meth:`member` and :func:`parse_xml`.
        """
        values: list[list[str]] = []

        def start(element: str, attributes: dict[str, str]) -> None:
            if element == tag:
                values.append([attributes.get(attribute, "") for attribute in wanted])

        parse_xml(self.member(name), name, start)
        return values


_BLOCKS = frozenset(
    "address article aside blockquote body br button caption center dd details dialog dir div "
    "dl dt fieldset figcaption figure footer form frame h1 h2 h3 h4 h5 h6 header hgroup hr "
    "html iframe legend li main menu nav noframes ol optgroup option p pre search section "
    "select summary table tbody textarea tfoot thead tr ul".split()
)
_GLUE = {**dict.fromkeys(_BLOCKS, "\n"), "td": "\t", "th": "\t"}
"""Element -> separator between its text and the surrounding text."""
_UNSEEN = frozenset("head math noembed noscript object script style template title".split())
_DRAWING = "svg"
_DRAWN = frozenset(("text", "foreignobject"))
"""Elements whose text a drawing shows; its titles and descriptions are not shown."""
_DEFINED = frozenset(
    "clippath defs desc filter lineargradient marker mask metadata pattern radialgradient "
    "symbol".split()
)
"""Elements of a drawing that are only definitions or metadata."""
_NOT_DISPLAYED = re.compile(r"(?:^|;)\s*display\s*:\s*none\b", re.IGNORECASE)
_PLACED = frozenset(("x", "y", "dx", "dy"))
_VERBATIM = frozenset(("pre", "textarea"))
_SPACES = re.compile(r"[ \t\n\r\f]+")
_DECLARED = re.compile(rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?\s*([\w.:-]{1,40})", re.IGNORECASE)
_DECLARED_XML = re.compile(rb"^\s*<\?xml[^>]{0,200}?encoding\s*=\s*[\"']([\w.:-]{1,40})")
_DOCTYPE = re.compile(r"<!DOCTYPE[^<>\[]{0,1000}\[.*?\]\s*>", re.DOTALL)
"""A document type that contains declarations, which HTML does not have."""
_ENTITIES = {name.rstrip(";"): text for name, text in html5.items()}


class Lines:
    """Visible text collected from a parser's events.

    Runs of spaces become one space, as in a browser, except in `pre` and `textarea`. Cells of a
    table's row are separated by a tab. No tree is built: depth costs nothing.
    """

    def __init__(self) -> None:
        self._out: list[str] = []
        self._unseen: list[str] = []
        self._drawings = 0
        self._drawn = 0  # open elements that show text in a drawing
        self._hidden: list[str] = []  # open elements within one that a drawing does not show
        self._verbatim = 0
        self._opened = False  # at the beginning of verbatim text
        self._glue = ""  # separator before the next words: "", " ", "\t" or "\n"

    def start(self, tag: str, attributes: Any = None) -> None:
        if tag in _UNSEEN:
            self._unseen.append(tag)
        elif self._hidden or (
            (self._drawings or tag == _DRAWING) and _is_hidden(tag, attributes or {})
        ):
            self._hidden.append(tag)
        elif tag == _DRAWING:
            self._drawings += 1
        elif self._drawings and tag.lower() in _DRAWN:
            self._drawn += 1
            self._part("\n")
        elif self._drawings and tag == "tspan":
            if _PLACED & set(attributes or ()):  # most likely a line of its own
                self._part(" ")
        elif tag in _GLUE:
            self._part(_GLUE[tag])
            if tag in _VERBATIM:
                self._verbatim += 1
                self._opened = True

    def end(self, tag: str) -> None:
        if tag in _UNSEEN:
            if tag in self._unseen:
                while self._unseen.pop() != tag:
                    pass
        elif tag in self._hidden:
            while self._hidden.pop() != tag:
                pass
        elif tag == _DRAWING:
            self._hidden.clear()
            self._drawings = max(0, self._drawings - 1)
            self._drawn = self._drawn if self._drawings else 0
        elif self._drawings and tag.lower() in _DRAWN:
            self._drawn = max(0, self._drawn - 1)
            self._part("\n")
        elif tag in _GLUE:
            self._part(_GLUE[tag])
            if tag in _VERBATIM:
                self._verbatim = max(0, self._verbatim - 1)

    def data(self, text: str) -> None:
        if self._unseen or self._hidden or (self._drawings and not self._drawn):
            return
        if self._verbatim:
            self._write(text.removeprefix("\n") if self._opened else text)
            self._opened = False
            return
        words = _SPACES.sub(" ", text)
        if words[:1] == " ":
            self._part(" ")
            words = words[1:]
        if words:
            trailing = words[-1] == " "
            self._write(words[:-1] if trailing else words)
            if trailing:
                self._part(" ")

    def close(self) -> str:
        return "".join(self._out)

    def _part(self, glue: str) -> None:
        if glue == "\n" or not self._glue or (glue == "\t" and self._glue == " "):
            self._glue = glue

    def _write(self, text: str) -> None:
        if self._glue and self._out:
            self._out.append(self._glue)
        self._glue = ""
        self._out.append(text)


def _is_hidden(tag: str, attributes: Mapping[str, str]) -> bool:
    """Return whether a drawing shows neither the element nor anything in it."""
    style = attributes.get("style", "")
    none = attributes.get("display", "").strip() == "none" or _NOT_DISPLAYED.search(style)
    return bool(none) or tag.lower() in _DEFINED


def read(data: bytes, limits: object, notes: list[str]) -> str:
    """Return the text that a browser shows; XHTML is read as XML."""
    return text_of(
        data, notes, as_xml=data[:100].lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"<?xml")
    )


def text_of(data: bytes, notes: list[str], *, as_xml: bool = False) -> str:
    """Return the visible text of HTML bytes, read as leniently as browsers do.

    as_xml: read it as XML if it is well formed: XML closes ``<script/>``, HTML does not.
    """
    declared = _DECLARED_XML.search(data[:1024]) or _DECLARED.search(data[:4096])
    text = decoded(data, notes, declared[1].decode() if declared else None)
    # NUL has no meaning in HTML, but ends the text for a parser in C.
    text = SURROGATE.sub("\ufffd", text.replace("\0", ""))
    if as_xml:
        lines = Lines()
        with suppress(RefusedError):
            parse_xml(text, "it", lines.start, lines.end, lines.data, _ENTITIES)
            return lines.close()
        text = _DOCTYPE.sub("", text, count=1)
    return _as_html(text)


def _as_html(text: str) -> str:
    from lxml import etree

    if not text.strip():
        return ""
    # huge_tree lifts libxml2's limits on depth and line length; the process has its own limits.
    parser = etree.HTMLParser(target=Lines(), encoding="utf-8", huge_tree=True)
    parser.feed(text.encode())
    return str(parser.close())
