"""A PostgreSQL server of a test's own: started on loopback, gone with all its data afterwards."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import socket
import subprocess
import tempfile
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import quote

from contextcliff_dagster_tests.support.requirements import postgres_bin


@dataclass(frozen=True)
class PostgresServer:
    """Where the server is; the role is its superuser and needs the password."""

    host: str
    port: int
    user: str
    password: str
    database: str
    _pg_ctl: Callable[..., None] = field(repr=False, default=lambda *_: None)

    @property
    def url(self) -> str:
        where = f"{self.host}:{self.port}/{self.database}"
        return f"postgresql://{self.user}:{quote(self.password, safe='')}@{where}"

    def stop(self) -> None:
        """End the server at once, as a crash would; what was committed is kept."""
        self._pg_ctl("stop", "-m", "immediate")

    def start(self) -> None:
        """Start it again after `stop`."""
        self._pg_ctl("start")

    def execute(self, sql: str) -> list[tuple[object, ...]]:
        """Run one statement as the superuser; its rows, if any."""
        import psycopg2

        with contextlib.closing(psycopg2.connect(self.url)) as connection:
            connection.autocommit = True
            with connection.cursor() as cursor:
                cursor.execute(sql)
                return cursor.fetchall() if cursor.description else []

    @contextlib.contextmanager
    def fresh_database(self) -> Iterator[PostgresServer]:
        """An empty database of its own on the same server, gone afterwards."""
        name = f"t{uuid.uuid4().hex}"
        self.execute(f"CREATE DATABASE {name}")
        try:
            yield replace(self, database=name)
        finally:
            self.execute(f"DROP DATABASE {name} WITH (FORCE)")


def _own_ports() -> Iterator[int]:
    # Below those that the kernel gives to connections: one of them would take a port between two
    # starts of its server. The workers of a run share them out; two runs begin at other places.
    lane = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    ports = range(20_000 + lane, 32_000, int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")))
    first = random.Random(os.getpid()).randrange(len(ports))
    yield from (*ports[first:], *ports[:first])


_OWN_PORTS = _own_ports()


def free_port() -> int:
    """A TCP port of the loopback interface that nothing listens on, and that none was told of."""
    for port in _OWN_PORTS:
        with socket.socket() as listener, contextlib.suppress(OSError):
            listener.bind(("127.0.0.1", port))
            return port
    raise AssertionError("every port of this process was given away")


@contextlib.contextmanager
def running_postgres(
    database: str = "dagster", user: str = "contextcliff"
) -> Iterator[PostgresServer]:
    """A fresh server with a superuser ``user``; needs `require("postgres")`."""
    programs = postgres_bin()
    assert programs is not None
    # PostgreSQL refuses to run as root: Debian's package brings a user for it.
    runs_as = "postgres" if os.geteuid() == 0 else None
    folder = Path(tempfile.mkdtemp(prefix="contextcliff-pg-"))
    server = PostgresServer("127.0.0.1", free_port(), user, "s3cret", database)

    def run(program: str, *arguments: str | Path) -> None:
        command = [str(programs / program), *map(str, arguments)]
        done = subprocess.run(
            command,
            user=runs_as,
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, f"{program}: {done.stdout}{done.stderr}"

    try:
        (folder / "password").write_text(server.password)
        if runs_as:
            for path in (folder, folder / "password"):
                shutil.chown(path, runs_as)
        data = folder / "data"
        run(
            *("initdb", "--no-sync", "--auth=scram-sha-256", f"--username={server.user}"),
            *(f"--pwfile={folder / 'password'}", f"--pgdata={data}"),
        )
        options = f"-h {server.host} -p {server.port} -k {folder} -c fsync=off"

        def pg_ctl(action: str, *more: str) -> None:
            given = ["-l", folder / "log", "-o", options] if action == "start" else []
            run("pg_ctl", action, "-w", "-D", data, *given, *more)

        pg_ctl("start")
        try:
            replace(server, database="postgres").execute(f'CREATE DATABASE "{database}"')
            yield replace(server, _pg_ctl=pg_ctl)
        finally:
            with contextlib.suppress(AssertionError):  # a test may have left it stopped
                pg_ctl("stop", "-m", "immediate")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
