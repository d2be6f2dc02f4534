"""An hour of studies on one-minute schedules while every part of Dagster is killed at random.

    python benchmarks/soak.py --minutes 60

Dagster's parts run as the containers of docker/compose.yaml do, with its dagster.yaml and
workspace.yaml: a code server, a webserver and a daemon over one PostgreSQL server, which also holds
the call ledger. (`dagster dev` starts the same parts, and ends with the first of them that dies.)
Every 20 to 60 s one of them or the process of a run is killed by SIGKILL (PostgreSQL: stopped as by
a crash), and started again as `restart: unless-stopped` does. Of the studies `plain` is measured
every minute and nothing happens to it; the model of `watched` becomes worse at planned times, so
that its baseline raises an alert; the model of `moved` is missing from models.yaml at planned
times, so that its runs are refused and reported; `pair` has two endpoints, measured at every fifth
tick by two runs. A sensor reports each campaign. Needs PostgreSQL's programs (Debian: postgresql).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from soak_figures import Plan, figures_of

from contextcliff_dagster.experiments.alert_channels import WEBHOOK
from contextcliff_dagster_tests.support.dagster_ui import ask
from contextcliff_dagster_tests.support.postgres import PostgresServer, free_port, running_postgres
from contextcliff_dagster_tests.support.servers.planned_server import (
    PlannedServer,
    fingerprint,
    planned_server,
)
from contextcliff_dagster_tests.support.servers.webhook import Webhook
from contextcliff_dagster_tests.support.supervisor import Chaos, Service, Supervisor

STUDY = """\
name: {name}
corpus: {{kind: reference, task: lookup, documents: 120, max_tokens: 200}}
tokenizer: reference
bins: {{count: 3}}
sampling: {{samples_per_bin: 12, seed: {seed}}}
prompt: {{max_output_tokens: 12}}
models: [{models}]
analysis: {{resamples: 100}}
schedule: {{cron: "*/{every} * * * *"}}
"""
STUDIES = {
    "plain": ("common",),
    "watched": ("steady",),
    "moved": ("mover",),
    "pair": ("left", "right"),
}
MODELS = [model for models in STUDIES.values() for model in models]
DELAY_S, CONCURRENCY = 0.2, 3
WORSE = ((0.2, 0.3), (0.6, 0.7))
MISSING = ((0.1, 0.17), (0.4, 0.47), (0.75, 0.8))
"""Periods without the model of `moved`, as shares of the whole time."""
LEAST_S = 75.0
"""Least length of a planned period in seconds, so that a tick falls into it."""

SWITCH = """
mutation ($name: String!) {{ {mutation}Schedule(scheduleSelector: {{
  repositoryLocationName: "contextcliff_dagster", repositoryName: "__repository__",
  scheduleName: $name}}) {{ __typename }} }}"""
STOP = "mutation ($id: String!) { stopRunningSchedule(id: $id) { __typename } }"
SCHEDULES = """
{ schedulesOrError(repositorySelector: {repositoryLocationName: "contextcliff_dagster",
    repositoryName: "__repository__"}) { ... on Schedules { results { name id } } } }"""


def say(message: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {message}", file=sys.stderr, flush=True)


def patiently(attempt: Callable[[], Any], seconds: float = 180) -> Any:
    """Return the result of ``attempt``, retried until it succeeds."""
    until = time.monotonic() + seconds
    while True:
        try:
            return attempt()
        except Exception:
            if time.monotonic() > until:
                raise
            time.sleep(1)


def write_models(file: Path, servers: Mapping[str, PlannedServer]) -> None:
    # Of one model, calls of two studies in campaigns of one name would be shared.
    lines = [
        f"  {name}: {{engine: openai, model_id: {name}, revision: '1', window_tokens: 8192, "
        f"concurrency: {CONCURRENCY}, base_url: {server.url}}}"
        for name, server in servers.items()
    ]
    part = file.with_suffix(".part")
    part.write_text("\n".join(["models:", *lines]) + "\n")
    part.replace(file)


def services_of(folder: Path, code_port: int, ui_port: int) -> list[Service]:
    """Return the containers' commands, on free ports."""
    program = str(Path(sys.executable).parent)
    code = (
        f"{program}/dagster code-server start --host 127.0.0.1 --port {code_port} "
        "--module-name contextcliff_dagster.definitions --location-name contextcliff_dagster"
    )
    ui = f"{program}/contextcliff ui --no-daemon --port {ui_port} --workspace workspace.yaml"
    daemon = f"{program}/dagster-daemon run --workspace workspace.yaml"
    commands = {"code": code, "webserver": ui, "daemon": daemon}
    return [
        Service(name, [sys.executable, "-P", *command.split()], folder / f"{name}.log")
        for name, command in commands.items()
    ]


class Watch(threading.Thread):
    """Watcher that makes the planned changes and records every answer in the ledger."""

    def __init__(
        self,
        minutes: float,
        models: Path,
        servers: dict[str, PlannedServer],
        ledger: PostgresServer,
    ) -> None:
        super().__init__(daemon=True)
        self._length, self._models, self._servers = minutes * 60, models, servers
        self._ledger = ledger
        self.seen: dict[str, str] = {}

    def run(self) -> None:
        began, missing = time.time(), False
        while True:
            time.sleep(2)
            now = time.time() - began
            self._servers["steady"].worse = self._within(now, WORSE)
            if self._within(now, MISSING) != missing:
                missing = not missing
                left = {m: s for m, s in self._servers.items() if not (missing and m == "mover")}
                write_models(self._models, left)
                say(f"models.yaml {'without' if missing else 'with'} mover")
            with suppress(Exception):  # the server is being killed
                sql = "SELECT call_key, raw_output FROM contextcliff.results"
                self.seen.update(self._ledger.execute(sql))  # type: ignore[arg-type]

    def _within(self, now: float, shares: tuple[tuple[float, float], ...]) -> bool:
        spans = [(a * self._length, b * self._length) for a, b in shares]
        return any(a <= now < max(b, a + LEAST_S) for a, b in spans)


@contextmanager
def webhook() -> Iterator[Webhook]:
    server = Webhook()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()


def prepare(studies: Path, servers: Mapping[str, PlannedServer], plan: Plan) -> None:
    """Draw the samples, set the servers' answers, and measure and pin the baseline."""
    from contextcliff_dagster.run.study import prepare_study
    from contextcliff_dagster.studies import load_study

    for number, (name, (models, every)) in enumerate(plan.items()):
        file = studies / f"{name}.yaml"
        listed = ", ".join(models)
        file.write_text(STUDY.format(name=name, seed=number, models=listed, every=every))
        study = load_study(file)
        manifest = prepare_study(study).manifest
        assert manifest is not None
        answers = {}
        for planned in (p for b in manifest.bins for p in manifest.planned(b.bin, 12)):
            example = planned.example
            text = manifest.document_text(example.document_id)
            prompt = study.recipe().render(text, example.question)
            answers[fingerprint(prompt.contents())] = example.answers[0]
        for model in models:
            servers[model].answers = answers
    for words in (["profile", "watched", "--yes"], ["baseline", "set", "watched"]):
        command = [sys.executable, "-m", "contextcliff_dagster.cli", *words]
        subprocess.run(command, check=True, stdout=sys.stderr)


def environment_of(
    folder: Path, postgres: PostgresServer, ledger: PostgresServer, hook: Webhook, code_port: int
) -> dict[str, str]:
    return {
        "SOAK": uuid.uuid4().hex,
        "DAGSTER_HOME": str(folder / "home"),
        "DAGSTER_POSTGRES_HOST": postgres.host,
        "DAGSTER_POSTGRES_PORT": str(postgres.port),
        "DAGSTER_POSTGRES_USER": postgres.user,
        "DAGSTER_POSTGRES_PASSWORD": postgres.password,
        "DAGSTER_POSTGRES_DB": postgres.database,
        "DAGSTER_LOGS": str(folder / "compute_logs"),
        "CONTEXTCLIFF_CODE_HOST": "127.0.0.1",
        "CONTEXTCLIFF_CODE_PORT": str(code_port),
        "CONTEXTCLIFF_HOME": str(folder / "store"),
        "CONTEXTCLIFF_LEDGER": ledger.url,
        "CONTEXTCLIFF_STUDIES": str(folder / "studies"),
        "CONTEXTCLIFF_MODELS": str(folder / "models.yaml"),
        "CONTEXTCLIFF_TOKEN": "a-token-of-the-soak",
        WEBHOOK: hook.url,
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
    }


def soak(
    minutes: float, every: int, pause: tuple[float, float], seed: int, folder: Path
) -> dict[str, Any]:
    """Run the whole experiment; return its figures, with ``claims`` saying which hold."""
    for name in ("home", "studies", "compute_logs"):
        (folder / name).mkdir(parents=True)
    for name in ("dagster.yaml", "workspace.yaml"):
        shutil.copy(ROOT / "docker" / name, folder / "home" / name)
    code_port, ui_port = free_port(), free_port()
    address = f"http://127.0.0.1:{ui_port}"
    with ExitStack() as stack:
        postgres = stack.enter_context(running_postgres("dagster"))
        postgres.execute("CREATE DATABASE ledger")
        ledger, hook = replace(postgres, database="ledger"), stack.enter_context(webhook())
        servers = {
            model: stack.enter_context(planned_server(folder / f"{model}.jsonl", DELAY_S))
            for model in MODELS
        }
        write_models(folder / "models.yaml", servers)
        os.environ.update(environment_of(folder, postgres, ledger, hook, code_port))
        plan = {s: (of, every * (5 if len(of) > 1 else 1)) for s, of in STUDIES.items()}
        prepare(folder / "studies", servers, plan)
        services = services_of(folder, code_port, ui_port)
        supervisor = Supervisor(services, os.environ, folder / "home")
        stack.enter_context(supervisor.running())

        def graphql(query: str, **variables: Any) -> Any:
            return patiently(
                lambda: ask(address, query, os.environ["CONTEXTCLIFF_TOKEN"], **variables)
            )

        def switch_on(study: str) -> None:
            token, query = os.environ["CONTEXTCLIFF_TOKEN"], SWITCH.format(mutation="start")
            answer = ask(address, query, token, name=f"measure_{study}")["startSchedule"]
            assert answer["__typename"] == "ScheduleStateResult", answer

        for study in STUDIES:
            patiently(partial(switch_on, study))
        say(f"schedules are on; {address}; everything lies in {folder}")
        began, chaos = time.time(), Chaos(seed, supervisor, postgres, say)
        watch = Watch(minutes, folder / "models.yaml", servers, ledger)
        watch.start()
        while (left := chaos.pause(*pause)) + time.time() < began + minutes * 60:
            time.sleep(left)
            chaos.once()
        time.sleep(max(0.0, began + minutes * 60 - time.time()))
        for one in graphql(SCHEDULES)["schedulesOrError"]["results"]:
            if one["name"].removeprefix("measure_") in STUDIES:
                graphql(STOP, id=one["id"])
        span = began, time.time()
        say("schedules are off")
        found = folder, supervisor, chaos.kills, hook.got, watch.seen, plan, span
        figures = figures_of(*found, say)
    return {"minutes": minutes, "every": every, "pause_s": pause, "seed": seed, **figures}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--every", type=int, default=1, metavar="MINUTES", help="of a schedule")
    parser.add_argument("--pause", type=float, nargs=2, default=(20, 60), help="s between kills")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="kept afterwards; default: a temporary one")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="soak-") as temporary:
        folder = options.folder or Path(temporary)
        figures = soak(
            options.minutes, options.every, options.pause, options.seed, folder.absolute()
        )
    print(json.dumps(figures, indent=2, default=str))
    return 0 if all(figures["claims"].values()) else 1


if __name__ == "__main__":
    sys.exit(main())
