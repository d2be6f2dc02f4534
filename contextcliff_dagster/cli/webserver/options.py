"""The options of commands that listen: `ui` and `serve`."""

from __future__ import annotations

import click

from contextcliff_dagster.web_guard.addresses import is_loopback, read_address


def _allowed_hosts(
    ctx: click.Context, param: click.Parameter, names: tuple[str, ...]
) -> tuple[str, ...]:
    for name in names:
        if read_address(name) is None:
            raise click.BadParameter(
                f"{name!r} is not a host; write NAME or NAME:PORT.", ctx, param
            )
    return names


host_option = click.option(
    "--host", default="127.0.0.1", show_default=True, metavar="HOST", help="Where to listen."
)
allow_host_option = click.option(
    "--allow-host",
    "allow_hosts",
    multiple=True,
    callback=_allowed_hosts,
    metavar="NAME",
    help="Another name by which the server is called, e.g. a proxy's; repeat it for several.",
)


def note_open_server(host: str, token: str | None) -> None:
    """A note on stderr where other machines reach a server without a token."""
    if token is None and not is_loopback(host):
        click.echo(f"Note: without a token, everyone who reaches {host} can use it.", err=True)
