"""Detection of the kind of server at an OpenAI-compatible address, by its own endpoints.

Names prove nothing: gateways rename models and vendors. Some reports of a server decide its answers
(software, window, template) and go into the serving identity. That must not depend on luck, so a
probe is sent again to a busy server, and one without an answer is an error, not a "no".

- KoboldCpp: ``/api/extra/version``, ``/api/extra/true_max_context_length``. Asked first, because it
  answers to much of llama.cpp's interface, too.
- NVIDIA NIM: ``/v1/version`` with ``release`` and ``api``; ``/v1/metadata``.
- llama.cpp: ``/props``.
- vLLM: ``/version``, and the ``max_model_len`` of ``/v1/models``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from contextcliff_dagster.inference.engines.base import TransportError, token_count
from contextcliff_dagster.inference.engines.openai.error_mapping import ErrorMapper
from contextcliff_dagster.inference.engines.openai.http_client import Endpoint, StatusError
from contextcliff_dagster.redaction import public_url
from contextcliff_dagster.retry import QUESTIONS, retry

PROBE_SECONDS = 5.0
_HICCUPS = frozenset({408, 425, 429, 500, 502, 503, 504})

DialectName = Literal["plain", "vllm", "llamacpp", "koboldcpp", "nim"]

_SAMPLING = (
    "samplers repeat_last_n repeat_penalty presence_penalty frequency_penalty dry_multiplier"
    " dry_base dry_allowed_length dry_penalty_last_n mirostat ignore_eos reasoning_format lora"
).split()
"""Settings of a llama.cpp server that change answers even at temperature 0."""


@dataclass(frozen=True)
class Dialect:
    """A kind of server; ``reported`` joins the serving identity under ``server_`` names."""

    name: DialectName = "plain"
    reported: Mapping[str, Any] = field(default_factory=dict)


class Probes:
    """Small requests to one server, sent with its own key and only to its own address."""

    def __init__(self, endpoint: Endpoint, errors: ErrorMapper) -> None:
        self.endpoint, self.errors = endpoint, errors

    async def ask(
        self, path: str, parts: Sequence[bytes] = (), *, under_v1: bool = False
    ) -> dict[str, Any]:
        """Return the JSON object at ``path``, or {} if there is none.

        Raises:
            TransportError: the server stays silent or busy through all attempts.
            EngineError: every further request would fail.
        """

        async def once() -> dict[str, Any]:
            try:
                reply = await self.endpoint.ask(
                    path, parts, within_s=PROBE_SECONDS, under_v1=under_v1
                )
                if reply.status in _HICCUPS:
                    raise StatusError(reply)
            except Exception as error:
                raise self.errors.sort(error) from None
            return reply.json() if reply.status == 200 else {}

        try:
            return await retry(once, QUESTIONS)
        except TransportError as error:
            if error.status == 500:  # not busy: broken, at a path that it may not even have
                return {}
            raise


async def detect(probes: Probes, listed: Mapping[str, Any]) -> Dialect:
    """Return the dialect of a server; ``listed`` is its ``/v1/models`` entry for our model."""
    answer = await probes.ask("/api/extra/version")
    if answer.get("result") == "KoboldCpp":
        window = await probes.ask("/api/extra/true_max_context_length")
        # It answers to any name, with the one model that is loaded.
        model, window_tokens = _text(listed.get("id")), token_count(window.get("value")) or None
        software = _software("koboldcpp", answer)
        return _dialect("koboldcpp", software=software, model=model, window_tokens=window_tokens)
    answer = await probes.ask("/version", under_v1=True)
    if isinstance(answer.get("release"), str) and isinstance(answer.get("api"), str):
        metadata = await probes.ask("/metadata", under_v1=True)
        infos = metadata.get("modelInfo")
        models = [
            [_text(info.get("shortName")), public_url(_text(info.get("modelUrl")) or "")]
            for info in (infos if isinstance(infos, list) else [])
            if isinstance(info, dict)
        ]
        return _dialect(
            "nim",
            software=_software("nim", answer, "release"),
            profile=_text(metadata.get("selectedModelProfileId")),
            models=sorted(models, key=str) or None,
        )
    props = await probes.ask("/props")
    defaults = props.get("default_generation_settings")
    # A router that starts other servers on demand has no n_ctx: its reports would depend on
    # which of them is running.
    if isinstance(defaults, dict) and (window_tokens := token_count(defaults.get("n_ctx"))):
        params = defaults.get("params")
        settings = params if isinstance(params, dict) else defaults
        template = _text(props.get("chat_template"))
        return _dialect(
            "llamacpp",
            software=_software("llama.cpp", props, "build_info"),
            window_tokens=window_tokens,
            chat_template=template and hashlib.sha256(template.encode()).hexdigest(),
            sampling={name: settings[name] for name in _SAMPLING if name in settings} or None,
        )
    if token_count(listed.get("max_model_len")):
        answer = await probes.ask("/version")
        if _text(answer.get("version")):
            return _dialect("vllm", software=_software("vllm", answer))
    return Dialect()


def _dialect(name: DialectName, **reported: Any) -> Dialect:
    return Dialect(name, {key: value for key, value in reported.items() if value is not None})


def _software(name: str, answer: Mapping[str, Any], key: str = "version") -> str:
    return f"{name} {_text(answer.get(key)) or 'of unknown version'}"


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
