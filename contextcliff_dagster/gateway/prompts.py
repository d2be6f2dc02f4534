"""The text of a request's prompt, and bounds on its tokens.

Reads the bodies of OpenAI's chat completions, completions and responses, and of Anthropic's
messages, as their API references describe them. All text is counted, of every message, of system
text and of tools: which part is the document, a request does not say.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

_SENT = "messages", "system", "instructions", "input"
_SENT_AS_JSON = "tools", "functions", "response_format"
"""What chat templates write into the prompt as JSON, names included."""
_ELSEWHERE = "previous_response_id", "conversation"
"""Text that the server adds and the request does not show."""
_LABELS = {"role", "type", "id", "call_id", "tool_call_id", "tool_use_id", "status", "detail"}
_LABELS |= {"cache_control", "signature", "encrypted_content", "media_type"}
_NO_TEXT = {"image", "image_url", "input_image", "audio", "input_audio", "video_url", "file"}
_NO_TEXT |= {"input_file", "container_upload", "item_reference"}
_IN_PLACE = {"text", "content"}
"""Types of the source of a document whose text is in the request."""
_ARGUMENTS = {"input", "arguments"}
"""Of a tool that was called, whose names the model reads, too."""


class Prompt(NamedTuple):
    """What a request sends: the texts of one prompt, or of each where it has several.

    ``token_ids`` is the length of the longest prompt that is given as tokens of the model;
    ``unseen`` names what is sent besides, and cannot be counted.
    """

    texts: list[list[str]]
    token_ids: int = 0
    unseen: str | None = None


def prompt_of(body: Mapping[str, Any]) -> Prompt:
    """The prompt of a request's JSON body."""
    texts: list[str] = []
    unseen = next((name for name in _ELSEWHERE if body.get(name)), None)
    for name in _SENT:
        for found in _texts(body.get(name)):
            if isinstance(found, str):
                texts.append(found)
            else:
                unseen = found.kind
    texts += [json.dumps(body[name]) for name in _SENT_AS_JSON if body.get(name)]
    given = body.get("prompt")
    if isinstance(given, str):
        return Prompt([[*texts, given]], 0, unseen)
    if isinstance(given, list) and given:
        if all(isinstance(one, str) for one in given):
            return Prompt([[*texts, one] for one in given], 0, unseen)
        rows = [one for one in given if isinstance(one, list)]
        longest = max(map(len, rows)) if rows else len(given)
        return Prompt([texts], longest, unseen)
    if given:  # a prompt that the server has stored
        unseen = "prompt"
    return Prompt([texts], 0, unseen)


class _NoText(NamedTuple):
    kind: str


def _texts(value: Any) -> Iterator[str | _NoText]:
    """Every text in ``value``, but for labels such as a role; and parts that are no text."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, list | tuple):
            waiting += one
        elif isinstance(one, Mapping):
            kind = one.get("type")
            source = one.get("source")
            elsewhere = isinstance(source, Mapping) and source.get("type") not in _IN_PLACE
            if kind in _NO_TEXT or elsewhere:
                yield _NoText(str(kind))
                continue
            for name, text in one.items():
                if name in _ARGUMENTS and isinstance(text, Mapping):
                    yield json.dumps(text)
                elif name not in _LABELS:
                    waiting.append(text)


def upper_bound(text: str) -> int:
    """At least the tokens of ``text`` by any tokenizer that makes each from a byte or more.

    UTF-8 bytes, of the text or of its NFKC form where that is longer (tokenizers with a normalizer
    read it so), and one for the mark that some put in front. Byte-level BPE, and SentencePiece with
    byte fallback, never make more.
    """
    if text.isascii():
        return len(text) + 1
    forms = (text, unicodedata.normalize("NFKC", text), unicodedata.normalize("NFKD", text))
    return max(len(form.encode("utf-8", "surrogatepass")) for form in forms) + 1
