"""What servers have counted, kept by text: no text is sent twice to be counted.

A cache in one SQLite file of the store. It may be deleted at any time, and where it cannot be
read or written, texts are counted again.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from contextcliff_dagster.store import store_root

_AT_ONCE = 500
_BUSY_SECONDS = 5.0
_TABLE = """
CREATE TABLE IF NOT EXISTS counts (
    tokenizer TEXT NOT NULL, text_sha256 BLOB NOT NULL, tokens INTEGER NOT NULL,
    PRIMARY KEY (tokenizer, text_sha256)
) WITHOUT ROWID
"""


class TokenCounts:
    """Counts by tokenizer fingerprint and SHA-256 of the text's UTF-8 bytes.

    ``path``: the file; None: that of the store of this process's environment.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path or store_root() / "token_counts.sqlite"
        self._lock = threading.Lock()

    def get(self, tokenizer: str, digests: Sequence[bytes]) -> dict[bytes, int]:
        """Digest -> tokens, of those that are known."""
        counts: dict[bytes, int] = {}
        if not self._path.exists():
            return counts
        with suppress(sqlite3.Error, OSError), self._opened() as database:
            for at in range(0, len(digests), _AT_ONCE):
                some = digests[at : at + _AT_ONCE]
                marks = ",".join("?" * len(some))
                counts.update(
                    database.execute(
                        "SELECT text_sha256, tokens FROM counts WHERE tokenizer = ? "
                        f"AND text_sha256 IN ({marks})",
                        (tokenizer, *some),
                    )
                )
        return counts

    def put(self, tokenizer: str, digest: bytes, tokens: int) -> None:
        """Keep one count."""
        with suppress(sqlite3.Error, OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._opened() as database:
                row = (tokenizer, digest, tokens)
                database.execute("INSERT OR REPLACE INTO counts VALUES (?, ?, ?)", row)

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            database = sqlite3.connect(self._path, timeout=_BUSY_SECONDS)
            try:
                database.execute("PRAGMA synchronous = OFF")  # a cache: nothing rests on it
                database.execute(_TABLE)
                with database:
                    yield database
            finally:
                database.close()
