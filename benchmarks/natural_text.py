"""Any amount of natural text, from the files of this machine.

It uses sources, documentation, pages and data of the Python installation and the system's usual
folders, each content once. If that is not enough, texts are repeated with one long word in six
respelled by a different key in each round, so that tokenizers see new words.
"""

from __future__ import annotations

import hashlib
import os
import random
import re
import sys
import sysconfig
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from zlib import crc32

KINDS = frozenset(
    f".{kind}"
    for kind in (
        *("py", "pyi", "md", "rst", "txt", "html", "js", "ts", "c", "h", "hpp", "cpp", "cu"),
        *("json", "csv", "xml", "yaml", "po", "pl", "tex"),
    )
)
SMALLEST, LARGEST = 1_000, 2_000_000
_WORD = re.compile(r"[a-z]{6,}")
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def source_files() -> list[Path]:
    """Return the files that hold text, in mixed order; contents may repeat."""
    folders = {
        Path(sysconfig.get_path("stdlib")),
        *(Path(place) for place in sys.path if place.endswith("site-packages")),
        Path("/usr/share"),
        Path("/usr/include"),
    }
    found: dict[Path, None] = {}
    for folder in sorted(folders):
        for parent, _, names in os.walk(folder):
            for name in names:
                if Path(name).suffix in KINDS:
                    found[Path(parent, name)] = None
    files = sorted(found)
    random.Random(0).shuffle(files)
    return files


def natural_texts(megabytes: float) -> Iterator[str]:
    """Yield the same distinct texts (1 kB to 2 MB) every time, ``megabytes`` of UTF-8 in all."""
    files = source_files()
    left = megabytes * 1e6
    for turn in count():
        seen: set[bytes] = set()
        for path in files:
            text = _read(path)
            if text is None:
                continue
            digest = hashlib.sha256(text.encode()).digest()[:16]
            if digest in seen:
                continue
            seen.add(digest)
            text = text if turn == 0 else _respelled(text, turn)
            yield text
            left -= len(text.encode())
            if left <= 0:
                return
        if not seen:
            raise SystemExit("There is no text on this machine to count.")


def _read(path: Path) -> str | None:
    try:
        if not SMALLEST <= path.stat().st_size <= LARGEST or path.is_symlink():
            return None
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None


def _respelled(text: str, turn: int) -> str:
    rng = random.Random(turn)
    changed = str.maketrans(_LETTERS, "".join(rng.sample(_LETTERS, len(_LETTERS))))
    # By what the word is, not where: a text keeps its own vocabulary.
    return _WORD.sub(
        lambda m: m[0].translate(changed) if crc32(m[0].encode(), turn) % 6 == 0 else m[0], text
    )
