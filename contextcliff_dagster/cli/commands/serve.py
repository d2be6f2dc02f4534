"""`contextcliff serve`: an OpenAI-compatible endpoint over a reference model."""

from __future__ import annotations

import contextlib
from pathlib import Path

import click

from contextcliff_dagster.cli.display.output import print_either
from contextcliff_dagster.cli.options import Finite, common_options, count_option, file_option
from contextcliff_dagster.cli.webserver.options import (
    allow_host_option,
    host_option,
    note_open_server,
)
from contextcliff_dagster.web_guard.access_token import TOKEN_VARIABLE, choose_token
from contextcliff_dagster.web_guard.addresses import is_loopback


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
    help="Ask for a token as the API key (default: where other machines reach it).",
)
@file_option("--request-log", "One JSON line per request, kept at once.")
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
    from contextcliff_dagster.inference.models.models_file import get_model
    from contextcliff_dagster.inference.server import app

    get_model(model)
    if token is None:
        token = not is_loopback(host)
    key, given = choose_token() if token else (None, False)
    note_open_server(host, key)

    def ready(url: str) -> None:
        # A token that the user chose is known to him; logs are no place for it.
        shown = None if key is None else f"<{TOKEN_VARIABLE}>" if given else key
        text = f"Serving {model} at {url} (Ctrl-C ends it)."
        if shown:
            text += f" API key: {shown}"
        value = {"model": model, "url": url} | ({"api_key": shown} if shown else {})
        print_either(value, text, as_json=as_json)

    access = app.Access(host, port, allow_hosts, key)
    with contextlib.suppress(KeyboardInterrupt):  # the way a server is meant to end
        app.serve(model, access, request_log=request_log, delay_ms=delay_ms, on_ready=ready)
