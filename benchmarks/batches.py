"""What calls through a batch interface cost us, and what becomes of them where we are killed.

    python benchmarks/batches.py [--calls 10000] [--mb 100]
    python benchmarks/batches.py --kills 30 [--calls 2000] [--mb 0.2] [--seed 0]
    python benchmarks/batches.py --trials 50 [--calls 60]

The provider is an imitation in a process of its own (`support.servers.batch_server`). One process
submits all calls and ends; another takes in the answers. Documents have 2 KB. Ends with an error
above 1.5 CPU ms a call or 400 MB.

With ``--kills``, a process that waits for its batches is killed by SIGKILL after a random time, and
started again, so many times; then it is left to end. Claimed is that each call has one answer, that
the provider billed each once, and that the ledger's spending is what was billed.

With ``--trials``, studies with budgets of a fifth to six fifths of their price are run until every
call is answered or the budget ends them, over a provider that lets up to three of their batches
expire half done. Claimed is that the bill never exceeds the budget.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

MOST_MS, MOST_MB = 1.5, 400.0
PRICE = {"input_usd_per_mtok": 1, "output_usd_per_mtok": 1}
CALL_USD = 300e-6
"""About what is reserved for a call."""
START_S, MEAN_S = 0.5, 1.0
"""A process is killed so long after its start, and then after a random time of this mean."""
SERVE = """
import sys, time
from pathlib import Path
from contextcliff_dagster_tests.support.servers.batch_server import batch_server
with batch_server(Path(sys.argv[1]), polls_a_step=int(sys.argv[2]) or None) as server:
    print(server.url, flush=True)
    for line in sys.stdin:
        server.advance(3)
        print("done", flush=True)
"""


def child(folder: Path, url: str, calls: int, mb: float, *, wait: bool) -> None:
    """Run the batches of the plan once, and print CPU seconds, memory and the summary."""
    from contextcliff_dagster.inference.engines.base import EngineSession
    from contextcliff_dagster.inference.execution import batches
    from contextcliff_dagster.inference.execution.batches import BatchRun
    from contextcliff_dagster.inference.execution.run_control import RunControl
    from contextcliff_dagster.inference.ledger.campaigns import record_identity
    from contextcliff_dagster.inference.ledger.ledger import Ledger, Scope
    from contextcliff_dagster_tests.support.records.calls import LedgerSample, openai_entry, plan_of

    sample = LedgerSample(bins=5, n=calls // 5)
    entry = openai_entry(url, window_tokens=8192, price=PRICE, batch={"discount": 0, "max_mb": mb})
    if wait:
        batches.FIRST_POLL_S, batches.LAST_POLL_S, batches.SEEN_AFTER_S = 0.05, 0.2, 1.0
    with Ledger.open(folder / "ledger.db") as ledger, EngineSession(entry) as session:
        record_identity(ledger, "s", "c", entry.name, session.identity)
        scope = Scope("s", "c", entry.name, session.identity.hash)
        planned = plan_of(sample, calls // 5).calls(scope.identity_hash)
        before = time.process_time()
        control = RunControl(batching="wait" if wait else "submit")
        run = BatchRun(planned, session, ledger, scope, control)
        summary = session.submit(run.run()).result()
        cpu_s = time.process_time() - before
    mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"cpu_s": cpu_s, "mib": mib, **summary.to_dict()}))


def killed(folder: Path, own: list[str], kills: int, calls: int, rng: random.Random) -> bool:
    """Kill and restart a process that waits for its batches; return whether all claims hold.

    Where it ends by itself before it was killed often enough, it goes on with twice the calls.
    """
    from contextcliff_dagster.inference.ledger.ledger import Ledger
    from contextcliff_dagster.inference.ledger.verify import verify

    hit = 0
    while hit < kills:
        # Sometimes two at once, of which one looks after each batch.
        command = [*own, "--calls", str(calls)]
        both = [subprocess.Popen(command, stdout=-3) for _ in range(rng.choice((1, 1, 2)))]
        time.sleep(START_S + rng.expovariate(1 / MEAN_S))
        hit += all(process.poll() is None for process in both)
        for process in both:
            process.kill()
        if 0 in [process.wait() for process in both]:
            calls *= 2
    subprocess.run([*own, "--calls", str(calls)], check=True, stdout=subprocess.DEVNULL)
    lines = (folder / "provider" / "billed.jsonl").read_text().splitlines()
    bills = [json.loads(line) for line in lines]
    times = Counter(bill["custom_id"] for bill in bills)
    usd = sum(b["prompt_tokens"] + b["completion_tokens"] for b in bills) * 1e-6
    with Ledger.open(folder / "ledger.db") as ledger:
        stats, spent = ledger.stats(), ledger.spent("s", "c").usd
        sound = not verify(ledger).faults
        ((batches,),) = ledger.read("SELECT count(*) FROM call_batches")
    print(
        f"{hit} kills; {batches} batches; {stats['answers']:,} answers to {calls:,} calls, billed "
        f"{len(bills):,} times, at most {max(times.values())} a call; spent ${spent:.6f}, billed "
        f"${usd:.6f}"
    )
    return (
        stats["answers"] == len(times) == len(bills) == calls
        and abs(spent - usd) < 1e-6
        and sound
        and stats["orphans"] == 0
    )


def within_budget(trials: int, calls: int) -> bool:
    """Run studies on random budgets over expiring batches; return whether no bill exceeds them."""
    from contextcliff_dagster.contracts import BudgetError
    from contextcliff_dagster.inference.engines.base import EngineSession
    from contextcliff_dagster.inference.execution import batches
    from contextcliff_dagster.inference.execution.run_control import RunControl
    from contextcliff_dagster.inference.ledger.campaigns import record_identity
    from contextcliff_dagster.inference.ledger.ledger import Ledger, Scope
    from contextcliff_dagster.inference.spending import Budget
    from contextcliff_dagster_tests.support.records.calls import LedgerSample, openai_entry, plan_of
    from contextcliff_dagster_tests.support.servers.batch_server import batch_server

    batches.FIRST_POLL_S = 0.0
    sample = LedgerSample(bins=3, n=calls // 3)
    ended, finished, beyond = 0, 0, 0
    for seed in range(trials):
        rng = random.Random(seed)
        faults = {"expired": rng.randint(1, 3)}
        with (
            tempfile.TemporaryDirectory() as folder,
            batch_server(Path(folder) / "p", polls_a_step=1, faults=faults) as server,
            Ledger.open(Path(folder) / "ledger.db") as ledger,
        ):
            batch = {"discount": 0, "max_requests": rng.choice((10, 20, 60))}
            entry = openai_entry(server.url, window_tokens=8192, price=PRICE, batch=batch)
            with EngineSession(entry) as session:
                record_identity(ledger, "s", "c", entry.name, session.identity)
                scope = Scope("s", "c", entry.name, session.identity.hash)
                planned = plan_of(sample, calls // 3).calls(scope.identity_hash)
                budget = Budget(usd=calls * CALL_USD * rng.uniform(0.2, 1.2))
                control = RunControl(budget, batching="wait")
                for _ in range(20):
                    run = batches.BatchRun(planned, session, ledger, scope, control)
                    try:
                        over = session.submit(run.run()).result().in_batches == 0
                    except BudgetError:
                        over = not batches.ledgered.batches_of(ledger, is_open=True)
                        ended += over
                    if over:
                        break
            tokens = sum(b["prompt_tokens"] + b["completion_tokens"] for b in server.bills())
            finished += ledger.stats()["answers"] == len(planned)
            beyond += tokens * 1e-6 > (budget.usd or 0.0)
    print(
        f"{trials} studies: {finished} finished, {ended} ended by their budget, {beyond} beyond it"
    )
    return beyond == 0 and finished > 0 and ended > 0


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--calls", type=int)
    parser.add_argument("--trials", type=int, default=0)
    parser.add_argument("--mb", type=float, default=100.0)
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--child", nargs=2, metavar=("FOLDER", "URL"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    given.calls = given.calls or (60 if given.trials else 10_000)
    if given.trials:
        sys.exit(0 if within_budget(given.trials, given.calls) else "The budget was exceeded.")
    if given.child:
        folder, url = given.child
        child(Path(folder), url, given.calls, given.mb, wait=bool(given.kills))
        return
    total_s, peak = 0.0, 0.0
    with tempfile.TemporaryDirectory() as folder:
        server = subprocess.Popen(
            [sys.executable, "-c", SERVE, f"{folder}/provider", str(int(bool(given.kills)))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        assert server.stdin is not None
        assert server.stdout is not None
        url = server.stdout.readline().strip()
        own = [sys.executable, __file__, "--mb", str(given.mb)]
        if given.kills:
            own += ["--kills", "1", "--child", folder, url]
            holds = killed(Path(folder), own, given.kills, given.calls, random.Random(given.seed))
            server.kill()
            sys.exit(0 if holds else "A claim does not hold.")
        for name in ("submit", "take in"):
            command = [*own, "--calls", str(given.calls), "--child", folder, url]
            done = subprocess.run(command, stdout=-1, text=True, check=True)
            found = json.loads(done.stdout)
            total_s, peak = total_s + found["cpu_s"], max(peak, found["mib"])
            ms = 1000 * found["cpu_s"] / given.calls
            counts = ", ".join(f"{n} {found[n]:,}" for n in ("sent", "answered", "in_batches"))
            print(
                f"{name:<8} {ms:5.2f} CPU ms a call, {found['mib']:4.0f} MiB; {counts}", flush=True
            )
            server.stdin.write("\n")
            server.stdin.flush()
            server.stdout.readline()
        server.stdin.close()
        server.wait()
    ms = 1000 * total_s / given.calls
    print(
        f"together {ms:5.2f} CPU ms a call (limit {MOST_MS}), {peak:.0f} MiB (limit {MOST_MB:.0f})"
    )
    if ms > MOST_MS or peak > MOST_MB:
        sys.exit(1)


if __name__ == "__main__":
    main()
