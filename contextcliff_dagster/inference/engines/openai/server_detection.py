"""What kind of server answers at an OpenAI-compatible address, by asking at its own endpoints.

Names prove nothing: gateways rename models and vendors. What a server tells that decides its
answers (which software, which window, which template) goes into the serving identity. That must not
depend on luck, so a probe that meets a hiccup is sent again, and one that stays without an answer
is an error, not a "no".

- KoboldCpp: ``/api/extra/version``, ``/api/extra/true_max_context_length``. Asked first, because it
  answers to much of llama.cpp's interface, too.
- NVIDIA NIM: ``/v1/version`` with ``release`` and ``api``; ``/v1/metadata``.
- llama.cpp: ``/props``.
- vLLM: ``/version``, beside the ``max_model_len`` of ``/v1/models``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from contextcliff_dagster.inference.engines.base import TransportError
from contextcliff_dagster.inference.engines.openai.error_mapping import ErrorMapper
from contextcliff_dagster.inference.engines.openai.http_client import Endpoint, StatusError
from contextcliff_dagster.redaction import public_url
from contextcliff_dagster.retry import QUESTIONS, retry

PROBE_SECONDS = 5.0
_HICCUPS = frozenset({408, 425, 429, 500, 502, 503, 504})

DialectName = Literal["plain", "vllm", "llamacpp", "koboldcpp", "nim"]

_SAMPLING = (
    "samplers",
    "repeat_last_n",
    "repeat_penalty",
    "presence_penalty",
    "frequency_penalty",
    "dry_multiplier",
    "dry_base",
    "dry_allowed_length",
    "dry_penalty_last_n",
    "mirostat",
    "ignore_eos",
    "reasoning_format",
    "lora",
)
"""The settings of a llama.cpp server that change answers at temperature 0, too."""


@dataclass(frozen=True)
class Dialect:
    """``reported`` goes into the serving identity, each name with ``server_`` before it."""

    name: DialectName = "plain"
    reported: Mapping[str, Any] = field(default_factory=dict)


class Probes:
    """Small questions to one server, with its own key and to its own address only."""

    def __init__(self, endpoint: Endpoint, errors: ErrorMapper) -> None:
        self._endpoint, self._errors = endpoint, errors

    async def get(self, path: str, *, beside: bool = True) -> dict[str, Any]:
        """The JSON object there; {} where there is none."""
        return await self.ask("GET", path, beside=beside)

    async def ask(
        self, method: str, path: str, parts: Sequence[bytes] = (), *, beside: bool = True
    ) -> dict[str, Any]:
        """As `get`, by any method.

        Raises:
            TransportError: no answer, or one that a busy server gives, time after time.
            EngineError: no further request makes sense.
        """

        async def once() -> dict[str, Any]:
            try:
                reply = await self._endpoint.ask(
                    method, path, parts, within_s=PROBE_SECONDS, beside=beside
                )
                if reply.status in _HICCUPS:
                    raise StatusError(reply)
            except Exception as error:
                raise self._errors.sort(error, sent=False) from None
            answer = reply.json() if reply.status == 200 else None
            return answer if isinstance(answer, dict) else {}

        try:
            return await retry(once, QUESTIONS)
        except TransportError as error:
            if error.status == 500:  # not busy: broken, at a path that it may not even have
                return {}
            raise


async def detect(probes: Probes, listed: Mapping[str, Any]) -> Dialect:
    """The dialect of a server whose ``/v1/models`` has ``listed`` for our model.

    Raises:
        TransportError: see `Probes.ask`.
    """
    answer = await probes.get("/api/extra/version")
    if answer.get("result") == "KoboldCpp":
        window = await probes.get("/api/extra/true_max_context_length")
        reported = {
            "software": _software("koboldcpp", answer.get("version")),
            # It answers to any name, with the one model that is loaded.
            "model": _text(listed.get("id")),
            "window_tokens": _count(window.get("value")),
        }
        return Dialect("koboldcpp", _known(reported))
    answer = await probes.get("/version", beside=False)
    if isinstance(answer.get("release"), str) and isinstance(answer.get("api"), str):
        metadata = await probes.get("/metadata", beside=False)
        return Dialect("nim", _known(_nim(answer["release"], metadata)))
    answer = await probes.get("/props")
    if props := _llamacpp(answer):
        return Dialect("llamacpp", props)
    if _count(listed.get("max_model_len")):
        answer = await probes.get("/version")
        if version := _text(answer.get("version")):
            return Dialect("vllm", {"software": _software("vllm", version)})
    return Dialect()


def _nim(release: str, metadata: Mapping[str, Any]) -> dict[str, Any]:
    infos = metadata.get("modelInfo")
    models = [
        [_text(info.get("shortName")), public_url(_text(info.get("modelUrl")) or "")]
        for info in (infos if isinstance(infos, list) else [])
        if isinstance(info, dict)
    ]
    return {
        "software": _software("nim", release),
        "profile": _text(metadata.get("selectedModelProfileId")),
        "models": sorted(models, key=str) or None,
    }


def _llamacpp(props: Mapping[str, Any]) -> dict[str, Any] | None:
    """None also where the server only passes on to others, which it starts when they are needed:
    what it tells would depend on which of them runs just now."""
    defaults = props.get("default_generation_settings")
    if not isinstance(defaults, dict) or not (window := _count(defaults.get("n_ctx"))):
        return None
    params = defaults.get("params")
    settings = params if isinstance(params, dict) else defaults
    template = _text(props.get("chat_template"))
    reported = {
        "software": _software("llama.cpp", props.get("build_info")),
        "window_tokens": window,
        "chat_template": template and hashlib.sha256(template.encode()).hexdigest(),
        "sampling": {name: settings[name] for name in _SAMPLING if name in settings} or None,
    }
    return _known(reported)


def _software(name: str, version: Any) -> str:
    return f"{name} {_text(version) or 'of unknown version'}"


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _known(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}
