"""No crash loses a finished call or pays one twice; two runs at once share the work.

Every process here is a real one; what was paid is read from the request log of the server, which
is a process of its own.
"""

from __future__ import annotations

import json
import random
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from contextcliff_dagster.store import DatabaseUrl
from contextcliff_dagster_tests.support.measuring_process import Told
from contextcliff_dagster_tests.support.records.calls import read_log, reference_server

BINS, N = 3, 8
CALLS = BINS * N
TIMES = {"ttft_ms", "duration_ms", "queue_ms", "loop_lag_ms", "finished_at"}


def told(state: Path | DatabaseUrl, url: str, die_after: int = 0) -> Told:
    where = str(state) if isinstance(state, Path) else state.secret
    return Told(where, url, BINS, N, die_after=die_after)


def start(state: Path | DatabaseUrl, url: str, die_after: int = 0) -> subprocess.Popen[str]:
    return told(state, url, die_after).start()


def finish(process: subprocess.Popen[str]) -> dict[str, Any]:
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 0, out
    summary: dict[str, Any] = json.loads(out.splitlines()[-1])
    return summary


def wait_for_requests(process: subprocess.Popen[str], log: Path, count: int) -> None:
    """Until the server has logged ``count`` lines, the measuring process still alive."""
    while len(read_log(log)) < count:
        assert process.poll() is None
        time.sleep(0.01)


def records(state: Path | DatabaseUrl) -> list[dict[str, Any]]:
    rows = told(state, "").rows()
    return [{name: value for name, value in row.items() if name not in TIMES} for row in rows]


def paid(log: Path) -> Counter[str]:
    return Counter(line["prompt_hash"] for line in read_log(log) if line["event"] == "received")


def test_killed_at_any_moment_and_resumed_the_records_are_those_of_an_undisturbed_run(
    tmp_path: Path, ledger_at: Path | DatabaseUrl
) -> None:
    log = tmp_path / "log.jsonl"
    rng = random.Random(5)
    with reference_server(log=log, delay_ms=30) as url:
        finish(start(tmp_path / "undisturbed.db", url))
        undisturbed = records(tmp_path / "undisturbed.db")
        log.unlink()
        log_url = url
    with reference_server(
        log=log, delay_ms=30, port=int(log_url.split(":")[2].split("/")[0])
    ) as url:
        deaths = [2, 0, 0]
        for death in deaths:
            process = start(ledger_at, url, death)
            if not death:
                wait_for_requests(process, log, len(read_log(log)) + rng.randint(1, 5))
                process.kill()
            process.wait(120)
            assert process.returncode == -signal.SIGKILL
        summary = finish(start(ledger_at, url))
        before = len(read_log(log))
        again = finish(start(ledger_at, url))
        assert len(read_log(log)) == before
    assert records(ledger_at) == undisturbed
    assert len(undisturbed) == CALLS
    assert again["cached"] == CALLS
    sent_twice = sum(count - 1 for count in paid(log).values())
    assert set(paid(log)) == {row["prompt_hash"] for row in undisturbed}
    # The orphans that are shown: calls in flight at a kill. Some of those never reached the server.
    assert 1 <= sent_twice <= summary["orphans"] <= 3 * len(deaths)


def test_two_runs_at_once_both_finish_and_no_call_is_paid_twice(
    tmp_path: Path, ledger_at: Path | DatabaseUrl
) -> None:
    log = tmp_path / "log.jsonl"
    with reference_server(log=log, delay_ms=50) as url:
        processes = [start(ledger_at, url) for _ in range(2)]
        summaries = [finish(process) for process in processes]
    assert all(count == 1 for count in paid(log).values())
    assert sum(paid(log).values()) == CALLS
    assert sum(summary["sent"] for summary in summaries) == CALLS
    for summary in summaries:
        assert summary["cached"] + summary["by_others"] + summary["answered"] == CALLS
    assert len(records(ledger_at)) == CALLS


@pytest.mark.slow
def test_a_waiting_run_takes_over_when_the_other_is_killed(
    tmp_path: Path, ledger_at: Path | DatabaseUrl
) -> None:
    log = tmp_path / "log.jsonl"
    with reference_server(log=log, delay_ms=400) as url:
        first, second = start(ledger_at, url), start(ledger_at, url)
        for process in (first, second):
            assert process.stdout is not None
            process.stdout.readline()
        wait_for_requests(first, log, 4)
        first.kill()
        summary = finish(second)
        assert first.wait() == -signal.SIGKILL
    assert len(records(ledger_at)) == CALLS
    assert sum(count - 1 for count in paid(log).values()) <= summary["orphans"] <= 3


@pytest.mark.slow
def test_ctrl_c_keeps_what_is_in_flight_and_the_next_run_pays_nothing_twice(
    tmp_path: Path, ledger_at: Path | DatabaseUrl
) -> None:
    log = tmp_path / "log.jsonl"
    with reference_server(log=log, delay_ms=150) as url:
        process = start(ledger_at, url)
        wait_for_requests(process, log, 8)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
        assert (process.returncode, out.split()) == (130, ["ready", "interrupted"])
        summary = finish(start(ledger_at, url))
    assert summary["orphans"] == 0
    assert 0 < summary["cached"] < CALLS
    assert all(count == 1 for count in paid(log).values())


@pytest.mark.slow
def test_a_dozen_runs_at_once_share_the_work(tmp_path: Path, ledger_at: Path | DatabaseUrl) -> None:
    log = tmp_path / "log.jsonl"
    with reference_server(log=log, delay_ms=20) as url:
        processes = [start(ledger_at, url) for _ in range(6)]
        summaries = [finish(process) for process in processes]
    assert sum(paid(log).values()) == sum(summary["sent"] for summary in summaries) == CALLS
