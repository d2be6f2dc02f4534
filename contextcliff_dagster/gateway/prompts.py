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

_SENT = "messages", "system", "instructions", "input", "suffix", "documents", "extra_body"
_SENT_AS_JSON = (
    "tools", "functions", "response_format", "text", "output_format", "output_config",
    "chat_template", "chat_template_kwargs",
)  # fmt: skip
"""What chat templates write into the prompt as JSON, names included, and the templates."""
_ELSEWHERE = "previous_response_id", "conversation", "prompt_id", "prompt_embeds"
"""Text that the server adds and the request does not show."""
_LABELS = {"role", "type", "id", "call_id", "tool_call_id", "tool_use_id", "status", "detail"}
_LABELS |= {"media_type"}
_LONGEST_LABEL = 64
"""Characters: a longer one is text, as templates write a role whatever it is."""
_NEVER_READ = {"cache_control", "signature", "encrypted_content"}
_NO_TEXT = {"image", "image_url", "input_image", "audio", "input_audio", "video_url", "file"}
_NO_TEXT |= {"input_file", "container_upload", "item_reference", "computer_screenshot"}
_DATA = _NO_TEXT | {"source", "data", "url", "file_data", "file_id", "file_url"}
"""Of a part that is no text, what is not looked into: text next to it is counted."""
_IN_PLACE = "text", "content"
"""Types of the source of a document whose text is in the request."""
_ARGUMENTS = {"input", "arguments"}
"""Of a tool that was called, whose names the model reads, too."""
_FRAME, _FREE_FRAMES = 5, 2
"""Tokens that templates put around a message, beyond the two that a measured prompt has."""


class Prompt(NamedTuple):
    """What a request sends: the texts of one prompt, or of each where it has several.

    ``token_ids`` is the length of the longest prompt that is given as tokens of the model;
    ``unseen`` names what is sent besides, and cannot be counted; ``frame_tokens`` are those that
    many messages have besides their text, by the templates in use.
    """

    texts: list[list[str]]
    token_ids: int = 0
    unseen: str | None = None
    frame_tokens: int = 0


def prompt_of(body: Mapping[str, Any]) -> Prompt:
    """The prompt of a request's JSON body; case of its names is ignored, as some servers do."""
    sent = {name.casefold(): value for name, value in body.items()}
    texts: list[str] = []
    unseen = next((name for name in _ELSEWHERE if sent.get(name)), None)
    for name in _SENT:
        for found in _texts(sent.get(name)):
            if isinstance(found, str):
                texts.append(found)
            else:
                unseen = found.kind
    texts += [_as_json(sent[name]) for name in _SENT_AS_JSON if sent.get(name)]
    lists = [sent[name] for name in ("messages", "input") if isinstance(sent.get(name), list)]
    frames = max(0, sum(map(len, lists)) - _FREE_FRAMES) * _FRAME
    given = sent.get("prompt")
    prompts, ids = [texts], 0
    if isinstance(given, str):
        prompts = [[*texts, given]]
    elif isinstance(given, list):
        written = [one for one in given if isinstance(one, str)]
        rows = [one for one in given if isinstance(one, list)]
        prompts = [[*texts, one] for one in written] or prompts
        ids = max(map(len, rows)) if rows else len(given) - len(written)
    elif given:  # a prompt that the server has stored
        unseen = "prompt"
    return Prompt(prompts, ids, unseen, frames)


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
            kind = str(one.get("type"))[:_LONGEST_LABEL]
            source = one.get("source")
            elsewhere = isinstance(source, Mapping) and source.get("type") not in _IN_PLACE
            no_text = kind in _NO_TEXT or elsewhere
            if no_text or one.get("encrypted_content"):
                yield _NoText(kind)
            for name, text in one.items():
                if name in _NEVER_READ or (no_text and name in _DATA):
                    continue
                label = name in _LABELS and isinstance(text, str)
                if name in _ARGUMENTS and isinstance(text, Mapping):
                    yield _as_json(text)
                elif not label or len(text) > _LONGEST_LABEL:
                    waiting.append(text)


def _as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


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
