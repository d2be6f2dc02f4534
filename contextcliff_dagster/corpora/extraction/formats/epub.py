"""The text of EPUB books (EPUB 2 and 3): the spine's pages and drawings (SVG), in order."""

from __future__ import annotations

import posixpath
from urllib.parse import unquote

from contextcliff_dagster.corpora.extraction.file_type import Limits, RefusedError
from contextcliff_dagster.corpora.extraction.formats.html import Packed, parse_xml, text_of

_CONTAINER = "META-INF/container.xml"
_ENCRYPTION = "META-INF/encryption.xml"
_PAGES = frozenset(("application/xhtml+xml", "text/html", "image/svg+xml"))


def read(data: bytes, limits: Limits, notes: list[str]) -> str:
    """Read the pages, separated by an empty line.

    Raises:
        RefusedError: it is encrypted, damaged, has no page, or unpacks to too much.
    """
    packed = Packed(data, limits)
    packages = packed.attributes(_CONTAINER, "rootfile", "full-path")
    if not packages:
        raise RefusedError(f"is incomplete: {_CONTAINER} names no package")
    pages = _spine(packed, packages[0][0])
    if not pages:
        raise RefusedError("is incomplete: its spine names no page")
    if _ENCRYPTION in packed.names:
        encrypted = packed.attributes(_ENCRYPTION, "CipherReference", "URI")
        # Fonts may well be encrypted, which does not concern the text.
        if {_within("", uri) for (uri,) in encrypted} & set(pages):
            raise RefusedError("is encrypted")
    of_pages: list[str] = []
    texts = [text_of(packed.member(page), of_pages, as_xml=True).strip("\n") for page in pages]
    notes.extend(dict.fromkeys(of_pages))
    return "\n\n".join(text for text in texts if text.strip())


def _spine(packed: Packed, package: str) -> list[str]:
    """Return the archive names of the spine's pages."""
    items: dict[str, str] = {}
    order: list[str] = []

    def start(tag: str, attributes: dict[str, str]) -> None:
        if tag == "itemref":
            order.append(attributes.get("idref", ""))
        elif tag == "item" and attributes.get("media-type") in _PAGES:
            items[attributes.get("id", "")] = attributes.get("href", "")

    parse_xml(packed.member(package), package, start)
    base = posixpath.dirname(package)
    return [_within(base, items[name]) for name in order if name in items]


def _within(base: str, href: str) -> str:
    return posixpath.normpath(posixpath.join(base, unquote(href.partition("#")[0])))
