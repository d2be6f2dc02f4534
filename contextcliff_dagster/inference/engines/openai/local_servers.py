"""Model servers that run on this machine, found on their usual ports and told apart by what they
answer at paths of their own: a port proves nothing.

Recognised as in `server_detection`, and besides:

- Ollama: ``/`` is the text "Ollama is running". Others imitate its interface, none this page.
- LM Studio: ``/api/v0/models`` has ``compatibility_type``. It answers 200 to every path.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple

from contextcliff_dagster.contracts import EngineError
from contextcliff_dagster.inference.engines.base import RejectedError, TransportError, token_count
from contextcliff_dagster.inference.engines.openai.address_check import listed_ids
from contextcliff_dagster.inference.engines.openai.error_mapping import ErrorMapper
from contextcliff_dagster.inference.engines.openai.http_client import Endpoint
from contextcliff_dagster.inference.engines.openai.server_detection import Probes, detect
from contextcliff_dagster.inference.models.models_file import ModelEntry
from contextcliff_dagster.inference.models.presets import PRESETS

SECONDS = 2.0
"""For all that is asked of one port; the ports are asked at the same time."""
_OWN = "contextcliff serve"


class LocalServer(NamedTuple):
    """A server that answers on a port: its ``preset`` (None: of unknown kind), in words ``title``.

    ``models``: as it lists them. ``needs_key``: it lists none without a key.
    """

    base_url: str
    preset: str | None
    title: str
    models: tuple[str, ...]
    needs_key: bool = False


async def find_local_servers(
    ports: Sequence[int] | None = None, within_s: float = SECONDS
) -> list[LocalServer]:
    """The servers on ``ports`` (default: the usual ones) of this machine that list models.

    Whatever else listens there, is silent, or talks nonsense is left out.
    """
    usual = [port for preset in PRESETS.values() if (port := preset.local_port)]
    asked = list(dict.fromkeys(usual if ports is None else ports))
    found = await asyncio.gather(*(_server_on(port, within_s) for port in asked))
    return [server for server in found if server]


async def loaded_window(probes: Probes, model_id: str) -> int | None:
    """The window in tokens with which Ollama or LM Studio has this model loaded, else None.

    Both load a model with a window of their own choice, which is mostly smaller than the model's.
    """
    with suppress(TransportError, RejectedError, EngineError):
        for item in _items(await probes.ask("/api/ps"), "models"):
            if model_id in _ollama_names(item):
                return token_count(item.get("context_length")) or None
        for item in _items(await probes.ask("/api/v0/models"), "data"):
            if item.get("id") == model_id:
                return token_count(item.get("loaded_context_length")) or None
    return None


def _ollama_names(item: Mapping[str, Any]) -> set[str]:
    names = {str(item.get(key)) for key in ("name", "model")}
    return names | {name.removesuffix(":latest") for name in names}


@asynccontextmanager
async def _questions_to(base_url: str) -> AsyncIterator[Probes]:
    """Questions to a server on this machine: past any proxy, and without a key."""
    entry = ModelEntry(name="local", engine="openai", base_url=base_url)
    endpoint = Endpoint(base_url, {}, timeout_s=SECONDS, connections=4, direct=True)
    try:
        yield Probes(endpoint, ErrorMapper(entry, base_url, str))
    finally:
        await endpoint.close()


async def _server_on(port: int, within_s: float) -> LocalServer | None:
    base_url = f"http://127.0.0.1:{port}/v1"
    with suppress(Exception):  # whatever listens there was not asked for
        async with asyncio.timeout(within_s), _questions_to(base_url) as probes:
            reply = await probes.endpoint.ask("/models", within_s=within_s)
            if reply.status in (401, 403) and reply.json():
                return LocalServer(base_url, None, "a server that asks for a key", (), True)
            data = reply.json().get("data")
            if reply.status != 200 or not isinstance(data, list):
                return None
            listed = [item for item in data if isinstance(item, dict)]
            if not (models := tuple(listed_ids(listed))):
                return None
            preset = await _kind(probes, listed)
            own = listed[0].get("owned_by") == "contextcliff"
            title = PRESETS[preset].title if preset else _OWN if own else "a server of unknown kind"
            return LocalServer(base_url, preset, title, models)
    return None


async def _kind(probes: Probes, listed: Sequence[Mapping[str, Any]]) -> str | None:
    with suppress(TransportError, RejectedError, EngineError):
        dialect = await detect(probes, listed[0])
        if dialect.name in PRESETS:
            return dialect.name
    with suppress(TransportError, RejectedError, EngineError):
        items = _items(await probes.ask("/api/v0/models"), "data")
        if any("compatibility_type" in item for item in items):
            return "lmstudio"
    reply = await probes.endpoint.ask("/", within_s=SECONDS, under_v1=False)
    return "ollama" if reply.data.strip() == b"Ollama is running" else None


def _items(answer: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    items = answer.get(key)
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []
