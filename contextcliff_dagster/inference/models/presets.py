"""Servers that many people have: address, key variable, quirks, and where their window is known.

What `contextcliff init` and `contextcliff models add` write into models.yaml. Each row is from the
server's own documentation (``source``); docs/models.md shows the table, and which of them this
project has called.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import urlsplit

from contextcliff_dagster.contracts import StudyError

Window = Literal["server", "written", "yours"]
"""Who gives the context window: the server, at each start; the server once, when the entry is
written; or the user, from the model's documentation."""


@dataclass(frozen=True, slots=True)
class Preset:
    """One kind of server.

    Parameters:
        title: its name as its makers write it.
        base_url: where it usually is; servers of this machine by their default port.
        source: the page that says so.
        window: see `Window`.
        tried: what this project has called of it; empty: never the real service.
        api_key_env: variable that its own documentation takes the key from; None for no key.
        quirks: the entry's `quirks`, as far as they differ from the defaults.
        note: what one has to know before measuring, as a comment of the entry.
        concurrency: calls at a time; None for the default.
    """

    name: str
    title: str
    base_url: str
    source: str
    window: Window
    tried: str = ""
    api_key_env: str | None = None
    quirks: Mapping[str, str] = field(default_factory=dict)
    note: str = ""
    concurrency: int | None = None

    @property
    def local_port(self) -> int | None:
        """Its usual port on this machine; None for a service elsewhere."""
        parts = urlsplit(self.base_url)
        return parts.port if parts.hostname == "127.0.0.1" else None


_KNOWN = {"probes": "omit"}
"""It is known what this is: no questions about vLLM, llama.cpp and others."""

PRESETS: Mapping[str, Preset] = {
    preset.name: preset
    for preset in (
        Preset(
            "openai",
            "OpenAI",
            "https://api.openai.com/v1",
            "https://platform.openai.com/docs/api-reference/chat/create",
            "yours",
            api_key_env="OPENAI_API_KEY",
            # `max_tokens` is deprecated there, and refused by reasoning models.
            quirks={"max_tokens_parameter": "max_completion_tokens", **_KNOWN},
            note="Name a dated model: the model behind an alias changes without notice.",
        ),
        Preset(
            "anthropic",
            "Anthropic",
            "https://api.anthropic.com/v1",
            "https://platform.claude.com/docs/en/api/openai-sdk",
            "yours",
            api_key_env="ANTHROPIC_API_KEY",
            # Its list of models takes another header than the key of this interface.
            quirks={"model_list": "omit", **_KNOWN},
            note="Its OpenAI-compatible interface is meant for testing and comparing models.",
        ),
        Preset(
            "gemini",
            "Gemini",
            "https://generativelanguage.googleapis.com/v1beta/openai",
            "https://ai.google.dev/gemini-api/docs/openai",
            "yours",
            api_key_env="GEMINI_API_KEY",
            quirks=_KNOWN,
            note="Thinking counts against the output limit: raise `max_output_tokens` of the study "
            "where answers are empty.",
        ),
        Preset(
            "openrouter",
            "OpenRouter",
            "https://openrouter.ai/api/v1",
            "https://openrouter.ai/docs/api-reference/overview",
            "written",
            api_key_env="OPENROUTER_API_KEY",
            quirks=_KNOWN,
            note="It passes calls on to several providers, whose windows and weights differ: fix "
            "one in your account's settings before you compare.",
        ),
        Preset(
            "nvidia",
            "NVIDIA's hosted NIM",
            "https://integrate.api.nvidia.com/v1",
            "https://docs.api.nvidia.com/nim/reference/llm-apis",
            "yours",
            api_key_env="NVIDIA_API_KEY",
            quirks=_KNOWN,
        ),
        Preset(
            "ollama",
            "Ollama",
            "http://127.0.0.1:11434/v1",
            "https://docs.ollama.com/api/openai-compatibility",
            "written",
            note="Ollama cuts a longer prompt without an error. Set OLLAMA_CONTEXT_LENGTH there, "
            "and the same number here.",
            concurrency=1,
        ),
        Preset(
            "lmstudio",
            "LM Studio",
            "http://127.0.0.1:1234/v1",
            "https://lmstudio.ai/docs/developer/openai-compat",
            "written",
            note="The window is the one that the model is loaded with in LM Studio.",
            concurrency=1,
        ),
        Preset(
            "vllm",
            "vLLM",
            "http://127.0.0.1:8000/v1",
            "https://docs.vllm.ai/en/latest/serving/openai_compatible_server.html",
            "server",
            tried="version 0.32, on a CPU",
        ),
        Preset(
            "llamacpp",
            "llama.cpp",
            "http://127.0.0.1:8080/v1",
            "https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md",
            "server",
            tried="its server inside xllamacpp 2026.10, on a CPU",
            note="Start llama-server with --no-context-shift; -c divided by -np is the window.",
            concurrency=1,
        ),
        Preset(
            "koboldcpp",
            "KoboldCpp",
            "http://127.0.0.1:5001/v1",
            "https://github.com/LostRuins/koboldcpp/wiki",
            "server",
            concurrency=1,
        ),
        Preset(
            "nim",
            "NVIDIA NIM",
            "http://127.0.0.1:8000/v1",
            "https://docs.nvidia.com/nim/large-language-models/latest/reference/api-reference.html",
            "server",
        ),
    )
}


def get_preset(name: str) -> Preset:
    """The preset called ``name``; without one, a StudyError that lists those that there are."""
    if name not in PRESETS:
        raise StudyError(f"There is no preset {name!r}; there are {', '.join(PRESETS)}.")
    return PRESETS[name]
