"""What texts depend on besides the files: this package's rules and the libraries' versions."""

from __future__ import annotations

from importlib.metadata import version

_LIBRARIES = ("pypdfium2", "lxml", "chardetng-py")

RULES = 1
"""Raised whenever a change here can change a text."""


def extractor_version() -> dict[str, str]:
    """Name -> version of everything that decides a file's text; for fingerprints."""
    return {"extraction": str(RULES), **{name: version(name) for name in _LIBRARIES}}
