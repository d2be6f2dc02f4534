"""From the raw output to the answer it contains, by a few rules that are the same at every length.

These come from the server or the prompt, not from the answer, and are removed: thoughts
(`thoughts`), end-of-turn markers, an answer prefix that the server repeats, the label `Answer:` in
front (in Chinese, Japanese, Korean and Thai, too), a code fence around the whole, one pair of
quotes or asterisks around the whole. Nothing else is guessed: an answer inside a sentence stays
there (exact match is then 0, containment 1, and the failure tag says why).

If the recipe asks for a schema, the whole answer must be JSON that fits it (JSON Schema, as
`jsonschema` checks it); the answer is then the value of the key `answer`, or of the only required
key, or the whole object.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from contextcliff_dagster.contracts import StudyError
from contextcliff_dagster.thoughts import without_thoughts

_END_MARKERS = (
    *("<|end|>", "<|eot_id|>", "<|im_end|>", "<|endoftext|>", "<|end_of_text|>", "<|eom_id|>"),
    *("<end_of_turn>", "<eos>", "</s>"),
)
_VOID = frozenset(".,;:!?'\"`()-_")
_LABEL = re.compile(
    r"\A(?:\*\*)?(?:(?:final\s+)?answer|(?:最终|最終)?答案[是为為]?|回答|答え?|正解|คำตอบ|정답|답변?)"
    r"\s*[:\uff1a](?:\*\*)?\s*",
    re.IGNORECASE,
)
_FENCE = re.compile(r"\A```[^\n`]*\n(.*?)\n?```\Z", re.DOTALL)
_PAIRS = (
    *(("**", "**"), ('"', '"'), ("'", "'"), ("`", "`"), ("\u201c", "\u201d")),
    *(("\u2018", "\u2019"), ("\u300c", "\u300d"), ("\u300e", "\u300f")),
)


@dataclass(frozen=True, slots=True)
class ParsedAnswer:
    """The answer parsed from one raw output.

    `text` is None if there is no answer to score, and `error` then says why. `visible` is the
    output without closed reasoning blocks and markers: containment and failure tags use it. `value`
    is the JSON value behind `text`, if a required schema is satisfied.
    """

    text: str | None
    visible: str
    error: str | None = None
    value: Any = None


def parse_answer(
    raw: str | None,
    *,
    answer_prefix: str = "",
    output_schema: Mapping[str, Any] | None = None,
    thought_tags: Sequence[str] = (),
) -> ParsedAnswer:
    """Parse the answer from `raw`; None or blank output has no answer.

    `thought_tags`: further names of tags around the model's thoughts.

    Raises:
        StudyError: `output_schema` is not a JSON Schema.
    """
    reply, unfinished = without_thoughts(raw or "", thought_tags)
    visible = _visible(reply, answer_prefix)
    if not has_content(visible):
        return ParsedAnswer(None, visible, "the output is empty")
    if unfinished:
        return ParsedAnswer(None, visible, "the output ends inside its reasoning")
    fenced = _FENCE.match(visible)
    text = fenced[1].strip() if fenced else visible
    if output_schema is not None:
        return _parse_json(text, visible, output_schema)
    text = _unwrapped(_LABEL.sub("", text, count=1))
    if not has_content(text):
        return ParsedAnswer(None, visible, "the output is a label without an answer")
    return ParsedAnswer(text, visible)


def has_content(text: str) -> bool:
    """Return whether `text` has anything but white space, control characters and punctuation."""
    return any(
        c not in _VOID and unicodedata.category(c)[0] not in ("CZ" if c.isascii() else "CZP")
        for c in text
    )


def _visible(raw: str, answer_prefix: str) -> str:
    text = raw.strip()
    end = len(text)
    while text.endswith(_END_MARKERS, 0, end):
        end = text.rindex("<", 0, end)
        while end and text[end - 1].isspace():
            end -= 1
    text = text[:end]
    if answer_prefix.strip():
        text = text.removeprefix(answer_prefix.strip()).lstrip()
    return text


def _unwrapped(text: str) -> str:
    for left, right in _PAIRS:
        body = text[len(left) : -len(right)]
        if body and text == left + body + right and left not in body and right not in body:
            return body.strip()
    return text


def canonical_json(value: Any) -> str:
    """Return a value as JSON text that does not depend on the order of its keys."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True)


def load_json(text: str | bytes, **hooks: Any) -> Any:
    """Parse `text` as JSON with the hooks of `json.loads`. Raises ValueError for NaN, too."""

    def no_constant(name: str) -> None:
        raise ValueError(f"{name} is not JSON")

    try:
        return json.loads(text, parse_constant=no_constant, **hooks)
    except RecursionError:
        raise ValueError("nested too deep") from None


def _parse_json(text: str, visible: str, schema: Mapping[str, Any]) -> ParsedAnswer:
    try:
        value = load_json(text)
    except ValueError as error:
        return ParsedAnswer(None, visible, f"the output is not JSON: {str(error)[:200]}")
    misfit = next(iter(_validator(json.dumps(schema, sort_keys=True)).iter_errors(value)), None)
    if misfit is not None:
        reason = f"the JSON does not fit the schema: {misfit.message[:200]}"
        return ParsedAnswer(None, visible, reason)
    if isinstance(value, dict):
        required = schema.get("required") or []
        if "answer" in value:
            value = value["answer"]
        elif len(required) == 1:
            value = value[required[0]]
    answer = value if isinstance(value, str) else canonical_json(value)
    return ParsedAnswer(answer, visible, value=value)


@lru_cache(maxsize=16)
def _validator(schema: str) -> Any:
    from jsonschema.exceptions import SchemaError
    from jsonschema.validators import validator_for

    document = json.loads(schema)
    kind = validator_for(document)
    try:
        kind.check_schema(document)
    except SchemaError as error:
        raise StudyError(
            f"The study's output_schema is not a JSON Schema: {error.message}; correct it."
        ) from error
    return kind(document)
