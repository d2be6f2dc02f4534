"""Kill a measurement over HTTP again and again, resume it, and audit what was paid.

    python benchmarks/chaos.py [--drive api|profile|crowd] [--ledger sqlite|postgres]
                               [--documents N] [--kills N] [--seed 0] [--json]
    python benchmarks/chaos.py --restarts 50 [--drive crowd] [--json]
    python benchmarks/chaos.py --refuse KIND [--trials N] [--json]
    python benchmarks/chaos.py --batch [--kills 30] [--seed 0]

A server (a separate process that logs each request to disk before answering) serves the small
reference model. A child process measures over it and is killed with SIGKILL: while it starts, after
a random number of requests, or by itself between an answer and its commit. It is restarted each
time, then left to finish, then run once more. The claims, checked at the end:

- the records are those of an undisturbed run, row for row, times aside;
- every call was paid once, except those in flight at a kill, of which there are at most as many as
  orphans shown;
- the final run makes no request.

``--drive api`` measures through `inference.execution.measure`; ``--drive profile`` runs the command
``contextcliff profile``. ``--drive crowd``: 2,000 calls, three processes at once on one
ledger, killed and replaced, over a server that fails a fifth of the requests (429, 500, reset,
stall, cut stream, broken JSON, HTML with status 200); what is claimed then is printed, too.
``--ledger postgres``: the crowd shares a PostgreSQL database, on a server started for it;
``--documents``: of the 40 in each of ten bins, for fewer calls. ``--restarts N``: three processes
write to a PostgreSQL server that crashes (``pg_ctl stop -m immediate``) and restarts N times; with
``--drive crowd`` they measure 1,500 calls over HTTP. ``--refuse KIND``: three writers of 16 calls
at once have a ledger that takes no writes any more (their patience is 1 s, without end for
``interrupted`` and ``terminated``, which get a signal), and what the server has answered is sought
in ledger and spool; ``full``, ``no-reserve`` and ``server-full`` mount a small file system, as
root. ``--batch``: 6,000 calls through batches, by ``benchmarks/batches.py``. Exits with 1 if a
claim does not hold.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from contextcliff_dagster.inference.execution.measure import measure
from contextcliff_dagster.inference.execution.prediction_rows import prediction_rows
from contextcliff_dagster.inference.ledger.ledger import Ledger
from contextcliff_dagster_tests.support.crowd import Crowd, disturbed
from contextcliff_dagster_tests.support.measuring_process import die_before_commit
from contextcliff_dagster_tests.support.postgres import running_postgres
from contextcliff_dagster_tests.support.records.calls import (
    LedgerSample,
    openai_entry,
    plan_of,
    read_log,
    reference_server,
)
from contextcliff_dagster_tests.support.refusals import KINDS, refused
from contextcliff_dagster_tests.support.server_crashes import crashed, measured

BINS, N, CONCURRENCY, DELAY_MS = 10, 20, 3, 20
STUDY, CAMPAIGN, MODEL = "chaos", "2026-01-01", "remote"
CROWD = Crowd(bins=10, documents=40, questions=5, kills=30)
STARTUP_S = {"api": 3, "profile": 10}
"""Latest time in seconds of a kill during start-up, by drive."""
TIMES = {"ttft_ms", "duration_ms", "queue_ms", "loop_lag_ms", "finished_at", "ttft_excess"}


def sample() -> LedgerSample:
    return LedgerSample(BINS, N, max_tokens=600)


# --- the child ------------------------------------------------------------------------------------


def child(drive: str, home: Path, url: str, die_after: int) -> int:
    """Measure once; with ``die_after`` > 0, die between that answer's arrival and its commit."""
    if die_after:
        die_before_commit(die_after)
    if drive == "profile":
        os.environ["CONTEXTCLIFF_HOME"] = str(home)
        os.environ["CONTEXTCLIFF_MODELS"] = str(_models_file(home, url))
        from contextcliff_dagster.cli import main

        return main(["profile", "reference", "--model", MODEL, "--yes"])
    calls = sample()
    with Ledger.open(home / "state.db") as ledger:
        entry = openai_entry(url, MODEL, concurrency=CONCURRENCY, tokenizer="reference")
        measure(plan_of(calls, N, study=STUDY, campaign=CAMPAIGN), entry, ledger)
    return 0


def _models_file(home: Path, url: str) -> Path:
    path = home / "models.yaml"
    path.write_text(
        f"models:\n  {MODEL}:\n    engine: openai\n    model_id: reference-short\n    base_url: "
        f"{url}\n"
        f"    tokenizer: reference\n    concurrency: {CONCURRENCY}\n",
        encoding="utf-8",
    )
    return path


# --- the parent -----------------------------------------------------------------------------------


def start(drive: str, home: Path, url: str, die_after: int = 0) -> subprocess.Popen[bytes]:
    home.mkdir(parents=True, exist_ok=True)
    output = (home / "child.log").open("ab")
    return subprocess.Popen(
        [sys.executable, __file__, "--child", drive, str(home), url, str(die_after)],
        stdout=output,
        stderr=output,
        cwd=home,
    )


def run_to_end(drive: str, home: Path, url: str) -> float:
    began = time.perf_counter()
    process = start(drive, home, url)
    if process.wait(600) != 0:
        raise SystemExit(
            f"A run ended with code {process.returncode}:\n{(home / 'child.log').read_text()}"
        )
    return time.perf_counter() - began


def received(log: Path) -> list[str]:
    """Return the prompt hashes of all requests that the server received, in order."""
    return [line["prompt_hash"] for line in read_log(log) if line["event"] == "received"]


def kill_one(rng: random.Random, drive: str, home: Path, url: str, log: Path) -> str | None:
    """Start a run and kill it; return how it died, or None if it finished first."""
    how = rng.choice(["startup", "request", "request", "response", "response"])
    process = start(drive, home, url, die_after=rng.randint(1, 8) if how == "response" else 0)
    before = len(received(log))
    deadline = time.monotonic() + (rng.uniform(0, STARTUP_S[drive]) if how == "startup" else 300)
    enough = 1 << 30 if how == "response" else before + rng.randint(1, 8)
    while process.poll() is None and time.monotonic() < deadline and len(received(log)) < enough:
        time.sleep(0.01)
    if how != "response":
        time.sleep(rng.uniform(0, 0.15))
        process.kill()
    return how if process.wait(60) == -signal.SIGKILL else None


def records(drive: str, home: Path) -> list[dict[str, Any]]:
    """Return the measured rows without the columns of times."""
    if drive == "profile":
        import pyarrow.parquet as pq

        files = sorted(home.glob("*/eval_records/**/*.parquet"))
        rows = [row for file in files for row in pq.read_table(file, partitioning=None).to_pylist()]
    else:
        calls = sample()
        with Ledger.open(home / "state.db") as ledger:
            plan = plan_of(calls, N, study=STUDY, campaign=CAMPAIGN)
            rows = prediction_rows(plan, MODEL, ledger)
    return sorted(
        ({name: value for name, value in row.items() if name not in TIMES} for row in rows),
        key=lambda row: (row["bin"], row["call_key"]),
    )


def chaos(drive: str, kills: int, seed: int, folder: Path) -> dict[str, Any]:
    """Run the whole experiment; return its figures, with ``claims`` saying which hold."""
    rng = random.Random(seed)
    log, calm_log = folder / "requests.jsonl", folder / "calm.jsonl"
    with reference_server(log=calm_log, delay_ms=DELAY_MS) as url:
        calm_s = run_to_end(drive, folder / "calm", url)
        port = int(url.rsplit(":", 1)[1].split("/")[0])
    deaths: Counter[str] = Counter()
    with reference_server(log=log, delay_ms=DELAY_MS, port=port) as url:
        home = folder / "killed"
        while sum(deaths.values()) < kills:
            how = kill_one(rng, drive, home, url, log)
            if how is None:
                raise SystemExit(
                    f"The run finished after {sum(deaths.values())} kills; give it more calls."
                )
            deaths[how] += 1
            print(
                f"kill {sum(deaths.values())} ({how}): {len(received(log))} requests",
                file=sys.stderr,
            )
        run_to_end(drive, home, url)
        requests = len(received(log))
        again_s = run_to_end(drive, home, url)
        again = len(received(log)) - requests
    with Ledger.open(home / "state.db") as ledger:
        orphans = len(ledger.orphans())
    calm, killed = records(drive, folder / "calm"), records(drive, home)
    paid = Counter(received(log))
    twice = sum(count - 1 for count in paid.values())
    return {
        "drive": drive,
        "kills": dict(deaths),
        "calls": len(calm),
        "requests": requests,
        "paid_again_in_flight": twice,
        "orphans_shown": orphans,
        "undisturbed_s": round(calm_s, 1),
        "rerun_s": round(again_s, 1),
        "rerun_requests": again,
        "claims": {
            "records equal row for row, times aside": killed == calm and len(calm) > 0,
            "every call of the plan was paid": len(paid) == len(set(received(calm_log))),
            "none paid twice but those in flight, which are shown": twice
            <= orphans
            <= kills * CONCURRENCY,
            "a finished run makes no request": again == 0,
        },
    }


def _tell(message: str) -> None:
    print(message, file=sys.stderr)


def main() -> int:
    if sys.argv[1:2] == ["--child"]:
        return child(sys.argv[2], Path(sys.argv[3]), sys.argv[4], int(sys.argv[5]))
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--drive", choices=["api", "profile", "crowd"], default="api")
    parser.add_argument("--ledger", choices=["sqlite", "postgres"], default="sqlite")
    parser.add_argument("--documents", type=int, default=CROWD.documents, help="of a crowd's bin")
    parser.add_argument("--kills", type=int, help="default: 24, of a crowd 30")
    parser.add_argument("--restarts", type=int, help="of a PostgreSQL server under three writers")
    parser.add_argument("--refuse", choices=list(KINDS), help="how the ledger refuses writes")
    parser.add_argument("--trials", type=int, default=50, help="of --refuse")
    parser.add_argument("--batch", action="store_true", help="through a batch interface")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    options = parser.parse_args()
    if options.batch:
        killed = [f"--{name}={n}" for name, n in (("kills", options.kills or 30), ("calls", 6000))]
        batches = str(Path(__file__).with_name("batches.py"))
        more = ["--mb=0.1", f"--seed={options.seed}"]
        return subprocess.run([sys.executable, batches, *killed, *more], check=False).returncode
    if options.ledger != "sqlite" and options.drive != "crowd":
        parser.error("--ledger is for --drive crowd")
    with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
        if options.refuse:
            # A shell keeps Ctrl-C from what it runs in the background, and so from the writers.
            signal.signal(signal.SIGINT, signal.default_int_handler)
            figures = refused(options.refuse, options.trials, Path(folder), _tell)
        elif options.restarts:
            trial = measured if options.drive == "crowd" else crashed
            figures = trial(options.restarts, Path(folder), _tell)
        elif options.drive == "crowd":
            kills = options.kills or CROWD.kills
            crowd = replace(CROWD, kills=kills, documents=options.documents, seed=options.seed)
            with running_postgres() if options.ledger == "postgres" else nullcontext() as server:
                shared = server.url if server else None
                figures = disturbed(crowd, Path(folder), _tell, shared)
        else:
            figures = chaos(options.drive, options.kills or 24, options.seed, Path(folder))
    if options.json:
        print(json.dumps(figures, indent=2))
    else:
        for name, value in figures.items():
            if name != "claims":
                print(f"{name:24} {value}")
        for claim, holds in figures["claims"].items():
            print(f"{'holds' if holds else 'BROKEN':24} {claim}")
    return 0 if all(figures["claims"].values()) else 1


if __name__ == "__main__":
    sys.exit(main())
