"""Whether an entry's address and model id are what its server has, without a call that is paid."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit, urlunsplit

import aiohttp

from contextcliff_dagster.contracts import EngineError
from contextcliff_dagster.inference.engines.openai.engine import OpenAIEngine
from contextcliff_dagster.inference.engines.openai.http_client import (
    Endpoint,
    OversizedError,
    Reply,
)
from contextcliff_dagster.inference.models.base_url import request_headers
from contextcliff_dagster.inference.models.models_file import ModelEntry
from contextcliff_dagster.redaction import public_url, redact

_SECONDS = 5.0
_SHOWN = 8
_CALLS = ("/chat/completions", "/completions")
_USUAL_PATHS = ("/v1", "/api/v1", "/openai/v1", "/api/openai/v1")
_ANY_NAME = ("llamacpp", "koboldcpp")
"""These answer to any name with the model that they have loaded."""


async def address_error(entry: ModelEntry, engine: OpenAIEngine) -> str | None:
    """A sentence where calls would fail: the model is not in the server's list, or there is nothing
    that answers calls under the base URL. ``engine``: of the entry, started."""
    ids = listed_ids(engine.listed)
    if ids:
        known = {name.removeprefix("models/") for name in ids}
        if entry.model_id.removeprefix("models/") in known or engine.dialect.name in _ANY_NAME:
            return None
        more = f" and {len(ids) - _SHOWN:,} more" if len(ids) > _SHOWN else ""
        names = redact(", ".join(ids[:_SHOWN]))
        return (
            f"the server does not list model {entry.model_id!r}; it lists {names}{more}; correct "
            "`model_id` in models.yaml."
        )
    base = entry.resolved_base_url()
    # An empty request is refused wherever there is something that reads requests.
    replies = [await _asked(entry, base, path, [b"{}"]) for path in _CALLS]
    if any(reply is None or not _is_absent(reply.status) for reply in replies):
        return None
    for candidate in _candidates(base):
        reply = await _asked(entry, candidate, "/models", ())
        if reply and reply.status == 200 and isinstance(reply.json().get("data"), list):
            what = f"{public_url(candidate)} lists models: correct `base_url` in models.yaml."
            break
    else:
        what = "correct `base_url` in models.yaml; it mostly ends in /v1."
    status = replies[0].status if replies[0] else 404
    return f"{public_url(base)}{_CALLS[0]} does not exist (status {status}); {what}"


def listed_ids(listed: list[dict[str, object]]) -> list[str]:
    """The names in what /v1/models has."""
    return [name for item in listed if isinstance(name := item.get("id"), str)]


def _is_absent(status: int) -> bool:
    return status in (404, 405) or 200 <= status < 400  # a page, or another address


def _candidates(base: str) -> list[str]:
    """Other base URLs of the same server, the likeliest first."""
    parts = urlsplit(base)
    path = parts.path.rstrip("/")
    for call in _CALLS:
        path = path.removesuffix(call)
    paths = [path, f"{path}/v1", path.replace("/v1/v1", "/v1"), *_USUAL_PATHS]
    urls = [urlunsplit((parts.scheme, parts.netloc, one, parts.query, "")) for one in paths]
    return [url for url in dict.fromkeys(urls) if url != base]


async def _asked(entry: ModelEntry, base: str, path: str, parts: Sequence[bytes]) -> Reply | None:
    """The reply there; None where none comes."""
    headers = request_headers(entry, f"Model {entry.name!r}", EngineError)
    trusted = entry.ca_bundle or entry.verify
    endpoint = Endpoint(base, headers, timeout_s=_SECONDS, connections=1, verify=trusted)
    try:
        return await endpoint.ask(path, parts, within_s=_SECONDS)
    except (aiohttp.ClientError, OSError, OversizedError):
        return None
    finally:
        await endpoint.close()
