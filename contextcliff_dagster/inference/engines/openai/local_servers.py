"""Model servers on this machine, found on their usual ports.

Servers are recognised by their answers at distinctive paths, because a port proves nothing. The
signs are those of `server_detection`, and also:

- Ollama: ``/`` is the text "Ollama is running". Others imitate its API but not this page.
- LM Studio: ``/api/v0/models`` has ``compatibility_type``. It answers 200 to every path.

`address_error` checks an entry's address and model id without a call that is paid.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple
from urllib.parse import urlsplit, urlunsplit

import aiohttp

from contextcliff_dagster.contracts import EngineError
from contextcliff_dagster.inference.engines.base import RejectedError, TransportError, token_count
from contextcliff_dagster.inference.engines.openai.engine import OpenAIEngine
from contextcliff_dagster.inference.engines.openai.error_mapping import ErrorMapper
from contextcliff_dagster.inference.engines.openai.http_client import (
    Endpoint,
    OversizedError,
    Reply,
)
from contextcliff_dagster.inference.engines.openai.server_detection import Probes, detect
from contextcliff_dagster.inference.engines.openai.wire_format import objects_in
from contextcliff_dagster.inference.models.entry import request_headers
from contextcliff_dagster.inference.models.models_file import PRESETS, ModelEntry
from contextcliff_dagster.redaction import public_url, redact

_SECONDS = 5.0
_SHOWN = 8
_CALLS = ("/chat/completions", "/completions")
_USUAL_PATHS = ("/v1", "/api/v1", "/openai/v1", "/api/openai/v1")
_ANY_NAME = ("llamacpp", "koboldcpp")
"""Servers that answer with their loaded model whatever model name a request has."""


async def address_error(entry: ModelEntry, engine: OpenAIEngine) -> str | None:
    """Return a sentence if calls would fail: the server does not list the model, or nothing answers
    calls under the base URL. ``engine`` is the entry's, started."""
    ids = listed_ids(engine.listed)
    if ids:
        known_ids = {name.removeprefix("models/") for name in ids}
        if entry.model_id.removeprefix("models/") in known_ids or engine.dialect.name in _ANY_NAME:
            return None
        more = f" and {len(ids) - _SHOWN:,} more" if len(ids) > _SHOWN else ""
        names = redact(", ".join(ids[:_SHOWN]))
        return (
            f"the server does not list model {entry.model_id!r}; it lists {names}{more}; correct "
            "`model_id` in models.yaml."
        )
    base = entry.resolved_base_url()
    # An empty request is refused by any server that reads requests.
    replies = [await _reply(entry, base, path, [b"{}"]) for path in _CALLS]
    if any(reply is None or not _is_absent(reply.status) for reply in replies):
        return None
    for candidate in _candidates(base):
        reply = await _reply(entry, candidate, "/models", ())
        if reply and reply.status == 200 and isinstance(reply.json().get("data"), list):
            advice = f"{public_url(candidate)} lists models: correct `base_url` in models.yaml."
            break
    else:
        advice = "correct `base_url` in models.yaml; it usually ends in /v1."
    status = replies[0].status if replies[0] else 404
    return f"{public_url(base)}{_CALLS[0]} does not exist (status {status}); {advice}"


def listed_ids(listed: list[dict[str, object]]) -> list[str]:
    """Return the model names in an answer from /v1/models."""
    return [name for item in listed if isinstance(name := item.get("id"), str)]


def _is_absent(status: int) -> bool:
    return status in (404, 405) or 200 <= status < 400  # a page, or another address


def _candidates(base: str) -> list[str]:
    """Return other possible base URLs of the same server, the likeliest first."""
    parts = urlsplit(base)
    path = parts.path.rstrip("/")
    for call in _CALLS:
        path = path.removesuffix(call)
    paths = [path, f"{path}/v1", path.replace("/v1/v1", "/v1"), *_USUAL_PATHS]
    urls = [urlunsplit((parts.scheme, parts.netloc, guess, parts.query, "")) for guess in paths]
    return [url for url in dict.fromkeys(urls) if url != base]


async def _reply(entry: ModelEntry, base: str, path: str, parts: Sequence[bytes]) -> Reply | None:
    headers = request_headers(entry, f"Model {entry.name!r}", EngineError)
    trusted = entry.ca_bundle or entry.verify
    endpoint = Endpoint(base, headers, timeout_s=_SECONDS, connections=1, verify=trusted)
    with suppress(aiohttp.ClientError, OSError, OversizedError):
        async with endpoint:
            return await endpoint.ask(path, parts, within_s=_SECONDS)
    return None


SECONDS = 2.0
"""Time limit for all requests to one port; all ports are probed at the same time."""
_SERVE = "contextcliff serve"


class LocalServer(NamedTuple):
    """A server that answers on a port; ``preset`` is its kind (None: unknown), ``title`` its name.

    ``models``: names as the server lists them. ``needs_key``: it lists no models without a key.
    """

    base_url: str
    preset: str | None
    title: str
    models: tuple[str, ...]
    needs_key: bool = False


async def find_local_servers(
    ports: Sequence[int] | None = None, within_s: float = SECONDS
) -> list[LocalServer]:
    """Return this machine's servers on ``ports`` (default: the usual ones) that list models.

    Other listeners are left out, including those that are silent or reply with nonsense.
    """
    usual_ports = [port for preset in PRESETS.values() if (port := preset.local_port)]
    distinct_ports = list(dict.fromkeys(usual_ports if ports is None else ports))
    servers = await asyncio.gather(*(_server_on(port, within_s) for port in distinct_ports))
    return [server for server in servers if server]


async def loaded_window(probes: Probes, model_id: str) -> int | None:
    """Return the window in tokens with which Ollama or LM Studio loaded this model, else None.

    Both load a model with a window of their own choice, usually smaller than the model's.
    """
    with suppress(TransportError, RejectedError, EngineError):
        for item in objects_in((await probes.ask("/api/ps")).get("models")):
            if model_id in _ollama_names(item):
                return token_count(item.get("context_length")) or None
        for item in objects_in((await probes.ask("/api/v0/models")).get("data")):
            if item.get("id") == model_id:
                return token_count(item.get("loaded_context_length")) or None
    return None


def _ollama_names(item: Mapping[str, Any]) -> set[str]:
    names = {str(item.get(key)) for key in ("name", "model")}
    return names | {name.removesuffix(":latest") for name in names}


async def _server_on(port: int, within_s: float) -> LocalServer | None:
    base_url = f"http://127.0.0.1:{port}/v1"
    entry = ModelEntry(name="local", engine="openai", base_url=base_url)
    with suppress(Exception):  # ignore whatever else listens there
        # Without a key, and without a proxy, because the server is on this machine.
        endpoint = Endpoint(base_url, {}, timeout_s=SECONDS, connections=4, direct=True)
        async with asyncio.timeout(within_s), endpoint:
            probes = Probes(endpoint, ErrorMapper(entry, base_url, str))
            reply = await endpoint.ask("/models", within_s=within_s)
            if reply.status in (401, 403) and reply.json():
                return LocalServer(base_url, None, "a server that asks for a key", (), True)
            data = reply.json().get("data")
            if reply.status != 200 or not isinstance(data, list):
                return None
            listed = [item for item in data if isinstance(item, dict)]
            if not (models := tuple(listed_ids(listed))):
                return None
            preset = await _kind(probes, listed)
            ours = listed[0].get("owned_by") == "contextcliff"
            title = PRESETS[preset].title if preset else _SERVE if ours else "an unknown server"
            return LocalServer(base_url, preset, title, models)
    return None


async def _kind(probes: Probes, listed: Sequence[Mapping[str, Any]]) -> str | None:
    with suppress(TransportError, RejectedError, EngineError):
        dialect = await detect(probes, listed[0])
        if dialect.name in PRESETS:
            return dialect.name
    with suppress(TransportError, RejectedError, EngineError):
        items = objects_in((await probes.ask("/api/v0/models")).get("data"))
        if any("compatibility_type" in item for item in items):
            return "lmstudio"
    reply = await probes.endpoint.ask("/", within_s=SECONDS, under_v1=False)
    return "ollama" if reply.data.strip() == b"Ollama is running" else None
