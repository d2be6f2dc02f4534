"""Processes that stay: `serve` an OpenAI-compatible endpoint, open the Dagster `ui`."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import IO

import click

from contextcliff_dagster.cli.dagster_home import open_instance, shipped
from contextcliff_dagster.cli.options import common_options
from contextcliff_dagster.cli.output import print_either
from contextcliff_dagster.contracts import EngineError
from contextcliff_dagster.store import Store

_LOOPBACK = "127.0.0.1"
_UI_PORT = 3000
_UI_STARTS_WITHIN_S = 120


@click.command()
@click.argument("model")
@click.option("--host", default=_LOOPBACK, show_default=True)
@click.option(
    "--port",
    default=8000,
    show_default=True,
    type=click.IntRange(0, 65535),
    help="Port; 0: any free one.",
)
@click.option(
    "--request-log",
    type=click.Path(path_type=Path, dir_okay=False),
    help="One JSON line per request, kept at once.",
)
@click.option(
    "--delay-ms", default=0.0, type=click.FloatRange(min=0), help="Delay of every answer."
)
@common_options
def serve(
    model: str, host: str, port: int, request_log: Path | None, delay_ms: float, as_json: bool
) -> None:
    """Serve MODEL as an OpenAI-compatible endpoint until Ctrl-C."""
    from contextcliff_dagster.inference.models.models_file import get_model
    from contextcliff_dagster.inference.server import app

    get_model(model)

    def ready(url: str) -> None:
        text = f"Serving {model} at {url} (Ctrl-C ends it)."
        print_either({"model": model, "url": url}, text, as_json=as_json)

    with contextlib.suppress(KeyboardInterrupt):  # the way a server is meant to end
        app.serve(model, host, port, request_log=request_log, delay_ms=delay_ms, on_ready=ready)


@click.command()
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    metavar="PORT",
    help=f"Default: {_UI_PORT}, or the next free one.",
)
@click.option("--host", default=_LOOPBACK, show_default=True)
@common_options
def ui(port: int | None, host: str, as_json: bool) -> None:
    """Open the Dagster UI with the assets loaded, until Ctrl-C."""
    del as_json
    store = Store.default()
    claims = ((p, claim_port(host, p)) for p in ([port] if port else range(_UI_PORT, 65536)))
    chosen, claim = next(((p, held) for p, held in claims if held is not None), (None, None))
    if chosen is None or claim is None:
        advice = "leave --port out to get the next free one"
        raise EngineError(f"Port {port} of {host} is taken; {advice}.")
    # Made before the webserver and the daemon both come upon an empty home.
    open_instance(store).dispose()
    os.environ["CONTEXTCLIFF_HOME"] = str(store.root)
    address = f"http://{host}:{chosen}"
    command = [
        *(sys.executable, "-m", "dagster", "dev"),
        *("--workspace", str(shipped("workspace.yaml"))),
        *("--host", host, "--port", str(chosen)),
    ]
    click.echo(
        f"Starting the Dagster UI on {address} (runs in {os.environ['DAGSTER_HOME']}) ...", err=True
    )
    with claim:
        code = _run_until_stopped(command, address)
    raise click.exceptions.Exit(code)


def claim_port(host: str, port: int) -> IO[bytes] | None:
    """A lock that keeps a free port for this process until its webserver listens, and beyond.

    Two that start at once find the same port free, and one would show the other's page. None where
    the port is taken.
    """
    if not _is_free(host, port):
        return None
    try:
        lock = (Path(tempfile.gettempdir()) / f"contextcliff-ui-{port}.lock").open("ab")
    except PermissionError:  # another user's
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        return None
    return lock


def _is_free(host: str, port: int) -> bool:
    with socket.socket() as probe:
        # As servers bind: a port whose last connection is still closing counts as free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def _run_until_stopped(command: list[str], address: str) -> int:
    """Run ``command``, say when ``address`` answers, end it on Ctrl-C; its exit code."""
    process: subprocess.Popen[bytes] | None = None

    def end(*_: object) -> None:
        if process is not None and process.poll() is None:
            process.send_signal(signal.SIGINT)

    # Caught before the child starts: one that inherits an ignored SIGINT, as a shell's background
    # jobs do, could not be ended.
    previous = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    # A group of its own: Ctrl-C reaches us alone, and we end webserver and daemon in good order.
    # Its log goes to stderr: stdout is for the address.
    process = subprocess.Popen(command, start_new_session=True, stdout=sys.stderr.fileno())
    try:
        deadline = time.monotonic() + _UI_STARTS_WITHIN_S
        while process.poll() is None and time.monotonic() < deadline:
            if _answers(f"{address}/server_info"):
                click.echo(f"ContextCliff is open at {address} (Ctrl-C ends it).")
                break
            time.sleep(0.3)
        code = process.wait()
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
    return 0 if code in (0, -signal.SIGINT, 130) else code


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as response:
            return bool(response.status == 200)
    except (urllib.error.URLError, OSError):
        return False
