"""What the ledger asks of a database: SQL with ``?`` for values, and rows.

The statements are written once, in words that SQLite and PostgreSQL both understand.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class Rows(Protocol):
    """The rows of a statement; to be fetched before the next statement is executed."""

    @property
    def rowcount(self) -> int: ...
    def fetchone(self) -> Any: ...
    def fetchall(self) -> list[Any]: ...


class Database(Protocol):
    """A connection inside a transaction."""

    def execute(self, sql: str, parameters: Sequence[Any] = (), /) -> Rows: ...


class Reader(Protocol):
    """What a query needs of a ledger."""

    @property
    def name(self) -> str:
        """Where the ledger is, as it may be shown: a path, or a URL without its password."""

    def read(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Rows of a query. Raises StoreError where the ledger cannot be read."""


class Backend(Reader, Protocol):
    """Where a ledger lies, opened by one process.

    ``owner`` is the right to claim calls, which others see ending when the process does.
    """

    owner: str

    @property
    def disk_was_full(self) -> bool:
        """Whether room was made for answers already paid, and nothing new may begin."""

    def submit(self, operation: Callable[[Database], T]) -> Future[T]:
        """Run ``operation`` in a write transaction; done once it is durable."""

    def snapshot(self) -> AbstractContextManager[Database]:
        """A connection whose queries all see one moment; nothing written there is kept."""

    def is_alive(self, owner: str) -> bool:
        """Whether the process of ``owner`` still has its ledger open."""

    def sizes(self) -> dict[str, int]:
        """Bytes on the disk by table with its indexes; ``other`` is what belongs to none."""

    def faults(self) -> list[str]:
        """Run the database's own check of its files; a sentence for each thing that is wrong."""

    def compact(self) -> None:
        """Give deleted rows' space back to the disk, and leave nothing of them behind."""

    def close(self) -> None:
        """Finish what was submitted, give up the owner's right, disconnect."""
