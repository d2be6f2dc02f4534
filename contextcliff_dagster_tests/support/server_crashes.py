"""Processes that keep answers in PostgreSQL while its server crashes and restarts."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from contextcliff_dagster.inference.ledger.ledger import Ledger
from contextcliff_dagster.inference.ledger.verify import verify
from contextcliff_dagster.store import DatabaseUrl
from contextcliff_dagster_tests.support.postgres import PostgresServer, running_postgres
from contextcliff_dagster_tests.support.writing_process import answer_to

WRITERS = 3
_PATIENCE_S = 60
"""A writer that keeps no answer for so long hangs."""


def crash(
    server: PostgresServer, times: int, acknowledged: list[Path], say: Callable[[str], None]
) -> bool:
    """Crash and restart the server, each time at a moment of its own while answers are kept.

    False: a writer kept no answer any more.
    """
    rng = random.Random(0)
    for number in range(times):
        before = [file.stat().st_size for file in acknowledged]
        until = time.monotonic() + _PATIENCE_S
        while any(f.stat().st_size == n for f, n in zip(acknowledged, before, strict=True)):
            if time.monotonic() > until:
                return False
            time.sleep(0.005)
        time.sleep(rng.uniform(0, 0.1))
        server.stop()
        server.start()
        say(f"restart {number + 1}")
    return True


def crashed(
    restarts: int, folder: Path, say: Callable[[str], None] = lambda sentence: None
) -> dict[str, Any]:
    """Let `WRITERS` processes write while a server of their own is stopped ``restarts`` times by
    ``pg_ctl stop -m immediate``; the figures, with ``claims`` saying what held."""
    files = [folder / f"writer-{number}.out" for number in range(WRITERS)]
    module = "contextcliff_dagster_tests.support.writing_process"
    began = time.monotonic()
    with running_postgres("ledger") as server:
        Ledger.open(DatabaseUrl(server.url)).close()
        writers = []
        for file in files:
            command = [sys.executable, "-m", module, server.url, file.stem]
            with file.open("w") as out, file.with_suffix(".err").open("w") as err:
                pipe = subprocess.PIPE
                writers.append(subprocess.Popen(command, stdin=pipe, stdout=out, stderr=err))
        try:
            none_hangs = crash(server, restarts, files, say)
            for writer in writers:
                assert writer.stdin is not None
                writer.stdin.close()
            codes = [_ended(writer) for writer in writers]
        finally:
            for writer in writers:
                writer.kill()
        acknowledged = [key for file in files for key in file.read_text().split()]
        with Ledger.open(DatabaseUrl(server.url)) as ledger:
            kept = dict(ledger.read("SELECT call_key, raw_output FROM results"))
            attempts = ledger.read("SELECT count(*), count(DISTINCT call_key) FROM attempts")[0]
            errors = verify(ledger).faults
            mine = (ledger.backend.owner,)
            left = ledger.read("SELECT count(*) FROM batches WHERE owner <> ?", mine)[0][0]
    return {
        "restarts": restarts,
        "writers": WRITERS,
        "answers acknowledged": len(acknowledged),
        "seconds": round(time.monotonic() - began, 1),
        "exit codes": codes,
        "messages": [text for f in files if (text := f.with_suffix(".err").read_text())],
        "claims": {
            "every acknowledged answer is there": len(acknowledged) > restarts * WRITERS
            and {key: kept.get(key) for key in acknowledged}
            == {key: answer_to(key) for key in acknowledged},
            "no other answer is there": len(kept) == len(acknowledged) == len(set(acknowledged)),
            "no transaction was done twice": attempts == (len(kept), len(kept)),
            "no process hangs, none fails": none_hangs and codes == [0] * WRITERS,
            "the ledger is sound": errors == (),
            "writers that have ended leave no row of batches": left == 0,
        },
    }


def _ended(writer: subprocess.Popen[bytes]) -> int | None:
    try:
        return writer.wait(_PATIENCE_S)
    except subprocess.TimeoutExpired:
        return None
