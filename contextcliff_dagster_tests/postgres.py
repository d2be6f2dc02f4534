"""A PostgreSQL server of a test's own: started on loopback, gone with all its data afterwards."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from contextcliff_dagster_tests.requirements import postgres_bin


@dataclass(frozen=True)
class PostgresServer:
    """Where the server is; the role is its superuser and needs the password."""

    host: str
    port: int
    user: str
    password: str
    database: str

    @property
    def url(self) -> str:
        where = f"{self.host}:{self.port}/{self.database}"
        return f"postgresql://{self.user}:{self.password}@{where}"


def free_port() -> int:
    """A TCP port of the loopback interface that nothing listens on just now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


@contextlib.contextmanager
def running_postgres(database: str = "dagster") -> Iterator[PostgresServer]:
    """A fresh server; needs `require("postgres")`."""
    programs = postgres_bin()
    assert programs is not None
    # PostgreSQL refuses to run as root: Debian's package brings a user for it.
    user = "postgres" if os.geteuid() == 0 else None
    folder = Path(tempfile.mkdtemp(prefix="contextcliff-pg-"))
    server = PostgresServer("127.0.0.1", free_port(), "contextcliff", "s3cret", database)

    def run(program: str, *arguments: str | Path) -> None:
        command = [str(programs / program), *map(str, arguments)]
        done = subprocess.run(
            command, user=user, cwd=folder, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, f"{program}: {done.stdout}{done.stderr}"

    try:
        (folder / "password").write_text(server.password)
        if user:
            for path in (folder, folder / "password"):
                shutil.chown(path, user)
        data = folder / "data"
        run(
            *("initdb", "--no-sync", "--auth=scram-sha-256", f"--username={server.user}"),
            *(f"--pwfile={folder / 'password'}", f"--pgdata={data}"),
        )
        options = f"-h {server.host} -p {server.port} -k {folder} -c fsync=off"
        run("pg_ctl", "start", "-w", "-D", data, "-l", folder / "log", "-o", options)
        try:
            _create(server)
            yield server
        finally:
            run("pg_ctl", "stop", "-w", "-m", "immediate", "-D", data)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _create(server: PostgresServer) -> None:
    import psycopg2

    connection = psycopg2.connect(server.url.rsplit("/", 1)[0] + "/postgres")
    connection.autocommit = True
    with contextlib.closing(connection), connection.cursor() as cursor:
        cursor.execute(f'CREATE DATABASE "{server.database}"')
