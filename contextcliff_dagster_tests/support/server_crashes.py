"""Processes that write to a ledger in PostgreSQL while its server crashes and restarts."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from contextcliff_dagster.inference.ledger.ledger import Ledger
from contextcliff_dagster.inference.ledger.verify import verify
from contextcliff_dagster.store import DatabaseUrl
from contextcliff_dagster_tests.support.measuring_process import Measurement
from contextcliff_dagster_tests.support.postgres import PostgresServer, running_postgres
from contextcliff_dagster_tests.support.records.calls import read_log, unreliable_server
from contextcliff_dagster_tests.support.writing_process import answer_to

WRITERS = 3
_PATIENCE_S = 120
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


def measured(
    restarts: int, folder: Path, say: Callable[[str], None] = lambda sentence: None
) -> dict[str, Any]:
    """Let `WRITERS` processes measure the same 1,500 calls over HTTP while the server of their
    ledger crashes, at most ``restarts`` times; the figures and claims."""
    rng, log, began = random.Random(0), folder / "requests.jsonl", time.monotonic()
    outputs = [folder / f"process-{number}.out" for number in range(WRITERS)]
    with running_postgres("ledger") as server, unreliable_server(delay_ms=60, log=log) as url:
        entry = {"concurrency": 4, "revision": "1", "timeout_s": 10.0}
        measurement = Measurement(server.url, url, 10, 30, 5, entry=entry)
        Ledger.open(DatabaseUrl(server.url)).close()
        processes = []
        for output in outputs:
            with output.open("w") as stdout:
                processes.append(measurement.start(stdout))
        done = 0
        try:
            # A run that has no connection yet does not wait for the server: no crash before.
            while not all("ready" in output.read_text() for output in outputs):
                time.sleep(0.05)
            time.sleep(2)
            while done < restarts and any(process.poll() is None for process in processes):
                time.sleep(rng.uniform(0.2, 0.8))
                server.stop()
                time.sleep(rng.uniform(0, 0.3))
                server.start()
                done += 1
                say(f"restart {done}")
            codes = [_ended(process) for process in processes]
        finally:
            for process in processes:
                process.kill()
        with measurement.open_ledger() as ledger:
            stats, errors = ledger.stats(), verify(ledger).faults
    asked = Counter(line["prompt"] for line in read_log(log))
    return {
        "restarts": done,
        "processes": WRITERS,
        "calls": stats["calls"],
        "requests": asked.total(),
        "orphans": stats["orphans"],
        "seconds": round(time.monotonic() - began, 1),
        "exit codes": codes,
        "claims": {
            "every call has its answer": stats["answers"] == stats["calls"] == len(asked) == 1500,
            "none is paid twice": asked.total() == len(asked) and stats["orphans"] == 0,
            "no process hangs, none fails": codes == [0] * WRITERS,
            "the ledger is sound": errors == (),
        },
    }


def _ended(writer: subprocess.Popen[Any]) -> int | None:
    try:
        return writer.wait(_PATIENCE_S)
    except subprocess.TimeoutExpired:
        return None
