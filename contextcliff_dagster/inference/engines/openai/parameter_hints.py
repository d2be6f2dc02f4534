"""Which setting a refusal of a parameter asks for.

Reasoning models refuse a temperature of 0 and want another name for the output limit; older servers
refuse what is new. Every call would be refused alike, so the first refusal ends the run, in one
sentence that names the setting.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from contextcliff_dagster.inference.models.registry import Quirks

_UNKNOWN = (
    r"unsupported|not support|isn't support|unrecogni[sz]ed|not permitted|not allowed|unknown"
    r"|unexpected|deprecated|extra (?:field|input|parameter)"
)
_REFUSED = rf"{_UNKNOWN}|invalid|must be|may only|can only|only the|only \S+ is|strictly|cannot"
_NEAR, _NEAR_A_BARE_WORD = 90, 30
"""Characters between a parameter's name, in quotes or as a bare word, and what is said about it:
errors may quote the prompt."""

_QUIRKS: Mapping[str, tuple[str, str, str]] = {
    "temperature": ("temperature", "omit", _REFUSED),
    "max_tokens": ("max_tokens_parameter", "max_completion_tokens", _UNKNOWN),
    "max_completion_tokens": ("max_tokens_parameter", "max_tokens", _UNKNOWN),
    "stream_options": ("stream_usage", "omit", _REFUSED),
    "continue_final_message": ("prefill", "last_message", _REFUSED),
    "add_generation_prompt": ("prefill", "last_message", _REFUSED),
}
"""Parameter -> quirk, its value that mends it, and the words that make a refusal of it."""


def wanted_setting(error: Mapping[str, Any], message: str, quirks: Quirks) -> str | None:
    """What to set, in a clause; None where the refusal is not about a parameter of ours, or the
    setting is made already.

    Args:
        error: as the server sent it: OpenAI names the parameter in ``param``, FastAPI in ``loc``.
        message: its message.
    """
    named = _named(error)
    for parameter, (quirk, value, refusal) in _QUIRKS.items():
        if getattr(quirks, quirk) == value or (named is not None and named != parameter):
            continue
        if named == parameter:
            refused = refusal == _REFUSED or _matches(refusal, message)
        else:
            refused = _names_parameter(parameter, refusal, message)
        if refused:
            return f"set `quirks: {{{quirk}: {value}}}` for it in models.yaml"
    if named in ("max_tokens", "max_completion_tokens"):
        return "set `prompt: max_output_tokens` of the study to what the model allows"
    return None


def _names_parameter(parameter: str, refusal: str, message: str) -> bool:
    quoted, bare = f"['\"`]{parameter}['\"`]", rf"\b{parameter}\b"
    for name, near in ((quoted, _NEAR), (bare, _NEAR_A_BARE_WORD)):
        gap = rf"\W(?:.{{0,{near}}}\W)?"
        if _matches(rf"{name}{gap}(?:{refusal})|(?:{_UNKNOWN}|invalid){gap}{name}", message):
            return True
    return False


def _matches(pattern: str, message: str) -> bool:
    return re.search(pattern, message, re.IGNORECASE | re.DOTALL) is not None


def _named(error: Mapping[str, Any]) -> str | None:
    if isinstance(param := error.get("param"), str) and param:
        return param
    details = error.get("detail")
    for detail in details if isinstance(details, list) else []:
        where = detail.get("loc") if isinstance(detail, dict) else None
        if isinstance(where, list) and where and where[-1] in _QUIRKS:
            return str(where[-1])
    return None
