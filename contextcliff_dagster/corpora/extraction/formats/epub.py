"""The text of EPUB books (EPUB 2 and 3): the pages of the spine, in its order."""

from __future__ import annotations

import posixpath
from urllib.parse import unquote

from contextcliff_dagster.corpora.extraction.formats.html import text_of
from contextcliff_dagster.corpora.extraction.formats.xml import Packed
from contextcliff_dagster.corpora.extraction.kinds_and_limits import Limits, RefusedError

_CONTAINER = "META-INF/container.xml"
_ENCRYPTION = "META-INF/encryption.xml"
_PAGES = frozenset(("application/xhtml+xml", "text/html"))


def read(data: bytes, limits: Limits, notes: list[str]) -> str:
    """Pages parted by an empty line.

    Raises:
        RefusedError: it is encrypted, damaged, has no page, or unpacks to too much.
    """
    packed = Packed(data, limits)
    packages = packed.elements(_CONTAINER, "rootfile")
    if not packages:
        raise RefusedError(f"is incomplete: {_CONTAINER} names no package")
    pages = _spine(packed, packages[0][1].get("full-path", ""))
    if not pages:
        raise RefusedError("is incomplete: its spine names no page")
    # Fonts may well be encrypted, which does not concern the text.
    names = [_ENCRYPTION] if _ENCRYPTION in packed.names else []
    encrypted = [one for name in names for _, one in packed.elements(name, "CipherReference")]
    if {_within("", one.get("URI", "")) for one in encrypted} & set(pages):
        raise RefusedError("is encrypted")
    of_pages: list[str] = []
    texts = [text_of(packed.member(page), of_pages, as_xml=True).strip("\n") for page in pages]
    notes.extend(dict.fromkeys(of_pages))
    return "\n\n".join(text for text in texts if text.strip())


def _spine(packed: Packed, package: str) -> list[str]:
    """Names of the spine's pages in the archive."""
    items: dict[str, str] = {}
    order: list[str] = []
    for tag, attributes in packed.elements(package, "item", "itemref"):
        if tag == "itemref":
            order.append(attributes.get("idref", ""))
        elif attributes.get("media-type") in _PAGES:
            items[attributes.get("id", "")] = attributes.get("href", "")
    base = posixpath.dirname(package)
    return [_within(base, items[name]) for name in order if name in items]


def _within(base: str, href: str) -> str:
    return posixpath.normpath(posixpath.join(base, unquote(href.partition("#")[0])))
