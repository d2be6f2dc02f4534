"""The text of EPUB books (EPUB 2 and 3): the pages of the spine, in its order."""

from __future__ import annotations

import posixpath
from urllib.parse import unquote

from contextcliff_dagster.corpora.extraction.formats.html import text_of
from contextcliff_dagster.corpora.extraction.formats.xml import parse_xml
from contextcliff_dagster.corpora.extraction.results import Limits, RefusedError
from contextcliff_dagster.corpora.extraction.zip_members import Packed

_CONTAINER = "META-INF/container.xml"
_ENCRYPTION = "META-INF/encryption.xml"
_PAGES = frozenset(("application/xhtml+xml", "text/html"))


def read(data: bytes, limits: Limits, notes: list[str]) -> str:
    """Pages parted by an empty line.

    Raises:
        RefusedError: it is encrypted, damaged, has no page, or unpacks to too much.
    """
    packed = Packed(data, limits)
    package = _package_name(packed)
    pages = _spine(packed, package)
    if not pages:
        raise RefusedError("is incomplete: its spine names no page")
    if _encrypted(packed) & set(pages):
        raise RefusedError("is encrypted")
    of_pages: list[str] = []
    texts = [text_of(packed.member(page), of_pages, as_xml=True).strip("\n") for page in pages]
    notes.extend(dict.fromkeys(of_pages))
    return "\n\n".join(text for text in texts if text.strip())


def _package_name(packed: Packed) -> str:
    names: list[str] = []

    def start(tag: str, attributes: dict[str, str]) -> None:
        if tag == "rootfile":
            names.append(attributes.get("full-path", ""))

    parse_xml(packed.member(_CONTAINER), start, _ignore, _ignore, _CONTAINER)
    if not names:
        raise RefusedError(f"is incomplete: {_CONTAINER} names no package")
    return names[0]


def _spine(packed: Packed, package: str) -> list[str]:
    """Names of the spine's pages in the archive."""
    items: dict[str, str] = {}
    order: list[str] = []

    def start(tag: str, attributes: dict[str, str]) -> None:
        if tag == "item" and attributes.get("media-type") in _PAGES:
            items[attributes.get("id", "")] = attributes.get("href", "")
        elif tag == "itemref":
            order.append(attributes.get("idref", ""))

    parse_xml(packed.member(package), start, _ignore, _ignore, package)
    base = posixpath.dirname(package)
    return [_within(base, items[name]) for name in order if name in items]


def _within(base: str, href: str) -> str:
    return posixpath.normpath(posixpath.join(base, unquote(href.partition("#")[0])))


def _encrypted(packed: Packed) -> set[str]:
    """Names of encrypted members; fonts may well be, which says nothing of the text."""
    names: set[str] = set()

    def start(tag: str, attributes: dict[str, str]) -> None:
        if tag == "CipherReference":
            names.add(_within("", attributes.get("URI", "")))

    if _ENCRYPTION in packed.names:
        parse_xml(packed.member(_ENCRYPTION), start, _ignore, _ignore, _ENCRYPTION)
    return names


def _ignore(_: str) -> None:
    pass
