"""Several measuring processes on one ledger over a server with errors, killed and replaced.

The judge is the request log of the server, a process of its own that outlives them all.
"""

from __future__ import annotations

import hashlib
import json
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from contextcliff_dagster.inference.ledger.verify import verify
from contextcliff_dagster.inference.requests.call_plan import plan_calls
from contextcliff_dagster_tests.support.measuring_process import DEATHS, Death, Measurement
from contextcliff_dagster_tests.support.records.calls import (
    RECIPE,
    LedgerSample,
    read_log,
    unreliable_server,
)

UNPAID = {"429", "500"}
"""What the server says before a model has worked."""
NOT_COMPARED = {"ttft_ms", "duration_ms", "queue_ms", "loop_lag_ms", "finished_at", "attempts"}
"""Times; and how many requests the process that finished a call needed, which errors decide."""
_SPREAD = 0.75
"""The kills come over at most this share of the calls."""


@dataclass(frozen=True)
class Crowd:
    """``kills`` times one of ``processes`` dies by SIGKILL, in one of the ways of `DEATHS`, and is
    replaced; the server fails ``faults`` of the requests."""

    bins: int
    documents: int
    questions: int
    kills: int
    processes: int = 3
    faults: float = 0.2
    concurrency: int = 4
    delay_ms: float = 200
    timeout_s: float = 4.0
    seed: int = 0

    @property
    def calls(self) -> int:
        return self.bins * self.documents * self.questions

    def measurement(self, ledger: Path | str, url: str) -> Measurement:
        entry = {
            "concurrency": self.concurrency,
            "timeout_s": self.timeout_s,
            "revision": "1",  # the same model behind two ports
            "max_attempts": 12,  # of 2,000 calls one would meet five errors in a row
        }
        return Measurement(str(ledger), url, self.bins, self.documents, self.questions, entry=entry)


@dataclass
class _Member:
    process: subprocess.Popen[str]
    output: Path
    dies: Death | None


class _Crowd:
    """The processes at work, and the deaths so far.

    Who is to die dies at a point of its own work, and healthy ones begin after the last death: no
    machine is so slow that all is measured before.
    """

    def __init__(
        self, crowd: Crowd, measurement: Measurement, log: Path, say: Callable[[str], None]
    ) -> None:
        self._crowd, self._measurement, self._log, self._say = crowd, measurement, log, say
        self._folder = log.parent
        self._rng = random.Random(crowd.seed)
        self._deaths = [self._rng.choice(DEATHS) for _ in range(crowd.kills)]
        self._started = 0
        self.deaths: Counter[str] = Counter()
        self.members: list[_Member] = []
        self.summaries: list[dict[str, Any]] = []

    def _start(self) -> None:
        """One more; the next that is to die, as long as there is one."""
        dies = self._deaths.pop() if self._deaths else None
        most = max(1, int(_SPREAD * self._crowd.calls / self._crowd.kills))
        measurement = (
            replace(self._measurement, dies=dies, die_after=self._rng.randint(1, most))
            if dies
            else self._measurement
        )
        output = self._folder / f"process-{self._started}.out"
        self._started += 1
        with output.open("w") as stdout:
            process = measurement.start(stdout)
        self.members.append(_Member(process, output, dies))

    def run(self) -> None:
        """Until all kills are done and the last members have come to their end."""
        for _ in range(self._crowd.processes):
            self._start()
        while self.members:
            time.sleep(0.01)
            for member in [m for m in self.members if m.process.poll() is not None]:
                self._ended(member)
        if self.deaths.total() != self._crowd.kills:
            raise AssertionError(f"all was measured after {dict(self.deaths)}: more calls are due")

    def _ended(self, member: _Member) -> None:
        self.members.remove(member)
        code = member.process.returncode
        if code == 0:
            self.summaries.append(json.loads(member.output.read_text().splitlines()[-1]))
            return
        if code != -signal.SIGKILL or member.dies is None:
            raise AssertionError(f"a process ended with {code}: {member.output.read_text()}")
        self.deaths[member.dies] += 1
        total = self.deaths.total()
        self._say(f"kill {total} ({member.dies}): {lines_of(self._log)} requests")
        if self._deaths:
            self._start()
        elif total == self._crowd.kills:
            for _ in range(self._crowd.processes):
                self._start()


def disturbed(
    crowd: Crowd,
    folder: Path,
    say: Callable[[str], None] = lambda said: None,
    ledger: str | None = None,
) -> dict[str, Any]:
    """The whole experiment; its figures, with ``claims`` saying what held.

    ``ledger``: URL of the PostgreSQL database that the crowd shares; a file when None. The
    undisturbed run's is a file either way.
    """
    log = folder / "requests.jsonl"
    with unreliable_server(delay_ms=crowd.delay_ms) as url:
        calm = crowd.measurement(folder / "calm.db", url)
        began = time.perf_counter()
        _to_the_end(replace(calm, entry={**calm.entry, "concurrency": 12}), folder)
        calm_s = time.perf_counter() - began
    options = {"delay_ms": crowd.delay_ms, "faults": crowd.faults, "seed": crowd.seed, "log": log}
    with unreliable_server(**options) as url:
        measurement = crowd.measurement(ledger or folder / "state.db", url)
        at_work = _Crowd(crowd, measurement, log, say)
        began = time.perf_counter()
        at_work.run()
        wall_s = time.perf_counter() - began
        requests = lines_of(log)
        began = time.perf_counter()
        again = _to_the_end(measurement, folder)
        again_s = time.perf_counter() - began
    return {
        "calls": crowd.calls,
        "processes at once": crowd.processes,
        "kills": dict(at_work.deaths),
        "undisturbed_s": round(calm_s, 1),
        "disturbed_s": round(wall_s, 1),
        "rerun_s": round(again_s, 1),
        "rerun_requests": lines_of(log) - requests,
        **_audit(crowd, measurement, calm, log, again),
    }


def _to_the_end(measurement: Measurement, folder: Path) -> dict[str, Any]:
    output = folder / "run.out"
    with output.open("w") as stdout:
        code = measurement.start(stdout).wait(600)
    assert code == 0, output.read_text()
    summary: dict[str, Any] = json.loads(output.read_text().splitlines()[-1])
    return summary


def _audit(
    crowd: Crowd, measurement: Measurement, calm: Measurement, log: Path, again: dict[str, Any]
) -> dict[str, Any]:
    rows, undisturbed = _compared(measurement), _compared(calm)
    n = measurement.documents * measurement.questions
    key_of = texts_to_keys(measurement.sample(), n, rows[0]["identity_hash"])
    behaviours = Counter(line["behaviour"] for line in read_log(log))
    asked: Counter[str] = Counter()
    answered: Counter[str] = Counter()
    may_be_paid: Counter[str] = Counter()
    for line in read_log(log):
        key = key_of[line["prompt"]]
        asked[key] += 1
        answered[key] += line["behaviour"] == "ok"
        may_be_paid[key] += line["behaviour"] not in UNPAID
    with measurement.open_ledger() as ledger:
        results = ledger.read("SELECT call_key, count(*) FROM results GROUP BY 1")
        orphans = Counter(orphan.call_key for orphan in ledger.orphans())
        attempts = Counter(dict(ledger.read("SELECT call_key, count(*) FROM attempts GROUP BY 1")))
        shown = orphans + Counter(
            key for (key,) in ledger.read("SELECT call_key FROM failures WHERE maybe_paid = 1")
        )
        errors = verify(ledger).faults
    return {
        "requests": asked.total(),
        "requests by behaviour": dict(sorted(behaviours.items())),
        "answered twice or more": sum(count - 1 for count in answered.values() if count > 1),
        "maybe paid, no answer kept": may_be_paid.total() - len(results),
        "of these shown as orphans": orphans.total(),
        "of these shown as failures": (shown - orphans).total(),
        "ledger faults": list(errors),
        "claims": {
            "every example has exactly one result": len(rows)
            == len({row["call_key"] for row in rows})
            == len(results)
            == crowd.calls
            and all(row["no_answer"] is None for row in rows)
            and all(count == 1 for _, count in results),
            "records equal row for row, times and number of attempts aside": rows == undisturbed,
            "the next run makes no request": again["sent"] == 0
            and again["cached"] == crowd.calls
            and asked.total() == sum(behaviours.values()),
            "every request was noted before it was sent": all(
                count <= attempts[key] for key, count in asked.items()
            ),
            "every request that may be paid in vain is shown": all(
                count - 1 <= shown[key] for key, count in may_be_paid.items()
            ),
            "no more in flight at a kill than may be": orphans.total()
            <= crowd.kills * crowd.concurrency,
            "the ledger is sound": not errors,
        },
    }


def _compared(measurement: Measurement) -> list[dict[str, Any]]:
    return [
        {name: value for name, value in row.items() if name not in NOT_COMPARED}
        for row in measurement.rows()
    ]


def texts_to_keys(sample: LedgerSample, n: int, identity_hash: str) -> dict[str, str]:
    """What the server's log calls a prompt -> the ledger's key of the call."""
    return {
        hashlib.sha256("".join(call.prompt().contents()).encode()).hexdigest(): call.call_key
        for call in plan_calls(sample, identity_hash, RECIPE, "c", sample.bins, n)
    }


def lines_of(log: Path) -> int:
    """How many requests are in the log."""
    return log.read_bytes().count(b"\n") if log.exists() else 0
