"""A database server that crashes again and again: what was acknowledged is there, once."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from contextcliff_dagster.contracts import StoreError
from contextcliff_dagster.inference.ledger.backend import GroupCommit
from contextcliff_dagster_tests.support.requirements import require
from contextcliff_dagster_tests.support.server_crashes import crashed


@pytest.mark.postgres
def test_what_was_acknowledged_outlives_crashes_of_the_server(tmp_path: Path) -> None:
    require("postgres")
    figures = crashed(20, tmp_path)
    assert all(figures["claims"].values()), figures


class Broken(GroupCommit):
    """A writer whose transactions go as told."""

    def __init__(self, ending: Any) -> None:
        self._ending = ending
        super().__init__("the test's ledger")

    def _transact(self, operations: Any) -> Any:
        if isinstance(self._ending, BaseException):
            raise self._ending
        return self._ending

    def _explained(self, error: Exception) -> StoreError | None:
        return None


@pytest.mark.parametrize("ending", [ZeroDivisionError("a bug"), SystemExit(1), []])
def test_an_error_in_the_writer_ends_every_wait_with_a_sentence(ending: Any) -> None:
    writer = Broken(ending)
    for future in [writer.submit(lambda db: None) for _ in range(3)]:
        with pytest.raises(StoreError, match=r"^The call ledger the test's ledger failed unexp"):
            future.result(timeout=120)
    closing = threading.Thread(target=writer.close)
    closing.start()
    closing.join(120)
    assert not closing.is_alive()


def test_what_is_submitted_to_a_closed_writer_fails_at_once() -> None:
    writer = Broken([])
    writer.close()
    with pytest.raises(StoreError, match="is closed"):
        writer.submit(lambda db: None).result(timeout=120)
    writer.close()
