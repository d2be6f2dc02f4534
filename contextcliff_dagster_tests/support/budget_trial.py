"""One randomised trial of a budget: several processes, errors, kills, and a server that bills.

What may be exceeded, and by how much, is what `inference.spending.Budget` states.
"""

from __future__ import annotations

import multiprocessing
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

from contextcliff_dagster.contracts import BudgetError
from contextcliff_dagster.inference.execution.measure import measure
from contextcliff_dagster.inference.execution.run_control import RunControl
from contextcliff_dagster.inference.ledger.ledger import Ledger
from contextcliff_dagster.inference.ledger.verify import verify
from contextcliff_dagster.inference.models.models_file import Price
from contextcliff_dagster.inference.requests.call_plan import plan_calls
from contextcliff_dagster.inference.spending import Budget
from contextcliff_dagster_tests.support.crowd import UNPAID, lines_of, texts_to_keys
from contextcliff_dagster_tests.support.records.calls import (
    RECIPE,
    LedgerSample,
    openai_entry,
    plan_of,
    read_log,
    unreliable_server,
)
from contextcliff_dagster_tests.support.servers.unreliable_server import COMPLETION_TOKENS

SAMPLE = LedgerSample(3, 12, max_tokens=400)
N = 12
PRICE = Price(input_usd_per_mtok=500, output_usd_per_mtok=2000)


@dataclass(frozen=True)
class Trial:
    """``limit``: ``usd``, ``usd_per_day``, ``tokens`` or ``calls``; ``share`` of what a run without
    faults takes. ``count_factor``: the server counts that many times the tokens that we do."""

    limit: str
    share: float
    processes: int
    concurrency: int
    faults: float
    kills: int
    count_factor: float
    own_count: bool
    seed: int

    @property
    def in_flight(self) -> int:
        return self.processes * self.concurrency


def draw(rng: random.Random) -> Trial:
    """A trial like any other; in one of four the server counts more than is reserved."""
    return Trial(
        limit=rng.choice(["usd", "usd", "usd_per_day", "tokens", "calls"]),
        share=0.0 if rng.random() < 0.05 else rng.uniform(0.02, 1.3),
        processes=rng.randint(1, 3),
        concurrency=rng.choice([1, 2, 4, 8, 16]),
        faults=rng.choice([0.0, 0.2, 0.4]),
        kills=rng.choice([0, 0, 1, 2]),
        count_factor=rng.choice([1.0, 1.0, 1.0, rng.uniform(1.4, 3.0)]),
        own_count=rng.random() < 0.5,
        seed=rng.randrange(1 << 30),
    )


@dataclass
class Result:
    """In the limit's own unit. ``billed`` by the server, of all that it may have worked on;
    ``booked`` by the ledger; ``allowed`` is the limit and what may come on top; ``ends``: how the
    runs ended."""

    trial: Trial
    limit: float
    allowed: float
    billed: float
    booked: float
    requests: int
    measured: int
    ends: Counter[str] = field(default_factory=Counter)
    broken: list[str] = field(default_factory=list)

    @property
    def beyond(self) -> float:
        """Bill over limit, at least 0."""
        return max(0.0, self.billed - self.limit)


def context() -> ForkServerContext:
    """Processes that find everything imported already."""
    ctx = multiprocessing.get_context("forkserver")
    ctx.set_forkserver_preload(
        [__name__, "aiohttp", "orjson", "contextcliff_dagster.inference.engines.openai.engine"]
    )
    return ctx


def _measure(path: Path, url: str, trial: Trial, budget: Budget) -> None:
    """In a process of its own; its exit code says how it ended."""
    entry = openai_entry(
        url,
        revision="1",
        concurrency=trial.concurrency,
        timeout_s=1.0,
        price=PRICE.model_dump(),
        tokenizer="reference" if trial.own_count else None,
        quirks={"probes": "omit"},
    )
    with Ledger.open(path) as ledger:
        try:
            measure(plan_of(SAMPLE, N), entry, ledger, RunControl(budget))
        except BudgetError:
            raise SystemExit(7) from None


def run(trial: Trial, folder: Path, ctx: ForkServerContext) -> Result:
    """The whole trial, and one more run with the same budget at its end."""
    rng = random.Random(trial.seed)
    log, path = folder / "requests.jsonl", folder / "state.db"
    whole = _whole(trial)
    limit = whole[trial.limit] * trial.share
    if trial.limit in ("tokens", "calls"):
        limit = int(limit)
    budget = Budget(**{trial.limit: limit})
    ends: Counter[str] = Counter()
    options = {"faults": trial.faults, "count_factor": trial.count_factor, "seed": trial.seed}
    with unreliable_server(delay_ms=10, log=log, **options) as url:

        def start() -> Any:
            process = ctx.Process(target=_measure, args=(path, url, trial, budget))
            process.start()
            return process

        at_work = [start() for _ in range(trial.processes)]
        kills = sorted(rng.randint(1, 20) for _ in range(trial.kills))
        while any(process.is_alive() for process in at_work):
            time.sleep(0.01)
            if kills and lines_of(log) >= kills[0]:
                kills.pop(0)
                victim = rng.randrange(len(at_work))
                if at_work[victim].is_alive():
                    at_work[victim].kill()
                    at_work[victim].join()
                    ends["killed"] += 1
                    at_work[victim] = start()
        at_work.append(start())
        for process in at_work:
            process.join()
        names = {0: "done", 7: "budget"}
        codes = [names.get(process.exitcode, str(process.exitcode)) for process in at_work]
    return _judge(trial, limit, log, path, ends + Counter(codes), codes[-1])


def _whole(trial: Trial) -> dict[str, float]:
    calls = plan_calls(SAMPLE, "", RECIPE, "c", SAMPLE.bins, N)
    tokens = [call.length_tokens + 4 for call in calls]
    usd = sum(PRICE.cost_usd(count, COMPLETION_TOKENS) for count in tokens)
    return {
        "usd": usd,
        "usd_per_day": usd,
        "tokens": sum(tokens) + len(calls) * COMPLETION_TOKENS,
        "calls": len(calls),
    }


def _judge(
    trial: Trial, limit: float, log: Path, path: Path, ends: Counter[str], last: str
) -> Result:
    with Ledger.open(path) as ledger:
        spent = ledger.spent("s", "c")
        # A later attempt reserves more once an answer has shown that the server counts more, and
        # the log does not say which attempt a request was: the least bounds every excess.
        reserved = {
            row[0]: row[1:]
            for row in ledger.read(
                "SELECT call_key, min(reserved_usd), min(reserved_tokens) FROM attempts"
                " GROUP BY call_key"
            )
        }
        kept = {key for (key,) in ledger.read("SELECT call_key FROM results")}
        attempts = ledger.stats()["attempts"]
        errors = verify(ledger).faults
    identity = _identity(path)
    key_of = texts_to_keys(SAMPLE, N, identity) if identity else {}
    unit = {"usd": 0, "usd_per_day": 0, "tokens": 1}.get(trial.limit)
    requests = read_log(log)
    billed, most_excess, unseen = 0.0, 0.0, 0.0
    to_see = set(kept)  # of each of these, the usage of one answer was seen
    for line in requests:
        if unit is None:
            billed += 1
            continue
        if line["behaviour"] in UNPAID:
            continue
        # Of an answer that nobody saw to its end, all that it could have become is billed.
        ok = line["behaviour"] == "ok"
        out = COMPLETION_TOKENS if ok else RECIPE.max_output_tokens
        bill = (PRICE.cost_usd(line["tokens"], out), line["tokens"] + out)[unit]
        key = key_of[line["prompt"]]
        excess = max(0.0, bill - reserved[key][unit])
        billed += bill
        most_excess = max(most_excess, excess)
        if ok and key in to_see:
            to_see.remove(key)
        else:
            unseen += excess
    booked = {"tokens": float(spent.tokens), "calls": float(spent.calls)}.get(
        trial.limit, spent.usd
    )
    allowed = limit + trial.in_flight * most_excess + unseen
    slack = 1 + 1e-9
    claims = {
        "the bill keeps to what is stated": billed <= allowed * slack,
        "where the reservation covers the bill, it is never exceeded": most_excess > 0
        or billed <= limit * slack,
        "so do the books": booked <= (limit + trial.in_flight * most_excess) * slack,
        "no request without an attempt in the books": len(requests) <= attempts,
        "the books hold at least the bill, but for what nobody saw": billed
        <= (booked + unseen) * slack,
        "every run is done or stopped by the budget": set(ends) <= {"done", "budget", "killed"},
        # While several run, one may stop for what others have only reserved.
        "who stops alone is short of money": last != "budget" or len(kept) < len(SAMPLE.bins) * N,
        "the ledger is sound": not errors,
    }
    broken = [claim for claim, holds in claims.items() if not holds]
    return Result(trial, limit, allowed, billed, booked, len(requests), len(kept), ends, broken)


def _identity(path: Path) -> str | None:
    with Ledger.open(path) as ledger:
        rows = ledger.read("SELECT identity_hash FROM campaign_models")
    return str(rows[0][0]) if rows else None
