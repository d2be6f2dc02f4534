"""A database server that crashes again and again: what was acknowledged is there, once."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from contextcliff_dagster.contracts import StoreError
from contextcliff_dagster.inference.ledger.backend import GroupCommit
from contextcliff_dagster.inference.ledger.ledger import Ledger
from contextcliff_dagster.inference.ledger.verify import verify
from contextcliff_dagster.store import DatabaseUrl
from contextcliff_dagster_tests.support.postgres import PostgresServer, running_postgres
from contextcliff_dagster_tests.support.requirements import require
from contextcliff_dagster_tests.support.writing_process import answer_to

WRITERS = 3


def crash(server: PostgresServer, times: int, acknowledged: list[Path]) -> None:
    """Crash and restart the server, each time at a moment of its own while answers are kept."""
    rng = random.Random(0)
    for _ in range(times):
        before = [file.stat().st_size for file in acknowledged]
        until = time.monotonic() + 60
        while any(f.stat().st_size == n for f, n in zip(acknowledged, before, strict=True)):
            assert time.monotonic() < until, "a writer keeps no answer any more"
            time.sleep(0.005)
        time.sleep(rng.uniform(0, 0.1))
        server.stop()
        server.start()


@pytest.mark.postgres
@pytest.mark.slow(reason="restarts a server after each crash")
@pytest.mark.parametrize("crashes", [3, 50])
def test_what_was_acknowledged_outlives_crashes_of_the_server(
    crashes: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    require("postgres")
    files = [tmp_path / f"writer-{number}.out" for number in range(WRITERS)]
    module = "contextcliff_dagster_tests.support.writing_process"
    with running_postgres("ledger") as server:
        Ledger.open(DatabaseUrl(server.url)).close()
        writers = []
        for file in files:
            command = [sys.executable, "-m", module, server.url, file.stem]
            with file.open("w") as out, file.with_suffix(".err").open("w") as err:
                pipe = subprocess.PIPE
                writers.append(subprocess.Popen(command, stdin=pipe, stdout=out, stderr=err))
        try:
            crash(server, crashes, files)
            for writer in writers:
                assert writer.stdin is not None
                writer.stdin.close()
            codes = [writer.wait(60) for writer in writers]
        finally:
            for writer in writers:
                writer.kill()
        assert codes == [0] * WRITERS, [f.with_suffix(".err").read_text() for f in files]
        acknowledged = [key for file in files for key in file.read_text().split()]
        with Ledger.open(DatabaseUrl(server.url)) as ledger:
            kept = dict(ledger.read("SELECT call_key, raw_output FROM results"))
            attempts = ledger.read("SELECT count(*), count(DISTINCT call_key) FROM attempts")[0]
            errors = verify(ledger).faults
            left = ledger.read(
                "SELECT count(*) FROM batches WHERE owner <> ?", (ledger.backend.owner,)
            )
    assert {key: kept.get(key) for key in acknowledged} == {k: answer_to(k) for k in acknowledged}
    assert len(kept) == len(acknowledged) == len(set(acknowledged)) > crashes * WRITERS
    assert attempts == (len(kept), len(kept)), "a transaction was done twice, or never"
    assert errors == ()
    assert left == [(0,)], "writers that have ended leave no row"
    with capsys.disabled():
        print(f"\n{crashes} crashes, {WRITERS} writers: {len(acknowledged):,} answers kept")


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
        with pytest.raises(StoreError, match=r"^The call ledger the test's ledger failed in an"):
            future.result(timeout=60)
    closing = threading.Thread(target=writer.close)
    closing.start()
    closing.join(60)
    assert not closing.is_alive()
