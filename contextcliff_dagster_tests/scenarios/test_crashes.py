"""No crash loses a finished call or pays one twice; runs at once share the work.

Every process here is a real one; what was paid is read from the request log of the server, which
is a process of its own.
"""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Any

from contextcliff_dagster.store import DatabaseUrl
from contextcliff_dagster_tests.support.held_calls import Gate
from contextcliff_dagster_tests.support.measuring_process import Measurement
from contextcliff_dagster_tests.support.records.calls import read_log, reference_server

BINS, N = 3, 8
CALLS = BINS * N


def measurement(state: Path | DatabaseUrl, url: str) -> Measurement:
    return Measurement(str(state) if isinstance(state, Path) else state.secret, url, BINS, N)


def start(state: Path | DatabaseUrl, url: str) -> subprocess.Popen[str]:
    return measurement(state, url).start()


def finish(process: subprocess.Popen[str]) -> dict[str, Any]:
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 0, out
    summary: dict[str, Any] = json.loads(out.splitlines()[-1])
    return summary


def received(log: Path) -> list[str]:
    """Hashes of the prompts that have reached the server, in their order."""
    return [line["prompt_hash"] for line in read_log(log) if line["event"] == "received"]


def wait_for_requests(process: subprocess.Popen[str], log: Path, count: int) -> None:
    """Until ``count`` requests have reached the server, the measuring process still alive."""
    while len(received(log)) < count:
        assert process.poll() is None
        time.sleep(0.01)


def paid(log: Path) -> Counter[str]:
    """How often each prompt reached the server."""
    return Counter(received(log))


def test_runs_at_once_make_one_ledger_all_finish_and_no_call_is_paid_twice(
    tmp_path: Path, ledger_at: Path | DatabaseUrl
) -> None:
    log = tmp_path / "log.jsonl"
    with reference_server(log=log, delay_ms=50) as url:
        processes = [start(ledger_at, url) for _ in range(4)]
        summaries = [finish(process) for process in processes]
    assert all(count == 1 for count in paid(log).values())
    assert sum(paid(log).values()) == CALLS
    assert sum(summary["sent"] for summary in summaries) == CALLS
    for summary in summaries:
        assert summary["cached"] + summary["by_others"] + summary["answered"] == CALLS
    assert len(measurement(ledger_at, "").rows()) == CALLS


def test_a_waiting_run_takes_over_when_the_other_is_killed(
    tmp_path: Path, ledger_at: Path | DatabaseUrl
) -> None:
    log, gate = tmp_path / "log.jsonl", Gate(tmp_path / "gate")
    gate.let(3)
    with reference_server(log=log, gate=gate) as url:
        first, second = start(ledger_at, url), start(ledger_at, url)
        for process in (first, second):
            assert process.stdout is not None
            process.stdout.readline()
        wait_for_requests(first, log, 3 + 2 * 3)  # each of them waits for three answers
        first.kill()
        assert first.wait() == -signal.SIGKILL
        gate.open()
        summary = finish(second)
    assert len(measurement(ledger_at, "").rows()) == CALLS
    assert sum(count - 1 for count in paid(log).values()) == summary["orphans"] == 3


def test_ctrl_c_keeps_what_is_in_flight_and_the_next_run_pays_nothing_twice(
    tmp_path: Path, ledger_at: Path | DatabaseUrl
) -> None:
    log, gate = tmp_path / "log.jsonl", Gate(tmp_path / "gate")
    gate.let(5)
    with reference_server(log=log, gate=gate) as url:
        process = start(ledger_at, url)
        wait_for_requests(process, log, 8)
        process.send_signal(signal.SIGINT)
        assert process.stdout is not None
        assert [process.stdout.readline().strip() for _ in range(2)] == ["ready", "halted"]
        gate.open()
        out, _ = process.communicate(timeout=120)
        assert (process.returncode, out.split()) == (130, ["interrupted"])
        summary = finish(start(ledger_at, url))
    assert summary["orphans"] == 0
    assert summary["cached"] == 8
    assert all(count == 1 for count in paid(log).values())
