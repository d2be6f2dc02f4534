"""The processes of the containers, from their own files and commands, without containers."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psycopg2
import pytest

from contextcliff_dagster_tests.project.deployment.files import (
    COMPOSE,
    DOCKER,
    DOCKERFILE,
    environment_of,
)
from contextcliff_dagster_tests.support.dagster_ui import LAUNCH
from contextcliff_dagster_tests.support.dagster_ui import ask as ask_ui
from contextcliff_dagster_tests.support.postgres import PostgresServer, free_port, running_postgres
from contextcliff_dagster_tests.support.requirements import postgres_bin, require

TOKEN = "a-token-of-the-tests"


def with_defaults(word: str) -> str:
    """A word of a command as compose reads it where no variable is set."""
    return re.sub(r"\$\{[A-Z_]+:-([^${}]*)\}", r"\1", word)


@contextlib.contextmanager
def started(
    command: list[str], home: Path, environment: dict[str, str], log: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """The command of a container as a process; stopped, with what it started, at the end."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-P", Path(sys.executable).parent / command[0], *command[1:]],
            cwd=home,
            env=os.environ | environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(120)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.wait(120)


def ask(port: int, query: str, **variables: Any) -> Any:
    return ask_ui(f"http://127.0.0.1:{port}", query, TOKEN, **variables)


def until(seconds: float, question: str, logs: list[Path], check: Any) -> Any:
    deadline = time.monotonic() + seconds
    last: Exception | None = None
    while time.monotonic() < deadline:
        try:
            if found := check():
                return found
        except OSError as error:
            last = error
        time.sleep(1.0)
    said = "\n".join(f"--- {log.name}\n{log.read_text('utf-8', 'replace')[-3000:]}" for log in logs)
    raise AssertionError(f"After {seconds:.0f} s still not so: {question} ({last})\n{said}")


@contextlib.contextmanager
def prepared_postgres() -> Iterator[PostgresServer]:
    """A server as the compose file's first start leaves it; seen as Dagster's own role."""
    service = COMPOSE["services"]["postgres"]
    (script,) = (m.split(":")[0] for m in service["volumes"] if "/docker-entrypoint-initdb.d/" in m)
    programs = postgres_bin()
    assert programs is not None
    with running_postgres("unused", service["environment"]["POSTGRES_USER"]) as server:
        done = subprocess.run(
            ["sh", DOCKER / script],
            env=os.environ
            | {
                "PATH": f"{programs}:{os.environ['PATH']}",
                "PGHOST": server.host,
                "PGPORT": str(server.port),
                "PGPASSWORD": server.password,
                "POSTGRES_USER": server.user,
                "POSTGRES_PASSWORD": 'it\'s \\ "quoted"',
            },
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert "quoted" not in done.stdout
        dagster = environment_of("code")
        user, database = dagster["DAGSTER_POSTGRES_USER"], dagster["DAGSTER_POSTGRES_DB"]
        yield replace(server, user=user, password='it\'s \\ "quoted"', database=database)


@dataclass(frozen=True)
class Deployment:
    """The containers' processes: the webserver's port, their logs, the database, their folder."""

    port: int
    logs: list[Path]
    postgres: PostgresServer
    home: Path
    ports: dict[str, str]
    variables: dict[str, str]

    def environment(self, service: str) -> dict[str, str]:
        own = environment_of(service) | self.variables
        mounted = ("CONTEXTCLIFF_STUDIES", "CONTEXTCLIFF_MODELS")
        return {name: value for name, value in own.items() if name not in mounted}

    def here(self, words: list[str]) -> list[str]:
        """A command of a container with the ports of this deployment."""
        words = [self.ports.get(word, with_defaults(word)) for word in words]
        return [re.sub(r"(?<=127\.0\.0\.1:)3000", self.ports["3000"], word) for word in words]

    def run(self, service: str, *command: str) -> subprocess.CompletedProcess[str]:
        """A command inside the service's container."""
        programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        return subprocess.run(
            self.here([*command]),
            cwd=self.home,
            env=os.environ | {"PATH": programs} | self.environment(service),
            capture_output=True,
            text=True,
            check=False,
        )

    def healthy(self, service: str) -> bool:
        """The health check of the compose file, for `code` that of the image."""
        (of_image,) = re.findall(r"^ +CMD (\[.*\])$", DOCKERFILE, re.MULTILINE)
        check = COMPOSE["services"][service].get("healthcheck", {}).get("test")
        return self.run(service, *(check[1:] if check else json.loads(of_image))).returncode == 0


@pytest.fixture
def deployment(tmp_path: Path, dagster_home: Path) -> Iterator[Deployment]:
    """Code location, webserver and daemon as the containers start them, over a real PostgreSQL."""
    for name in ("dagster.yaml", "workspace.yaml"):
        shutil.copy(DOCKER / name, dagster_home / name)
    (command,) = re.findall(r"^CMD (\[.*\])$", DOCKERFILE, re.MULTILINE)
    code_port, ui_port = str(free_port()), str(free_port())
    commands = {
        "code": json.loads(command),
        "webserver": COMPOSE["services"]["webserver"]["command"],
        "daemon": COMPOSE["services"]["daemon"]["command"],
    }
    logs = [tmp_path / f"{name}.log" for name in commands]
    with prepared_postgres() as postgres, contextlib.ExitStack() as stack:
        variables = {
            "DAGSTER_POSTGRES_HOST": postgres.host,
            "DAGSTER_POSTGRES_PORT": str(postgres.port),
            "DAGSTER_POSTGRES_PASSWORD": postgres.password,
            "DAGSTER_LOGS": str(tmp_path / "logs"),
            "CONTEXTCLIFF_TOKEN": TOKEN,
            "CONTEXTCLIFF_CODE_HOST": "127.0.0.1",
            "CONTEXTCLIFF_CODE_PORT": code_port,
        }
        ports = {"4000": code_port, "3000": ui_port, "0.0.0.0": "127.0.0.1"}
        made = Deployment(int(ui_port), logs, postgres, dagster_home, ports, variables)
        for (name, words), log in zip(commands.items(), logs, strict=True):
            if name == "daemon":
                assert not made.healthy("daemon"), "healthy before its start"
            environment = made.environment(name)
            stack.enter_context(started(made.here(words), dagster_home, environment, log))
            if name == "code":
                until(120, "the code server is healthy", logs[:1], lambda: made.healthy("code"))
        yield made


@pytest.mark.postgres
def test_the_database_role_owns_its_database_and_nothing_else() -> None:
    require("postgres")
    with prepared_postgres() as dagster:
        rights = "rolsuper, rolcreatedb, rolcreaterole, rolreplication, rolbypassrls"
        (row,) = dagster.execute(f"SELECT {rights} FROM pg_roles WHERE rolname = current_user")
        assert not any(row)
        dagster.execute("CREATE TABLE of_dagster (a int)")
        for refused in (
            *("COPY of_dagster FROM PROGRAM 'echo 1'", "COPY of_dagster TO '/tmp/stolen'"),
            *("SELECT pg_read_file('/etc/passwd')", "CREATE DATABASE other", "CREATE ROLE other"),
            *("ALTER ROLE postgres PASSWORD 'x'", "SELECT rolpassword FROM pg_authid"),
        ):
            with pytest.raises(psycopg2.errors.InsufficientPrivilege):
                dagster.execute(refused)
        # The other databases are closed to it, and the superuser has no password any more.
        for other in (
            replace(dagster, database="postgres"),
            replace(dagster, database="template1"),
            replace(dagster, user="postgres"),
            replace(dagster, user="postgres", password="s3cret"),
        ):
            with pytest.raises(psycopg2.OperationalError):
                other.execute("SELECT 1")


@pytest.mark.postgres
@pytest.mark.timeout(420)
def test_the_four_processes_work_together(deployment: Deployment) -> None:
    port, logs = deployment.port, deployment.logs
    assets = until(
        120,
        "the webserver lists the assets of the code location",
        logs,
        lambda: ask(
            port, "{ assetNodes { assetKey { path } isPartitioned dependencyKeys { path } } }"
        )["assetNodes"],
    )
    healthy = "{ instance { daemonHealth { allDaemonStatuses { daemonType required healthy } } } }"
    until(
        120,
        "every daemon that is required has sent its heartbeat",
        logs,
        lambda: all(
            status["healthy"]
            for status in ask(port, healthy)["instance"]["daemonHealth"]["allDaemonStatuses"]
            if status["required"]
        ),
    )
    for service in ("webserver", "daemon"):
        until(120, f"{service} is healthy", logs, lambda s=service: deployment.healthy(s))
    first = next(a for a in assets if not a["dependencyKeys"] and not a["isPartitioned"])
    launched = ask(port, LAUNCH, asset=first["assetKey"]["path"])["launchRun"]
    assert launched["__typename"] == "LaunchRunSuccess", launched
    status = "query ($id: ID!) { runOrError(runId: $id) { ... on Run { status } } }"
    ended = until(
        150,
        "a run started from the UI has ended",
        logs,
        lambda: {"SUCCESS": "SUCCESS", "FAILURE": "FAILURE"}.get(
            ask(port, status, id=launched["run"]["runId"])["runOrError"]["status"]
        ),
    )
    assert ended == "SUCCESS", logs[0].read_text("utf-8", "replace")[-3000:]

    assert deployment.postgres.execute("SELECT run_id FROM event_logs LIMIT 1")
    # What an upgrade asks for.
    migrated = deployment.run("code", "dagster", "instance", "migrate")
    assert migrated.returncode == 0, migrated.stderr
