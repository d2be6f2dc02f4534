"""`ui`: the Dagster UI; `serve`: an OpenAI-compatible endpoint over a reference model."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from contextcliff_dagster.cli.dagster_home import open_instance, shipped
from contextcliff_dagster.cli.display.output import print_either
from contextcliff_dagster.cli.options import Finite, common_options, count_option, file_option
from contextcliff_dagster.contracts import StudyError
from contextcliff_dagster.store import Store
from contextcliff_dagster.web_guard import (
    PARAMETER,
    TOKEN_VARIABLE,
    choose_token,
    is_loopback,
    listen_on,
    read_address,
    url_of,
)


def _allowed_hosts(
    ctx: click.Context, param: click.Parameter, names: tuple[str, ...]
) -> tuple[str, ...]:
    for name in names:
        if read_address(name) is None:
            raise click.BadParameter(f"{name!r} is not a host; use NAME or NAME:PORT.", ctx, param)
    return names


host_option = click.option(
    "--host", default="127.0.0.1", show_default=True, metavar="HOST", help="Address to listen on."
)
allow_host_option = click.option(
    "--allow-host",
    "allow_hosts",
    multiple=True,
    callback=_allowed_hosts,
    metavar="NAME",
    help="Another host name of the server, e.g. a proxy's; repeatable.",
)


def note_open_server(host: str, token: str | None) -> None:
    """Warn on stderr if other machines can reach a server without a token."""
    if token is None and not is_loopback(host):
        click.echo(f"Note: without a token, anyone who reaches {host} can use it.", err=True)


@click.command()
@click.argument("model")
@host_option
@count_option(
    "--port", 0, 65535, "Port; 0: any free one.", metavar="PORT", default=8000, show_default=True
)
@allow_host_option
@click.option(
    "--token/--no-token",
    default=None,
    help="Require a token as the API key (default: only if other machines can reach it).",
)
@file_option("--request-log", "Log file with one JSON line per request, written at once.")
@click.option(
    "--delay-ms",
    default=0.0,
    type=Finite(0, 3_600_000),
    metavar="MS",
    help="Delay of every answer.",
)
@common_options
def serve(
    model: str,
    host: str,
    port: int,
    allow_hosts: tuple[str, ...],
    token: bool | None,
    request_log: Path | None,
    delay_ms: float,
    as_json: bool,
) -> None:
    """Serve MODEL as an OpenAI-compatible endpoint until Ctrl-C."""
    from contextcliff_dagster.inference import server
    from contextcliff_dagster.inference.models.models_file import get_model

    get_model(model)
    if token is None:
        token = not is_loopback(host)
    key, given = choose_token() if token else (None, False)
    note_open_server(host, key)

    def ready(url: str) -> None:
        # The user knows a token from the variable; keep it out of logs.
        shown = None if key is None else f"<{TOKEN_VARIABLE}>" if given else key
        text = f"Serving {model} at {url} (Ctrl-C ends it)."
        if shown:
            text += f" API key: {shown}"
        value = {"model": model, "url": url} | ({"api_key": shown} if shown else {})
        print_either(value, text, as_json=as_json)

    access = server.Access(host, port, allow_hosts, key)
    with contextlib.suppress(KeyboardInterrupt):  # the usual way to stop a server
        server.serve(model, access, request_log=request_log, delay_ms=delay_ms, on_ready=ready)


_PORT = 3000


@click.command()
@count_option("--port", 1, 65535, f"Default: {_PORT}, or the next free one.", metavar="PORT")
@host_option
@allow_host_option
@click.option(
    "--token/--no-token",
    default=True,
    help="Require a token, which the printed link includes (default: --token).",
)
@file_option("--workspace", "Code locations to show (default: this package's).")
@click.option("--daemon/--no-daemon", default=True, help="Also run Dagster's daemon.")
@common_options
def ui(
    port: int | None,
    host: str,
    allow_hosts: tuple[str, ...],
    token: bool,
    workspace: Path | None,
    daemon: bool,
    as_json: bool,
) -> None:
    """Open the Dagster UI with the assets loaded, until Ctrl-C."""
    if workspace is not None and not workspace.is_file():
        raise StudyError(f"There is no file {workspace}; --workspace names a workspace.yaml.")
    own_token, given = choose_token() if token else (None, False)
    note_open_server(host, own_token)
    store = Store.default()
    listener = listen_on(host, [port] if port else range(_PORT, 65536))
    # Create the home first: the webserver and the daemon must not both find it empty.
    open_instance(store).dispose()
    os.environ["CONTEXTCLIFF_HOME"] = str(store.root)
    address = url_of(host, listener.getsockname()[1])
    click.echo(
        f"Starting the Dagster UI on {address} (runs in {os.environ['DAGSTER_HOME']}) ...", err=True
    )
    settings = {
        "listener": listener.fileno(),
        "workspace": str(workspace or shipped("workspace.yaml")),
        "host": host,
        "allow_hosts": allow_hosts,
        "token": own_token,
        "daemon": daemon,
    }

    def ready() -> None:
        # The user knows a token from the variable; keep it out of logs.
        shown = f"<{TOKEN_VARIABLE}>" if given else own_token
        link = f"{address}/?{PARAMETER}={shown}" if own_token else address
        text = f"ContextCliff is open at {link} (Ctrl-C ends it)."
        if not daemon:
            text += " Without a daemon, runs started in it stay queued."
        print_either({"url": address, "link": link}, text, as_json=as_json)

    with listener:
        code = _run_until_stopped(settings, address, ready)
    raise click.exceptions.Exit(code)


def _run_until_stopped(settings: dict[str, Any], address: str, ready: Callable[[], None]) -> int:
    """Run the webserver's process until Ctrl-C, calling ``ready`` once it answers; return its exit
    code."""
    process: subprocess.Popen[str] | None = None

    def end(*_: object) -> None:
        if process is not None and process.poll() is None:
            process.send_signal(signal.SIGINT)

    # Install handlers before the child starts: with an inherited ignored SIGINT, as in a shell's
    # background jobs, it could not be ended.
    previous = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    process = subprocess.Popen(
        [sys.executable, "-m", "contextcliff_dagster.cli.webserver"],
        # Its own process group: Ctrl-C reaches only us, so the child can stop its daemon cleanly.
        start_new_session=True,
        # Settings go through a pipe, because every user of the machine can read a command line.
        stdin=subprocess.PIPE,
        stdout=sys.stderr.fileno(),  # its log: stdout is for the address
        pass_fds=[settings["listener"]],
        text=True,
    )
    try:
        assert process.stdin is not None
        process.stdin.write(f"{json.dumps(settings)}\n")
        process.stdin.flush()  # stays open, because its end tells the child that we are gone
        while process.poll() is None:
            if _answers(f"{address}/server_info"):
                ready()
                break
            time.sleep(0.3)
        code = process.wait()
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
    return 0 if code in (0, -signal.SIGINT, 130) else code


def _answers(url: str) -> bool:
    # Bypass any proxy, because it cannot reach addresses of this machine.
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(url, timeout=2) as response:
            return bool(response.status == 200)
    except (urllib.error.URLError, OSError):
        return False
