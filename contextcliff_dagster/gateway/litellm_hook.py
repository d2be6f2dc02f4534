"""Hook of the LiteLLM proxy that checks each call to a model against the cap.

litellm_settings:
  callbacks: contextcliff_dagster.gateway.litellm_hook.hook
callback_settings:
  contextcliff: {policy: safe-context.json, route_to: {my-model: my-larger-model}}
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any

import litellm
from fastapi import HTTPException
from litellm.integrations.custom_logger import CustomLogger

from contextcliff_dagster.gateway.gate import Decision, Gate, prompt_of
from contextcliff_dagster.gateway.settings import GateSettings

_CHECKED = {
    "completion", "acompletion", "text_completion", "atext_completion", "responses", "aresponses",
    "anthropic_messages", "aanthropic_messages",
}  # fmt: skip
"""LiteLLM's names for calls with a text prompt; embeddings, images and the like pass unchecked."""
_SHORT = 4_096
"""Maximum characters of a prompt that is checked in place; a longer one is checked in a thread."""


class RefusedError(HTTPException):  # type: ignore[misc]
    """A refusal for LiteLLM's routes; some read its attributes, others its detail.

    ``error`` is the JSON body of the refusal.
    """

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(status_code=400, detail=error)
        self.message: str = error["error"]["message"]
        self.type: str = error["error"]["type"]
        self.code: str = error["error"]["code"]
        self.param = None

    def __str__(self) -> str:
        return self.message


class SafeContextHook(CustomLogger):  # type: ignore[misc]
    """Hook that refuses prompts above the policy's cap with status 400, or routes them elsewhere.

    Settings by name, see `GateSettings`. A call within the cap is not touched.

    Raises:
        PolicyError: a setting is wrong, or there is no usable policy.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self.gate = Gate(GateSettings.of(settings))

    async def async_pre_call_hook(
        self, user_api_key_dict: Any, cache: Any, data: dict[str, Any], call_type: str
    ) -> dict[str, Any] | None:
        if call_type not in _CHECKED:
            return None
        body = {name: value for name, value in data.items() if name.casefold() != "model"}
        for name in _named_besides(data):
            await self._decided({**body, "model": name}, route=False)
        # LiteLLM accepts several names separated by commas, and calls each of these models.
        names = str(data.get("model", "")).split(",")
        sent = []
        for name in names:
            decision = await self._decided({**body, "model": name.strip()})
            sent.append(decision.model or name)
        return None if sent == names else {**data, "model": ",".join(sent)}

    async def _decided(self, body: dict[str, Any], *, route: bool = True) -> Decision:
        """Return the gate's decision; raise RefusedError if it refuses the request."""
        size = sum(len(text) for texts in prompt_of(body).texts for text in texts)
        if size > _SHORT:
            decision = await asyncio.to_thread(self.gate.decide, body, route=route)
        else:
            decision = self.gate.decide(body, route=route)
        if decision.error is not None:
            raise RefusedError(decision.error)
        return decision


def _named_besides(data: Mapping[str, Any]) -> Iterator[str]:
    """Yield further models that ``data`` names, because LiteLLM overwrites the body (including the
    model of messages and responses) with ``extra_body``, and passes on names in any case."""
    carrier: Any = {name: value for name, value in data.items() if name != "model"}
    while isinstance(carrier, Mapping):
        for name, value in carrier.items():
            if str(name).casefold() == "model":
                yield from (model.strip() for model in str(value).split(","))
        carrier = carrier.get("extra_body")


def __getattr__(name: str) -> SafeContextHook:
    """Create ``hook`` when the proxy imports it, with the settings of the proxy's YAML file."""
    if name != "hook":
        raise AttributeError(name)
    hook = SafeContextHook(**(litellm.callback_settings or {}).get("contextcliff", {}))
    globals()["hook"] = hook
    return hook
