"""The options by which an endpoint is given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import click

from contextcliff_dagster.cli.options import (
    MOST_TOKENS,
    Finite,
    count_option,
    gathered_as,
    together,
)


@dataclass(frozen=True, slots=True)
class EndpointOptions:
    """What the person gave; None: not given."""

    preset: str | None = None
    base_url: str | None = None
    model_id: str | None = None
    api_key_env: str | None = None
    window_tokens: int | None = None
    no_call: bool = False
    timeout: float = 60.0
    set_keys: Mapping[str, Any] = field(default_factory=dict)

    @property
    def named(self) -> bool:
        """Whether any of it says which endpoint is meant."""
        return (self.preset, self.base_url, self.model_id) != (None, None, None)


_OWN_OPTION = ("name", "engine", "base_url", "model_id", "api_key_env", "window_tokens")


def _keys(ctx: click.Context, param: click.Parameter, given: Sequence[str]) -> dict[str, Any]:
    """``a.b=1`` and the like as an entry of models.yaml has them: ``{"a": {"b": 1}}``."""
    import yaml

    keys: dict[str, Any] = {}
    for one in given:
        path, _, text = one.partition("=")
        *above, last = path.split(".")
        inner = keys
        try:
            for name in above:
                inner = inner.setdefault(name, {})
            inner[last] = yaml.safe_load(text)
        except (yaml.YAMLError, TypeError, AttributeError):
            text = ""
        if not text or not all((*above, last)):
            raise click.BadParameter(f"{one!r} is no KEY=VALUE, as quirks.top_k=omit.", ctx, param)
    if taken := [name for name in keys if name in _OWN_OPTION]:
        raise click.BadParameter(f"{taken[0]} is decided by the other options.", ctx, param)
    return keys


set_option = click.option(
    "--set",
    "set_keys",
    multiple=True,
    callback=_keys,
    metavar="KEY=VALUE",
    help="Any other key of the model's entry (docs/models.md), as reasoning_effort=low, "
    "quirks.top_k=omit or extra_body.top_n=3; repeat it.",
)

_OPTIONS = together(
    click.option(
        "--preset",
        metavar="NAME",
        help="Kind of server: openai, anthropic, gemini, openrouter, nvidia, ollama, lmstudio, "
        "vllm, llamacpp, koboldcpp, nim.",
    ),
    click.option(
        "--base-url", metavar="URL", help="Any other OpenAI-compatible address, up to its /v1."
    ),
    click.option("--model-id", metavar="ID", help="The model as the server calls it."),
    click.option(
        "--api-key-env",
        metavar="VARIABLE",
        help="Environment variable that holds the key; the key itself is written nowhere.",
    ),
    count_option(
        "--window-tokens", 1, MOST_TOKENS, "Context window, where the server does not report it."
    ),
    set_option,
    click.option("--no-call", is_flag=True, help="Do not check the model with one small call."),
    click.option(
        "--timeout",
        type=Finite(0, 3600, min_open=True),
        default=60.0,
        show_default=True,
        metavar="SECONDS",
        help="How long that check may take; a server may have to load the model first.",
    ),
)


endpoint_options = gathered_as("endpoint", EndpointOptions, _OPTIONS)
"""Gives a command the options of an endpoint as one ``endpoint: EndpointOptions``."""
