"""A file behind a URL, downloaded once and kept."""

from __future__ import annotations

import hashlib
from http.client import HTTPException
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import unquote, urlsplit

from contextcliff_dagster.contracts import CorpusError
from contextcliff_dagster.store import atomic_path, slug, store_root

_SECONDS = 60.0
_CHUNK = 1 << 20


def is_url(path: str) -> bool:
    """Whether ``path`` is a URL rather than a path."""
    return path.lower().startswith(("http://", "https://"))


def local_copy(url: str, folder: Path | None = None) -> Path:
    """Return the local copy of ``url`` below ``folder`` (the store's ``downloads``); download it
    only once: a measurement must not change with what a server gives tomorrow.

    Raises:
        CorpusError: it cannot be downloaded whole, or the address is that of a web page. The
            message shows no password or token of the address.
    """
    from urllib.request import Request, urlopen

    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    shown = f"{parts.scheme}://{host}{parts.path}"
    if "@" in parts.netloc:
        raise CorpusError(
            f"The address of {shown} holds a user's name, which is not sent; download the file by "
            "other means and name it."
        )
    last = unquote(parts.path).rpartition("/")[2]
    stem, dot, ending = last.rpartition(".")
    name = f"{slug(stem)}.{slug(ending)}" if dot and stem else slug(last or "file")
    digest = hashlib.sha256(url.encode()).hexdigest()[:16]
    target = (folder or store_root() / "downloads") / digest / name
    if target.is_file():
        return target
    try:
        request = Request(url, headers={"User-Agent": "contextcliff"})
        with urlopen(request, timeout=_SECONDS) as answer, atomic_path(target) as temporary:
            page = answer.headers.get_content_type() == "text/html"
            if page and not name.lower().endswith((".html", ".htm", ".xhtml")):
                raise CorpusError(
                    f"{shown} is a web page, not a file; name the address of the file itself, "
                    "which its download button has."
                )
            wanted = answer.headers.get("Content-Length")
            size = 0
            with temporary.open("wb") as file:
                while chunk := answer.read(_CHUNK):
                    size += file.write(chunk)
            if wanted is not None and int(wanted) != size:
                raise CorpusError(
                    f"{shown} ended after {size:,} of {int(wanted):,} bytes; try again."
                )
    except (OSError, HTTPException, ValueError) as error:
        # The messages of other errors may repeat the whole address.
        why = f"{error.code} {error.reason}" if isinstance(error, HTTPError) else ""
        why = why or str(getattr(error, "reason", "") or type(error).__name__)
        raise CorpusError(
            f"{shown} cannot be downloaded ({why}); download it by other means and name the file."
        ) from None
    return target
