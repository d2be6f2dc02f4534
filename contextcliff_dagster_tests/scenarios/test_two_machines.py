"""Two Celery workers as on two machines, over PostgreSQL: one is killed, the other goes on."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import dagster as dg
import pytest

from contextcliff_dagster.defs.partitions import add_campaign, range_tags
from contextcliff_dagster.experiments.common.study_run import campaign_of, open_ledger
from contextcliff_dagster.experiments.length_profile.experiment import LENGTH_PROFILE
from contextcliff_dagster.inference.ledger.ledger import Ledger
from contextcliff_dagster.run.study import prepare_study, rebuild_report
from contextcliff_dagster.store import Store
from contextcliff_dagster.studies import Study, load_study
from contextcliff_dagster_tests.support.held_calls import Gate
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
from contextcliff_dagster_tests.support.records.calls import read_log, reference_server
from contextcliff_dagster_tests.support.requirements import require
from contextcliff_dagster_tests.support.tiny_study import TINY

pytestmark = [
    pytest.mark.celery,
    pytest.mark.postgres,
    pytest.mark.timeout(1200),
]

MODELS = ("left", "right")
CALLS, ANSWERED = 12, 3
PREDICTIONS = "tiny__predictions"


@dataclass(frozen=True)
class Endpoint:
    """A model's server: it answers what its gate lets through, and logs every request."""

    gate: Gate
    log: Path

    def received(self) -> list[str]:
        """Hashes of the prompts, in the order in which they came."""
        return [line["prompt_hash"] for line in read_log(self.log) if line["event"] == "received"]


@dataclass(frozen=True)
class Site:
    """Redis, PostgreSQL, two endpoints, a study of both; what it takes to start processes."""

    start: Started
    study: Study
    endpoints: dict[str, Endpoint]
    machines: dict[str, Machine]

    def run(self, model: str) -> None:
        """Launch the study's job for one model, with its run worker on a machine of its own."""
        with dg.DagsterInstance.get() as instance, open_ledger(Store.default()) as ledger:
            campaign = campaign_of(ledger, self.study)
            add_campaign(instance, self.study, campaign)
        range_of_model = range_tags(self.study, LENGTH_PROFILE, campaign, [model])
        tags = {**range_of_model, "test/model": model}
        command = (*PROFILE, "-j", "profile_tiny", "--tags", json.dumps(tags))
        self.start(f"run of {model}", sys.executable, *command, on=self.machines[model])

    def terminate(self, model: str) -> None:
        """End the run as the UI does."""
        with dg.DagsterInstance.get() as instance:
            instance.report_run_canceling(self.recorded(instance, model))
        worker = self.start.processes.pop(f"run of {model}")
        worker.terminate()
        worker.wait(300)

    def has_ended(self, model: str) -> bool:
        return self.start.processes[f"run of {model}"].poll() == 0

    def events(self, model: str, kind: dg.DagsterEventType | None = None) -> list[dg.EventLogEntry]:
        """What Dagster recorded of the model's run."""
        with dg.DagsterInstance.get() as instance:
            run = self.recorded(instance, model)
            return list(instance.all_logs(run.run_id, of_type=kind))

    @staticmethod
    def recorded(instance: dg.DagsterInstance, model: str) -> dg.DagsterRun:
        """The model's one run."""
        (run,) = instance.get_runs(dg.RunsFilter(tags={"test/model": model}))
        return run

    def workers(self, model: str) -> list[str]:
        """The workers that began the model's predictions."""
        steps = celery_steps(self.events(model))
        return [worker.partition("@")[0] for step, worker in steps if step == PREDICTIONS]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    require("celery")
    require("postgres")
    (tmp_path / "studies").mkdir()
    file = tmp_path / "studies" / "tiny.yaml"
    file.write_text(TINY.replace("[reference-short, reference-long]", "[left, right]"))
    endpoints = {
        name: Endpoint(Gate(tmp_path / f"{name}.gate"), tmp_path / f"{name}.jsonl")
        for name in MODELS
    }
    for endpoint in endpoints.values():
        endpoint.gate.let(ANSWERED)
    left, right = endpoints.values()
    machines = {
        name: Machine.make(tmp_path / "machines" / name, DOCKER / "dagster.yaml")
        for name in ("one", "two", *MODELS, "test")
    }
    start = Started(tmp_path)
    with (
        running_postgres() as postgres,
        reference_server(log=left.log, gate=left.gate) as url_of_left,
        reference_server(log=right.log, gate=right.gate) as url_of_right,
    ):
        entry = {
            "engine": "openai",
            "model_id": "reference-short",
            "concurrency": 2,
            "window_tokens": 8192,
        }
        models = {"left": {**entry, "base_url": url_of_left}}
        models["right"] = {**entry, "base_url": url_of_right}
        (tmp_path / "models.yaml").write_text(json.dumps({"models": models}))
        try:
            as_code_location(
                tmp_path,
                monkeypatch,
                **over_redis(start, tmp_path),
                **machines["test"].environment,
                CONTEXTCLIFF_LEDGER=postgres.url,
                DAGSTER_POSTGRES_HOST=postgres.host,
                DAGSTER_POSTGRES_PORT=str(postgres.port),
                DAGSTER_POSTGRES_USER=postgres.user,
                DAGSTER_POSTGRES_PASSWORD=postgres.password,
                DAGSTER_POSTGRES_DB=postgres.database,
            )
            study = load_study(file)
            prepare_study(study)
            for name in ("one", "two"):
                command = (*CELERY_WORKER, "-Q", "dagster", "-n", f"{name}@here")
                start(name, *command, on=machines[name])
            yield Site(start, study, endpoints, machines)
        finally:
            start.end()


def test_two_models_at_two_workers_of_which_one_is_killed(
    site: Site, contextcliff_home: Path
) -> None:
    left, right = site.endpoints.values()
    for model in MODELS:
        site.run(model)
    store = Store(contextcliff_home)
    with Ledger.open(store.ledger) as ledger:
        answers = "SELECT model, count(*) FROM results JOIN calls USING (call_key) GROUP BY 1"
        # Each server has answered three calls and holds the next: both workers are at it.
        site.start.until(lambda: dict(ledger.read(answers)) == dict.fromkeys(MODELS, ANSWERED))
        site.start.until(lambda: all(len(e.received()) > ANSWERED for e in site.endpoints.values()))
        (dies,), (lives,) = map(site.workers, MODELS)
        assert {dies, lives} == {"one", "two"}
        claims = "SELECT DISTINCT owner FROM claims JOIN calls USING (call_key) WHERE model = ?"
        ((owner,),) = ledger.read(claims, ("left",))
        assert ledger.backend.is_alive(owner)

        site.start.kill(dies)
        in_flight = set(left.received()[ANSWERED:])
        for endpoint in site.endpoints.values():
            endpoint.gate.open()
        site.start.until(lambda: all(map(site.has_ended, MODELS)))

        assert not ledger.backend.is_alive(owner)
        assert dict(ledger.read(answers)) == dict.fromkeys(MODELS, CALLS)
        assert ledger.read("SELECT count(*) FROM results WHERE no_answer IS NOT NULL") == [(0,)]
        assert ledger.read("SELECT count(*) FROM claims") == [(0,)]
        hashes = ledger.prompt_hashes(orphan.call_key for orphan in ledger.orphans())
        assert set(hashes.values()) == in_flight
        owners = "SELECT owner, count(*) FROM attempts WHERE model = ? GROUP BY owner"
        attempts = dict(ledger.read(owners, ("left",)))
        assert attempts.pop(owner) == ANSWERED + len(in_flight)
        assert list(attempts.values()) == [CALLS - ANSWERED]
        assert [n for _, n in ledger.read(owners, ("right",))] == [CALLS]

    # What the servers saw, who worked, and what came of it.
    assert Counter(right.received()).total() == len(set(right.received())) == CALLS
    asked = Counter(left.received())
    assert {prompt for prompt, times in asked.items() if times > 1} == in_flight
    assert (len(asked), max(asked.values())) == (CALLS, 2)
    assert site.workers("left") == [dies, lives]
    assert site.workers("right") == [lives]
    (retry,) = site.events("left", dg.DagsterEventType.STEP_UP_FOR_RETRY)
    # The second, where the worker was killed before the run had asked who has the step.
    known = f"worker {dies}@here is gone", "no worker knows of it"
    lost = {f"The step {PREDICTIONS} is lost: {how}." for how in known}
    assert retry.get_dagster_event().step_retry_data.error.message.strip() in lost
    assert not [
        f for name in site.machines for f in (site.machines[name].folder / "work").iterdir()
    ]
    rebuild_report(site.study)
    (report,) = store.root.rglob("report.json")
    models = json.loads(report.read_bytes())["models"]
    assert [(one["model"], one["n"]) for one in models] == [(name, CALLS) for name in MODELS]


def test_a_run_that_is_terminated_leaves_its_worker_free(
    site: Site, contextcliff_home: Path
) -> None:
    left, right = site.endpoints.values()
    site.run("left")
    site.start.until(lambda: len(left.received()) > ANSWERED)
    (worker,) = site.workers("left")
    site.start.kill({"one": "two", "two": "one"}[worker])
    with Ledger.open(Store(contextcliff_home).ledger) as ledger:
        owners = {owner for (owner,) in ledger.read("SELECT owner FROM claims")}
        assert any(map(ledger.backend.is_alive, owners))
        site.terminate("left")  # while the server holds its calls
        assert site.events("left", dg.DagsterEventType.RUN_CANCELED)
        site.start.until(lambda: not any(map(ledger.backend.is_alive, owners)))
    right.gate.open()
    site.run("right")
    site.start.until(lambda: site.has_ended("right"))
    assert site.workers("right") == [worker]
