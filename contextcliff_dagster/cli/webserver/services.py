"""Dagster's code server, daemon and webserver as `dagster dev` runs them, behind our guard.

`dagster dev` does not accept a middleware, so its parts are assembled here. Names from `dagster._*`
and `dagster_webserver` may move in a minor release.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs

import dagster as dg
import uvicorn
import yaml
from dagster._cli.proxy_server_manager import ProxyServerManager
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import WorkspaceFileTarget
from dagster._utils.log import configure_loggers
from dagster_webserver.app import create_app_from_workspace_process_context
from dagster_webserver.version import __version__
from graphql import GraphQLError, OperationDefinitionNode, OperationType, parse
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from contextcliff_dagster.defs.ui.rendering import REPORTS_PATH, SMALL, small_picture
from contextcliff_dagster.store import Store
from contextcliff_dagster.web_guard import AccessToken, AllowedHosts, Refused, WebGuard

_SERVED = {".html", ".png", ".svg"}
INFO_PATH = "/server_info"
"""Path that reports Dagster's versions without a token, as soon as the UI is up."""

# The defaults of `dagster-webserver` and `dagster dev`.
_STATEMENT_TIMEOUT_MS, _POOL_RECYCLE_S, _POOL_OVERFLOW = 15_000, 3_600, 20
_POLL_RATE_MS = 2_000
_DAEMON_ENDS_WITHIN_S = 60
_OPEN_CONNECTIONS_END_WITHIN_S = 3


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of the servers.

    Args:
        workspace: a workspace.yaml.
        host: the host that the socket listens on.
        allow_hosts: further host names of the server.
        token: the token that requests must carry; None for no token.
        daemon: whether to run the code server and the daemon, too.
    """

    workspace: str
    host: str
    allow_hosts: list[str]
    token: str | None
    daemon: bool


def serve_ui(settings: Settings, listener: socket.socket) -> bool:
    """Serve on ``listener`` until interrupted; return False if the daemon ended earlier."""
    configure_loggers(formatter="colored", log_level="INFO")
    with ExitStack() as stack:
        instance = stack.enter_context(dg.DagsterInstance.get())
        instance.optimize_for_webserver(_STATEMENT_TIMEOUT_MS, _POOL_RECYCLE_S, _POOL_OVERFLOW)
        workspace, daemon = settings.workspace, None
        if settings.daemon:
            os.environ["DAGSTER_IS_DEV_CLI"] = "1"
            workspace = stack.enter_context(_code_servers(instance, workspace))
            daemon = stack.enter_context(_daemon(workspace))
        context = stack.enter_context(
            WorkspaceProcessContext(instance, WorkspaceFileTarget([workspace]), __version__)
        )
        port = listener.getsockname()[1]
        dagster = create_app_from_workspace_process_context(context, "", _POLL_RATE_MS)
        dagster.router.routes.insert(0, Mount(REPORTS_PATH, _Reports(Store.default())))
        app = WebGuard(
            dagster,
            AllowedHosts(settings.host, tuple(settings.allow_hosts)),
            AccessToken(settings.token, f"contextcliff-{port}") if settings.token else None,
            frozenset({INFO_PATH}),
            "open the link that `contextcliff ui` printed when it started, or paste the token here",
            check_read,
        )
        server = uvicorn.Server(
            uvicorn.Config(
                app,
                log_level="warning",
                access_log=False,  # addresses hold the token
                proxy_headers=False,
                timeout_graceful_shutdown=_OPEN_CONNECTIONS_END_WITHIN_S,
            )
        )
        if daemon is not None:
            threading.Thread(target=_stop_after, args=(server, daemon), daemon=True).start()
        server.run(sockets=[listener])
        return daemon is None


class _Reports(StaticFiles):
    """The files in the report folders of the store's studies, and nothing else of the store."""

    def __init__(self, store: Store) -> None:
        super().__init__(directory=store.root, check_dir=False)

    async def get_response(self, path: str, scope: Scope) -> Response:
        file, found = self.lookup_path(path)
        if found is None or not path.endswith(".png") or scope["query_string"] != SMALL.encode():
            return await super().get_response(path, scope)
        content = await run_in_threadpool(small_picture, Path(file))
        return Response(content, media_type="image/webp")

    def lookup_path(self, path: str) -> tuple[str, os.stat_result | None]:
        folders, file = Path(path).parts[:-1], Path(path)
        if folders[1:2] != ("report",) or ".." in folders or file.suffix not in _SERVED:
            return "", None
        return super().lookup_path(path)


def _stop_after(server: uvicorn.Server, daemon: subprocess.Popen[bytes]) -> None:
    daemon.wait()
    server.should_exit = True


@contextmanager
def _code_servers(instance: dg.DagsterInstance, workspace: str) -> Iterator[str]:
    """Run one code server for webserver and daemon; yield the workspace file that points to it."""
    target = WorkspaceFileTarget([workspace])
    with (
        ProxyServerManager(instance, target, code_server_log_level="warning") as servers,
        tempfile.TemporaryDirectory() as folder,
    ):
        file = Path(folder) / "workspace.yaml"
        file.write_text(yaml.dump({"load_from": servers.get_code_server_specs()}))
        yield str(file)


@contextmanager
def _daemon(workspace: str) -> Iterator[subprocess.Popen[bytes]]:
    command = ["-m", "dagster._daemon", "run", "--log-level", "info", "--workspace", workspace]
    process = subprocess.Popen([sys.executable, *command])
    try:
        yield process
    finally:
        # A second Ctrl-C must not leave a process behind.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        process.terminate()
        try:
            process.wait(_DAEMON_ENDS_WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()


def check_read(path: str, query: str) -> None:
    """Refuse GraphQL mutations in GET requests, which Dagster's webserver would run.

    Raises:
        Refused: a document in the query string is a mutation or a subscription, or unreadable.
    """
    if not path.rstrip("/").endswith("/graphql"):
        return
    for document in parse_qs(query).get("query", []):
        try:
            definitions = parse(document, no_location=True).definitions
        except (GraphQLError, RecursionError):
            # Not left to Dagster: each parser has its own limit on a document's nesting.
            raise Refused(400, "This GraphQL document cannot be read.") from None
        for node in definitions:
            if isinstance(node, OperationDefinitionNode) and node.operation != OperationType.QUERY:
                raise Refused(405, f"Send a {node.operation.value} by POST, as JSON.")
