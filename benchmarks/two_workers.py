"""10,000 calls over two Celery workers as on two machines, of which one is killed halfway.

    python benchmarks/two_workers.py [--calls 10000]

One PostgreSQL server holds the call ledger and Dagster's storage; one Redis hands out the steps.
Workers and run workers share the store and nothing else: each has its own working folder, home,
temporary files and Dagster home. Two models have an endpoint each, which logs every request before
it answers. The worker that measures the first model is killed by SIGKILL (its process group, as if
its machine were lost) when half of that model's calls are answered; the other one takes over.
Printed: what the endpoints received, what the ledger has, and the time. It ends with an error if a
call was answered twice, or if more was sent twice than was in flight at the kill. Needs
PostgreSQL's programs and Redis (Debian: postgresql, redis-server), and the extra `celery`.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import dagster as dg
import pytest

from contextcliff_dagster.defs.partitions import add_campaign, range_tags
from contextcliff_dagster.experiments.common.study_run import campaign_of, open_ledger
from contextcliff_dagster.experiments.length_profile.experiment import LENGTH_PROFILE
from contextcliff_dagster.inference.ledger.ledger import Ledger
from contextcliff_dagster.run.study import prepare_study
from contextcliff_dagster.store import Store
from contextcliff_dagster.studies import Study, load_study
from contextcliff_dagster_tests.support.other_executors import (
    CELERY_WORKER,
    PROFILE,
    Machine,
    Started,
    as_code_location,
    celery_steps,
    over_redis,
)
from contextcliff_dagster_tests.support.paths import DOCKER
from contextcliff_dagster_tests.support.postgres import running_postgres
from contextcliff_dagster_tests.support.servers.planned_server import planned_server

STUDY = """\
name: tiny
corpus: {{kind: reference, task: lookup, documents: {documents}, max_tokens: 200}}
tokenizer: reference
bins: {{count: {bins}}}
sampling: {{samples_per_bin: {per_bin}}}
prompt: {{max_output_tokens: 12}}
models: [left, right]
"""
MODELS, BINS, CONCURRENCY, DELAY_S = ("left", "right"), 5, 8, 0.1


def measure(folder: Path, calls: int) -> bool:
    """Run it once and print the figures; return whether nothing was paid twice."""
    each = calls // len(MODELS)
    (folder / "studies").mkdir()
    file = folder / "studies" / "tiny.yaml"
    # Bins are of equal counts of documents; some of their questions are left out as doubles.
    of = {"documents": each * 2, "bins": BINS, "per_bin": each // BINS}
    file.write_text(STUDY.format(**of), encoding="utf-8")
    machines = {
        name: Machine.make(folder / "machines" / name, DOCKER / "dagster.yaml")
        for name in ("one", "two", *MODELS, "here")
    }
    start = Started(folder)
    with ExitStack() as stack:
        stack.callback(start.end)
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        postgres = stack.enter_context(running_postgres())
        logs = {name: folder / f"{name}.jsonl" for name in MODELS}
        entries = {
            name: {
                "engine": "openai",
                "model_id": name,
                "concurrency": CONCURRENCY,
                "window_tokens": 8192,
                "base_url": stack.enter_context(planned_server(logs[name], DELAY_S)).url,
            }
            for name in MODELS
        }
        (folder / "models.yaml").write_text(json.dumps({"models": entries}), encoding="utf-8")
        variables = {
            **over_redis(start, folder),
            **machines["here"].environment,
            "CONTEXTCLIFF_HOME": str(folder / "store"),
            "CONTEXTCLIFF_LEDGER": postgres.url,
            "DAGSTER_POSTGRES_HOST": postgres.host,
            "DAGSTER_POSTGRES_PORT": str(postgres.port),
            "DAGSTER_POSTGRES_USER": postgres.user,
            "DAGSTER_POSTGRES_PASSWORD": postgres.password,
            "DAGSTER_POSTGRES_DB": postgres.database,
        }
        as_code_location(folder, patch, **variables)
        study = load_study(file)
        prepare_study(study)
        for name in ("one", "two"):
            start(name, *CELERY_WORKER, "-Q", "dagster", "-n", f"{name}@here", on=machines[name])
        begun = time.monotonic()
        for model in MODELS:
            launch(start, study, model, machines[model])
        ledger = stack.enter_context(Ledger.open(Store.default().ledger))
        answered = "SELECT count(*) FROM results JOIN calls USING (call_key) WHERE model = ?"
        start.until(lambda: ledger.read(answered, ("left",))[0][0] >= each // 2)
        (dies,) = workers_of("left")
        start.kill(dies)
        killed = time.monotonic()
        start.until(lambda: all(start.processes[f"run of {m}"].poll() == 0 for m in MODELS))
        ended = time.monotonic()
        return show(ledger, logs, each, dies, (begun, killed, ended))


def launch(start: Started, study: Study, model: str, machine: Machine) -> None:
    """Launch the study's job for one model, with its run worker on a machine of its own."""
    with dg.DagsterInstance.get() as instance, open_ledger(Store.default()) as ledger:
        campaign = campaign_of(ledger, study)
        add_campaign(instance, study, campaign)
    tags = {**range_tags(study, LENGTH_PROFILE, campaign, [model]), "benchmark/model": model}
    command = (*PROFILE, "-j", "profile_tiny", "--tags", json.dumps(tags))
    start(f"run of {model}", sys.executable, *command, on=machine)


def workers_of(model: str) -> list[str]:
    """Return the workers that began the model's predictions, in order."""
    with dg.DagsterInstance.get() as instance:
        (run,) = instance.get_runs(dg.RunsFilter(tags={"benchmark/model": model}))
        return [
            worker.partition("@")[0] for _, worker in celery_steps(instance.all_logs(run.run_id))
        ]


def show(
    ledger: Ledger,
    logs: dict[str, Path],
    each: int,
    dies: str,
    times: tuple[float, float, float],
) -> bool:
    requests = {
        name: Counter(json.loads(line)["prompt"] for line in log.read_text().splitlines())
        for name, log in logs.items()
    }
    twice = {name: sum(n > 1 for n in of.values()) for name, of in requests.items()}
    ((results, calls),) = ledger.read("SELECT count(*), count(DISTINCT call_key) FROM results")
    ((failed,),) = ledger.read("SELECT count(*) FROM results WHERE no_answer IS NOT NULL")
    orphans = len(ledger.orphans())
    begun, killed, ended = times
    print(f"calls planned                       {each * len(MODELS):>7,}")
    print(
        f"answers in the ledger               {results:>7,} of {calls:,} calls, {failed:,} failed"
    )
    for name, of in requests.items():
        print(
            f"requests at the endpoint of {name:<5}   {of.total():>7,} for {len(of):,} prompts; "
            f"{twice[name]:,} sent twice, none more than {max(of.values())} times"
        )
    print(f"in flight at the kill (orphans)     {orphans:>7,}")
    print(f"workers of left, right              {workers_of('left')}, {workers_of('right')}")
    print(f"seconds to the kill, to the end     {killed - begun:>7.0f}, {ended - begun:.0f}")
    return (
        results == calls == each * len(MODELS)
        and failed == 0
        and twice == {"left": orphans, "right": 0}
        and orphans <= CONCURRENCY
        and workers_of("left")[0] == dies
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--calls", type=int, default=10_000)
    calls = parser.parse_args().calls
    with tempfile.TemporaryDirectory(prefix="contextcliff-two-workers-") as folder:
        if not measure(Path(folder), calls):
            sys.exit("A call was paid twice, or is missing.")


if __name__ == "__main__":
    main()
